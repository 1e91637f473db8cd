"""Relative lengths of made-up maze runs, by hand."""

import re

import numpy as np
import pandas as pd
import pytest

from experiments.mnist_maze import __main__ as mazes
from ob2i_tf.analysis import load
from ob2i_tf.environments import mnist_maze
from tests.analysis import folders

EPISODES = 'frames,score,length\n'


def write_run(base, method, maze, lengths, density=0.4, seed=0, planned=4, done=4, **bindings):
    """A run of iterations of 1,000 agent steps; training episodes end after `lengths`.

    Evaluations have 2,000 agent steps: a failure, then a success that started too late to tell it
    from an unseen failure; and four successes, the last of which started too late.
    """
    folder = base / f'{method}_{density}_{maze}' / f'seed{seed}'
    folder.mkdir(parents=True)
    bindings = {
        'make_mnist_maze.wall_density': density,
        'make_mnist_maze.maze_seed': maze,
        'make_mnist_maze.max_episode_steps': 1000,
        'make_mnist_maze.goal_reward': 1000.0,
        'make_mnist_maze.bump_reward': -1.0,
        'Runner.training_steps': 1000,
        'Runner.evaluation_steps': 2000,
        'make_atari.frame_skip': 1,
        **bindings,
    }
    (folder / 'config.gin').write_text(
        folders.config_text(method, 'MnistMaze', seed, planned, **bindings)
    )
    ends = np.cumsum(lengths)
    scores = [-5.0 if length == 1000 else 990.0 for length in lengths]
    rows = [f'{end},{score},{length}\n' for end, score, length in zip(ends, scores, lengths)]
    (folder / 'episodes.csv').write_text(EPISODES + ''.join(rows))
    (folder / 'eval_episodes.csv').write_text(
        'iteration,' + EPISODES + '2,3000,-5.0,1000\n2,3000,990.0,40\n3,4000,990.0,36\n'
        '3,4000,990.0,54\n3,4000,990.0,911\n3,4000,1.0,999\n'
    )
    (folder / 'train.csv').write_text(
        'iteration,frames,score_mean,episode_length_mean\n'
        + ''.join(f'{i},{1000 * (i + 1)},0,0\n' for i in range(done))
    )
    (folder / 'eval.csv').write_text('iteration,frames,episodes,score_mean\n')
    return folder


def test_any_spelling_and_any_density_is_a_maze_of_its_own(tmp_path):
    spelt = {'make_environment.name': "'mnist_maze'"}
    for density, maze in ((0.4, 0), (0.402, 0), (0.4, 1)):
        write_run(tmp_path, 'BEBU', maze, [1000, 36], density, **spelt)
    runs = load.load([tmp_path])
    assert {(run.game, run.seed) for run in runs.runs} == {
        ('MnistMaze 40%', 'maze 0, seed 0'),
        ('MnistMaze 40.2%', 'maze 0, seed 0'),
        ('MnistMaze 40%', 'maze 1, seed 0'),
    }
    assert not any('the same' in problem for problem in runs.problems)
    table = mazes.episodes(runs)
    assert len(table[['wall_density', 'maze_seed']].drop_duplicates()) == 3


def test_relative_length_of_each_episode(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [1000, 900, 1000, 90, 360, 180])
    table = mazes.episodes(load.load([tmp_path]))
    walls = mnist_maze.draw_walls(0.4, 0)
    assert (table['shortest_path'] == 18).all() and mnist_maze.shortest_path(walls) == 18
    training = table[table['played'] == 'training']
    np.testing.assert_allclose(training['relative_length'], [1000 / 18, 50, 1000 / 18, 5, 20, 10])
    assert list(training['reached_goal']) == [False, True, False, True, True, True]
    assert list(training['agent_steps']) == [1000, 1900, 2900, 2990, 3350, 3530]


def test_evaluations_count_games_that_would_have_ended(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [1000, 900])
    table = mazes.episodes(load.load([tmp_path]))
    games = table[table['played'] == 'evaluation']
    assert list(games['length']) == [1000, 40, 36, 54, 911]  # Each started at 1,000 or before.
    assert list(games['reached_goal']) == [False, True, True, True, True]


