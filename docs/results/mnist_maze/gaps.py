"""Action gaps of the mazes' optimal values: python docs/results/mnist_maze/gaps.py > gaps.csv

By dynamic programming on the cells, with the rules and the rewards that `make_mnist_maze` has by
default and the discount of gin/base/mnist_maze.gin. The gap of a cell is the optimal value of the
best action less that of the second best: what a bonus has to outweigh to change the action there.
"""

import csv
import sys

import numpy as np

from ob2i_tf.environments.mnist_maze import GOAL, MOVES, SIZE, START, draw_walls

MAZES = ((0.3, 0), (0.4, 0), (0.4, 1), (0.4, 2), (0.5, 0))  # wall_density, maze_seed
DISCOUNT, SLIP, GOAL_REWARD, BUMP_REWARD = 0.9, 0.1, 1000.0, -1.0


def optimal_values(walls):
    """{cell: [4]} of all cells that can be reached, the goal apart."""
    cells, moves = [START], {}
    for cell in cells:
        for move in MOVES:
            to = (cell[0] + move[0], cell[1] + move[1])
            blocked = not all(0 <= x < SIZE for x in to) or walls[to]
            moves[cell, move] = (cell, BUMP_REWARD) if blocked else (to, GOAL_REWARD * (to == GOAL))
            if not blocked and to != GOAL and to not in cells:
                cells.append(to)
    values = {cell: np.zeros(4) for cell in cells}
    for _ in range(500):  # 0.9^500 is below rounding.
        best = {GOAL: 0.0, **{cell: x.max() for cell, x in values.items()}}
        straight = {
            cell: np.array([moves[cell, m][1] + DISCOUNT * best[moves[cell, m][0]] for m in MOVES])
            for cell in cells
        }
        values = {
            cell: (1 - 2 * SLIP) * x + SLIP * (np.roll(x, 1) + np.roll(x, -1))
            for cell, x in straight.items()
        }
    return values


def main():
    table = csv.writer(sys.stdout, lineterminator='\n')
    quantiles = (5, 25, 50, 75)
    table.writerow(
        ['wall_density', 'maze_seed', 'walls', 'cells', 'value_at_start']
        + [f'gap_{q}' for q in quantiles]
    )
    for density, seed in MAZES:
        walls = draw_walls(density, seed)
        values = optimal_values(walls)
        ordered = np.sort(list(values.values()))
        gaps = np.percentile(ordered[:, -1] - ordered[:, -2], quantiles)
        row = [len(values), values[START].max(), *gaps]
        table.writerow([density, seed, walls.mean(), *(f'{x:.4g}' for x in row)])


if __name__ == '__main__':
    main()
