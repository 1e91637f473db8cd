"""Cumulative regret on linear MDPs, where the optimum is known (paper, section 2).

  python -m ob2i_tf.analysis.regret "LSVI-UCB=runs/lsvi_ucb_linear_mdp" runs/ob2i_linear_mdp --out D

The regret after n episodes is n V* less the rewards of those episodes, exploration included. That
of an agent that learns grows more slowly than n: the table has, for each method, the exponent p of
n^p that fits the second half of the run (a line through its logarithms), 1 for one that never
learns.

Writes regret.csv, summary.csv, regret.png and regret.svg.
Exit status: 0 written, 1 it could not be, 2 the command line is wrong.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from ob2i_tf.environments import linear_mdp
from ob2i_tf.errors import UserError, missing_package

try:
    import pandas as pd

    from ob2i_tf.analysis import figures, load
except ModuleNotFoundError as error:
    if __name__ != '__main__':
        raise
    sys.exit(missing_package(error, 'analysis'))

POINTS = 100  # Of a curve, in the table and in the figure.


def of_run(run, problems) -> np.ndarray:
    """The regret after each episode, [episodes]."""
    keys = ('kind', 'num_states', 'num_actions', 'horizon', 'num_features', 'mdp_seed')
    mdp = linear_mdp.draw_mdp(*(run.config[f'make_linear_mdp.{key}'] for key in keys))
    rows = load.read_csv(run.path / 'episodes.csv', ('frames', 'score', 'length'), problems.append)
    whole = rows[rows['length'] == mdp.horizon]  # The end of an iteration cuts one short.
    return np.cumsum(mdp.optimal_return - whole['score'].to_numpy())


def curves(runs) -> pd.DataFrame:
    """[episode, (method, seed)], at POINTS episodes that all runs have.

    Raises:
      UserError: no run is of a linear MDP, or one has no episode.
    """
    found = {
        (run.method, run.seed): of_run(run, runs.problems) for run in runs.runs
        if 'make_linear_mdp.kind' in run.config
    }  # fmt: skip
    if not found or not all(map(len, found.values())):
        raise UserError('none of the runs is one of a linear MDP, or one has no finished episode')
    count = min(map(len, found.values()))
    episodes = np.unique(np.linspace(1, count, POINTS).astype(int))
    table = pd.DataFrame({key: regret[episodes - 1] for key, regret in found.items()}, episodes)
    table.columns.names, table.index.name = ['method', 'seed'], 'episode'
    return table


def summary(table) -> pd.DataFrame:
    """Of each method: regret at the end with its 95% interval, exponent of the second half."""
    rows = []
    half = table[table.index > table.index[-1] / 2]
    for method, of_seeds in half.T.groupby('method'):
        mean, low, high = figures.interval_of_mean(of_seeds.T)
        growing = mean[mean > 0]
        exponent = np.nan
        if len(growing) > 1:
            exponent = np.polyfit(np.log(growing.index), np.log(growing), 1)[0]
        rows.append({
            'method': method, 'seeds': len(of_seeds), 'episodes': table.index[-1],
            'regret': mean.iloc[-1], 'low': low[-1], 'high': high[-1], 'exponent': exponent,
        })  # fmt: skip
    return pd.DataFrame(rows).sort_values('regret')


def figure(table):
    """Regret over episodes: the mean over seeds and its 95% bootstrap interval."""
    import matplotlib.pyplot as plt

    look = figures.looks(set(table.columns.get_level_values('method')))
    with figures.style():
        picture, axis = plt.subplots(figsize=(5.6, 3.3), layout='constrained')
        lines = {}
        for method, of_seeds in table.T.groupby('method'):
            mean, low, high = figures.interval_of_mean(of_seeds.T)
            axis.fill_between(
                table.index, low, high, color=look[method]['color'], alpha=0.18, lw=0
            )
            (lines[method],) = axis.plot(table.index, mean, lw=1.6, **look[method])
        axis.set_xlabel('episodes')
        axis.set_ylabel('cumulative regret')
        figures.legend(picture, lines)
        caption = 'Cumulative regret over episodes, mean over seeds with its 95% interval'
        return figures.rendered('regret', 'Regret on a linear MDP', caption, picture)


def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m ob2i_tf.analysis.regret', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument('runs', nargs='+', metavar='RUNS', help='a folder, or NAME=FOLDER')
    parser.add_argument('--out', required=True, metavar='DIR')
    arguments = parser.parse_args(argv)
    try:
        runs = load.load(arguments.runs)
        table = curves(runs)
        out = Path(arguments.out)
        out.mkdir(parents=True, exist_ok=True)
        long = table.stack(['method', 'seed'], future_stack=True).rename('regret').reset_index()
        long.to_csv(out / 'regret.csv', index=False, float_format='%.5g')
        summary(table).to_csv(out / 'summary.csv', index=False, float_format='%.4g')
        picture = figure(table)
        (out / 'regret.png').write_bytes(picture.png)
        (out / 'regret.svg').write_text(picture.svg)
    except (UserError, OSError) as error:
        print('error:', ' '.join(str(error).split()), file=sys.stderr)
        return 1
    for problem in runs.problems:
        print('note:', problem, file=sys.stderr)
    print(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
