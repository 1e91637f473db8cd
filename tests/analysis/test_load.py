"""Run folders with holes of every kind are read, and the holes named."""

import html
import os
import shutil

import pandas as pd
import pytest

from ob2i_tf.analysis import load, report, scores, tables
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


@pytest.mark.parametrize('damage', ['"', '\0', '\0' * 40, '\xff'])
def test_damage_takes_no_rows_but_its_own_and_makes_none(tmp_path, damage):
    path = write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=30) / 'eval.csv'
    data, hole = path.read_bytes(), damage.encode('latin-1')
    lines = data.decode().splitlines(keepends=True)
    start = len(''.join(lines[:10])) + 12  # In the row of 10M frames, line 11.
    path.write_bytes(data[:start] + hole + data[start + len(hole) :])
    (run,), (problem,) = load.load([tmp_path])
    hit = 1 if len(damage) < 40 else 2
    frames = run.eval['frames'].tolist()
    assert 30 - hit <= len(frames) < 30 and len(frames) == len(set(frames))
    original = dict(line.split(',')[1:4:2] for line in lines[1:])
    for frame, score in zip(frames, run.eval['score_mean']):
        assert score == float(original[str(int(frame))])
    reason = {'"': 'episodes is ', '\xff': 'not UTF-8'}.get(damage, 'NUL bytes')
    assert problem.startswith(f'{path.parent}: eval.csv:11: {reason}')


def test_sizes_of_deep_sea_are_tasks_of_one_method(tmp_path):
    for size in (10, 20):
        bindings = {
            'make_environment.name': "'DeepSea'",
            'make_deep_sea.size': size,
            'Runner.training_steps': 100 * size,
            'Runner.evaluation_steps': 0,
        }
        folder = write_run(tmp_path / str(size), 'OB2I', 'Pong', 0, iterations=1, **bindings)
        (folder / 'eval.csv').unlink()
    runs, problems = load.load([tmp_path])
    assert not problems
    assert [(run.method, run.game) for run in runs] == [
        ('OB2I', 'DeepSea 10'),
        ('OB2I', 'DeepSea 20'),
    ]
    table = scores.table_of_runs(runs)
    assert table['scored_by'].tolist() == ['training'] * 2
    assert table['score_last'].tolist() == [run.train['score_mean'].item() for run in runs]


def test_the_last_row_of_an_iteration_counts(tmp_path):
    path = write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=3) / 'eval.csv'
    path.write_text(path.read_text().replace('\n1,', '\n0,'))
    (run,), _ = load.load([tmp_path])
    assert run.eval['frames'].tolist() == [2e6, 3e6]


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
    assert said[0] == 'OB2I: a score in 2 of 49 games' and len(said) == 2
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


def test_a_method_is_one_in_tasks_of_every_kind(tmp_path):
    write_run(tmp_path / 'a', 'OB2I', 'Pong', 0, iterations=1)
    folder = write_run(tmp_path / 'b', 'OB2I', 'Pong', 0, iterations=1)
    text = (folder / 'config.gin').read_text().replace('250000', '100')
    text = text.replace("'Pong'", "'DeepSea'").replace(
        'make_atari.frame_skip', 'make_deep_sea.size'
    )
    (folder / 'config.gin').write_text(text)
    runs, _ = load.load([tmp_path])
    assert [(run.method, run.game) for run in runs] == [('OB2I', 'Pong'), ('OB2I', 'DeepSea 4')]


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


def test_many_differing_bindings_are_named_by_folder_or_number(tmp_path):
    bindings = {f'Agent.option_{i}': i for i in range(4)}
    write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=1, **dict.fromkeys(bindings, 9))
    write_run(tmp_path / 'b', 'OB2I', 'Pong', 0, iterations=1, **bindings)
    runs, _ = load.load([tmp_path])
    assert [run.method for run in runs] == ['OB2I (variant 1)', 'OB2I (variant 2)']
    (tmp_path / 'ob2i_atari').rename(tmp_path / 'tuned')
    runs, _ = load.load([tmp_path])
    assert [run.method for run in runs] == ['OB2I (ob2i_atari)', 'OB2I (tuned)']


