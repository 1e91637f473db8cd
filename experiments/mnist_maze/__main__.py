"""The MNIST maze: learning curves, areas under them, ratios to OB2I, and the noise between seeds.

  python -m experiments.mnist_maze [RUNS] --out DIR

Reads the complete runs below RUNS/<setting>/; by default RUNS is the folder `runs` beside this
script. The relative length of an episode is its length over that of the maze's shortest path
(paper, appendix C). An episode that misses the goal has the length at which the time limit ended
it. `played` is 'training' or 'vote':
- training episodes, which mix in exploration and how a method acts. The episode that the end of an
  iteration cuts off is not counted.
- games by the vote of the heads, in the evaluation after each iteration, that started early enough
  to end in any case. (An evaluation ends after a fixed number of steps, which would otherwise hide
  failures, since these are long.)

Writes

  curves.csv      mean relative length in each iteration, which ends at `agent_steps`
  areas.csv       area under the curve of a run: the geometric mean over the iterations that end at
                  `first` to `last`, without the first iteration, and over either half of the run;
                  `over_ob2i` is its ratio to OB2I's on the same maze with the same seed
  comparison.csv  geometric mean of `over_ob2i` over mazes and seeds, with its 95% interval
  noise.csv       standard deviation over seeds of the logarithms of `area` and `over_ob2i`
  curves.png, .svg and .pdf

Exit status: 0 if written, 1 if not, 2 for a wrong command line.
"""

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

RUNS = Path(__file__).parent / 'runs'
MAZE = ['wall_density', 'maze_seed']
CURVE = ['setting', 'played', 'method', *MAZE, 'seed']
PLAYED = ('training', 'vote')


def complete_runs(folder):
    """[(setting, run)] of the complete runs in a folder; prints problems to stderr."""
    found = []
    for path in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
        runs, problems = load.load([path])
        for problem in problems:
            print('note:', problem, file=sys.stderr)
        found += [
            (path.name, run) for run in runs if len(run.eval) == run.config['Runner.num_iterations']
        ]
    if not found:
        raise UserError(f'no complete run in {folder}')
    return found


