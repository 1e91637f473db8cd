"""Cumulative regret on linear MDPs, where the optimum is known (paper, section 2).

  python -m experiments.regret "LSVI-UCB=runs/lsvi_ucb_linear_mdp" runs/ob2i_linear_mdp --out D

The regret of an episode is the sum of V*_h(s_h) - Q*_h(s_h, a_h) over its steps, exploration
included. Its expectation is that of V*_1(s_1) minus the episode's rewards, but it lacks their
noise. It is computed from the episodes in the run's replay. If an agent learns, its regret grows
more slowly than the number n of episodes: summary.csv has the exponent p of n^p fitted to the
second half of a run (a line through the logarithms), which is 1 for an agent that never learns.

Writes regret.csv, summary.csv, and regret.png, .svg and .pdf.
Exit status: 0 if written, 1 if not, 2 for a wrong command line.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from backports.zstd import zipfile

from ob2i_tf import cli
from ob2i_tf.environments import linear_mdp
from ob2i_tf.errors import UserError
from ob2i_tf.training import checkpoints
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('analysis'):
    import pandas as pd

    from ob2i_tf.analysis import figures, load

_MDP = ('kind', 'num_states', 'num_actions', 'horizon', 'num_features', 'mdp_seed')
_KEYS = [f'make_linear_mdp.{key}' for key in _MDP]
POINTS = 100  # Per curve, in the table and the figure.


def of_run(run) -> np.ndarray:
    """The regret after each episode, [episodes].

    Raises:
      UserError: The run has no checkpoint, or its replay lacks the first episodes.
    """
    mdp = linear_mdp.draw_mdp(*(run.config[key] for key in _KEYS))
    return np.cumsum([mdp.gaps(*episode).sum() for episode in _episodes(run.path)])


def _episodes(folder):
    """(observations, actions) of each episode in replay, as of the newest intact checkpoint."""
    states, run_folder = [], RunFolder(folder)
    checkpoints.read_newest(
        run_folder.checkpoints,
        lambda path: states.append(json.loads((path / 'state.json').read_text())),
    )
    if not states:
        raise UserError(f'{folder} holds no checkpoint')
    replay = states[0]['replay']
    if replay['first_id']:
        raise UserError(
            f'the replay of {folder} no longer holds the first {replay["first_id"]} episodes; '
            'EpisodeReplay.capacity_transitions must hold the entire run'
        )
    for segment in replay['segments']:
        path = run_folder.replay / segment['file']
        try:
            with zipfile.ZipFile(path) as archive:
                lengths, frames, steps = (
                    np.lib.format.read_array(archive.open(f'{name}.npy'), allow_pickle=False)
                    for name in ('lengths', 'frames', 'steps')
                )
        except Exception as error:  # A damaged file may hold anything.
            raise UserError(f'{path} cannot be read: {error!r}') from error
        yield from zip(  # An episode has one frame more than it has steps.
            np.split(frames, np.cumsum(lengths + 1)[:-1]),
            np.split(steps['action'], np.cumsum(lengths)[:-1]),
        )


def curves(runs) -> pd.DataFrame:
    """[episode, (method, seed)], at POINTS episodes that all runs have.

    A line is added to `runs.problems` for each run that is left out because it is unreadable or has
    no episode, and for the shortest run if it cuts off the curves of others.

    Raises:
      UserError: No run on a linear MDP remains.
    """
    found = {}
    for run in runs.runs:
        if run.game != 'LinearMDP':
            continue
        try:
            missing = [key for key in _KEYS if key not in run.config]
            if missing:
                raise UserError(f'its config.gin lacks {", ".join(missing)}')
            regret = of_run(run)
            if not len(regret):
                raise UserError('it has no episode')
        except UserError as error:
            runs.problems.append(f'{run.path}: left out: {error}')
        else:
            found[run.method, run.seed] = regret
    if not found:
        raise UserError('; '.join(['no readable run on a linear MDP', *runs.problems]))
    (method, seed), shortest = min(found.items(), key=lambda item: len(item[1]))
    count = len(shortest)
    if count < max(map(len, found.values())):
        runs.problems.append(
            f'curves end at {count} episodes, all that seed {seed} of {method} has'
        )
    episodes = np.unique(np.linspace(1, count, POINTS).astype(int))
    table = pd.DataFrame({key: regret[episodes - 1] for key, regret in found.items()}, episodes)
    return table.rename_axis(index='episode', columns=['method', 'seed'])


def exponent(curve) -> float:
    """p of n^p fitted to the second half of a curve over episodes; NaN where that is 0."""
    half = curve[(curve.index > curve.index[-1] / 2) & (curve > 0)]
    return np.polyfit(np.log(half.index), np.log(half), 1)[0] if len(half) > 1 else np.nan


def summary(table) -> pd.DataFrame:
    """Per method, over seeds: regret at the end and exponent of the second half."""
    ends = table.iloc[-1].to_frame('regret').assign(exponent=table.apply(exponent))
    by_method = ends.groupby('method')
    return by_method.agg(
        seeds=('regret', 'size'),
        episodes=('regret', lambda _: table.index[-1]),
        regret=('regret', 'mean'),
        lowest=('regret', 'min'),
        highest=('regret', 'max'),
        exponent=('exponent', 'median'),
        lowest_exponent=('exponent', 'min'),
        highest_exponent=('exponent', 'max'),
    ).sort_values('regret')


def figure(table):
    """Regret over episodes: each seed, and the mean."""
    look = figures.line_styles(set(table.columns.get_level_values('method')))
    with figures.style():
        picture = figures.empty(figures.NARROW, 3.3)
        axis = picture.subplots()
        lines = {}
        for method, of_seeds in table.T.groupby('method'):
            axis.plot(table.index, of_seeds.T, lw=0.7, alpha=0.5, color=look[method]['color'])
            lines[method] = figures.plot(axis, table.index, of_seeds.mean(), lw=1.8, **look[method])
        axis.set_xlabel('episodes')
        axis.set_ylabel('cumulative regret')
        figures.legend(picture, lines | {'one seed': figures.SEED})
        caption = 'Cumulative regret over episodes. Thin: seeds. Thick: their mean'
        return figures.rendered('regret', 'Regret on a linear MDP', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.regret', __doc__)
    parser.add_argument('runs', nargs='+', metavar='RUNS', help='a folder, or NAME=FOLDER')
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    arguments = parser.parse_args(argv)
    runs = load.load(arguments.runs)
    table = curves(runs)
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    long = table.stack(['method', 'seed'], future_stack=True).rename('regret').reset_index()
    long.to_csv(out / 'regret.csv', index=False, float_format='%.5g')
    summary(table).to_csv(out / 'summary.csv', float_format='%.4g')
    figure(table).save(out)
    for problem in runs.problems:
        print('note:', problem, file=sys.stderr)
    print(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
