"""The quick parts of the fault campaign and of the fuzz; `python -m campaigns` runs all of it."""

import contextlib
import functools
import os
import random
import shutil
import signal
import time

import gymnasium
import numpy as np
import pytest

from campaigns import campaign, fuzz, injections, power, runs, unsound
from ob2i_tf import errors
from ob2i_tf.environments import checked_env
from ob2i_tf.environments.checked_env import CheckedVectorEnv
from ob2i_tf.training import disk, logs, main
from ob2i_tf.training.checkpoints import Checkpoints


def check(outcomes):
    outcomes = list(outcomes)
    assert outcomes
    assert not [outcome for outcome in outcomes if outcome.wrong]
    return outcomes


def unsound_environment(fault, at=2):
    env = CheckedVectorEnv(unsound.make_unsound('Unsound', num_envs=2, fault=fault, at=at))
    env.reset()
    return contextlib.closing(env)


def test_what_a_sound_environment_returns_passes():
    with unsound_environment('none') as env:
        for _ in range(12):
            observations, *_, info = env.step(np.zeros(2, int))
        assert observations.shape == (2, 8) and info['final_obs'].dtype == np.uint8


@pytest.mark.parametrize(
    'fault, message',
    [
        ('raises', 'raised RuntimeError in step 2: the simulator is gone'),
        ('shape', 'observations of uint8 (2, 7) from step 2, not uint8 (2, 8)'),
        ('dtype', 'observations of float64 (2, 8) from step 2, not uint8 (2, 8)'),
        ('nan_reward', 'NaN or infinite rewards from step 2'),
        ('nan_observation', 'NaN or infinite observations from step 2'),
        ('wrong_flag', 'terminated of int64 (2,) from step 2, not bool (2,)'),
        ('no_final_obs', "info['final_obs'] of <class 'NoneType'> None from step 2"),
    ],
)
def test_an_environment_that_goes_wrong_is_a_line(fault, message, capfd):
    with unsound_environment(fault) as env:
        env.step(np.zeros(2, int))
        with pytest.raises(errors.UserError) as error:
            env.step(np.zeros(2, int))
    assert message in str(error.value).replace('bool_', 'bool')


def test_an_environment_that_hangs_ends_the_run(tmp_path):
    before = [_short_limit]
    bindings = (*runs.UNSOUND, "make_unsound.fault = 'hangs'", 'make_unsound.at = 5')
    status, printed = runs.run(tmp_path / 'run', bindings, before, 'ob2i_deep_sea.gin')
    assert status == 1
    assert runs.last_line(printed) == (
        'error: the environment has not returned from step 5 for 1 s'
    )


def test_a_second_interrupt_ends_a_run_that_hangs(tmp_path):
    bindings = (*runs.UNSOUND, "make_unsound.fault = 'hangs'", 'make_unsound.at = 5')
    started = runs.Started(tmp_path / 'run', bindings, gin_file='ob2i_deep_sea.gin')
    for line in ('hanging', 'SIGINT: saving, then stopping'):
        while line not in started.printed():
            assert started.process.is_alive()
            time.sleep(0.05)
        os.kill(started.process.pid, signal.SIGINT)
    status, _ = started.end()
    assert status == -signal.SIGINT


def _short_limit():
    checked_env.LIMIT_SECONDS = 1.0


class _Slow(gymnasium.vector.VectorWrapper):
    def step_async(self, actions):
        self.env.step_async(actions)

    def step_wait(self):
        time.sleep(0.05)
        return self.env.step_wait()


def test_a_slow_environment_is_none_that_hangs(monkeypatch):
    """All steps together take longer than the limit; if that counted, it would end this process."""
    monkeypatch.setattr(checked_env, 'LIMIT_SECONDS', 0.3)
    with contextlib.closing(CheckedVectorEnv(_Slow(unsound.make_unsound('Unsound')))) as env:
        env.reset()
        start = time.monotonic()
        for _ in range(12):
            assert len(env.step(np.zeros(1, int))) == 5
    assert time.monotonic() - start > 0.3


def test_changed_rows_are_noticed(tmp_path):
    path = tmp_path / 'rows.csv'
    log = logs.CsvLog(path, ('a', 'b'))
    log.write({'a': 1, 'b': 2.5})
    seen = log.fingerprint()
    log.write({'a': 2, 'b': 3.5})
    logs.CsvLog(path, ('a', 'b'), seen)
    assert path.read_text() == 'a,b\n1,2.5\n'
    path.write_text('a,b\n1,2.6\n')
    with pytest.raises(errors.CheckpointError, match='rows were changed'):
        logs.CsvLog(path, ('a', 'b'), seen)
    assert path.read_text() == 'a,b\n1,2.6\n'


def test_a_kill_leaves_no_half_checkpoint_and_nothing_that_stays(tmp_path, monkeypatch):
    def write(folder):
        (folder / 'a').write_text('a')
        (folder / 'b').write_text('b')

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, write)
    checkpoints.save(2, write)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, 'rmtree', lambda path: (path / 'a').unlink())
        checkpoints.prune()  # Is cut short after one file.
    (tmp_path / '.writing-3').mkdir()  # Of a save that was cut short.
    assert [path.name for path in checkpoints.all()] == ['000000000002']
    Checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ['000000000002']


