"""Relative lengths in mazes: one tidy table, the curves of the paper's maze figure, a summary.

  python -m ob2i_tf.analysis.mazes runs/mazes --out report [--evaluation evaluation.csv]

The relative length of an episode is its length over that of the maze's shortest path (paper,
appendix C); an episode that does not reach the goal has the length at which it was cut off. It is
taken of training episodes, which explore and which the paper's figure probably shows, and of
evaluation episodes; --evaluation adds games that `python -m ob2i_tf.evaluate` played.

Writes into the folder: episodes.csv, a row an episode; curves.csv, training episodes in bins of
agent steps; mazes.csv, a row a run, its end; summary.csv, over mazes; comparison.csv, methods on
the same mazes; and relative_length.png and .svg.
Exit status: 0 written, 1 it could not be, 2 the command line is wrong.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from ob2i_tf.environments import mnist_maze
from ob2i_tf.errors import UserError, missing_package

try:
    import pandas as pd

    from ob2i_tf.analysis import figures, load
except ModuleNotFoundError as error:
    if __name__ != '__main__':
        raise
    sys.exit(missing_package(error, 'analysis'))

COLUMNS = (
    'method', 'wall_density', 'maze_seed', 'seed', 'played', 'agent_steps', 'length',
    'shortest_path', 'relative_length', 'reached_goal',
)  # fmt: skip
LAST = 0.1  # Of the agent steps of a run: its end, where training episodes are summed up.
BIN_STEPS = 10_000  # Agent steps.


def episodes(runs, evaluation=None) -> pd.DataFrame:
    """All episodes of maze runs, with COLUMNS.

    `played` is 'training', 'evaluation', or what the table of `ob2i_tf.evaluate` calls it;
    `agent_steps` are those that the run had taken at the end of the episode.

    Args:
      runs: load.Runs.
      evaluation: a table that `ob2i_tf.evaluate` wrote, or None.

    Raises:
      UserError: no run is of a maze.
    """
    parts = []
    for run in runs.runs:
        if 'make_mnist_maze.wall_density' not in run.config:
            continue
        density, maze = (run.config[f'make_mnist_maze.{n}'] for n in ('wall_density', 'maze_seed'))
        shortest = mnist_maze.shortest_path(mnist_maze.draw_walls(density, maze))
        limit = run.config['make_mnist_maze.max_episode_steps']
        own = {'training': 'episodes', 'evaluation': 'eval_episodes'}
        played = {
            name: load.read_csv(
                run.path / f'{file}.csv', ('frames', 'score', 'length'), runs.problems.append
            ).rename(columns={'frames': 'agent_steps'})  # A frame is an agent step.
            for name, file in own.items()
        }
        if evaluation is not None:
            same = [Path(path).resolve() == run.path.resolve() for path in evaluation['run']]
            played |= dict(iter(evaluation[same].groupby('preferences')))
        for name, rows in played.items():
            parts.append(
                pd.DataFrame({
                    'method': run.method, 'wall_density': density, 'maze_seed': maze,
                    'seed': run.config['Runner.seed'], 'played': name,
                    'agent_steps': rows['agent_steps'].astype(int),
                    'length': rows['length'].astype(int), 'shortest_path': shortest,
                    'relative_length': rows['length'] / shortest,
                    'reached_goal': rows['length'] < limit,
                })
            )  # fmt: skip
    if not parts:
        raise UserError('none of the runs is one of a MNIST maze')
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]


_MAZE = ['method', 'wall_density', 'maze_seed', 'seed']


def per_maze(table) -> pd.DataFrame:
    """Median relative length and share of goals of each run, at its end.

    Of training episodes those that ended in the last tenth of the run count, of evaluations those
    since then, of other games all.
    """
    last = table.groupby(_MAZE)['agent_steps'].transform('max') * (1 - LAST)
    late = table[(table['agent_steps'] > last) | ~table['played'].isin(['training', 'evaluation'])]
    grouped = late.groupby([*_MAZE, 'played'])
    return grouped.agg(
        relative_length=('relative_length', 'median'), reached_goal=('reached_goal', 'mean'),
        episodes=('length', 'size'),
    ).reset_index()  # fmt: skip


def summary(of_mazes) -> pd.DataFrame:
    """Over mazes: mean relative length with its 95% bootstrap interval, median and quartiles."""
    rows = []
    for key, group in of_mazes.groupby(['wall_density', 'played', 'method']):
        lengths = group['relative_length'].to_numpy()
        _, low, high = figures.interval_of_mean(pd.DataFrame([lengths]))
        rows.append({
            **dict(zip(('wall_density', 'played', 'method'), key)), 'mazes': len(group),
            'mean': lengths.mean(), 'low': low[0], 'high': high[0], 'median': np.median(lengths),
            'lower_quartile': np.percentile(lengths, 25),
            'upper_quartile': np.percentile(lengths, 75),
            'reached_goal': group['reached_goal'].mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def curves(table, bin_steps=BIN_STEPS) -> pd.DataFrame:
    """Relative length of training episodes: [bin, run], the mean in each bin of agent steps.

    A bin in which no episode ended has what the one before has, up to where the run ends.
    """
    table = table.assign(agent_steps=-(-table['agent_steps'] // bin_steps) * bin_steps)
    training = table[table['played'] == 'training']
    means = training.groupby(['agent_steps', *_MAZE])['relative_length'].mean().unstack(_MAZE)
    ends = table.groupby(_MAZE)['agent_steps'].max()
    return means.ffill().apply(lambda run: run.where(run.index <= ends[run.name]))


def comparison(of_runs, of_mazes) -> pd.DataFrame:
    """Each method's relative length over that of OB2I, or of the first method, on the same mazes.

    A row has the geometric mean of the ratios over mazes that both methods ran, its 95% bootstrap
    interval, and how many ratios are above 1, that is on how many mazes the first was better.

    Args:
      of_runs: what `curves` returns; compared at each bin of agent steps.
      of_mazes: what `per_maze` returns; compared where `played` is not 'training', at the end.
    """
    ends = of_mazes[of_mazes['played'] != 'training']
    ends = ends.pivot_table(index='played', columns=_MAZE, values='relative_length')
    first = next(iter(figures.looks(of_mazes['method'].unique())))
    rows = []
    for played, table in (('training', of_runs), *((n, ends.loc[[n]]) for n in ends.index)):
        logs = np.log(table)
        for method in sorted(set(logs.columns.get_level_values('method')) - {first}):
            ratios = (logs[method] - logs[first]).dropna(axis=1, how='all')
            mean, low, high = map(np.exp, figures.interval_of_mean(ratios))
            for i, step in enumerate(table.index):
                known = ratios.iloc[i].dropna()
                rows.append({
                    'played': played, 'agent_steps': step if played == 'training' else 'end',
                    'method': method, 'over': first, 'mazes': len(known), 'ratio': mean.iloc[i],
                    'low': low[i], 'high': high[i], 'above_1': int((known > 0).sum()),
                })  # fmt: skip
    return pd.DataFrame([row for row in rows if row['mazes']])


def figure(table, bin_steps=BIN_STEPS):
    """Training episodes over agent steps: median over mazes and quartiles, a panel a density."""
    densities = sorted(table['wall_density'].unique())
    look = figures.looks(set(table['method']))
    with figures.style():
        picture, axes = figures.grid(len(densities))
        lines = {}
        of_runs = curves(table, bin_steps)
        for axis, density in zip(axes, densities):
            chosen = of_runs.loc[:, of_runs.columns.get_level_values('wall_density') == density]
            counts = []
            for method, runs in chosen.T.groupby('method'):
                values = runs.T
                low, middle, high = (values.quantile(q, axis=1) for q in (0.25, 0.5, 0.75))
                axis.fill_between(
                    values.index, low, high, color=look[method]['color'], alpha=0.18, lw=0
                )
                (lines[method],) = axis.plot(values.index, middle, lw=1.6, **look[method])
                counts.append(values.shape[1])
            mazes = '-'.join(map(str, sorted({min(counts), max(counts)})))
            axis.set_title(f'{density:.0%} walls, {mazes} maze{"s" * (max(counts) > 1)}')
            axis.set_yscale('log')
            axis.set_yticks([1, 2, 5, 10, 20, 50], ['1', '2', '5', '10', '20', '50'], minor=False)
            axis.minorticks_off()
            axis.axhline(1, color=figures.INK, lw=0.7, ls=(0, (1, 2)))
            axis.xaxis.set_major_formatter(lambda value, _: figures.short(value))
            axis.set_xlabel('agent steps')
        picture.supylabel('relative length of training episodes', fontsize=9)
        figures.legend(picture, lines)
        caption = 'Training episodes over agent steps, median and quartiles over mazes'
        return figures.rendered('relative_length', 'Relative length', caption, picture)


def write(sources, out, evaluation=None) -> Path:
    """Writes all files into the folder `out`; returns it."""
    runs = load.load(sources)
    games = None
    if evaluation is not None:
        columns = ('run', 'agent_steps', 'preferences', 'length')
        try:
            games = pd.read_csv(evaluation)
        except (OSError, ValueError) as error:
            raise UserError(f'{evaluation} cannot be read: {error}') from error
        if not set(columns) <= set(games):
            raise UserError(f'{evaluation} lacks columns: it has {list(games)}, not {columns}')
    table = episodes(runs, games)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / 'episodes.csv', index=False, float_format='%.4g')
    of_mazes = per_maze(table)
    of_mazes.to_csv(out / 'mazes.csv', index=False, float_format='%.4g')
    summary(of_mazes).to_csv(out / 'summary.csv', index=False, float_format='%.4g')
    of_runs = curves(table)
    tidy = of_runs.unstack().rename('relative_length').dropna().reset_index()
    tidy.to_csv(out / 'curves.csv', index=False, float_format='%.4g')
    compared = comparison(of_runs, of_mazes)
    compared.to_csv(out / 'comparison.csv', index=False, float_format='%.4g')
    picture = figure(table)
    (out / 'relative_length.png').write_bytes(picture.png)
    (out / 'relative_length.svg').write_text(picture.svg)
    for problem in runs.problems:
        print('note:', problem, file=sys.stderr)
    return out


def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m ob2i_tf.analysis.mazes', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument('runs', nargs='+', metavar='RUNS')
    parser.add_argument('--out', required=True, metavar='DIR')
    parser.add_argument('--evaluation', metavar='FILE')
    arguments = parser.parse_args(argv)
    try:
        print(write(arguments.runs, arguments.out, arguments.evaluation))
    except (UserError, OSError) as error:
        print('error:', ' '.join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
