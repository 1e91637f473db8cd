"""Relative lengths in mazes: a tidy table, the curves of the paper's maze figure, and summaries.

  python -m experiments.mnist_maze runs/mazes --out report [--evaluation evaluation.csv]

The relative length of an episode is its length over that of the maze's shortest path (paper,
appendix C). An episode that misses the goal has the length at which the time limit cut it off.
These episodes count:
- training episodes, which include exploration and are probably those of the paper's figure, except
  those cut off by the end of an iteration;
- games of the run's evaluations that started early enough to end in any case. (An evaluation ends
  after a fixed number of steps, which would otherwise hide failures, since these are long.)
- with --evaluation, the games that `python -m ob2i_tf.evaluate` played at the end of the run.

Writes into the folder: episodes.csv, one row per episode; curves.csv, training episodes in bins of
agent steps; runs.csv, the end of each run; summary.csv, over mazes; comparison.csv, methods on the
same mazes; relative_length.png, .svg and .pdf.
Exit status: 0 if written, 1 if not, 2 for a wrong command line.
"""

import math
import os
import sys
from pathlib import Path

import numpy as np

from ob2i_tf import cli
from ob2i_tf.environments import mnist_maze
from ob2i_tf.errors import UserError
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('analysis'):
    import pandas as pd
    from scipy import stats

    from ob2i_tf.analysis import figures, load

_MAZE_KEYS = ('wall_density', 'maze_seed', 'max_episode_steps', 'goal_reward', 'bump_reward')
_RUNNER_KEYS = ('seed', 'evaluation_steps', 'training_steps', 'num_iterations')
_KEYS = [
    *(f'make_mnist_maze.{key}' for key in _MAZE_KEYS),
    *(f'Runner.{key}' for key in _RUNNER_KEYS),
]
_MAZE = ['method', 'wall_density', 'maze_seed']
_RUN = [*_MAZE, 'seed']
_OWN = ('training', 'evaluation')  # Games that a run itself played.
LAST = 0.1  # The end of a run, as a share of its agent steps.
BIN_STEPS = 10_000  # Agent steps.


def episodes(runs, evaluation=None) -> pd.DataFrame:
    """All episodes of the maze runs, one per row.

    `played` is 'training', 'evaluation', or the preferences of `ob2i_tf.evaluate`. `agent_steps` is
    the number that the run had taken at the end of the episode, `run_steps` at the end of the run;
    a run was `cut_short` if its configuration asks for more.

    Args:
      runs: load.Runs, to which a problem is added for each run that is left out.
      evaluation: Table that `ob2i_tf.evaluate` wrote, or None.

    Raises:
      UserError: None of the runs is on a maze.
    """
    mazes = [run for run in runs.runs if run.game.startswith('MnistMaze')]
    by_run = {}
    if evaluation is not None:
        by_run = {Path(run).resolve(): games for run, games in evaluation.groupby('run')}
    for path in by_run.keys() - {run.path.resolve() for run in mazes}:
        runs.problems.append(f'{path}: evaluated, but not among the runs')
    parts = []
    for run in mazes:
        config = load.bound(run, _KEYS, runs.problems)
        if config:
            parts.append(_of_run(run, config, by_run.get(run.path.resolve()), runs.problems))
    if not parts:
        raise UserError('none of the runs is on an MNIST maze')
    return pd.concat(parts, ignore_index=True)


def _of_run(run, config, evaluated, problems):
    density, maze, limit, goal, bump, seed, evaluation_steps, *plan = config.values()
    training = load.read_csv(
        RunFolder(run.path).table('episodes'),
        ('frames', 'score', 'length'),
        lambda problem: problems.append(f'{run.path}: {problem}'),
    )
    parts = [training.assign(played='training')]
    if evaluated is not None:
        parts.append(evaluated.rename(columns={'agent_steps': 'frames', 'preferences': 'played'}))
    # Start times are known only for a single environment.
    if evaluation_steps and run.config.get('Runner.evaluation_envs', 1) == 1:
        games = run.games.dropna()
        started = games.groupby('iteration')['length'].cumsum() - games['length']
        in_time = games[started <= evaluation_steps - limit]
        parts.append(in_time.assign(played='evaluation'))
    rows = pd.concat([part[['played', 'frames', 'score', 'length']] for part in parts]).dropna()
    run_steps = int(max([0, *run.train['frames'], *rows['frames']]))  # A frame is an agent step.
    early = ~rows['played'].isin(_OWN) & (rows['frames'] < run_steps)
    if early.any():
        problems.append(
            f'{run.path}: {early.sum()} evaluated games were played before the end of the run, and '
            'are left out'
        )
        rows = rows[~early]
    walls = mnist_maze.draw_walls(
        density, maze, run.config.get('make_mnist_maze.exact_wall_count', False)
    )
    shortest = mnist_maze.shortest_path(walls)
    # With the usual rewards, `limit` bumps cost no more than the goal pays.
    reached = rows['score'] > 0 if goal + bump * limit >= 0 else rows['length'] < limit
    return pd.DataFrame(
        {
            'method': run.method,
            'wall_density': density,
            'maze_seed': maze,
            'seed': seed,
            'run_steps': run_steps,
            'cut_short': run_steps < math.prod(plan),
            'walls': walls.mean(),
            'played': rows['played'],
            'agent_steps': rows['frames'].astype(int),
            'length': rows['length'].astype(int),
            'shortest_path': shortest,
            'relative_length': rows['length'] / shortest,
            'reached_goal': reached,
        }
    )


