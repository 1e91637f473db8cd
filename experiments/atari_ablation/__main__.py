"""The ablation on small Atari: scores, and the size of the bonus.

  python -m experiments.atari_ablation --out experiments/atari_ablation

Reads the runs beside this script, <method>/<game>/<seed>/. A score is the mean of the last
evaluation. Writes

  scores.csv   the score of each run
  table.csv    mean scores over seeds, methods x games, beside the paper's
  summary.csv  human-normalised scores over the games that all methods have played
  bonus.csv    the bonus and the gap between actions, in each iteration of each run
  curves.png, .svg and .pdf
"""

import os
import sys
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('analysis'):
    import pandas as pd

    from ob2i_tf.analysis import figures, load, scores

HERE = Path(__file__).parent
ITERATIONS = 4  # Of a complete run.
METHODS = {  # Whose folders have these names.
    'OB2I': 'ob2i',
    'BEBU': 'bebu',
    'BEBU-RND': 'bebu_rnd',
    'BootDQN-UCB': 'bootdqn_ucb',
    'BootDQN': 'bootdqn',
    'EBU': 'ebu',
}


def summary(atari):
    """Human-normalised scores by method, over the games that all methods have played.

    Args:
      atari: `Results.atari`.
    """
    counts = atari.groupby('game')['method'].nunique()
    common = counts.index[counts == atari['method'].nunique()]
    table = scores.summary(atari[atari['game'].isin(common)])
    columns = ['method', 'games', 'runs', 'mean', 'mean_low', 'mean_high']
    return table[[*columns, 'iqm', 'iqm_low', 'iqm_high']]


def beside_the_paper(means, known):
    """Mean scores, methods x games, with the paper's of the same games.

    Args:
      means: Games x methods.
      known: `scores.published()`.
    """
    paper = known.ablation.set_index('method').drop(columns=['backward', 'bonus'])
    return means.T.join(paper.add_suffix(', paper'), how='left').rename_axis('method')


def bonuses(runs):
    """The rows of bonus.csv of all runs with a bonus, and what they add to a target.

    `next_bonus_added` is alpha_2 B~, normalised, at the mean; `added_over_gap` divides it by the
    mean gap between a head's best and second-best action.
    """
    tables = []
    for run in runs:
        table = pd.read_csv(RunFolder(run.path).table('bonus'))
        if table.empty:
            continue
        (alpha_2,) = (x for name, x in run.config.items() if name.endswith('Update.alpha_2'))
        table['next_bonus_added'] = alpha_2 * table['next_bonus_normalized_mean']
        table['added_over_gap'] = table['next_bonus_added'] / table['q_gap_mean']
        for column, value in (('seed', run.seed), ('game', run.game), ('method', run.method)):
            table.insert(0, column, value)
        tables.append(table)
    return pd.concat(tables)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.atari_ablation', __doc__)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    out = Path(parser.parse_args(argv).out)
    out.mkdir(parents=True, exist_ok=True)
    found = load.load(f'{name}={HERE / folder}' for name, folder in METHODS.items())
    runs = [run for run in found.runs if len(run.eval) == ITERATIONS]
    results = scores.Results(runs)
    columns = ['method', 'game', 'seed', 'episodes', 'score', 'normalised']
    tables = {
        'scores': results.atari[columns].set_index('method'),
        'table': beside_the_paper(results.means, results.known),
        'summary': summary(results.atari).set_index('method'),
        'bonus': bonuses(runs).set_index('method'),
    }
    for name, table in tables.items():
        table.to_csv(out / f'{name}.csv', float_format='%.6g')
    (figure,) = figures.learning_curves(runs, results.known)
    figure._replace(name='curves').save(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
