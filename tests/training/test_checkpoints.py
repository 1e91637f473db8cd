"""Checkpoints of any content: an intact one is restored, every other is skipped."""

import json
import os
import zipfile

import numpy as np
import pytest

from ob2i_tf import errors
from ob2i_tf.training import checkpoints, disk
from ob2i_tf.training.checkpoints import Checkpoints


@pytest.fixture
def folder(tmp_path):
    """Holds two checkpoints, of 10 and of 20 agent steps."""
    checkpoints = Checkpoints(tmp_path)
    for steps in (10, 20):
        checkpoints.save(steps, lambda path, steps=steps: (path / 'a').write_text(str(steps)))
    return tmp_path


def restored(folder):
    """The agent steps of the checkpoint that is restored."""
    found = []
    checkpoints.read_newest(folder, lambda path: found.append(int((path / 'a').read_text())))
    return found[-1]


def manifest(**files):
    return lambda path: (path / 'manifest.json').write_text(json.dumps(files))


def linked_to(target):
    def replace(path):
        os.remove(path / 'manifest.json')
        (path / 'manifest.json').symlink_to(target)

    return replace


@pytest.mark.parametrize(
    'damage, says',
    [
        (manifest(), 'a was not saved with it'),
        (manifest(a=None), 'a differs from the saved file'),
        (manifest(**{'a': None, '/dev/zero': {'bytes': 1, 'sha256': ''}}), '/dev/zero is missing'),
        (manifest(**{'a': None, '../000000000010/a': None}), '../000000000010/a is missing'),
        (lambda path: (path / 'manifest.json').write_text('[' * 100_000), 'RecursionError'),
        (lambda path: (path / 'manifest.json').write_text('[1]'), 'AttributeError'),
        (lambda path: (path / 'manifest.json').write_text('{'), 'JSONDecodeError'),
        (linked_to('/dev/zero'), 'manifest.json is missing'),
        (lambda path: (path / 'b').write_text('more'), 'b was not saved with it'),
    ],
)
def test_a_damaged_manifest_is_skipped(folder, damage, says):
    newest = folder / '000000000020'
    damage(newest)
    assert checkpoints.find_damage(newest).startswith(says)
    assert restored(folder) == 10


@pytest.mark.parametrize(
    'error',
    [
        OSError(5, 'Input/output error'),
        KeyError('agent'),
        RecursionError(),
        errors.CheckpointError('of another format'),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_skipped(folder, error):
    def read(path):
        read_from.append(path.name)
        if path.name == '000000000020':
            raise error

    read_from = []
    assert Checkpoints(folder).restore(read)
    assert read_from == ['000000000020', '000000000010']
    assert {path.name for path in folder.iterdir()} == {'000000000010', 'damaged-000000000020'}


@pytest.mark.parametrize('error', [KeyboardInterrupt, MemoryError])
def test_an_interrupt_or_too_little_memory_is_no_damage(folder, error, monkeypatch):
    def read(path):
        raise error

    before = {path.name for path in folder.iterdir()}
    with pytest.raises(error):
        Checkpoints(folder).restore(read)
    monkeypatch.setattr(disk, 'fingerprint', read)  # Nor while a checkpoint is verified.
    with pytest.raises(error):
        Checkpoints(folder).restore(lambda path: None)
    assert {path.name for path in folder.iterdir()} == before


def test_where_all_are_damaged_the_newest_is_explained(folder):
    for name in ('000000000010', '000000000020'):
        (folder / name / 'a').unlink()
    with pytest.raises(
        errors.CheckpointError, match=r'no checkpoint .*\(the newest of 2: a is missing\); move'
    ):
        checkpoints.read_newest(folder, lambda path: None)
    assert checkpoints.read_newest(folder / 'nowhere', lambda path: None) == []


def test_an_array_that_is_larger_than_its_file_is_an_error(tmp_path):
    header = {'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}
    with zipfile.ZipFile(tmp_path / 'arrays.npz', 'w') as archive, archive.open('a.npy', 'w') as a:
        np.lib.format.write_array_header_1_0(a, header)
    with pytest.raises(ValueError):
        checkpoints.read_arrays(tmp_path)


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path):
    outside = tmp_path / 'outside'
    outside.mkdir()
    (outside / 'file').write_text('kept')
    folder = tmp_path / 'checkpoints'
    folder.mkdir()
    for name in ('.writing-000000000003', '000000000001', '000000000002'):
        (folder / name).symlink_to(outside)
    (folder / '.deleting-000000000001').write_text('')
    checkpoints = Checkpoints(folder, keep=1)
    assert [path.name for path in checkpoints.prune()] == ['000000000002']
    assert [path.name for path in folder.iterdir()] == ['000000000002']
    assert (outside / 'file').read_text() == 'kept'
