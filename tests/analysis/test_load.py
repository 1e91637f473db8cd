"""Run folders with holes of every kind are read, and the holes named."""

import shutil

import pytest

from ob2i_tf.analysis import load, scores, tables
from ob2i_tf.errors import UserError
from tests.analysis.folders import UPDATES, write_run


def problems_of(base):
    return load.load([base]).problems


def test_whole_runs_have_no_problem(tmp_path):
    for method in UPDATES:
        for seed in (0, 1):
            write_run(tmp_path, method, 'Q*Bert', seed, iterations=3)
    runs, problems = load.load([tmp_path])
    assert not problems
    assert {(run.method, run.game, run.seed) for run in runs} == {
        (method, 'Q*Bert', seed) for method in UPDATES for seed in '01'
    }
    table = scores.table_of_runs(runs)
    assert len(table) == 8 and (table['frames'] == 3_000_000).all()
    assert (table['score_best'] >= table['score_last']).all()


def test_a_row_cut_off_at_the_end_is_left_out(tmp_path):
    path = write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=3) / 'eval.csv'
    path.write_text(path.read_text()[:-3])
    runs, problems = load.load([tmp_path])
    assert any('ends within a row' in problem for problem in problems)
    assert runs[0].eval['frames'].tolist() == [1e6, 2e6]


@pytest.mark.parametrize('damage', ['"', '\0', '\0' * 40])
def test_damage_takes_no_rows_but_its_own_and_makes_none(tmp_path, damage):
    path = write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=30) / 'eval.csv'
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    start = len(''.join(lines[:10])) + (0 if damage == '"' else 12)  # Of or in the row of 10M.
    path.write_text(text[:start] + damage + text[start + len(damage) :])
    (run,), problems = load.load([tmp_path])
    hit = 1 if len(damage) < 40 else 2
    frames = run.eval['frames'].tolist()
    assert len(frames) >= 30 - hit and len(frames) == len(set(frames))
    original = dict(line.split(',')[1:4:2] for line in lines[1:])
    for frame, score in zip(frames, run.eval['score_mean']):
        assert score == float(original[str(int(frame))])
    assert any(f'{path.parent}: eval.csv: 1 ' in problem for problem in problems)


def test_sizes_of_deep_sea_are_tasks_of_one_method(tmp_path):
    for size in (10, 20):
        bindings = {
            'make_environment.name': "'DeepSea'",
            'make_deep_sea.size': size,
            'Runner.training_steps': 100 * size,
        }
        write_run(tmp_path / str(size), 'OB2I', 'Pong', 0, iterations=1, **bindings)
    runs, _ = load.load([tmp_path])
    assert [(run.method, run.game) for run in runs] == [
        ('OB2I', 'DeepSea 10'),
        ('OB2I', 'DeepSea 20'),
    ]


def test_nan_is_no_zero(tmp_path):
    path = write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=2) / 'eval.csv'
    header = path.read_text().splitlines()[0]
    path.write_text(f'{header}\n0,1000000,5,-3.0,1,-4,-2\n1,2000000,0,nan,nan,nan,nan\n')
    runs, problems = load.load([tmp_path])
    assert any('1 of 2 evaluations have no score' in problem for problem in problems)
    (row,) = scores.table_of_runs(runs).to_dict('records')
    assert (row['frames'], row['score_last'], row['score_best']) == (1_000_000, -3, -3)


def test_cut_runs_missing_seeds_and_games_are_named(tmp_path):
    for game in ('Pong', 'Alien'):
        for seed in range(3):
            if (game, seed) != ('Alien', 1):
                done = 2 if (game, seed) == ('Pong', 2) else None
                write_run(tmp_path, 'OB2I', game, seed, iterations=3, done=done)
    runs, problems = load.load([tmp_path])
    assert [p for p in problems if 'cut short: 2,000,000 of 3,000,000 frames' in p]
    said = tables.coverage(runs, scores.table_of_runs(runs))
    assert 'OB2I: a score in 2 of 49 games' in said
    assert 'OB2I, Alien: n = 2 of 3 seeds, none of seed 1' in said