def read_evaluation(path) -> pd.DataFrame:
    """The table that `ob2i_tf.evaluate` wrote; raises a UserError for any other file."""
    try:
        table = pd.read_csv(path, encoding_errors='surrogateescape')
    except (OSError, ValueError) as error:
        raise UserError(f'{path} cannot be read: {error}') from error
    missing = {'run', 'agent_steps', 'preferences', 'score', 'length'} - set(table)
    if missing:
        raise UserError(f'{path} lacks the columns {", ".join(sorted(missing))}')
    return table


def per_run(table) -> pd.DataFrame:
    """Median relative length and share of goals of each run, at its end.

    Training episodes and evaluations count if they ended in the last tenth of the run, other games
    always.
    """
    late = table['agent_steps'] > table['run_steps'] * (1 - LAST)
    grouped = table[late | ~table['played'].isin(_OWN)].groupby([*_RUN, 'played'])
    return grouped.agg(
        run_steps=('run_steps', 'first'),
        cut_short=('cut_short', 'first'),
        walls=('walls', 'first'),
        relative_length=('relative_length', 'median'),
        reached_goal=('reached_goal', 'mean'),
        episodes=('length', 'size'),
    ).reset_index()


def per_maze(of_runs) -> pd.DataFrame:
    """Means over the seeds of a maze, for runs that were not cut short."""
    complete = of_runs[~of_runs['cut_short']]
    values = ['relative_length', 'reached_goal']
    return complete.groupby([*_MAZE, 'played'])[values].mean().reset_index()


def summary(of_mazes) -> pd.DataFrame:
    """Over mazes: median, quartiles and mean of the relative length; share of goals."""
    grouped = of_mazes.groupby(['wall_density', 'played', 'method'])
    lengths = grouped['relative_length']
    return pd.DataFrame(
        {
            'mazes': grouped.size(),
            'median': lengths.median(),
            'lower_quartile': lengths.quantile(0.25),
            'upper_quartile': lengths.quantile(0.75),
            'mean': lengths.mean(),
            'reached_goal': grouped['reached_goal'].mean(),
        }
    ).reset_index()


