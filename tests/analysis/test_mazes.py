"""Relative lengths of made-up maze runs, by hand."""

import numpy as np
import pandas as pd
import pytest

from ob2i_tf.analysis import load, mazes
from ob2i_tf.environments import mnist_maze
from tests.analysis import folders

EPISODES = 'frames,score,length\n'


def write_run(base, method, maze, lengths, density=0.4, seed=0):
    """A run of 4 iterations of 1,000 agent steps; training episodes end after `lengths`."""
    folder = base / f'{method}_{density}_{maze}' / f'seed{seed}'
    folder.mkdir(parents=True)
    bindings = {
        'make_mnist_maze.wall_density': density, 'make_mnist_maze.maze_seed': maze,
        'make_mnist_maze.max_episode_steps': 1000, 'Runner.training_steps': 1000,
    }  # fmt: skip
    (folder / 'config.gin').write_text(
        folders.config_text(method, 'MnistMaze', seed, 4, **bindings)
    )
    ends = np.cumsum(lengths)
    rows = [f'{end},1000.0,{length}\n' for end, length in zip(ends, lengths)]
    (folder / 'episodes.csv').write_text(EPISODES + ''.join(rows))
    (folder / 'eval_episodes.csv').write_text(
        'iteration,' + EPISODES + '2,3000,-5.0,1000\n3,4000,1000.0,36\n3,4000,1000.0,54\n'
    )
    (folder / 'train.csv').write_text('iteration,frames,score_mean,episode_length_mean\n')
    (folder / 'eval.csv').write_text('iteration,frames,episodes,score_mean\n')
    return folder


def test_relative_length_of_each_episode(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [1000, 900, 1000, 90, 360, 180])
    table = mazes.episodes(load.load([tmp_path]))
    assert list(table) == list(mazes.COLUMNS)
    walls = mnist_maze.draw_walls(0.4, 0)
    assert (table['shortest_path'] == 18).all() and mnist_maze.shortest_path(walls) == 18
    training = table[table['played'] == 'training']
    np.testing.assert_allclose(
        training['relative_length'], [1000 / 18, 50, 1000 / 18, 5, 20, 10]
    )
    assert list(training['reached_goal']) == [False, True, False, True, True, True]
    assert list(training['agent_steps']) == [1000, 1900, 2900, 2990, 3350, 3530]


def test_a_run_is_judged_by_its_end(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [1000, 900, 1000, 90, 360, 180, 18, 36, 54, 36])
    of_mazes = mazes.per_maze(mazes.episodes(load.load([tmp_path])))
    ends = of_mazes.set_index('played')['relative_length']
    # Runs of 4,000 steps by their evaluation: what ended after 3,600, lengths 54 and 36.
    assert ends['training'] == pytest.approx(np.median([2, 3]))
    assert ends['evaluation'] == pytest.approx(2.5)
    assert of_mazes.set_index('played')['reached_goal'].to_dict() == {
        'training': 1.0, 'evaluation': 1.0,
    }  # fmt: skip


def test_mazes_are_summed_up_with_an_interval(tmp_path):
    table = pd.DataFrame({
        'method': 'OB2I', 'wall_density': 0.4, 'maze_seed': range(5), 'seed': 0,
        'played': 'training', 'relative_length': [1.0, 2.0, 3.0, 4.0, 10.0],
        'reached_goal': [1.0, 1.0, 1.0, 1.0, 0.5], 'episodes': 9,
    })  # fmt: skip
    (row,) = mazes.summary(table).to_dict('records')
    assert (row['mean'], row['median'], row['mazes']) == (4.0, 3.0, 5)
    assert (row['lower_quartile'], row['upper_quartile']) == (2.0, 4.0)
    assert row['reached_goal'] == pytest.approx(0.9)
    assert 1 < row['low'] < 4 < row['high'] < 10


def test_curves_are_means_of_bins(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [500, 400, 1000, 90])  # They end at 500, 900, 1900, 1990.
    write_run(tmp_path, 'OB2I', 1, [900, 1000, 1000])
    curves = mazes.curves(mazes.episodes(load.load([tmp_path])), 1000)
    assert list(curves.index) == [1000, 2000, 3000]
    bebu = curves[('BEBU', 0.4, 0, 0)]
    np.testing.assert_allclose(bebu * 18, [450, 545, 545])  # The last bin has no episode.


