"""Cumulative regret on linear MDPs, where the optimum is known (paper, section 2).

  python -m experiments.regret "LSVI-UCB=runs/lsvi_ucb_linear_mdp" runs/ob2i_linear_mdp --out D

The regret of an episode is what its actions cost against the best ones, the sum of V*_h(s_h) -
Q*_h(s_h, a_h) over its steps, exploration included: its expectation is that of V*_1(s_1) less the
episode's rewards, without their noise. What a run did is read from its replay. The regret of an
agent that learns grows more slowly than the number n of episodes: summary.csv has the exponent p of
n^p that fits the second half of a run (a line through its logarithms), 1 for one that never learns.

Writes regret.csv, summary.csv, regret.png and regret.svg.
Exit status: 0 written, 1 it could not be, 2 the command line is wrong.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

from ob2i_tf import cli
from ob2i_tf.environments import linear_mdp
from ob2i_tf.errors import UserError, missing_package
from ob2i_tf.training import checkpoints

try:
    import pandas as pd

    from ob2i_tf.analysis import figures, load
except ModuleNotFoundError as error:
    if __name__ != '__main__':
        raise
    sys.exit(f'error: {missing_package(error, "analysis")}')

_KEYS = [
    f'make_linear_mdp.{key}'
    for key in ('kind', 'num_states', 'num_actions', 'horizon', 'num_features', 'mdp_seed')
]
POINTS = 100  # Of a curve, in the table and in the figure.


def of_run(run) -> np.ndarray:
    """The regret after each episode, [episodes].

    Raises:
      UserError: the run has no checkpoint, or its replay lacks the first episodes.
    """
    mdp = linear_mdp.draw_mdp(*(run.config[key] for key in _KEYS))
    q_values = mdp.optimal_values()
    costs = q_values.max(axis=-1, keepdims=True) - q_values  # [H, S, A]
    regrets = []
    for lengths, actions, frames in _stored(run.path):
        count, ends = len(actions), np.cumsum(lengths)
        steps = np.arange(count) - np.repeat(ends - lengths, lengths)
        # An episode has one frame more than it has steps.
        frames = frames[np.arange(count) + np.repeat(np.arange(len(lengths)), lengths)]
        features = frames.reshape(count, frames.shape[1], mdp.horizon, -1)
        features = features[np.arange(count), :, steps]  # [count, A, d]
        apart = np.abs(features[:, None] - mdp.features).sum(axis=(2, 3))
        taken = costs[steps, apart.argmin(axis=1), actions]
        regrets.append(np.add.reduceat(taken, ends - lengths))
    return np.cumsum(np.concatenate([[], *regrets]))


def _stored(folder):
    """(lengths, actions, frames) of the episodes in each file of the newest checkpoint's replay."""
    manifests = []
    checkpoints.read_newest(
        folder / 'checkpoints',
        lambda path: manifests.append(json.loads((path / 'state.json').read_text())['replay']),
    )
    if not manifests:
        raise UserError(f'{folder} holds no checkpoint')
    try:
        (replay,) = manifests
        if replay['first_id']:
            raise UserError(
                f'the replay of {folder} holds no more the first {replay["first_id"]} episodes; '
                'EpisodeReplay.capacity_transitions must hold the whole run'
            )
        for segment in replay['segments']:
            with np.load(folder / 'replay' / segment['file'], allow_pickle=False) as arrays:
                yield arrays['lengths'], arrays['steps']['action'], arrays['frames']
    except UserError:
        raise
    except Exception as error:  # A damaged file may hold anything.
        raise UserError(f'the replay of {folder} cannot be read: {error!r}') from error


def curves(runs) -> pd.DataFrame:
    """[episode, (method, seed)], at POINTS episodes that all runs have.

    A run that cannot be read or has no episode is left out, and becomes one of `runs.problems`, as
    does one that is shorter than others and ends all curves.

    Raises:
      UserError: no run of a linear MDP is left.
    """
    found = {}
    for run in runs.runs:
        if run.game != 'LinearMDP' or load.bound(run, _KEYS, runs.problems) is None:
            continue
        try:
            regret = of_run(run)
        except UserError as error:
            runs.problems.append(f'{run.path}: left out: {error}')
            continue
        if len(regret):
            found[run.method, run.seed] = regret
        else:
            runs.problems.append(f'{run.path}: left out: it has no episode')
    if not found:
        raise UserError('; '.join(['no run of a linear MDP that can be read', *runs.problems]))
    shortest = min(found, key=lambda key: len(found[key]))
    count = len(found[shortest])
    if count < max(map(len, found.values())):
        runs.problems.append(
            f'curves end at {count} episodes, all that seed {shortest[1]} of {shortest[0]} has'
        )
    episodes = np.unique(np.linspace(1, count, POINTS).astype(int))
    table = pd.DataFrame({key: regret[episodes - 1] for key, regret in found.items()}, episodes)
    table.columns.names, table.index.name = ['method', 'seed'], 'episode'
    return table


def exponent(curve) -> float:
    """p of n^p through the second half of a curve over episodes; NaN where it is 0."""
    half = curve[(curve.index > curve.index[-1] / 2) & (curve > 0)]
    return np.polyfit(np.log(half.index), np.log(half), 1)[0] if len(half) > 1 else np.nan


def summary(table) -> pd.DataFrame:
    """Of each method, over seeds: regret at the end and exponent of the second half."""
    rows = []
    for method, of_seeds in table.T.groupby('method'):
        regrets = of_seeds.iloc[:, -1]
        exponents = of_seeds.apply(exponent, axis=1)
        rows.append(
            {
                'method': method,
                'seeds': len(of_seeds),
                'episodes': table.index[-1],
                'regret': regrets.mean(),
                'lowest': regrets.min(),
                'highest': regrets.max(),
                'exponent': exponents.quantile(0.5),
                'lowest_exponent': exponents.min(),
                'highest_exponent': exponents.max(),
            }
        )
    return pd.DataFrame(rows).sort_values('regret')


def figure(table):
    """Regret over episodes: the seeds, and their mean."""
    import matplotlib.pyplot as plt

    look = figures.line_styles(set(table.columns.get_level_values('method')))
    with figures.style():
        picture, axis = plt.subplots(figsize=(5.6, 3.3), layout='constrained')
        lines = {}
        for method, of_seeds in table.T.groupby('method'):
            axis.plot(table.index, of_seeds.T, lw=0.7, alpha=0.5, color=look[method]['color'])
            (lines[method],) = axis.plot(table.index, of_seeds.mean(), lw=1.8, **look[method])
        axis.set_xlabel('episodes')
        axis.set_ylabel('cumulative regret')
        figures.legend(picture, lines)
        caption = 'Cumulative regret over episodes, thin of each seed, thick their mean'
        return figures.rendered('regret', 'Regret on a linear MDP', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m experiments.regret',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('runs', nargs='+', metavar='RUNS', help='a folder, or NAME=FOLDER')
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
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
        (out / 'regret.svg').write_text(picture.svg, encoding='utf-8')
    except (UserError, OSError) as error:
        print('error:', ' '.join(str(error).split()), file=sys.stderr)
        return 1
    for problem in runs.problems:
        print('note:', problem, file=sys.stderr)
    print(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
