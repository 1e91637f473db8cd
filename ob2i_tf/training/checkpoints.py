"""Checkpoints that are whole or not there: written aside, verified, then renamed."""

import io
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
from absl import logging

from ob2i_tf.errors import CheckpointError
from ob2i_tf.training import disk

FORMAT = 4
_MANIFEST = 'manifest.json'
_ASIDE = '.writing-'
_LEAVING = '.deleting-'


class Checkpoints:
    """The checkpoints of a run, one folder each, named by agent steps.

    Args:
      directory: their folder, of which no other process is writing; created if it is not there.
      keep: how many of the newest stay.
    """

    def __init__(self, directory, keep=2):
        self._directory = Path(directory)
        disk.make_folder(self._directory)
        self._keep = keep
        for path in self._directory.iterdir():  # Where a kill cut a save or a deletion short.
            if path.name.startswith((_ASIDE, _LEAVING)):
                disk.remove(path)

    def save(self, agent_steps, write):
        """Saves one checkpoint; if anything fails, the earlier ones are still there.

        Args:
          agent_steps: names the checkpoint; a later one of the same number gets a suffix.
          write: called with an empty folder, to put files into.

        Raises:
          OSError: if the disk is full or cannot be written to.
          CheckpointError: if what was written does not read back.
        """
        final = self._free(f'{agent_steps:012d}')
        aside = self._directory / (_ASIDE + final.name)
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir()
            write(aside)
            files = _files(aside)
            manifest = {str(path.relative_to(aside)): disk.fingerprint(path) for path in files}
            (aside / _MANIFEST).write_text(json.dumps(manifest, indent=1))
            for path in files + [aside / _MANIFEST, aside]:
                disk.sync(path)
            fault = find_damage(aside)
            if fault:
                raise CheckpointError(f'{aside} does not read back as it was written: {fault}')
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        os.replace(aside, final)
        disk.sync(self._directory)

    def _free(self, name):
        """The path of `name`, or of `name` and a number, that is not there yet."""
        names = (name + f'-{i}' * (i > 0) for i in itertools.count())
        return next(p for p in map(self._directory.joinpath, names) if not p.exists())

    def prune(self):
        """Deletes all but the newest `keep` checkpoints; returns those that stay, newest first."""
        kept, old = self.all()[: self._keep], self.all()[self._keep :]
        for path in old:  # What has the name of a checkpoint is whole, also if a kill comes now.
            leaving = path.with_name(_LEAVING + path.name)
            os.replace(path, leaving)
            disk.remove(leaving)
        return kept

    def all(self):
        """Folders of all checkpoints, newest first, whole or not."""
        return newest_first(self._directory)

    def restore(self, read):
        """Calls `read` with the newest intact checkpoint, see `read_newest`.

        Returns:
          Whether there was a checkpoint to restore.
        """
        for damaged in read_newest(self._directory, read):
            # Out of the way of prune, and of the next resume.
            os.replace(damaged, self._free('damaged-' + damaged.name))
        return bool(self.all())


def read_newest(directory, read):
    """Calls `read` with the newest checkpoint that is intact and can be read.

    Args:
      directory: Folder of the checkpoints.
      read: Called with the folder of one checkpoint. If it raises, whatever the reason, it is
        called with the next older one: a verified file can still fail to be read, or to make sense.

    Returns:
      The newer checkpoints that were skipped as damaged.

    Raises:
      CheckpointError: there are checkpoints, but none can be restored.
    """
    paths = newest_first(directory)
    faults = []
    for path in paths:
        fault = find_damage(path)
        if not fault:
            try:
                read(path)
                return paths[: len(faults)]
            except Exception as error:
                fault = _described(error)
        faults.append(fault)
        logging.warning('Skipping the damaged checkpoint %s: %s', path, fault)
    if paths:
        raise CheckpointError(
            f'no checkpoint in {directory} can be restored (the newest of {len(paths)}: '
            f'{faults[0]}); move the run folder away to start over'
        )
    return []


def newest_first(directory) -> list[Path]:
    """Folders of all checkpoints in a folder, intact or not; [] if the folder is missing."""
    paths = directory.iterdir() if directory.is_dir() else ()
    named = (path for path in paths if re.fullmatch(r'\d+(-\d+)?', path.name))
    return sorted(named, key=lambda p: [*map(int, p.name.split('-'))], reverse=True)


def agent_steps(path) -> int:
    """Agent steps that a run had taken when it saved the checkpoint in folder `path`."""
    return int(path.name.partition('-')[0])


def write_content(folder, state, arrays, variables) -> None:
    """Writes the content of a checkpoint.

    Args:
      folder: Empty folder.
      state: Dict that JSON can express.
      arrays: {part: {name: array}}.
      variables: tf.train.Checkpoint.
    """
    (folder / 'state.json').write_text(json.dumps({'format': FORMAT, **state}))
    named = {f'{part}_{name}': x for part, group in arrays.items() for name, x in group.items()}
    content = io.BytesIO()  # On a full disk NumPy would leave an open archive.
    np.savez_compressed(content, **named)
    (folder / 'arrays.npz').write_bytes(content.getvalue())
    with disk.tensorflow_path(folder) as name:
        variables.write(f'{name}/variables')


def read_state(folder) -> dict:
    """The state in a checkpoint; CheckpointError if another version wrote it."""
    state = json.loads((folder / 'state.json').read_text())
    if state['format'] != FORMAT:
        raise CheckpointError(f'{folder} has format {state["format"]}, not {FORMAT}')
    return state


def read_arrays(folder) -> dict:
    """{part_name: array} in a checkpoint."""
    path = folder / 'arrays.npz'
    disk.check_unpacked(path)
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def arrays_of(part, arrays) -> dict:
    """{name: array} of one part, by the names that it gave them in `write_content`."""
    prefix = f'{part}_'
    return {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}


def read_variables(folder, variables):
    """Restores a tf.train.Checkpoint; returns its status, on which the caller asserts."""
    with disk.tensorflow_path(folder) as name:
        return variables.read(f'{name}/variables')


def find_damage(path):
    """Describes the damage of the checkpoint in folder `path`; '' if it is intact."""
    path = Path(path)
    manifest = path / _MANIFEST
    try:
        if not manifest.is_file():
            return f'{_MANIFEST} is missing'
        files = json.loads(manifest.read_text())
        there = {str(file.relative_to(path)) for file in _files(path)} - {_MANIFEST}
        for name in sorted(there ^ files.keys()):
            return f'{name} is ' + ('missing' if name in files else 'not part of what was saved')
        for name, description in files.items():
            if disk.fingerprint(path / name) != description:
                return f'{name} is not what was saved'
    except Exception as error:  # A damaged manifest may hold anything.
        return _described(error)
    return ''


def _files(folder):
    return sorted(path for path in folder.rglob('*') if path.is_file())


def _described(error):
    return f'{type(error).__name__}: {error}'.partition('\n')[0]
