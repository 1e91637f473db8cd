"""Runs that something disturbs: changed files, hostile checkpoints, links, signals, bad values."""

import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from campaigns import campaign, injections, runs
from ob2i_tf.errors import UserError
from ob2i_tf.training import checkpoints, disk
from ob2i_tf.training.failures import disk_errors
from ob2i_tf.training.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]


def _at(agent_steps, change, *arguments):
    """A picklable injection: `change(*arguments)` within that agent step."""
    return functools.partial(_install, agent_steps, functools.partial(change, *arguments))


def _install(agent_steps, change):
    injections.after_steps(agent_steps, lambda agent: change())


def _append(path):
    with open(path, 'a') as file:
        file.write('1,2.0,3\n')


def _edit(path):
    content = path.read_bytes()
    with open(path, 'r+b') as file:
        file.seek(len(content) - 2)
        file.write(b'7' if content[-2:-1] != b'7' else b'8')


@pytest.mark.parametrize(
    'name, change, says',
    [
        ('episodes.csv', os.remove, 'No such file'),
        ('episodes.csv', functools.partial(os.truncate, length=0), 'changed by another program'),
        ('episodes.csv', _append, 'changed by another program'),
        ('episodes.csv', _edit, 'changed by another program'),
        ('train.csv', os.remove, 'No such file'),
        ('replay', shutil.rmtree, 'No such file'),
    ],
)
def test_a_file_changed_during_a_run_stops_it_in_one_line(tmp_path, name, change, says):
    base_dir = tmp_path / 'run'
    status, printed = runs.run(base_dir, before=[_at(62, change, base_dir / name)])
    assert status == 1
    last = runs.last_line(printed)
    assert last.startswith(f'error: cannot write to the run folder {base_dir}: ')
    assert name in last and says in last and 'Traceback' not in printed
    assert runs.checkpoints(base_dir)[-1] <= '000000000060'


def test_a_second_process_is_refused_though_the_lock_is_removed(tmp_path):
    base_dir = tmp_path / 'run'
    base_dir.mkdir()
    lock = disk.Lock(base_dir)
    os.remove(base_dir / 'lock')
    status, printed = runs.run(base_dir)
    lock.close()
    assert status == 1
    assert runs.last_line(printed) == f'error: another process is running in {base_dir}'
    assert {path.name for path in base_dir.iterdir()} == {'lock'}


def seal(folder):
    """Makes the manifest of a checkpoint match its files."""
    files = [p for p in folder.rglob('*') if p.is_file() and p.name != 'manifest.json']
    manifest = {str(path.relative_to(folder)): disk.fingerprint(path) for path in files}
    (folder / 'manifest.json').write_text(json.dumps(manifest))
    assert not checkpoints.find_damage(folder)


def _state(text):
    return lambda folder: (folder / 'state.json').write_text(text)


def _change_state(folder, **items):
    state = json.loads((folder / 'state.json').read_text())
    (folder / 'state.json').write_text(json.dumps({**state, **items}))


def _no_tables(folder):
    _change_state(folder, tables={})


def _another_iteration(folder):
    _change_state(folder, iteration=10**9)


