"""Relative lengths in mazes: one tidy table, the curves of the paper's maze figure, a summary.

  python -m experiments.mnist_maze runs/mazes --out report [--evaluation evaluation.csv]

The relative length of an episode is its length over that of the maze's shortest path (paper,
appendix C); an episode that does not reach the goal has the length at which the time limit cut it
off. It is taken of training episodes, which explore and which the paper's figure probably shows,
except those that the end of an iteration cut off, and of evaluation episodes; --evaluation adds
games that `python -m ob2i_tf.evaluate` played. An evaluation ends after a number of steps and not
of games, which would hide games that fail, as they are long; so of each evaluation only games count
that began early enough to end in it whatever happened. --earlier names a folder that this command
wrote, whose runs are taken in: those of another machine, or whose folders are gone. Its tables name
methods and not configurations, so that what differs between runs of one method is seen among new
runs only.

Writes into the folder: episodes.csv, a row an episode (of earlier runs none); curves.csv, training
episodes in bins of agent steps; runs.csv, the end of each run; summary.csv, over mazes;
comparison.csv, methods on the same mazes; and relative_length.png and .svg.
Exit status: 0 written, 1 it could not be, 2 the command line is wrong.
"""

import argparse
import io
import math
import os
import sys
from pathlib import Path

import numpy as np

from ob2i_tf import cli
from ob2i_tf.environments import mnist_maze
from ob2i_tf.errors import UserError, missing_package

try:
    import pandas as pd
    from scipy import stats

    from ob2i_tf.analysis import figures, load
except ModuleNotFoundError as error:
    if __name__ != '__main__':
        raise
    sys.exit(f'error: {missing_package(error, "analysis")}')

COLUMNS = (
    'method',
    'wall_density',
    'maze_seed',
    'seed',
    'run_steps',
    'cut_short',
    'walls',
    'played',
    'agent_steps',
    'length',
    'shortest_path',
    'relative_length',
    'reached_goal',
)
_KEYS = (
    'make_mnist_maze.wall_density',
    'make_mnist_maze.maze_seed',
    'make_mnist_maze.max_episode_steps',
    'make_mnist_maze.goal_reward',
    'make_mnist_maze.bump_reward',
    'Runner.seed',
    'Runner.evaluation_steps',
    'Runner.training_steps',
    'Runner.num_iterations',
)
LAST = 0.1  # Of the agent steps of a run: its end, where training episodes are summed up.
BIN_STEPS = 10_000  # Agent steps.


def episodes(runs, evaluation=None) -> pd.DataFrame:
    """All episodes of maze runs, with COLUMNS.

    `played` is 'training', 'evaluation', or what the table of `ob2i_tf.evaluate` calls it;
    `agent_steps` are those that the run had taken at the end of the episode, `run_steps` those that
    it has taken in all; it was `cut_short` if its configuration asks for more.

    Args:
      runs: load.Runs.
      evaluation: a table that `ob2i_tf.evaluate` wrote, or None.

    Raises:
      UserError: no run is of a maze.
    """
    parts = []
    rows_of = _by_run(evaluation, runs)
    for run in runs.runs:
        if not run.game.startswith('MnistMaze'):
            continue
        config = load.bound(run, _KEYS, runs.problems)
        if config is None:
            continue
        density, maze, limit, goal, bump, seed, evaluation_steps, *plan = config.values()
        exact = run.config.get('make_mnist_maze.exact_wall_count', False)
        walls = mnist_maze.draw_walls(density, maze, exact)
        shortest = mnist_maze.shortest_path(walls)
        played = {
            'training': _read(run, 'episodes', runs.problems),
            **rows_of.get(run.path.resolve(), {}),
        }
        if evaluation_steps:
            games = _read(run, 'eval_episodes', runs.problems)
            played['evaluation'] = _fair(games, run.config, limit)
        ends = [0, *run.train['frames'], *(x for t in played.values() for x in t['agent_steps'])]
        for name in played.keys() - {'training', 'evaluation'}:
            last = played[name]['agent_steps'] == max(ends)
            if not last.all():
                runs.problems.append(
                    f'{run.path}: {(~last).sum()} games by {name} were played before the end of '
                    'the run, and are left out'
                )
                played[name] = played[name][last]
        for name, rows in played.items():
            # At most `limit` bumps cost less than the goal pays, unless rewards are unusual.
            reached = rows['score'] > 0 if goal + bump * limit >= 0 else rows['length'] < limit
            parts.append(
                pd.DataFrame(
                    {
                        'method': run.method,
                        'wall_density': density,
                        'maze_seed': maze,
                        'seed': seed,
                        'run_steps': int(max(ends)),
                        'cut_short': max(ends) < math.prod(plan),
                        'walls': walls.mean(),
                        'played': name,
                        'agent_steps': rows['agent_steps'].astype(int),
                        'length': rows['length'].astype(int),
                        'shortest_path': shortest,
                        'relative_length': rows['length'] / shortest,
                        'reached_goal': reached,
                    }
                )
            )
    if not parts:
        raise UserError('none of the runs is one of a MNIST maze')
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]


