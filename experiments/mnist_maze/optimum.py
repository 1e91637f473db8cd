"""The best policy in the mazes of the comparison.

  python -m experiments.mnist_maze.optimum > optimum.csv

It is found by dynamic programming on the cells, with the default rules and rewards of
`make_mnist_maze` and the discount of gin/base/mnist_maze.gin. `optimal_length` is the mean number
of steps that the best policy takes, slips included, divided by the shortest path, and
`optimal_median` the median. The gap of a cell is the optimal value of the best action minus that of
the second best; a bonus must outweigh it to change the action.
"""

import csv
import sys

import numpy as np

from ob2i_tf.environments.mnist_maze import GOAL, MOVES, SIZE, START, draw_walls, shortest_path

MAZES = ((0.3, 0), (0.4, 0), (0.4, 1), (0.4, 2), (0.5, 0))  # wall_density, maze_seed
DISCOUNT, SLIP, GOAL_REWARD, BUMP_REWARD = 0.9, 0.1, 1000.0, -1.0


def moves(walls):
    """{cell: [4 (next cell, reward)]} without slips, for all cells except the goal."""
    found, todo = {}, [START]
    for cell in todo:
        if cell in found or cell == GOAL:
            continue
        found[cell] = []
        for row, column in MOVES:
            to = (cell[0] + row, cell[1] + column)
            blocked = not all(0 <= x < SIZE for x in to) or walls[to]
            reward = BUMP_REWARD if blocked else GOAL_REWARD * (to == GOAL)
            found[cell].append((cell if blocked else to, reward))
            todo.append(found[cell][-1][0])
    return found


def with_slips(straight):
    """Outcomes of the 4 actions, from those of moves in the 4 directions."""
    return (1 - 2 * SLIP) * straight + SLIP * (np.roll(straight, 1) + np.roll(straight, -1))


def optimal_values(of_cells):
    """Q* as {cell: [4]}."""
    values = {cell: np.zeros(4) for cell in of_cells}
    for _ in range(500):  # 0.9^500 is below rounding.
        best = {GOAL: 0.0, **{cell: x.max() for cell, x in values.items()}}
        values = {
            cell: with_slips(np.array([reward + DISCOUNT * best[to] for to, reward in each]))
            for cell, each in of_cells.items()
        }
    return values


def steps_to_goal(of_cells, values):
    """The mean from the start, with the action of largest value in each cell."""
    steps = dict.fromkeys([GOAL, *of_cells], 0.0)
    for _ in range(5000):
        for cell, each in of_cells.items():
            onward = with_slips(np.array([steps[to] for to, _ in each]))
            steps[cell] = 1 + onward[values[cell].argmax()]
    return steps[START]


def median_steps_to_goal(of_cells, values):
    """The median from the start: the first step by which half of all games have ended."""
    chances, steps = {START: 1.0}, 0
    while chances.get(GOAL, 0.0) < 0.5:
        steps += 1
        after = {GOAL: chances.pop(GOAL, 0.0)}
        for cell, chance in chances.items():
            towards = with_slips(np.eye(4)[values[cell].argmax()])
            for (to, _), share in zip(of_cells[cell], towards):
                after[to] = after.get(to, 0.0) + chance * share
        chances = after
    return steps


def main():
    table = csv.writer(sys.stdout, lineterminator='\n')
    quantiles = (5, 25, 50, 75)
    table.writerow(
        [
            'wall_density',
            'maze_seed',
            'walls',
            'shortest_path',
            'optimal_length',
            'optimal_median',
            'value_at_start',
        ]
        + [f'gap_{q}' for q in quantiles]
    )
    for density, seed in MAZES:
        walls = draw_walls(density, seed)
        of_cells, shortest = moves(walls), shortest_path(walls)
        values = optimal_values(of_cells)
        ordered = np.sort(list(values.values()))
        gaps = np.percentile(ordered[:, -1] - ordered[:, -2], quantiles)
        row = [
            steps_to_goal(of_cells, values) / shortest,
            median_steps_to_goal(of_cells, values) / shortest,
            values[START].max(),
            *gaps,
        ]
        table.writerow([density, seed, walls.mean(), shortest, *(f'{x:.4g}' for x in row)])


if __name__ == '__main__':
    main()