def test_one_game_of_49_that_is_missing_is_named(tmp_path):
    for game in load.games.ATARI_49[:-1]:
        write_run(tmp_path, 'BEBU', game, 0, iterations=1)
    runs, _ = load.load([tmp_path])
    (said,) = tables.coverage(runs, scores.table_of_runs(runs))
    assert said == 'BEBU: a score in 48 of 49 games, none in Zaxxon'


def test_the_longer_of_two_equal_runs_counts(tmp_path):
    write_run(tmp_path / 'a', 'OB2I', 'Pong', 0, iterations=3, done=1)
    long = write_run(tmp_path / 'b', 'OB2I', 'Pong', 0, iterations=3)
    runs, problems = load.load([tmp_path])
    assert [run.path for run in runs] == [long]
    assert any('left out' in p and str(long) in p for p in problems)


def test_a_run_without_evaluations_is_as_long_as_it_trained(tmp_path):
    for name, done in (('a', 1), ('b', 3), ('c', 2)):
        folder = write_run(tmp_path / name, 'OB2I', 'Pong', 0, iterations=3, done=done)
        (folder / 'eval.csv').write_text((folder / 'eval.csv').read_text().splitlines()[0] + '\n')
    (run,), problems = load.load([tmp_path])
    assert run.path == tmp_path / 'b' / 'ob2i_atari' / 'Pong' / 'seed0'
    assert sum('at least as long' in problem for problem in problems) == 2


def test_a_bonus_of_weight_0_is_none_and_noise_and_double_q_are_told():
    config = {
        'Runner.update': '@EpisodicUpdate',
        'EpisodicUpdate.bonus': '@UcbBonus()',
        'EpisodicUpdate.alpha_1': 0.0,
        'EpisodicUpdate.alpha_2': 0.1,
        'Agent.preferences': '@head_preferences',
    }
    assert load.row_of(config) == 'OB2I'
    assert load.row_of({**config, 'EpisodicUpdate.alpha_2': 0.0}) == 'BEBU'
    assert load.row_of({**config, 'UcbBonus.measure': '@ensemble_std'}) == 'OB2I'
    assert load.row_of({**config, 'UcbBonus.measure': '@my_ensemble_std'}) is None  # One's own.
    for part in ('posterior', 'network', 'update'):
        assert load.row_of({**config, f'Runner.{part}': '@mine.MyPart'}) is None
    single = {'Agent.preferences': '@mean_preferences', 'MultiHeadQNetwork.num_heads': 1}
    for update, more, name in (
        ('EpisodicUpdate', {}, 'EBU'),
        ('EpisodicUpdate', {'MultiHeadQNetwork.noise': 'factorised'}, 'noisy EBU'),
        ('TransitionUpdate', {'TransitionUpdate.double_q': True}, 'double DQN'),
        ('TransitionUpdate', {'MultiHeadQNetwork.noise': 'factorised'}, 'NoisyNet-DQN'),
    ):
        assert load.row_of({'Runner.update': f'@{update}', **single, **more}) == name


def test_lsvi_by_its_method():
    for method, name in (('ucb', 'LSVI-UCB'), ('randomised', 'randomised LSVI'), ('none', None)):
        config = {'Runner.posterior': '@LsviPosterior', 'LsviPosterior.method': method}
        assert load.row_of(config) == name