def curves(runs) -> pd.DataFrame:
    """The rows of curves.csv.

    Args:
      runs: Result of `complete_runs`.
    """
    found = {}
    for setting, run in runs:
        density, maze, limit = (
            run.config[f'make_mnist_maze.{name}'] for name in (*MAZE, 'max_episode_steps')
        )
        shortest = mnist_maze.shortest_path(mnist_maze.draw_walls(density, maze))
        games = run.games
        started = games.groupby('iteration')['length'].cumsum() - games['length']
        in_time = games[started <= run.config['Runner.evaluation_steps'] - limit]
        training = pd.read_csv(RunFolder(run.path).table('episodes'))
        steps = run.config['Runner.training_steps']
        for played, episodes in zip(PLAYED, (training, in_time)):
            ends = -(-episodes['frames'] // steps) * steps  # A frame is an agent step.
            key = (setting, played, run.method, density, maze, run.config['Runner.seed'])
            found[key] = episodes['length'].groupby(ends.astype(int)).mean() / shortest
    table = pd.concat(found, names=[*CURVE, 'agent_steps'])
    return table.rename('relative_length').reset_index()


def areas(of_curves) -> pd.DataFrame:
    """The rows of areas.csv.

    Args:
      of_curves: Result of `curves`.
    """
    logs = np.log(of_curves.pivot(index=CURVE, columns='agent_steps', values='relative_length'))
    steps, half = logs.columns, len(logs.columns) // 2
    table = pd.concat(
        np.exp(logs[period].mean(axis=1, skipna=False))
        .rename('area')
        .reset_index()
        .assign(first=period[0], last=period[-1])
        for period in (steps[1:half], steps[half:], steps[1:])
    )
    ob2i = table[table['method'] == 'OB2I'].drop(columns='method')
    same = [column for column in ob2i if column != 'area']
    table = table.merge(ob2i, how='left', on=same, suffixes=('', '_of_ob2i'))
    table['over_ob2i'] = table['area'] / table.pop('area_of_ob2i')
    return table[[*CURVE, 'first', 'last', 'area', 'over_ob2i']]


def crossed_interval(values):
    """95% interval of the mean of [mazes, seeds], by Student's t.

    Mazes and seeds are crossed random effects, since a seed draws the same initial network on every
    maze: the variance of the mean is that of the mean over mazes plus that of the mean over seeds,
    with Satterthwaite's degrees of freedom. NaN marks a missing run. The interval of a single value
    is NaN.
    """
    means = [np.nanmean(values, axis=axis) for axis in (0, 1)]
    means = [of_axis for of_axis in means if of_axis.size > 1]
    if not means:
        return np.full(2, np.nan)
    variances = np.array([of_axis.var(ddof=1) / of_axis.size for of_axis in means])
    total = variances.sum()
    weights = variances / total if total else np.full(len(means), 1 / len(means))
    freedom = 1 / sum(w**2 / (m.size - 1) for w, m in zip(weights, means))
    half = stats.t.ppf(0.975, freedom) * np.sqrt(total)
    return np.nanmean(values) + np.array([-half, half])


def comparison(of_areas) -> pd.DataFrame:
    """The rows of comparison.csv.

    Args:
      of_areas: Result of `areas`.
    """
    keys = ['setting', 'played', 'first', 'last', 'method']
    pairs = of_areas[of_areas['method'] != 'OB2I'].dropna()
    rows = []
    for key, group in pairs.groupby(keys):
        logs = np.log(group.pivot(index=MAZE, columns='seed', values='over_ob2i').to_numpy())
        ratio, low, high = np.exp([np.nanmean(logs), *crossed_interval(logs)])
        rows.append([*key, *logs.shape, len(group), ratio, low, high])
    return pd.DataFrame(rows, columns=[*keys, 'mazes', 'seeds', 'pairs', 'ratio', 'low', 'high'])


def noise(of_areas) -> pd.DataFrame:
    """The rows of noise.csv: mazes with several seeds.

    Args:
      of_areas: Result of `areas`.
    """
    logs = of_areas.assign(**np.log(of_areas[['area', 'over_ob2i']]))
    grouped = logs.groupby(['setting', 'played', 'first', 'last', 'method', *MAZE])
    table = grouped.agg(
        seeds=('seed', 'size'), area=('area', 'std'), over_ob2i=('over_ob2i', 'std')
    )
    return table[table['seeds'] > 1].reset_index()


def figure(of_curves):
    """One column per setting, training above the vote; geometric means over runs and each run.

    Args:
      of_curves: Result of `curves`.
    """
    look = figures.line_styles(set(of_curves['method']))
    settings = sorted(set(of_curves['setting']))
    with figures.style():
        picture = figures.empty(figures.WIDE, 4.3)
        axes = picture.subplots(len(PLAYED), len(settings), sharex=True, sharey=True, squeeze=False)
        lines = {}
        for axis, (played, setting) in zip(axes.flat, [(p, s) for p in PLAYED for s in settings]):
            chosen = of_curves[(of_curves['played'] == played) & (of_curves['setting'] == setting)]
            for method in (method for method in look if method in set(chosen['method'])):
                runs = chosen[chosen['method'] == method].pivot(
                    index='agent_steps', columns=[*MAZE, 'seed'], values='relative_length'
                )
                axis.plot(runs.index, runs, lw=0.5, alpha=0.4, color=look[method]['color'])
                mean = np.exp(np.log(runs).mean(axis=1))
                lines[method] = figures.plot(axis, runs.index, mean, lw=1.6, **look[method])
            shortest = axis.axhline(1, color=figures.INK, lw=0.7, ls=(0, (1, 2)))
            axis.set_title(f'{setting}, {played}')
        axis.set_yscale('log')
        axis.set_yticks([1, 2, 5, 10, 20, 50], ['1', '2', '5', '10', '20', '50'])
        axis.minorticks_off()
        axis.xaxis.set_major_formatter(lambda value, _: figures.short(value))
        for lowest in axes[-1]:
            lowest.set_xlabel('agent steps')
        picture.supylabel('relative length', fontsize=9)
        figures.legend(picture, lines | {'one run': figures.SEED, 'shortest path': shortest})
        caption = (
            'Training episodes and games by the vote of the heads over agent steps: geometric '
            'means over mazes and seeds; slips make the shortest path unattainable'
        )
        return figures.rendered('curves', 'Relative length', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.mnist_maze', __doc__)
    parser.add_argument('runs', nargs='?', default=RUNS, metavar='RUNS', type=os.path.expanduser)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    arguments = parser.parse_args(argv)
    runs = complete_runs(arguments.runs)
    of_curves = curves(runs)
    of_areas = areas(of_curves)
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for name, table in (
        ('curves', of_curves),
        ('areas', of_areas),
        ('comparison', comparison(of_areas)),
        ('noise', noise(of_areas)),
    ):
        table.to_csv(out / f'{name}.csv', index=False, float_format='%.4g')
    figure(of_curves).save(out)
    print(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
