"""The bonus in the bottlenecks of a maze."""

import csv
import io

import numpy as np
import pytest

import ob2i_tf
from experiments.mnist_maze import bottlenecks
from ob2i_tf.environments.mnist_maze import MnistMaze

pytestmark = pytest.mark.usefixtures('clean_gin')


def test_a_bottleneck_is_a_cell_that_every_path_crosses():
    walls = np.ones((10, 10), bool)
    walls[0, :] = walls[:, 9] = False  # One path, along the edges,
    walls[1, 3:6] = False  # with a way around (0, 4),
    walls[5, 7:9] = False  # and a dead end.
    found = bottlenecks.bottlenecks(walls)
    others = {(0, 4), (1, 3), (1, 4), (1, 5), (5, 7), (5, 8)}
    path = {(0, column) for column in range(1, 10)} | {(row, 9) for row in range(1, 9)}
    assert found == {cell: cell not in others for cell in path | others}


def test_the_table_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bottlenecks, 'PICTURES', 2)
    bindings = (
        'Runner.num_iterations = 1',
        'Runner.training_steps = 20',
        'Runner.evaluation_steps = 0',
        'MultiHeadQNetwork.num_heads = 2',
        'MultiHeadQNetwork.hidden_units = 4',
        'make_mnist_maze.maze_seed = 2',
        'make_mnist_maze.max_episode_steps = 10',
    )
    ob2i_tf.train('ob2i_mnist_maze.gin', bindings, tmp_path / 'run')
    capsys.readouterr()
    assert bottlenecks.main([str(tmp_path)]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    maze, agent = MnistMaze(0.4, 2), ob2i_tf.load(tmp_path / 'run')
    found = bottlenecks.bottlenecks(maze.walls)
    assert int(row['bottlenecks']) == sum(found.values()) > 0
    assert int(row['others']) == len(found) - sum(found.values()) > 0
    ratio = float(row['bonus_bottlenecks']) / float(row['bonus_others'])
    assert float(row['ratio']) == pytest.approx(ratio, rel=1e-3)
    # The same from the heads' values, cell by cell.
    maze.reset(seed=0)
    sums = {True: [], False: []}
    for cell in sorted(found):
        values = [agent.q_values(maze.observe(cell)) for _ in range(2)]
        spread = [v.std(axis=0)[v.mean(axis=0).argmax()] for v in values]
        sums[found[cell]].append(np.mean(spread))
    assert float(row['bonus_others']) == pytest.approx(np.mean(sums[False]), rel=1e-3)