def _read(run, name, problems):
    columns = ('frames', 'score', 'length', *(['iteration'] if name == 'eval_episodes' else []))
    rows = load.read_csv(
        run.path / f'{name}.csv', columns, lambda what: problems.append(f'{run.path}: {what}')
    )
    whole = rows.dropna()
    if len(whole) < len(rows):
        problems.append(f'{run.path}: {len(rows) - len(whole)} rows of {name}.csv are damaged')
    return whole.rename(columns={'frames': 'agent_steps'})  # A frame is an agent step.


def _read_evaluation(path, problems):
    columns = ('run', 'agent_steps', 'preferences', 'score', 'length')
    try:
        text = Path(path).read_text('utf-8', 'surrogateescape')
        whole, _, rest = text.rpartition('\n')  # It may still be written.
        table = pd.read_csv(io.StringIO(whole))
    except (OSError, ValueError) as error:
        raise UserError(f'{path} cannot be read: {error}') from error
    if not set(columns) <= set(table):
        raise UserError(f'{path} lacks columns: it has {list(table)}, not {columns}')
    for column in ('agent_steps', 'score', 'length'):
        table[column] = pd.to_numeric(table[column], errors='coerce')
    damaged = table[list(columns)].isna().any(axis=1)
    if rest or damaged.any():
        problems.append(f'{path}: {damaged.sum() + bool(rest)} rows are damaged and left out')
    return table[~damaged]


def _fair(games, config, limit):
    """Those that began when an episode of `limit` agent steps would still have ended."""
    if config.get('Runner.evaluation_envs', 1) > 1:  # Nothing tells when they began.
        return games[:0]
    begun = games.groupby('iteration')['length'].cumsum() - games['length']
    return games[begun <= config['Runner.evaluation_steps'] - limit]


def _by_run(evaluation, runs):
    """{run folder: {preferences: rows}} of a table of `ob2i_tf.evaluate`, which may be None."""
    if evaluation is None:
        return {}
    found = {
        Path(run).resolve(): dict(iter(rows.groupby('preferences')))
        for run, rows in evaluation.groupby('run')
    }
    for path in found.keys() - {run.path.resolve() for run in runs.runs}:
        runs.problems.append(f'{path}: evaluated, but none of the runs')
    return found


_MAZE = ['method', 'wall_density', 'maze_seed']
_RUN = [*_MAZE, 'seed']
_END = ['run_steps', 'cut_short', 'walls', 'relative_length', 'reached_goal', 'episodes']


def per_run(table) -> pd.DataFrame:
    """Median relative length and share of goals of each run, at its end.

    Of training episodes those that ended in the last tenth of the run count, of evaluations those
    since then, of other games all. `walls` is the maze's share.
    """
    late = table['agent_steps'] > table['run_steps'] * (1 - LAST)
    others = ~table['played'].isin(['training', 'evaluation'])
    grouped = table[late | others].groupby([*_RUN, 'played'])
    return grouped.agg(
        run_steps=('run_steps', 'first'),
        cut_short=('cut_short', 'first'),
        walls=('walls', 'first'),
        relative_length=('relative_length', 'median'),
        reached_goal=('reached_goal', 'mean'),
        episodes=('length', 'size'),
    ).reset_index()


def per_maze(of_runs) -> pd.DataFrame:
    """Means over the seeds of a maze, of the runs that were not cut short."""
    whole = of_runs[~of_runs['cut_short']]
    values = ['relative_length', 'reached_goal']
    return whole.groupby([*_MAZE, 'played'])[values].mean().reset_index()


