"""A user's own logger sees a real run, and its faults do not reach the run."""

import contextlib
import inspect
import json

import pytest

from ob2i_tf.training.observers import Observers
from tests.markdown import code_blocks, read
from tests.training.test_runner import all_rows, run_own

MODULE = """
import json
import os

import gin


@gin.configurable
class Lines:
    '''Writes a line per call.'''

    def __init__(self, path: str = ''):
        self.path = path

    def write(self, *call):
        with open(self.path, 'a') as file:
            file.write(json.dumps(call) + '\\\\n')

    def start(self, folder, settings, step):
        self.write('start', str(folder), settings, step)

    def log(self, values, step):
        self.write('log', values, step)

    def end(self, complete):
        self.write('end', complete)


@gin.configurable
class Failing(Lines):
    def __init__(self, at: str = 'log'):
        self.at = at

    def write(self, call, *rest):
        if call == self.at:
            raise ValueError(f'no\\\\nconnection')
""".replace('\\\\', '\\')


def calls(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_observer_sees_each_row_and_a_resume(tmp_path):
    path, base_dir = tmp_path / 'lines', tmp_path / 'run'
    file = f"Runner.observers = (@Lines,)\nLines.path = '{path}'\nAgent.learning_starts = 20"
    run_own(tmp_path, MODULE, file, base_dir, Runner__evaluation_steps=20)
    started, logged, ended = calls(path)
    assert started[:2] == ['start', str(base_dir)] and started[3] == 0
    assert started[2]['Runner.training_steps'] == 60 and started[2]['Lines.path'] == str(path)
    assert 'QLearner.max_gradient_norm' in started[2]  # A default.
    assert logged[0] == 'log' and logged[2] == 60
    row = dict(zip(*(line.split(',') for line in all_rows_of(base_dir, 'train'))))
    assert logged[1]['train/loss'] == float(row['loss'])
    assert logged[1]['train/score_mean'] == float(row['score_mean'])
    assert 'eval/score_mean' in logged[1] and ended == ['end', True]

    path.unlink()
    run_own(
        tmp_path,
        MODULE,
        file,
        base_dir,
        Runner__evaluation_steps=20,
        Runner__num_iterations=3,
    )
    started, *logged, ended = calls(path)
    assert started[3] == 60 and ended == ['end', True]
    assert [(kind, step) for kind, _, step in logged] == [('log', 120), ('log', 180)]


def all_rows_of(base_dir, table):
    return (base_dir / f'{table}.csv').read_text().splitlines()


def test_a_failing_observer_changes_no_row(tmp_path):
    file = 'Agent.learning_starts = 20'
    run_own(tmp_path, MODULE, file, tmp_path / 'alone', Runner__num_iterations=2)
    file += f"\nRunner.observers = (@Failing, @Lines)\nLines.path = '{tmp_path}/lines'"
    printed = run_own(tmp_path, MODULE, file, tmp_path / 'run', Runner__num_iterations=2)
    line = 'Failing.log failed, and the run continues without it: ValueError: no connection'
    assert printed.count(line) == 1 and 'Traceback' not in printed
    assert all_rows(tmp_path / 'run') == all_rows(tmp_path / 'alone')
    assert [call[0] for call in calls(tmp_path / 'lines')] == ['start', 'log', 'log', 'end']


@pytest.mark.parametrize(
    'observers, status, message',
    [
        (
            '(@Lines, @Failing)',
            1,
            'Runner.observers: Failing did not start: ValueError: no connection\n',
        ),
        ('(@Failing(),)', 2, 'Runner.observers must be a sequence of a function or class, got'),
    ],
)
def test_an_observer_that_does_not_start_ends_the_run(tmp_path, observers, status, message):
    file = f"Runner.observers = {observers}\nFailing.at = 'start'"
    file += f"\nLines.path = '{tmp_path}/lines'" * ('@Lines' in observers)
    printed = run_own(tmp_path, MODULE, file, tmp_path / 'run', status=status)
    assert printed.splitlines(keepends=True)[-1].startswith(f'error: {message}')
    assert not (tmp_path / 'run' / 'config.gin').exists()
    if status == 1:
        assert [call[0] for call in calls(tmp_path / 'lines')] == ['start', 'end']


def test_an_observer_is_ended_if_the_logs_refuse(tmp_path):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'train.csv').write_text('rows\n' * 5)  # Without a checkpoint.
    file = f"Runner.observers = (@Lines,)\nLines.path = '{tmp_path}/lines'"
    printed = run_own(tmp_path, MODULE, file, tmp_path / 'run', status=1)
    assert 'has several logged iterations but' in printed.splitlines()[-1]
    assert [call[0] for call in calls(tmp_path / 'lines')] == ['start', 'end']


def test_a_stopped_run_is_not_complete(tmp_path):
    ends = []

    class Last:
        def start(self, folder, settings, step):
            pass

        def end(self, complete):
            ends.append(complete)

    observers = Observers([Last])
    observers.start(tmp_path, '', 0)
    with pytest.raises(SystemExit), contextlib.closing(observers):
        raise SystemExit(143)
    assert ends == [False]


def test_the_documented_loggers_have_the_three_methods():
    found = {}
    for block in code_blocks('python', read('docs/running.md')):
        exec(block.replace('@gin.configurable\n', ''), found)
    for name in ('WeightsAndBiases', 'MLflow'):
        for method, parameters in (
            ('start', ['self', 'folder', 'settings', 'step']),
            ('log', ['self', 'values', 'step']),
            ('end', ['self', 'complete']),
        ):
            assert list(inspect.signature(getattr(found[name], method)).parameters) == parameters