def test_a_description_of_the_first_bytes(tmp_path):
    (tmp_path / 'a').write_bytes(b'x' * 10)
    (tmp_path / 'b').write_bytes(b'x' * 12)
    assert disk.fingerprint(tmp_path / 'b', 10) == disk.fingerprint(tmp_path / 'a')
    assert disk.fingerprint(tmp_path / 'b') != disk.fingerprint(tmp_path / 'a')


def test_a_log_that_cannot_be_written_is_lost_and_not_the_run(capfd):
    with open('/dev/full', 'w') as full:
        stream = main._LossyStream(full)
        for _ in range(3):
            assert stream.write('a line\n' * 2000) == 14000
            stream.flush()
        assert stream.fileno() == full.fileno()
        with contextlib.suppress(OSError):
            full.close()


@pytest.mark.parametrize('phase', injections.PHASES)
def test_a_kill_comes_in_each_phase(phase, tmp_path):
    status, printed = runs.run(
        tmp_path / 'run', before=[functools.partial(injections.kill_in, phase, 1, 0)]
    )
    assert status == -9, printed


def test_kills_before_operations_of_a_resume_lose_nothing():
    starts = {'a resume with replay': campaign.STARTS['a resume with replay']}
    check(campaign.kills_before_operations(random.Random(0), 1, starts))


def test_power_cuts_lose_no_checkpoint():
    """One of these two fails if any fsync is removed that a checkpoint needs."""
    check(campaign.power_cuts(random.Random(0), count=2))


def test_power_cuts_after_faults_lose_no_checkpoint():
    check(campaign.power_cuts_after_faults(random.Random(0), count=2))


def test_only_what_is_synced_is_certain_after_a_power_cut(tmp_path):
    known, rng = {}, random.Random(0)
    disk = power.Disk(power.look(tmp_path, known))

    def after(change, *synced):
        """Disks that may be left then, as {path: content}; the first holds only synced data."""
        change()
        disk.see(power.look(tmp_path, known))
        for path in synced:
            disk.do('fsync', os.stat(path).st_ino)
        left = [disk.after_cut(rng, loss) for loss in (1, *[0.5] * 200)]
        names = ({str(path): content for path, content in tree.items()} for tree in left)
        return [{name: content for name, content in tree.items() if name != '.'} for tree in names]

    a, b = tmp_path / 'a', tmp_path / 'b'
    left = after(lambda: a.write_text('old'))
    assert left[0] == {}
    assert {tree.get('a') for tree in left} >= {None, b'', b'ol', b'o\0\0', b'old'}
    assert {tree.get('a') for tree in after(lambda: None, a)} == {None, b'old'}
    assert {tree.get('a') for tree in after(lambda: None, tmp_path)} == {b'old'}
    left = after(lambda: a.write_text('older'))
    assert {tree['a'] for tree in left} == {b'old', b'olde', b'old\0\0', b'olde\0', b'older'}
    left = after(lambda: a.rename(b), b)
    assert left[0] == {'a': b'older'}
    assert {*map(str, left)} == {"{'a': b'older'}", "{'b': b'older'}"}
    left = after(lambda: (a.mkdir(), (a / 'c').write_text('new')), a / 'c', a)
    assert left[0] == {'a': b'older'}
    assert {'a': None, 'a/c': b'new'} in left
    left = after(lambda: None, tmp_path)
    assert all(tree == {'b': b'older', 'a': None, 'a/c': b'new'} for tree in left)
    left = after(b.unlink)
    assert left[0]['b'] == b'older' and any('b' not in tree for tree in left)


@pytest.mark.parametrize('largest_file_bytes', [20_000, 22_000, 30_000])
def test_nothing_follows_the_error_line_of_a_full_disk(tmp_path, largest_file_bytes):
    """Where the arrays of a checkpoint do not fit, and its replay does."""
    bindings = (
        'Runner.num_iterations = 1',
        'Runner.training_steps = 40',
        'horizon = 4',
        "make_linear_mdp.kind = 'linear'",
        'make_linear_mdp.num_features = 300',
        'EpisodeReplay.capacity_transitions = 10',
    )
    started = runs.Started(tmp_path / 'run', bindings, largest_file_bytes=largest_file_bytes)
    status, printed = started.end()
    assert status == 1
    assert runs.last_line(printed).startswith('error: cannot write to the run folder')
    assert [path.name for path in (tmp_path / 'run' / 'replay').iterdir()]
    assert not runs.checkpoints(tmp_path / 'run')


def test_a_clock_that_jumps_changes_nothing():
    check(campaign.clocks(random.Random(0), count=1))


def test_mutated_configurations():
    outcomes, failures = fuzz.campaign(150, seed=1)
    assert not failures
    assert outcomes['accepted'] > 5 and outcomes['refused'] > 50


def test_a_checkpoint_damaged_again_at_the_same_step_does_not_stop_a_run(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    write = lambda folder: (folder / 'content').write_text('intact')  # noqa: E731
    checkpoints.save(10, write)
    for _ in range(2):
        checkpoints.save(20, write)
        (tmp_path / '000000000020' / 'content').write_text('damaged')
        assert checkpoints.restore(lambda folder: None)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ['000000000010', 'damaged-000000000020', 'damaged-000000000020-1']