def curves(table, bin_steps=BIN_STEPS) -> pd.DataFrame:
    """Relative length of training episodes: [bin, run], the mean in each bin of agent steps.

    A bin in which no episode ended has the value of the previous one, up to the end of the run.
    """
    table = table.copy()
    for steps in ('agent_steps', 'run_steps'):
        table[steps] = -(-table[steps] // bin_steps) * bin_steps
    training = table[table['played'] == 'training']
    means = training.groupby(['agent_steps', *_RUN])['relative_length'].mean().unstack(_RUN)
    ends = table.groupby(_RUN)['run_steps'].max()
    return means.ffill().apply(lambda run: run.where(run.index <= ends[run.name]))


def _over_seeds(of_runs):
    """[bin, maze] of [bin, run]."""
    return of_runs.T.groupby(level=_MAZE).mean().T


def comparison(of_runs, of_mazes) -> pd.DataFrame:
    """Each method's relative length over that of OB2I, or of the first method, on the same mazes.

    A row has the geometric mean of the ratios over mazes that both methods ran, its 95% interval
    (Student's t of the logarithms), and the number of ratios above 1, that is, of mazes on which
    the first was better. A row covers one density, or 'all' mazes of any density.

    Args:
      of_runs: Result of `curves`; compared at each bin of agent steps.
      of_mazes: Result of `per_maze`; compared at the end.
    """
    tables = [('training', _over_seeds(of_runs))]
    for played, rows in of_mazes.groupby('played'):
        tables.append((played, rows.set_index(_MAZE)[['relative_length']].T.set_axis(['end'])))
    found = []
    for played, table in tables:
        first, *others = figures.line_styles(set(table.columns.get_level_values('method')))
        for method in others:
            logs = (np.log(table[method]) - np.log(table[first])).dropna(axis=1, how='all')
            densities = sorted(set(logs.columns.get_level_values('wall_density')))
            groups = {density: logs[[density]] for density in densities}
            groups |= {'all': logs} if len(groups) > 1 else {}
            for density, group in groups.items():
                mazes, mean = group.count(axis=1), group.mean(axis=1)
                half = stats.t.ppf(0.975, mazes - 1) * group.sem(axis=1)  # NaN for one maze.
                rows = pd.DataFrame(
                    {
                        'played': played,
                        'agent_steps': group.index,
                        'wall_density': density,
                        'method': method,
                        'over': first,
                        'mazes': mazes,
                        'ratio': np.exp(mean),
                        'low': np.exp(mean - half),
                        'high': np.exp(mean + half),
                        'above_1': (group > 0).sum(axis=1),
                    }
                )
                found.append(rows[mazes > 0])
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def figure(of_runs):
    """Training episodes over agent steps: median over mazes and quartiles, one panel per density.

    Args:
      of_runs: Result of `curves`.
    """
    look = figures.line_styles(set(of_runs.columns.get_level_values('method')))
    densities = of_runs.T.groupby('wall_density')
    with figures.style():
        picture, axes = figures.grid(len(densities))
        lines = {}
        for axis, (density, chosen) in zip(axes, densities):
            by_method = chosen.groupby('method')
            counts = set()
            for method, runs in by_method:
                mazes = _over_seeds(runs.T.dropna())  # As far as all runs reach.
                low, middle, high = (mazes.quantile(q, axis=1) for q in (0.25, 0.5, 0.75))
                figures.band(axis, middle.index, low, high, look[method]['color'])
                lines[method] = figures.plot(axis, middle.index, middle, lw=1.6, **look[method])
                counts.add(len(mazes.columns))
            counts = '-'.join(map(str, sorted({min(counts), max(counts)})))
            axis.set_title(f'{100 * density:g}% wall density, mazes: {counts}')
            axis.set_yscale('log')
            axis.set_yticks([1, 2, 5, 10, 20, 50], ['1', '2', '5', '10', '20', '50'])
            axis.minorticks_off()
            shortest = axis.axhline(1, color=figures.INK, lw=0.7, ls=(0, (1, 2)))
            axis.xaxis.set_major_formatter(lambda value, _: figures.short(value))
            axis.set_xlabel('agent steps')
        picture.supylabel('relative length of training episodes', fontsize=9)
        lines |= {'quartiles over mazes': figures.BAND, 'shortest path': shortest}
        figures.legend(picture, lines)
        caption = (
            'Training episodes over agent steps, median and quartiles over mazes, as far as all '
            'runs reach; the dotted line is the shortest path, which slips make unattainable'
        )
        return figures.rendered('relative_length', 'Relative length', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.mnist_maze', __doc__)
    parser.add_argument('runs', nargs='+', metavar='RUNS', help='a folder, or NAME=FOLDER')
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    parser.add_argument('--evaluation', type=os.path.expanduser, metavar='FILE')
    arguments = parser.parse_args(argv)

    runs = load.load(arguments.runs)
    table = episodes(runs, arguments.evaluation and read_evaluation(arguments.evaluation))
    ends, of_runs = per_run(table), curves(table)
    if not of_runs.size:
        raise UserError('; '.join(['no training episode has ended yet', *runs.problems]))
    lengths = sorted(set(ends.loc[~ends['cut_short'], 'run_steps']))
    if len(lengths) > 1:
        runs.problems.append(f'runs of different lengths are aggregated: {lengths}')
    of_mazes = per_maze(ends)
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in (
        ('episodes', table),
        ('runs', ends),
        ('summary', summary(of_mazes)),
        ('curves', of_runs.unstack().rename('relative_length').dropna().reset_index()),
        ('comparison', comparison(of_runs, of_mazes)),
    ):
        rows.to_csv(out / f'{name}.csv', index=False, float_format='%.4g')
    figure(of_runs).save(out)
    for problem in runs.problems:
        print('note:', problem, file=sys.stderr)
    print(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
