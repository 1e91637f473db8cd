"""Paths of any bytes, `~`, and standard streams that are closed."""

import csv
import functools
import os
import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from campaigns import runs
from ob2i_tf import config, evaluate, sweep
from ob2i_tf.analysis import __main__ as report
from ob2i_tf.analysis import load

pytestmark = pytest.mark.usefixtures('clean_gin')
BYTES = os.fsdecode(b'\xc3\xbc\xff')  # An 'ü' in UTF-8, and a byte that never is.
SHORT = ('Runner.num_iterations = 2', *runs.BINDINGS[1:], 'Runner.profile = (5, 30)')
SHORTER = ('Runner.num_iterations = 1', *SHORT[1:])


def command(base_dir, bindings=SHORT):
    return [
        sys.executable,
        '-m',
        'ob2i_tf.training.main',
        f'--gin_files={runs.GIN_FILE}',
        f'--base_dir={base_dir}',
        *(f'--gin_bindings={b}' for b in bindings),
    ]


def check_run(base_dir):
    """Two iterations, the second resumed, with all that TensorFlow and TensorBoard write."""
    assert len(runs.rows(base_dir)['train']) == 3 and not runs.damaged(base_dir)
    assert list(base_dir.glob('tensorboard/plugins/profile/*/*.xplane.pb'))
    plain = base_dir.rename(base_dir.with_name('plain'))  # TensorBoard reads no other.
    assert len(EventAccumulator(str(plain / 'tensorboard')).Reload().Scalars('train/epsilon')) == 2
    plain.rename(base_dir)


def test_a_run_folder_may_be_of_any_bytes(tmp_path, capsys):
    base_dir = tmp_path / BYTES
    for bindings in (SHORTER, SHORT):
        status, printed = runs.run(base_dir, bindings)
        assert status == 0, printed
    assert 'Resuming in' in printed
    check_run(base_dir)
    out = tmp_path / f'{BYTES}.csv'
    assert evaluate.main([str(base_dir), '--preferences=mean', '--games=1', f'--out={out}']) == 0
    with open(out, newline='', encoding='utf-8', errors='surrogateescape') as file:
        (row,) = csv.DictReader(file)
    assert row['run'] == str(base_dir)
    capsys.readouterr()
    assert report.main([str(base_dir), f'--out={tmp_path / BYTES}.report']) == 0
    assert 'ü\\udcff' in (tmp_path / f'{BYTES}.report' / 'report.html').read_text()


def test_a_locale_without_letters_like_those_of_a_path(tmp_path):
    base_dir = tmp_path / 'ü'
    for bindings in (SHORTER, SHORT):
        ended = subprocess.run(
            command(base_dir, bindings),
            capture_output=True,
            text=True,
            env={**os.environ, 'LC_ALL': 'C', 'PYTHONUTF8': '0'},
        )
        assert ended.returncode == 0, ended.stderr
    assert 'Resuming in' in ended.stderr
    check_run(base_dir)


def _set_home(path):
    os.environ['HOME'] = path


def test_a_run_in_the_home_folder(tmp_path):
    before = [functools.partial(_set_home, str(tmp_path))]
    (tmp_path / 'mine.gin').write_text(f"include '{runs.GIN_FILE}'\n")
    status, printed = runs.Started(
        '~/run', SHORTER, before, gin_file='~/mine.gin', output=tmp_path / 'stderr'
    ).end()
    assert status == 0, printed
    assert len(runs.rows(tmp_path / 'run')['train']) == 2


def test_the_home_folder_in_other_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('HOME', str(tmp_path))
    (tmp_path / 'mine.gin').write_text(f"include '{runs.GIN_FILE}'\n")
    assert sweep.main(['--gin_files=~/mine.gin', '--base_dir=~/sweep', '--print']) == 0
    assert capsys.readouterr().out.strip().endswith(f'--base_dir={tmp_path}/sweep/mine/seed0')
    assert evaluate.main(['~/nowhere', '--out=~/games.csv']) == 1
    assert f'no run folder at or below {tmp_path}/nowhere' in capsys.readouterr().err
    for source in ('~/nowhere', 'Mine=~/nowhere'):
        assert report.main([source, '--out=~/report']) == 1
        assert f'no folder {tmp_path}/nowhere' in capsys.readouterr().err
    assert load._name_and_path('~/mine.gin') == (None, f'{tmp_path}/mine.gin')


@pytest.mark.parametrize('arguments, status', [(SHORTER, 0), (['Runner.sed = 1'], 2)])
@pytest.mark.parametrize('closed', [(2,), (0, 1, 2)])
def test_closed_streams_leave_the_exit_status(tmp_path, arguments, status, closed):
    ended = subprocess.Popen(
        command(tmp_path / 'run', arguments),
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: [os.close(number) for number in closed],
    )
    assert ended.wait() == status
    assert not status or not (tmp_path / 'run').exists()


def test_a_byte_order_mark_is_no_part_of_a_gin_file(tmp_path):
    path = tmp_path / 'marked.gin'
    path.write_text(f"include '{runs.GIN_FILE}'\nRunner.seed = 3\n", encoding='utf-8-sig')
    config.load([str(path)])
    assert config.value('Runner.seed') == 3
    (tmp_path / 'config.gin').write_text('Runner.seed = 3\n', encoding='utf-8-sig')
    (tmp_path / 'train.csv').write_text('frames\n1\n', encoding='utf-8-sig')
    assert load.read_csv(tmp_path / 'train.csv', ('frames',), print)['frames'].tolist() == [1]
