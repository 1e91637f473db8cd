"""Files that survive a power cut, and the lock of a run folder."""

import errno
import os

import pytest

from ob2i_tf import errors
from ob2i_tf.analysis import load
from ob2i_tf.training import disk, logs
from ob2i_tf.training.run_folder import RunFolder


def fsynced(monkeypatch):
    """The paths brought to the disk from now on."""
    paths, fsync = [], os.fsync

    def record(descriptor):
        paths.append(os.readlink(f'/proc/self/fd/{descriptor}'))
        fsync(descriptor)

    monkeypatch.setattr(os, 'fsync', record)
    return paths


def test_each_created_folder_is_brought_to_the_disk(tmp_path, monkeypatch):
    (tmp_path / 'a').mkdir()
    paths = fsynced(monkeypatch)
    disk.make_folder(tmp_path / 'a' / 'b' / 'c')
    assert (tmp_path / 'a' / 'b' / 'c').is_dir()
    assert {str(tmp_path / 'a'), str(tmp_path / 'a' / 'b')} <= set(paths)
    paths.clear()  # It is there, but a killed process may not have synced its name.
    disk.make_folder(tmp_path / 'a' / 'b' / 'c')
    assert paths == [str(tmp_path / 'a' / 'b')]


def test_a_checkpoint_brings_all_rows_of_a_table_to_the_disk(tmp_path, monkeypatch):
    path = tmp_path / 'rows.csv'
    paths = fsynced(monkeypatch)
    log = logs.CsvLog(path, ('a', 'b'))
    assert paths == [str(path)] and path.read_text() == 'a,b\n'
    log.write({'a': 1, 'b': 2.5})
    assert path.read_text() == 'a,b\n1,2.5\n'
    paths.clear()
    log.fingerprint()
    assert paths == [str(path)]


def append(path):
    with open(path, 'a') as file:
        file.write('3,4.5\n')


def replace(path):
    text = path.read_text()
    path.rename(path.with_name('kept'))  # Its inode stays in use.
    path.write_text(text)


@pytest.mark.parametrize('change', [append, replace, lambda path: path.write_text(''), os.remove])
def test_a_table_changed_by_another_program_takes_no_further_row(tmp_path, change):
    path = tmp_path / 'rows.csv'
    log = logs.CsvLog(path, ('a', 'b'))
    log.write({'a': 1, 'b': 2.5})
    change(path)
    left = path.read_text() if path.exists() else None
    with pytest.raises(OSError, match='rows.csv') as error:
        log.write({'a': 2, 'b': 3.5})
    assert isinstance(error.value, (disk.FileChangedError, FileNotFoundError))
    assert (path.read_text() if path.exists() else None) == left


def test_a_row_edited_in_place_is_noticed_at_the_next_checkpoint(tmp_path):
    path = tmp_path / 'rows.csv'
    log = logs.CsvLog(path, ('a', 'b'))
    log.write({'a': 1, 'b': 2.5})
    assert log.fingerprint() == disk.fingerprint(path)
    with open(path, 'r+') as file:
        file.write('a,b\n1,2.6')
    with pytest.raises(disk.FileChangedError, match='rows.csv was changed by another program'):
        log.fingerprint()


def test_a_resumed_table_knows_what_it_holds(tmp_path):
    path = tmp_path / 'rows.csv'
    log = logs.CsvLog(path, ('a', 'b'))
    log.write({'a': 1, 'b': 2.5})
    seen = log.fingerprint()
    log.write({'a': 2, 'b': 3.5})
    resumed = logs.CsvLog(path, ('a', 'b'), seen)
    resumed.write({'a': 3, 'b': 4.5})
    assert resumed.fingerprint() == disk.fingerprint(path)
    assert path.read_text() == 'a,b\n1,2.5\n3,4.5\n'


def test_the_lock_holds_though_its_file_is_removed(tmp_path):
    lock = disk.Lock(tmp_path)
    os.remove(tmp_path / 'lock')
    with pytest.raises(errors.UserError, match=f'another process is running in {tmp_path}'):
        disk.Lock(tmp_path)
    lock.close()
    disk.Lock(tmp_path).close()


def test_the_file_locks_where_folders_cannot_be_locked(tmp_path, monkeypatch):
    flock = disk.fcntl.flock

    def only_files(descriptor, operation):
        if os.path.isdir(f'/proc/self/fd/{descriptor}'):
            raise OSError(9, 'Bad file descriptor')
        flock(descriptor, operation)

    monkeypatch.setattr(disk.fcntl, 'flock', only_files)
    lock = disk.Lock(tmp_path)
    with pytest.raises(errors.UserError, match='another process is running'):
        disk.Lock(tmp_path)
    lock.close()


def test_nothing_is_written_through_a_link(tmp_path):
    victim = tmp_path / 'victim'
    victim.write_text('kept')
    for name in ('lock', 'config.gin.writing', 'rows.csv'):
        (tmp_path / name).symlink_to(victim)
    for write in (
        lambda: disk.Lock(tmp_path),
        lambda: disk.replace_text(tmp_path / 'config.gin', 'text'),
        lambda: logs.CsvLog(tmp_path / 'rows.csv', ('a',)),
        lambda: logs.CsvLog(tmp_path / 'rows.csv', ('a',), disk.fingerprint(victim, 2)),
    ):
        with pytest.raises(OSError):
            write()
        assert victim.read_text() == 'kept'


def _is_a_pipe(path):
    os.mkfifo(path)


def _is_a_device(path):
    path.symlink_to('/dev/zero')


@pytest.mark.parametrize('make', [_is_a_pipe, _is_a_device])
def test_pipes_and_devices_are_refused_not_waited_for(tmp_path, make):
    for name in ('config.gin', 'environment.json', 'train.csv', 'train.csv.writing'):
        make(tmp_path / name)
    for use in (
        lambda: disk.fingerprint(tmp_path / 'train.csv', 5),
        lambda: disk.replace_text(tmp_path / 'train.csv', 'text'),
        lambda: logs.CsvLog(tmp_path / 'train.csv', ('a', 'b')),
    ):
        with pytest.raises(OSError, match=r'train\.csv'):
            use()
    with pytest.raises(errors.UserError, match='Not a regular file'):
        RunFolder(tmp_path).check_config('', '')
    said = []
    assert load.read_csv(tmp_path / 'train.csv', ('frames',), said.append).empty
    assert said == ['train.csv cannot be read: Not a regular file']


def test_a_configuration_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def deny(path, *arguments):
        raise PermissionError(errno.EACCES, 'Permission denied', str(path))

    monkeypatch.setattr(os, 'open', deny)
    with pytest.raises(errors.UserError, match='cannot be read: .*Permission denied: .*config.gin'):
        RunFolder(tmp_path).check_config('', '')
