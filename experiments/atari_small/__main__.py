"""Evaluation scores of OB2I on two games, over agent steps.

  python -m experiments.atari_small --out experiments/atari_small

Draws curves.png, .svg and .pdf from the CSV files beside this script: <game>/<seed>/eval.csv
and <game>/random/eval.csv. Bands are one standard error of the mean over the games of an
evaluation.
"""

import os
import sys
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('analysis'):
    import pandas as pd

    from ob2i_tf.analysis import figures

HERE = Path(__file__).parent


def figure(folder):
    """One panel per game of the folder, one curve per seed."""
    games = sorted(path for path in folder.iterdir() if (path / 'seed0').is_dir())
    with figures.style():
        picture, axes = figures.grid(len(games))
        lines = {}
        for axis, game in zip(axes, games):
            for color, seed in zip(figures.COLOURS, sorted(game.glob('seed*'))):
                table = pd.read_csv(RunFolder(seed).table('eval'))
                steps, score = table['frames'] / 4, table['score_mean']
                error = table['score_std'] / table['episodes'] ** 0.5
                (lines[f'OB2I, {seed.name}'],) = axis.plot(steps, score, 'o-', ms=3, color=color)
                figures.band(axis, steps, score - error, score + error, color)
            random = pd.read_csv(RunFolder(game / 'random').table('eval'))['score_mean'].item()
            lines['random policy'] = axis.axhline(random, color=figures.INK, lw=0.7, ls='--')
            axis.set(title=game.name, xlabel='agent steps', xlim=0)
            axis.xaxis.set_major_formatter(lambda value, _: figures.short(value))
        picture.supylabel('evaluation score', fontsize=9)
        figures.legend(picture, lines | {'one standard error': figures.BAND})
        return figures.rendered('curves', 'OB2I on two games', 'Evaluation scores', picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.atari_small', __doc__)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    out = Path(parser.parse_args(argv).out)
    out.mkdir(parents=True, exist_ok=True)
    figure(HERE).save(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