def test_other_configurations_of_a_row_are_methods_of_their_own(tmp_path):
    write_run(tmp_path / 'a', 'OB2I', 'Pong', 0, iterations=1)
    write_run(tmp_path / 'b', 'OB2I', 'Pong', 0, iterations=1, **{'EpisodicUpdate.beta': 0.3})
    write_run(tmp_path / 'c', 'OB2I', 'Pong', 0, iterations=1, **{'EpisodicUpdate.beta': 0.9})
    runs, problems = load.load([tmp_path / 'b', tmp_path / 'c'])
    assert [run.method for run in runs] == ['OB2I (beta 0.3)', 'OB2I (beta 0.9)']
    assert not problems
    runs, problems = load.load([f'Mine={tmp_path / "b"}', f'Mine={tmp_path / "c"}'])
    assert any(
        'Mine pools runs whose configurations differ: EpisodicUpdate.beta' in p for p in problems
    )


def test_a_folder_without_configuration_is_known_by_its_path_or_left_out(tmp_path):
    folder = write_run(tmp_path, 'OB2I', 'Pong', 4, iterations=1)
    (folder / 'config.gin').unlink()
    lost = tmp_path / 'lost'
    lost.mkdir()
    shutil.copy(folder / 'eval.csv', lost)
    runs, problems = load.load([tmp_path])
    assert [(run.method, run.game, run.seed) for run in runs] == [('ob2i_atari', 'Pong', '4')]
    assert any('left out: nothing tells its method, game, seed' in problem for problem in problems)


def test_a_path_that_is_not_there_or_holds_nothing_is_an_error(tmp_path):
    with pytest.raises(UserError, match='no folder'):
        load.load([tmp_path / 'nowhere'])
    with pytest.raises(UserError, match='no run folder'):
        load.load([tmp_path])


@pytest.mark.parametrize(
    'folder, method',
    [
        ('sweep/softmax/temperature=0.1/seed0', 'softmax'),
        ('sweep/softmax/seed0', 'softmax'),
        ('runs/softmax/Q_Bert/seed0', 'softmax'),
        ('sweep/softmax/a=1/b=2/Q_Bert/seed0', 'softmax'),
    ],
)
def test_a_method_of_ones_own_has_the_name_of_its_gin_file(tmp_path, folder, method):
    bindings = {'Agent.preferences': '@softmax_preferences'}
    written = write_run(tmp_path / 'made', 'OB2I', 'Q*Bert', 0, iterations=1, **bindings)
    shutil.copytree(written, tmp_path / folder)
    (run,), _ = load.load([tmp_path / folder.partition('/')[0]])
    assert (run.method, run.game, run.seed) == (method, 'Q*Bert', '0')


def test_a_configuration_cut_off_anywhere_is_read_as_far_as_it_goes(tmp_path):
    spelt = {'make_environment.name': "'MnistMaze'", 'make_mnist_maze.wall_density': 0.4}
    path = write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=1, **spelt) / 'config.gin'
    text = path.read_text()
    names_the_method = text.index('@EpisodicUpdate') + len('@EpisodicUpdate')
    for end in range(len(text) + 1):
        path.write_text(text[:end])
        (run,), _ = load.load([tmp_path])
        assert (run.method == 'OB2I') == (end >= names_the_method)
        _, names_the_game, name = text[:end].partition('make_environment.name = ')
        expected = name.partition('\n')[0].strip("'") if names_the_game else 'Pong'
        assert run.game.strip("'").startswith(expected)
        assert len(run.train) == len(run.eval) == 1
    assert (run.method, run.game, run.seed) == ('OB2I', 'MnistMaze 40%', 'maze 0, seed 0')


def test_games_in_the_papers_spelling():
    assert [load.game_name(n) for n in ('MsPacman', 'up_n_down', 'Montezuma_s_Revenge')] == [
        'Ms. Pacman',
        'Up and Down',
        "Montezuma's Revenge",
    ]
    assert load.game_name('Pitfall') == 'Pitfall'
    assert load.game_name('mnist_maze') == load.game_name('MnistMaze') == 'MnistMaze'
    assert load.game_name('linear mdp') == 'LinearMDP'
    assert load.game_name('of my own') == 'of my own'
