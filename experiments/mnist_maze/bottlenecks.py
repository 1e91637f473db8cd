"""Is the bonus high in the bottlenecks of a maze, the cells that every path to the goal crosses?

  python -m experiments.mnist_maze.bottlenecks RUNS > experiments/mnist_maze/bottlenecks.csv

Reads the newest checkpoint of each run below RUNS. The bonus of a cell is B of the action that the
mean of the heads prefers, averaged over 20 pictures of the cell. `ratio` is its mean over the
bottlenecks divided by that over the other cells that can be reached; start and goal, which every
path has, are neither.
"""

import os
import sys

import numpy as np

import ob2i_tf
from experiments.mnist_maze.optimum import moves
from ob2i_tf import cli
from ob2i_tf.environments.mnist_maze import START, MnistMaze, shortest_path

with cli.extra('analysis'):
    import pandas as pd

    from ob2i_tf.analysis import load

PICTURES = 20  # Of each cell.


def bottlenecks(walls):
    """{cell: whether every path from start to goal crosses it}, of reachable cells between them."""
    found = {}
    for cell in moves(walls).keys() - {START}:
        closed = walls.copy()
        closed[cell] = True
        found[cell] = shortest_path(closed) is None
    return found


def bonus_of_best(agent, pictures):
    """Mean over pictures, [n, 28, 28, 2], of the bonus of the action that the mean prefers."""
    best = agent.q_values(pictures).mean(axis=1).argmax(axis=1)
    return agent.bonus(pictures)[np.arange(len(best)), best].mean()


def row_of(run):
    """The row of a run."""
    agent = ob2i_tf.load(run.path)
    maze = MnistMaze(
        **{
            name: run.config[f'make_mnist_maze.{name}']
            for name in ('wall_density', 'maze_seed', 'exact_wall_count', 'digits')
        }
    )
    maze.reset(seed=0)
    found = {True: [], False: []}
    for cell, narrow in sorted(bottlenecks(maze.walls).items()):
        pictures = np.stack([maze.observe(cell) for _ in range(PICTURES)])
        found[narrow].append(bonus_of_best(agent, pictures))
    narrow, others = np.mean(found[True]), np.mean(found[False])
    return {
        'run': os.path.relpath(run.path),
        'method': run.method,
        'wall_density': run.config['make_mnist_maze.wall_density'],
        'maze_seed': run.config['make_mnist_maze.maze_seed'],
        'seed': run.config['Runner.seed'],
        'bottlenecks': len(found[True]),
        'others': len(found[False]),
        'bonus_bottlenecks': narrow,
        'bonus_others': others,
        'ratio': narrow / others,
    }


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.mnist_maze.bottlenecks', __doc__)
    parser.add_argument('runs', nargs='+', metavar='RUNS', type=os.path.expanduser)
    runs = load.load(parser.parse_args(argv).runs).runs
    table = pd.DataFrame([row_of(run) for run in runs])
    table.to_csv(sys.stdout, index=False, float_format='%.4g')
    return 0


if __name__ == '__main__':
    sys.exit(main())