def test_a_binding_of_another_version_makes_no_difference(tmp_path):
    write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=1)
    write_run(tmp_path, 'OB2I', 'Pong', 1, iterations=1, **{'Agent.later': 1})
    runs, _ = load.load([tmp_path])
    assert {run.method for run in runs} == {'OB2I'}
    write_run(tmp_path, 'OB2I', 'Pong', 2, iterations=1, **{'Agent.later': 2})
    runs, _ = load.load([tmp_path])
    names = ['OB2I (later (unbound))', 'OB2I (later 1)', 'OB2I (later 2)']
    assert [run.method for run in runs] == names


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
def test_a_run_without_a_method_has_the_name_of_its_gin_file(tmp_path, folder, method):
    bindings = {'Runner.method': "''"}
    written = write_run(tmp_path / 'made', 'OB2I', 'Q*Bert', 0, iterations=1, **bindings)
    shutil.copytree(written, tmp_path / folder)
    (run,), _ = load.load([tmp_path / folder.partition('/')[0]])
    assert (run.method, run.game, run.seed) == (method, 'Q*Bert', '0')


def test_mazes_are_tasks_by_density_and_seeds_by_maze(tmp_path):
    bindings = {
        'make_environment.name': "'MnistMaze'",
        'make_mnist_maze.wall_density': 0.4,
        'make_mnist_maze.maze_seed': 3,
    }
    write_run(tmp_path, 'OB2I', 'Pong', 1, iterations=1, **bindings)
    (run,), _ = load.load([tmp_path])
    assert (run.method, run.game, run.seed) == ('OB2I', 'MnistMaze 40%', 'maze 3, seed 1')


def test_an_environment_that_a_function_makes_is_a_task_of_its_name(tmp_path):
    write_run(tmp_path, 'OB2I', 'Pong', 0, iterations=1, **{'Runner.environment': '@make_mine'})
    (run,), _ = load.load([tmp_path])
    assert (run.method, run.game) == ('OB2I', 'make_mine')


def test_games_in_the_papers_spelling():
    assert [load.game_name(n) for n in ('MsPacman', 'up_n_down', 'Montezuma_s_Revenge')] == [
        'Ms. Pacman',
        'Up and Down',
        "Montezuma's Revenge",
    ]
    assert load.game_name('Pitfall') == 'Pitfall'
    assert load.game_name('mnist_maze') == load.game_name('MnistMaze') == 'MnistMaze'
    assert load.game_name('linear mdp') == 'LinearMDP'
    assert load.game_name('CartPole-v1') == 'CartPole-v1'


def spoil(file, change):
    """A change of a file's bytes in a run folder."""
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


def replace(file, old, new):
    return spoil(file, lambda data: data.replace(old, new, 1))