def test_a_goal_at_the_last_step_and_a_game_that_was_cut_off(tmp_path):
    folder = write_run(tmp_path, 'BEBU', 0, [900])
    (folder / 'episodes.csv').write_text(EPISODES + '1000,1.0,1000\n2000,0.0,1000\n')
    games = pd.DataFrame(
        {
            'run': [str(folder)],
            'agent_steps': 4000,
            'preferences': 'vote',
            'score': -3.0,
            'length': 500,
        }
    )
    table = mazes.episodes(load.load([tmp_path]), games).set_index('played')
    assert list(table.loc['training', 'reached_goal']) == [True, False]
    assert not table.loc['vote', 'reached_goal']


def test_a_run_is_judged_by_its_end(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [1000, 900, 1000, 90, 360, 180, 18, 36, 54, 36])
    of_runs = mazes.per_run(mazes.episodes(load.load([tmp_path]))).set_index('played')
    # Runs of 4,000 steps by their evaluation: what ended after 3,600, lengths 54 and 36.
    assert of_runs.loc['training', 'relative_length'] == pytest.approx(np.median([2, 3]))
    assert of_runs.loc['evaluation', 'relative_length'] == pytest.approx(54 / 18)
    assert of_runs['reached_goal'].to_dict() == {'training': 1.0, 'evaluation': 1.0}
    assert set(of_runs['run_steps']) == {4000} and not of_runs['cut_short'].any()
    assert set(of_runs['walls']) == {mnist_maze.draw_walls(0.4, 0).mean()}


def ends(**columns):
    return pd.DataFrame(
        {
            'method': 'OB2I',
            'wall_density': 0.4,
            'seed': 0,
            'played': 'training',
            'run_steps': 200,
            'cut_short': False,
            'reached_goal': 1.0,
            **columns,
        }
    )


def test_seeds_of_a_maze_are_one_maze_and_short_runs_are_left_out():
    of_runs = ends(
        maze_seed=[0, 0, 1, 2],
        seed=[0, 1, 0, 0],
        cut_short=[False, False, False, True],
        relative_length=[1.0, 3.0, 5.0, 9.0],
        reached_goal=[1.0, 0.5, 1.0, 0.0],
    )
    of_mazes = mazes.per_maze(of_runs)
    assert list(of_mazes['relative_length']) == [2.0, 5.0]
    assert list(of_mazes['reached_goal']) == [0.75, 1.0]


def test_mazes_are_summed_up():
    table = ends(maze_seed=range(5), relative_length=[1.0, 2.0, 3.0, 4.0, 10.0])
    (row,) = mazes.summary(mazes.per_maze(table)).to_dict('records')
    assert (row['mean'], row['median'], row['mazes']) == (4.0, 3.0, 5)
    assert (row['lower_quartile'], row['upper_quartile'], row['reached_goal']) == (2.0, 4.0, 1.0)


def test_curves_are_means_of_bins(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [500, 400, 1000, 90])  # They end at 500, 900, 1900, 1990.
    write_run(tmp_path, 'OB2I', 1, [900, 1000, 1000])
    curves = mazes.curves(mazes.episodes(load.load([tmp_path])), 1000)
    assert list(curves.index) == [1000, 2000, 3000]
    bebu = curves[('BEBU', 0.4, 0, 0)]
    np.testing.assert_allclose(bebu * 18, [450, 545, 545])  # The last bin has no episode.


def test_a_curve_ends_where_its_run_ends(tmp_path):
    write_run(tmp_path, 'BEBU', 0, [900, 1000, 1000, 1000, 1000])  # Until 4,900.
    write_run(tmp_path, 'OB2I', 0, [500, 1000])  # It took 4,000.
    curves = mazes.curves(mazes.episodes(load.load([tmp_path])), 1000)
    assert curves['BEBU', 0.4, 0, 0].notna().all()
    assert list(curves['OB2I', 0.4, 0, 0].notna()) == [True, True, True, True, False]