def test_a_curve_ends_where_its_run_ends(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [900, 1000, 1000, 1000, 1000])  # Until 4,900.
    write_run(tmp_path, 'OB2I', 0, [500, 1000])  # Its evaluation is of 4,000.
    curves = mazes.curves(mazes.episodes(load.load([tmp_path])), 1000)
    assert curves['BEBU', 0.4, 0, 0].notna().all()
    assert list(curves['OB2I', 0.4, 0, 0].notna()) == [True, True, True, True, False]


def test_methods_are_compared_on_the_mazes_that_both_ran():
    columns = pd.MultiIndex.from_tuples(
        [('BEBU', 0.4, 0, 0), ('BEBU', 0.4, 1, 0), ('BEBU', 0.5, 0, 0),
         ('OB2I', 0.4, 0, 0), ('OB2I', 0.4, 1, 0), ('OB2I', 0.4, 2, 0)],
        names=['method', 'wall_density', 'maze_seed', 'seed'],
    )  # fmt: skip
    of_runs = pd.DataFrame(
        [[4.0, 9.0, 7.0, 1.0, 1.0, 5.0], [1.0, 3.0, 7.0, 2.0, np.nan, 5.0]],
        index=[1000, 2000], columns=columns,
    )  # fmt: skip
    of_mazes = pd.DataFrame({
        'method': ['BEBU', 'BEBU', 'OB2I'], 'wall_density': 0.4, 'maze_seed': [0, 1, 1], 'seed': 0,
        'played': ['training', 'head', 'head'], 'relative_length': [1.0, 2.0, 4.0],
    })  # fmt: skip
    first, second, head = mazes.comparison(of_runs, of_mazes).to_dict('records')
    assert (first['method'], first['over'], first['agent_steps']) == ('BEBU', 'OB2I', 1000)
    assert (first['mazes'], first['above_1']) == (2, 2)
    assert first['ratio'] == pytest.approx(6.0)  # sqrt(4 * 9)
    assert (first['low'], first['high']) == pytest.approx((4.0, 9.0))
    assert (second['mazes'], second['above_1']) == (1, 0)
    assert second['ratio'] == pytest.approx(0.5) and np.isnan(second['low'])
    assert (head['played'], head['agent_steps'], head['ratio']) == ('head', 'end', 0.5)


def test_the_command_writes_its_files(tmp_path, capsys):
    for method in ('BEBU', 'OB2I'):
        for density in (0.3, 0.4):
            for maze in (0, 1):
                write_run(tmp_path / 'runs', method, maze, [1000, 900, 36], density)
    run = tmp_path / 'runs' / 'OB2I_0.4_0' / 'seed0'
    evaluation = tmp_path / 'evaluation.csv'
    evaluation.write_text(
        f'run,agent_steps,preferences,game,score,length\n{run},4000,head,0,1000.0,27\n'
    )
    arguments = [str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]
    assert mazes.main([*arguments, '--evaluation', str(evaluation)]) == 0
    names = {path.name for path in (tmp_path / 'out').iterdir()}
    assert names == {'episodes.csv', 'curves.csv', 'mazes.csv', 'summary.csv', 'comparison.csv',
                     'relative_length.png', 'relative_length.svg'}  # fmt: skip
    svg = (tmp_path / 'out' / 'relative_length.svg').read_text()
    assert '30% walls, 2 mazes' in svg and 'OB2I' in svg
    ends = pd.read_csv(tmp_path / 'out' / 'mazes.csv')
    (head,) = ends[ends['played'] == 'head'].to_dict('records')
    assert (head['method'], head['relative_length']) == ('OB2I', 1.5)
    capsys.readouterr()
    assert mazes.main([*arguments, '--evaluation', str(run / 'train.csv')]) == 1
    assert 'lacks columns' in capsys.readouterr().err
    (tmp_path / 'runs2').mkdir()
    assert mazes.main([str(tmp_path / 'runs2'), '--out', str(tmp_path / 'out')]) == 1
    assert 'no run folder' in capsys.readouterr().err
