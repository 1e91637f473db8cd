"""Run folders are found, each once, and the saved iterations are counted."""

import os

import pytest

from ob2i_tf import evaluate
from ob2i_tf.analysis import load
from ob2i_tf.errors import CheckpointError, UserError
from ob2i_tf.training import logs
from ob2i_tf.training.run_folder import RunFolder, find_runs, task_name
from tests.analysis.folders import write_run


def test_links_are_followed_and_loops_end(tmp_path):
    away = write_run(tmp_path / 'disk', 'OB2I', 'Pong', 0, iterations=1)
    here = write_run(tmp_path / 'runs', 'BEBU', 'Pong', 1, iterations=1)
    runs = tmp_path / 'runs'
    (runs / 'a link').symlink_to(tmp_path / 'disk', target_is_directory=True)
    (runs / 'loop').symlink_to(os.pardir, target_is_directory=True)  # To what holds both.
    (runs / 'a second').symlink_to(here, target_is_directory=True)
    (runs / 'nowhere').symlink_to('nothing')
    (here / 'replay').mkdir()
    (here / 'replay' / 'again').symlink_to(tmp_path, target_is_directory=True)
    linked = runs / 'a link' / away.relative_to(tmp_path / 'disk')
    assert find_runs(runs) == [linked, here]
    assert find_runs(runs / 'a link') == [linked]
    assert find_runs(tmp_path) == [away, here]
    (away / 'config.gin').unlink()
    assert find_runs(runs) == [here] and find_runs(runs, damaged=True) == [linked, here]


@pytest.mark.parametrize(
    'rows, checkpoints, saved',
    [
        ('', [], 0),
        ('', ['000000000000'], 0),
        ('0,20\n1,40\n', ['000000000040'], 2),
        ('0,20\n1,40\n', ['000000000020', '000000000040-1', '.writing-000000000060'], 2),
        ('0,20\n1,40\n', ['000000000030'], 1),
        ('0,20\n1,40\n', [], 0),
        ('0,20\n1,40\n2,6', ['000000000060'], 2),
        ('0,\n1,40\n', ['000000000040'], 2),
        ('0,20\n1,?\n', ['000000000040'], 1),
        ('0,20\n1,\0\n', ['000000000040'], 1),
        ('0,20\n\0\0\n\0', ['000000000040'], 1),
        ('0,20\n' + 2 * 10**5 * '1', ['000000000040'], 1),
        ('0,20\n' + 2 * 10**5 * '1' + '\n', ['000000000040'], 0),  # Longer than csv reads.
    ],
)
def test_an_iteration_counts_once_a_checkpoint_holds_it(tmp_path, rows, checkpoints, saved):
    folder = RunFolder(tmp_path)
    assert folder.num_iterations() == 0
    folder.table('train').write_text('iteration,agent_steps\n' + rows)
    for name in checkpoints:
        (folder.checkpoints / name).mkdir(parents=True)
    assert folder.num_iterations() == saved


def test_all_that_read_run_folders_find_them_once(tmp_path):
    away = write_run(tmp_path / 'disk', 'OB2I', 'Pong', 0, iterations=1)
    runs = tmp_path / 'runs'
    runs.mkdir()
    for name in ('one', 'two'):
        (runs / name).symlink_to(away, target_is_directory=True)
    assert evaluate.run_folders([runs, away, tmp_path]) == [away]
    (run,), problems = load.load([runs, tmp_path])
    assert run.path.resolve() == away and not problems


@pytest.mark.parametrize(
    'bindings, task',
    [
        ({'make_environment.name': 'Pong'}, 'Pong'),
        ({'Runner.environment': '@make_environment', 'make_environment.name': 'Pong'}, 'Pong'),
        ({'Runner.environment': '@own.make_sea', 'make_environment.name': 'Pong'}, 'make_sea'),
        ({'Runner.environment': '@scope/make_sea'}, 'make_sea'),
        ({}, None),
    ],
)
def test_a_task_is_the_environment_or_the_function_that_makes_it(bindings, task):
    assert task_name(bindings.get) == task


def test_rows_that_cannot_be_read_are_not_written_over(tmp_path):
    folder = RunFolder(tmp_path)
    path = folder.table('train')
    path.write_text('iteration,agent_steps\n0,20\n' + 2 * 10**5 * '1' + '\n')
    before = path.read_bytes()
    with pytest.raises(UserError, match=f'^{path} cannot be read: field larger'):
        logs.RunLogs(folder)
    assert path.read_bytes() == before
    path.unlink()
    path.symlink_to('/dev/zero')
    with pytest.raises(UserError, match=f'^{path} cannot be read: .*Not a regular file'):
        logs.RunLogs(folder)


def test_folders_that_are_not_named_like_checkpoints_are_named(tmp_path):
    folder = RunFolder(tmp_path)
    folder.table('train').write_text('iteration,agent_steps\n0,20\n1,40\n')
    (folder.checkpoints / 'best').mkdir(parents=True)
    (folder.checkpoints / '.writing-000000000040').mkdir()
    with pytest.raises(CheckpointError) as error:
        logs.RunLogs(folder)
    assert f'no checkpoint in {folder.checkpoints}, only best: a checkpoint is' in str(error.value)
    (folder.checkpoints / 'best').rmdir()
    with pytest.raises(CheckpointError, match=f'no checkpoint in {folder.checkpoints}; move'):
        logs.RunLogs(folder)


def test_a_parameter_of_a_later_version_may_have_its_default(tmp_path):
    folder = RunFolder(tmp_path)
    folder.config.write_text('Agent.discount = 0.9\n\nRunner.num_iterations = 2\nRunner.seed = 0\n')
    bound = 'Agent.discount = 0.9\n'
    resolved = bound + 'Agent.memory = 3\nRunner.num_iterations = 5\nRunner.seed = 0\n'
    folder.check_config(resolved, bound)
    for settings, line in [
        ((resolved, bound + 'Agent.memory = 3\n'), 'Agent.memory = 3'),  # Bound, so not a default.
        ((resolved.replace('seed = 0', 'seed = 1'), bound), 'Runner.seed = 1'),  # Known before.
        ((resolved.replace('Runner.seed = 0\n', ''), bound), 'None'),
    ]:
        with pytest.raises(UserError, match=rf"config.gin was created with .* '?{line}'? here"):
            folder.check_config(*settings)