def test_methods_are_compared_on_the_mazes_that_both_ran():
    columns = pd.MultiIndex.from_tuples(
        [
            ('BEBU', 0.4, 0, 0),
            ('BEBU', 0.4, 0, 1),
            ('BEBU', 0.4, 1, 0),
            ('BEBU', 0.5, 0, 0),
            ('OB2I', 0.4, 0, 0),
            ('OB2I', 0.4, 1, 0),
            ('OB2I', 0.4, 2, 0),
            ('OB2I', 0.5, 0, 0),
        ],
        names=['method', 'wall_density', 'maze_seed', 'seed'],
    )
    of_runs = pd.DataFrame(
        [[3.0, 5.0, 9.0, 6.0, 1.0, 1.0, 5.0, 1.0], [1.0, 1.0, 3.0, 7.0, 2.0, np.nan, 5.0, np.nan]],
        index=[1000, 2000],
        columns=columns,
    )
    of_mazes = ends(
        method=['BEBU', 'BEBU', 'BEBU-UCB', 'OB2I'],
        maze_seed=[0, 1, 1, 1],
        played=['training', 'head', 'head', 'head'],
        relative_length=[1.0, 2.0, 8.0, 4.0],
    )
    table = mazes.comparison(of_runs, of_mazes)
    first, second, other, both, alone, bebu, ucb = table.to_dict('records')
    assert (first['method'], first['over'], first['agent_steps']) == ('BEBU', 'OB2I', 1000)
    assert (first['wall_density'], first['mazes'], first['above_1']) == (0.4, 2, 2)
    assert first['ratio'] == pytest.approx(6.0)  # sqrt(4 * 9), the seeds of a maze averaged.
    half = 12.7062 * np.log(9 / 4) / 2  # t of 1 degree of freedom times the error of the mean.
    assert first['high'] == pytest.approx(6 * np.exp(half), rel=1e-4)
    assert first['low'] * first['high'] == pytest.approx(36)
    assert (second['agent_steps'], second['mazes'], second['above_1']) == (2000, 1, 0)
    assert second['ratio'] == pytest.approx(0.5) and np.isnan(second['low'])
    assert (other['wall_density'], other['mazes'], other['ratio']) == (0.5, 1, pytest.approx(6))
    assert (both['wall_density'], both['mazes']) == ('all', 3)
    assert both['ratio'] == pytest.approx(6) and (alone['mazes'], alone['agent_steps']) == (1, 2000)
    assert (bebu['played'], bebu['agent_steps'], bebu['ratio']) == ('head', 'end', 0.5)
    assert (ucb['method'], ucb['ratio']) == ('BEBU-UCB', pytest.approx(2))


def test_methods_of_which_the_first_was_not_evaluated():
    of_runs = pd.DataFrame(
        [[1.0]], [1000], pd.MultiIndex.from_tuples([('OB2I', 0.4, 0, 0)], names=mazes._RUN)
    )
    table = mazes.comparison(
        of_runs,
        ends(method=['BEBU', 'BEBU-UCB'], maze_seed=0, played='vote', relative_length=[1.0, 2.0]),
    )
    (row,) = table.to_dict('records')
    assert (row['method'], row['over'], row['ratio']) == ('BEBU-UCB', 'BEBU', pytest.approx(2))


def test_damaged_rows_are_named(tmp_path):
    folder = write_run(tmp_path, 'BEBU', 0, [1000, 900])
    with open(folder / 'episodes.csv', 'a') as file:
        file.write('2000,990.0,x\n2100,990.0,50\n')
    runs = load.load([tmp_path])
    table = mazes.episodes(runs)
    assert list(table[table['played'] == 'training']['length']) == [1000, 900, 50]
    assert f"{folder}: episodes.csv:4: length is 'x'; left out" in runs.problems