def _huge_array(folder):
    header = io.BytesIO()
    shape = {'descr': '<i4', 'fortran_order': False, 'shape': (10**13, 1)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(folder / 'arrays.npz', 'w') as archive:
        archive.writestr('actions.npy', header.getvalue())


def _segment_of_zeros(folder):
    state = json.loads((folder / 'state.json').read_text())
    state['replay']['segments'][0].update(file='/dev/zero', bytes=0)
    (folder / 'state.json').write_text(json.dumps(state))


def test_a_checkpoint_that_does_not_fit_into_memory_is_not_taken_for_damaged():
    base_dir = runs.scratch_copy(campaign.straight())
    before = runs.checkpoints(base_dir)
    newest = base_dir / 'checkpoints' / before[-1]
    _huge_array(newest)
    seal(newest)
    status, printed = runs.run(base_dir)
    assert status == 2 and not runs.one_line(status, printed), printed
    assert 'not enough memory' in runs.last_line(printed)
    assert runs.checkpoints(base_dir) == before


@pytest.mark.parametrize(
    'change',
    [
        _state('{}'),
        _state('{"format": 3}'),
        _state('[' * 100_000),
        _state('null'),
        _segment_of_zeros,
        _no_tables,
        _another_iteration,
    ],
    ids=lambda change: change.__name__,
)
def test_a_checkpoint_that_makes_no_sense_is_skipped(change):
    base_dir = runs.scratch_copy(campaign.straight())
    newest = base_dir / 'checkpoints' / runs.checkpoints(base_dir)[-1]
    change(newest)
    seal(newest)
    status, printed = runs.run(base_dir)
    assert status == 0 and f'Skipping the damaged checkpoint {newest}' in printed
    assert runs.rows(base_dir) == runs.rows(campaign.straight())


def test_links_in_a_run_folder_are_not_written_through():
    base_dir = runs.scratch_copy(campaign.straight())
    victim = base_dir.parent / 'victim'
    victim.write_text('kept')
    for name in ('lock', 'config.gin.writing'):
        (base_dir / name).unlink(missing_ok=True)
        (base_dir / name).symlink_to(victim)
        status, printed = runs.run(base_dir)
        assert not runs.one_line(status, printed) and f'{base_dir}/{name}' in printed
        assert victim.read_text() == 'kept'
        (base_dir / name).unlink()
    assert runs.run(base_dir)[0] == 0


@pytest.mark.parametrize('name', ['checkpoints', 'replay', 'tensorboard'])
def test_a_linked_folder_in_a_run_folder_is_refused(tmp_path, name):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'outside').mkdir()
    (tmp_path / 'run' / name).symlink_to('../outside')
    with pytest.raises(UserError, match=f'run/{name} is a symbolic link'):
        RunFolder(tmp_path / 'run').check_unlinked()


def test_an_error_speaks_of_earlier_checkpoints_only_where_there_are_some(tmp_path):
    for kept in (False, True):
        if kept:
            (tmp_path / 'checkpoints' / '000000000010').mkdir(parents=True)
        with pytest.raises(UserError) as error, disk_errors(RunFolder(tmp_path)):
            raise OSError('the disk is full')
        assert str(error.value).startswith(
            f'cannot write to the run folder {tmp_path}: the disk is'
        )
        assert ('; its earlier checkpoints are unchanged' in str(error.value)) == kept


def test_a_config_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / 'run' / 'config.gin').mkdir(parents=True)
    status, printed = runs.run(tmp_path / 'run')
    assert status == 1 and 'Traceback' not in printed
    assert runs.last_line(printed).startswith('error: the configuration of the run cannot be read')


def _hang_up():
    os.kill(os.getpid(), signal.SIGHUP)


def _as_under_nohup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_closed_terminal_saves_first(tmp_path):
    base_dir = tmp_path / 'run'
    status, printed = runs.run(base_dir, before=[_at(33, _hang_up)])
    assert status == 128 + signal.SIGHUP and 'Stopped by SIGHUP' in printed
    assert runs.checkpoints(base_dir)[-1] == '000000000033'
    status, _ = runs.run(base_dir, before=[_as_under_nohup, _at(60, _hang_up)])
    assert status == 0 and runs.rows(base_dir) == runs.rows(campaign.straight())


@pytest.mark.parametrize('seconds', [0.1, 1.5])
def test_an_interrupt_in_the_first_seconds_is_at_most_one_line(tmp_path, seconds):
    process = subprocess.Popen(
        [
            sys.executable,
            ROOT / 'run_experiment.py',
            '--gin_files=ob2i_atari_small.gin',
            f'--base_dir={tmp_path / "run"}',
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert printed.strip() in ('', 'error: interrupted')


@pytest.mark.parametrize(
    'binding, says',
    [
        ('linear.final = -0.2', 'linear.final: expected in 0..1, got -0.2'),
        ('linear.final = 2.0', 'linear.final: expected in 0..1, got 2.0'),
        ('linear.start = 1.01', 'linear.start: expected in 0..1, got 1.01'),
        ('linear.steps = -100', 'linear.steps: expected at least 0, got -100'),
        ('Runner.evaluation_envs = 3000', 'Runner.evaluation_envs: expected in 1..256, got 3000'),
        ('Runner.num_envs = 3000', 'Runner.num_envs: expected in 1..256, got 3000'),
    ],
)
def test_a_value_that_would_end_the_run_later_is_refused_before_anything_is_made(
    tmp_path, binding, says
):
    status, printed = runs.run(
        tmp_path / 'run', (binding,), gin_file='ob2i_atari.gin', output=tmp_path / 'printed'
    )
    assert status == 2
    assert runs.last_line(printed) == f'error: --gin_bindings={binding!r}: {says}'
    assert not (tmp_path / 'run').exists() and 'replay:' not in printed
