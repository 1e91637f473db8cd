"""Draws curves.png from the CSV files in this folder: python experiments/atari_small/curves.py"""

import csv
from pathlib import Path

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot

HERE = Path(__file__).parent


def rows(path):
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


def column(table, name):
    return [float(row[name]) for row in table]


def main():
    games = sorted(path.name for path in HERE.iterdir() if (path / 'seed0').is_dir())
    figure, axes = pyplot.subplots(1, len(games), figsize=(5 * len(games), 3.6), squeeze=False)
    for axis, game in zip(axes[0], games):
        for color, folder in zip(('C0', 'C1'), sorted((HERE / game).glob('seed*'))):
            table = rows(folder / 'eval.csv')
            steps = [frames / 4000 for frames in column(table, 'frames')]
            scores = column(table, 'score_mean')
            axis.plot(steps, scores, 'o-', color=color, label=f'OB2I, {folder.name}')
            errors = [
                std / episodes**0.5
                for std, episodes in zip(column(table, 'score_std'), column(table, 'episodes'))
            ]
            axis.fill_between(
                steps,
                [s - e for s, e in zip(scores, errors)],
                [s + e for s, e in zip(scores, errors)],
                color=color,
                alpha=0.2,
                linewidth=0,
            )
        (random,) = rows(HERE / game / 'random' / 'eval.csv')
        axis.axhline(float(random['score_mean']), color='gray', ls='--', label='random buttons')
        axis.set(title=game, xlabel='thousand agent steps', ylabel='evaluation score', xlim=0)
        axis.legend()
    figure.tight_layout()
    figure.savefig(HERE / 'curves.png', dpi=110)


if __name__ == '__main__':
    main()