def make_folder(name):
    def change(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


COLUMNS = b'iteration,frames,episodes,score_mean,score_std,score_min,score_max'
LEFT_OUT = [  # Of a run without a readable configuration nothing is known.
    (lambda folder: (folder / 'config.gin').unlink(), 'left out: no config.gin'),
    (make_folder('config.gin'), 'left out: config.gin cannot be read: Is a directory'),
    (spoil('config.gin', lambda data: b''), 'left out, its config.gin lacks Runner.seed, make_'),
    (replace('config.gin', b'@Epi', b'@E\xffi'), 'left out: config.gin: not UTF-8'),
    (replace('config.gin', b'@Epi', b'\0Epi'), 'left out: config.gin: NUL bytes'),
    (replace('config.gin', b'= 4', b'= ' + b'9' * 4000), 'left out: config.gin: make_atari.'),
    (spoil('config.gin', lambda data: data.decode().encode('utf-16')), 'config.gin: not UTF-8'),
    (
        replace('config.gin', b'= 4', b"= 'x'"),
        "config.gin: make_atari.frame_skip is 'x', not a count",
    ),
    (
        replace('config.gin', b'= 3', b'= ' + b'(' * 500),
        "config.gin: Runner.num_iterations is '((",
    ),
    (
        replace('config.gin', b'= 3', b'= ' + b'-' * 100_000 + b'1'),
        "config.gin: Runner.num_iterations is '--",
    ),
]
NOTED = [
    (replace('environment.json', b'{', b'['), 'environment.json:1: '),
    (spoil('environment.json', lambda data: b'[' * 100_000), 'environment.json does not hold'),
    (spoil('environment.json', lambda data: b'[1]'), 'environment.json does not hold'),
    (
        spoil('environment.json', lambda data: b'{"packages": [[1], 2]}'),
        'environment.json does not',
    ),
    (spoil('environment.json', lambda data: b'{"packages": {"numpy": [1]}, "python": 3}'), ''),
    (spoil('environment.json', lambda data: data.replace(b'"', b'\xff')), 'environment.json:1: '),
    (
        make_folder('environment.json'),
        'environment.json does not hold the versions of a run: [Errno',
    ),
    (make_folder('eval.csv'), 'eval.csv cannot be read: Is a directory'),
    (spoil('eval.csv', lambda data: b'\xef\xbb\xbf' + data), ''),
    (spoil('eval.csv', lambda data: data.decode().encode('utf-16')), 'eval.csv:1: not UTF-8'),
    (
        spoil('eval.csv', lambda data: data.replace(b',', b';')),
        'eval.csv:1: no header with a column',
    ),
    (spoil('eval.csv', lambda data: b''), 'eval.csv is empty'),
    (spoil('eval.csv', lambda data: b'\n\n'), 'eval.csv is empty'),
    (spoil('eval.csv', lambda data: b'\0' * 4096), 'eval.csv:1: NUL bytes'),
    (spoil('eval.csv', lambda data: COLUMNS + b'\n'), 'eval.csv holds no row'),
    (spoil('eval.csv', lambda data: data[:-3]), 'eval.csv:4: ends within a row; left out'),
    (replace('eval.csv', b',score_std', b''), 'eval.csv:2,3,4: 7 cells instead of 6; left out'),
    (replace('eval.csv', b'score_std', b'other'), 'eval.csv:1: no column score_std'),
    (replace('eval.csv', b'score_std', b'frames'), 'eval.csv:1: two columns of one name'),
    (replace('eval.csv', b'\n1,', b'\n1,7,'), 'eval.csv:3: 8 cells instead of 7; left out'),
    (replace('eval.csv', b'\n1,', b'\n1\n1,'), 'eval.csv:3: 1 cells instead of 7; left out'),
    (replace('eval.csv', b'\n1,2000000', b'\n1,nan'), 'eval.csv:3: frames is empty; left out'),
    (
        replace('eval.csv', b'\n1,', b'\n0,'),
        'eval.csv:2: a later row has the same iteration; left out',
    ),
    (replace('eval.csv', b',30,', b',inf,'), "eval.csv:2: episodes is 'inf'; left out"),
    (spoil('eval.csv', lambda d: d[:-1] + b'e308\n'), 'eval.csv:4: score_max is '),
    (replace('eval.csv', b'\n1,', b'\n1e308,'), "eval.csv:3: iteration is '1e308'; left out"),
    (replace('train.csv', b'\n1,', b'\nx,'), "train.csv:3: iteration is 'x'; left out"),
]


def test_whatever_is_wrong_with_a_run_is_reported_and_all_others_are_shown(tmp_path):
    runs, wanted = tmp_path / 'runs', {}
    for seed, (change, problem) in enumerate(LEFT_OUT + NOTED):
        folder = write_run(runs, 'OB2I', 'Pong', seed, iterations=3)
        change(folder)
        wanted[str(folder)] = problem
    text = html.unescape(report.write([runs], tmp_path / 'report').read_text())
    loaded, problems = load.load([runs])
    told = {folder: [p for p in problems if p.startswith(f'{folder}: ')] for folder in wanted}
    for folder, problem in wanted.items():
        assert any(problem in line for line in told[folder]) if problem else not told[folder]
        assert all(line in text for line in told[folder])
    seeds = [run.seed for run in loaded]
    assert seeds == [str(seed) for seed in range(len(LEFT_OUT), len(wanted))]
    assert {run.method for run in loaded} == {'OB2I'}
    assert (scores.table_of_runs(loaded)['score_last'] > 0).all()  # Nothing counts as 0.


def test_names_that_are_not_utf_8_are_shown_escaped(tmp_path):
    name = os.fsdecode(b'caf\xe9\n')
    folder = write_run(tmp_path / name, 'OB2I', 'Pong', 0, iterations=3, **{'Runner.method': "''"})
    (tmp_path / name / 'ob2i_atari').rename(tmp_path / name / name)
    folder = tmp_path / name / name / 'Pong' / 'seed0'
    (folder / 'train.csv').unlink()
    (folder / 'viewer').mkdir()
    (folder / 'viewer' / 'episode.html').touch()
    text = report.write([tmp_path / name], tmp_path / 'out').read_text('utf-8')
    assert 'caf\\udce9\\n/Pong/seed0: no train.csv' in text and '%E9%0A/Pong/seed0/viewer' in text
    table = pd.read_csv(tmp_path / 'out' / 'scores.csv')
    assert table['method'].tolist() == ['caf\\udce9\\n']
    report.write([f'{name}={tmp_path / name}'], tmp_path / 'out')