def test_runs_without_evaluations_and_of_other_lengths_all_count(tmp_path, capsys):
    none = {'Runner.evaluation_steps': 0}
    for maze, lengths in enumerate([[1000, 1000, 1000, 900, 36], [1000, 1000, 1000, 800, 36]]):
        for method in ('OB2I', 'BEBU'):
            folder = write_run(tmp_path / 'runs', method, maze, lengths, **none)
            (folder / 'eval_episodes.csv').unlink()
    write_run(tmp_path / 'runs', 'OB2I', 2, [1000] * 4, planned=5, **none)
    write_run(tmp_path / 'runs', 'BEBU', 2, [1000] * 5, planned=5, done=5, **none)
    assert mazes.main([str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 0
    summary = pd.read_csv(tmp_path / 'out' / 'summary.csv').set_index('method')
    assert summary['mazes'].to_dict() == {'BEBU': 3, 'OB2I': 2}
    said = capsys.readouterr().err
    assert 'different lengths are aggregated: [4000, 5000]' in said
    assert 'cut short: 4,000 of 5,000 frames' in said and 'eval_episodes' not in said


def test_before_any_episode_has_ended_there_is_nothing_to_write(tmp_path, capsys):
    write_run(tmp_path / 'runs', 'OB2I', 0, [])
    out = tmp_path / 'out'
    assert mazes.main([str(tmp_path / 'runs'), '--out', str(out)]) == 1
    assert 'no training episode has ended yet' in capsys.readouterr().err and not out.exists()


def test_a_run_without_its_settings_is_named_and_left_out(tmp_path, capsys):
    write_run(tmp_path, 'OB2I', 0, [1000, 36])
    cut = tmp_path / 'bebu_mnist_maze' / 'MnistMaze' / 'seed0'
    cut.parent.mkdir(parents=True)
    write_run(tmp_path, 'BEBU', 1, [1000, 36]).rename(cut)
    text = (cut / 'config.gin').read_text()
    (cut / 'config.gin').write_text(text[: text.index('Runner.')])
    assert mazes.main([str(tmp_path), '--out', str(tmp_path / 'out')]) == 0
    said = capsys.readouterr().err
    assert f'{cut}: left out, its config.gin lacks' in said and 'Runner.seed' in said
    assert set(pd.read_csv(tmp_path / 'out' / 'runs.csv')['method']) == {'OB2I'}


def test_the_command_writes_its_files(tmp_path, capsys):
    for method in ('BEBU', 'OB2I'):
        for density in (0.3, 0.4):
            for maze in (0, 1):
                write_run(tmp_path / 'runs', method, maze, [1000, 900, 36], density)
    run = tmp_path / 'runs' / 'OB2I_0.4_0' / 'seed0'
    evaluation = tmp_path / 'evaluation.csv'
    evaluation.write_text(
        'run,agent_steps,preferences,game,score,length\n'
        f'{run},4000,head,0,1000.0,27\n/nowhere,4000,head,0,1000.0,27\n'
    )
    arguments = [str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]
    assert mazes.main([*arguments, '--evaluation', str(evaluation)]) == 0
    assert '/nowhere: evaluated, but not among the runs' in capsys.readouterr().err
    names = {path.name for path in (tmp_path / 'out').iterdir()}
    assert names == {
        'episodes.csv',
        'curves.csv',
        'runs.csv',
        'summary.csv',
        'comparison.csv',
        'relative_length.pdf',
        'relative_length.png',
        'relative_length.svg',
    }
    svg = (tmp_path / 'out' / 'relative_length.svg').read_text()
    assert '30% wall density, mazes: 2' in svg and 'OB2I' in svg
    assert '>quartiles over mazes</text>' in svg and '>shortest path</text>' in svg
    ends = pd.read_csv(tmp_path / 'out' / 'runs.csv')
    (head,) = ends[ends['played'] == 'head'].to_dict('records')
    assert (head['method'], head['relative_length']) == ('OB2I', 1.5)
    capsys.readouterr()
    assert mazes.main([*arguments, '--evaluation', str(run / 'train.csv')]) == 1
    assert 'lacks the columns agent_steps, length, preferences, run' in capsys.readouterr().err
    (tmp_path / 'runs2').mkdir()
    assert mazes.main([str(tmp_path / 'runs2'), '--out', str(tmp_path / 'out')]) == 1
    assert 'no run folder' in capsys.readouterr().err


def test_the_median_ends_where_a_maze_ends():
    columns = [('OB2I', 0.4, maze, 0) for maze in (0, 1)]
    columns = pd.MultiIndex.from_tuples(columns, names=mazes._RUN)
    values = [[9.0, 7.0], [4.0, 6.0], [2.0, np.nan]]
    svg = mazes.figure(pd.DataFrame(values, [10_000, 20_000, 30_000], columns)).svg
    median = re.search(r'<path d="([^"]*)"[^>]*stroke: #0072b2; stroke-width: 1.6', svg)[1]
    assert len(re.findall('[ML]', median)) == 2


def test_games_of_an_earlier_checkpoint_do_not_count(tmp_path):
    run = write_run(tmp_path, 'OB2I', 0, [1000, 900, 36])
    games = pd.DataFrame(
        {
            'run': str(run),
            'agent_steps': [1000, 4000, 4000],
            'preferences': ['vote', 'vote', 'head'],
            'score': 990.0,
            'length': [900, 36, 54],
        }
    )
    runs = load.load([tmp_path])
    table = mazes.episodes(runs, games)
    assert list(table[table['played'] == 'vote']['length']) == [36]
    assert f'{run}: 1 evaluated games were played before the end of the run' in ''.join(
        runs.problems
    )