def summary(of_mazes) -> pd.DataFrame:
    """Over mazes: median, quartiles and mean of the relative length, share of goals."""
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

    A bin in which no episode ended has what the one before has, up to where the run ends.
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
    (Student's t of the logarithms), and how many ratios are above 1, that is on how many mazes the
    first was better. A row is of one density or of 'all' mazes, of whatever density.

    Args:
      of_runs: what `curves` returns; compared at each bin of agent steps.
      of_mazes: what `per_maze` returns; compared at the end.
    """
    columns = (
        'played',
        'agent_steps',
        'wall_density',
        'method',
        'over',
        'mazes',
        'ratio',
        'low',
        'high',
        'above_1',
    )
    tables = [('training', _over_seeds(of_runs))]
    for played, rows in of_mazes.groupby('played'):
        tables.append((played, rows.set_index(_MAZE)[['relative_length']].T.set_axis(['end'])))
    found = []
    for played, table in tables:
        methods = list(figures.line_styles(set(table.columns.get_level_values('method'))))
        for method in methods[1:]:
            logs = (np.log(table[method]) - np.log(table[methods[0]])).dropna(axis=1, how='all')
            densities = sorted(set(logs.columns.get_level_values('wall_density')))
            groups = {density: logs[[density]] for density in densities}
            groups |= {'all': logs} if len(groups) > 1 else {}
            for density, group in groups.items():
                for steps, row in group.iterrows():
                    known = row.dropna().to_numpy()
                    if len(known):
                        found.append(
                            (
                                played,
                                steps,
                                density,
                                method,
                                methods[0],
                                len(known),
                                *np.exp(_mean_and_interval(known)),
                                int((known > 0).sum()),
                            )
                        )
    return pd.DataFrame(found, columns=columns)


def _mean_and_interval(values):
    """Mean and 95% interval of Student's t, NaN of a single value."""
    mean, half = values.mean(), np.nan
    if len(values) > 1:
        error = values.std(ddof=1) / np.sqrt(len(values))
        half = stats.t.ppf(0.975, len(values) - 1) * error
    return np.array([mean, mean - half, mean + half])


def figure(of_runs):
    """Training episodes over agent steps: median over mazes and quartiles, a panel a density.

    Args:
      of_runs: what `curves` returns.
    """
    of_mazes = _over_seeds(of_runs)
    densities = sorted(set(of_mazes.columns.get_level_values('wall_density')))
    look = figures.line_styles(set(of_mazes.columns.get_level_values('method')))
    with figures.style():
        picture, axes = figures.grid(len(densities))
        lines = {}
        for axis, density in zip(axes, densities):
            chosen = of_mazes.loc[:, of_mazes.columns.get_level_values('wall_density') == density]
            counts = []
            for method, mazes in chosen.T.groupby('method'):
                values = mazes.T
                low, middle, high = (values.quantile(q, axis=1) for q in (0.25, 0.5, 0.75))
                axis.fill_between(
                    values.index, low, high, color=look[method]['color'], alpha=0.18, lw=0
                )
                (lines[method],) = axis.plot(values.index, middle, lw=1.6, **look[method])
                counts.append(values.shape[1])
            mazes = '-'.join(map(str, sorted({min(counts), max(counts)})))
            walls = f'{100 * density:g}% walls asked for'
            axis.set_title(f'{walls}, {mazes} maze{"s" * (max(counts) > 1)}')
            axis.set_yscale('log')
            axis.set_yticks([1, 2, 5, 10, 20, 50], ['1', '2', '5', '10', '20', '50'], minor=False)
            axis.minorticks_off()
            axis.axhline(1, color=figures.INK, lw=0.7, ls=(0, (1, 2)))
            axis.xaxis.set_major_formatter(lambda value, _: figures.short(value))
            axis.set_xlabel('agent steps')
        picture.supylabel('relative length of training episodes', fontsize=9)
        figures.legend(picture, lines)
        caption = (
            'Training episodes over agent steps, median and quartiles over mazes; the dotted line '
            'is the shortest path, which slips put out of reach'
        )
        return figures.rendered('relative_length', 'Relative length', caption, picture)


def read_tables(folder):
    """(ends of runs, curves) as `per_run` and `curves` return them, from a folder of `write`."""
    tables = {}
    for name, keys, values in (
        ('runs', [*_RUN, 'played'], _END),
        ('curves', [*_RUN, 'agent_steps'], ['relative_length']),
    ):
        path = Path(folder) / f'{name}.csv'
        try:
            tables[name] = pd.read_csv(path)
        except (OSError, ValueError) as error:
            raise UserError(f'{path} cannot be read: {error}') from error
        if list(tables[name]) != [*keys, *values]:
            raise UserError(f'{path} has the columns {list(tables[name])}, not {[*keys, *values]}')
        if tables[name].isna().any(axis=None):
            raise UserError(f'{path} is damaged: a value is missing')
        if tables[name].duplicated(keys).any():
            raise UserError(f'{path} is damaged: a row is there twice')
    tidy = tables['curves'].set_index(['agent_steps', *_RUN])
    return tables['runs'], tidy['relative_length'].unstack(_RUN)


def join(new, earlier, problems):
    """Two pairs of (ends of runs, curves) as one.

    Of a run in both the new one counts, unless it was cut short and the earlier one was not.
    """
    known, whole = zip(*map(_known_and_whole, (new, earlier)))
    twice = known[0] & known[1]
    drop_new = twice & (whole[1] - whole[0])
    drop_earlier = twice - drop_new
    for name, runs in (('new', drop_new), ('earlier', drop_earlier)):
        for run in sorted(runs):
            problems.append(f'{run}: in both tables, of which the {name} one does not count')
    left = {run[0] for run in known[1] - drop_earlier}
    for method in sorted(left & {run[0] for run in known[0]}):
        problems.append(f'{method}: pooled with earlier runs, of whatever configuration')
    ends, of_runs = zip(_without(new, drop_new), _without(earlier, drop_earlier))
    return (
        pd.concat(ends).sort_values([*_RUN, 'played'], ignore_index=True),
        pd.concat(of_runs, axis=1).sort_index(axis=0).sort_index(axis=1),
    )


def _runs_in(ends):
    return list(ends[_RUN].itertuples(index=False, name=None))


def _known_and_whole(tables):
    ends, of_runs = tables
    return {*_runs_in(ends), *of_runs.columns}, set(_runs_in(ends[~ends['cut_short']]))


def _without(tables, runs):
    ends, of_runs = tables
    kept = [run not in runs for run in _runs_in(ends)]
    return ends[kept], of_runs.drop(columns=[run for run in of_runs if run in runs])


def write(sources, out, evaluation=None, earlier=None) -> Path:
    """Writes all files into the folder `out`; returns it."""
    runs = load.load(sources)
    table = episodes(runs, evaluation and _read_evaluation(evaluation, runs.problems))
    ends, of_runs = per_run(table), curves(table)
    if earlier:
        ends, of_runs = join((ends, of_runs), read_tables(earlier), runs.problems)
    if not of_runs.size:
        raise UserError('; '.join(['no training episode has ended yet', *runs.problems]))
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / 'episodes.csv', index=False, float_format='%.4g')
    ends.to_csv(out / 'runs.csv', index=False, float_format='%.4g')
    of_mazes = per_maze(ends)
    lengths = sorted(set(ends.loc[~ends['cut_short'], 'run_steps']))
    if len(lengths) > 1:
        runs.problems.append(f'runs of different lengths are summed up together: {lengths}')
    summary(of_mazes).to_csv(out / 'summary.csv', index=False, float_format='%.4g')
    tidy = of_runs.unstack().rename('relative_length').dropna().reset_index()
    tidy.to_csv(out / 'curves.csv', index=False, float_format='%.4g')
    compared = comparison(of_runs, of_mazes)
    compared.to_csv(out / 'comparison.csv', index=False, float_format='%.4g')
    picture = figure(of_runs)
    (out / 'relative_length.png').write_bytes(picture.png)
    (out / 'relative_length.svg').write_text(picture.svg, encoding='utf-8')
    for problem in runs.problems:
        print('note:', problem, file=sys.stderr)
    return out


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m experiments.mnist_maze',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('runs', nargs='+', metavar='RUNS')
    path = os.path.expanduser
    parser.add_argument('--out', required=True, type=path, metavar='DIR')
    parser.add_argument('--evaluation', type=path, metavar='FILE')
    parser.add_argument('--earlier', type=path, metavar='DIR')
    arguments = parser.parse_args(argv)
    try:
        print(write(arguments.runs, arguments.out, arguments.evaluation, arguments.earlier))
    except (UserError, OSError) as error:
        print('error:', ' '.join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
