"""Checkpoints that are intact or absent: written aside, verified, then renamed.

A checkpoint is a folder named by its agent steps in 12 digits, such as 000001000000; a second one
at the same agent steps gets the suffix -1. Only `_name`, `_unused` and `_parse` depend on this.
"""

import io
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from ob2i_tf.errors import CheckpointError
from ob2i_tf.training import disk

FORMAT = 4
_MANIFEST = 'manifest.json'
_WRITING = '.writing-'
_DELETING = '.deleting-'


class Checkpoints:
    """The checkpoints of a run.

    Args:
      directory: Folder of the checkpoints, which no other process writes to; created if missing.
      keep: Number of the newest checkpoints that `prune` keeps.
    """

    def __init__(self, directory: str | Path, keep: int = 2):
        self._directory = Path(directory)
        disk.make_folder(self._directory)
        self._keep = keep
        for path in self._directory.iterdir():  # Left by a kill during a save or a deletion.
            if path.name.startswith((_WRITING, _DELETING)):
                disk.remove(path)

    def save(self, agent_steps: int, write: Callable[[Path], object]) -> None:
        """Saves a checkpoint; if anything fails, earlier ones are unaffected.

        Args:
          agent_steps: Agent steps that the run has taken, which name the checkpoint.
          write: Called with an empty folder; writes the files of the checkpoint there.

        Raises:
          OSError: The disk is full or cannot be written to.
          CheckpointError: The files fail verification after writing.
        """
        final = self._unused(_name(agent_steps))
        aside = self._directory / (_WRITING + final.name)
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir()
            write(aside)
            files = _files(aside)
            with ThreadPoolExecutor(1) as pool:
                synced = pool.map(disk.sync, files)  # While this thread reads them.
                manifest = {str(path.relative_to(aside)): disk.fingerprint(path) for path in files}
                list(synced)  # Raises what failed.
            disk.write_text(aside / _MANIFEST, json.dumps(manifest, indent=1))
            disk.sync(aside)
            if fault := find_damage(aside):
                raise CheckpointError(f'{aside} failed verification after writing: {fault}')
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        os.replace(aside, final)
        disk.sync(self._directory)

    def _unused(self, name: str) -> Path:
        """Path of `name`, or of `name` and a number if it exists."""
        names = (name + f'-{i}' * (i > 0) for i in itertools.count())
        return next(p for p in map(self._directory.joinpath, names) if not p.exists())

    def prune(self) -> list[Path]:
        """Deletes all but the newest `keep` checkpoints; returns those that stay, newest first."""
        kept, old = self.all()[: self._keep], self.all()[self._keep :]
        for path in old:  # Renamed first, so that a kill leaves no incomplete checkpoint.
            aside = path.with_name(_DELETING + path.name)
            os.replace(path, aside)
            disk.remove(aside)
        return kept

    def all(self) -> list[Path]:
        """Folders of all checkpoints, newest first, intact or not."""
        return newest_first(self._directory)

    def restore(self, read: Callable[[Path], object]) -> bool:
        """Calls `read` with the newest intact checkpoint, see `read_newest`.

        Returns:
          Whether there was a checkpoint to restore.
        """
        for damaged in read_newest(self._directory, read):
            # Renamed so that `prune` and the next resume ignore it.
            os.replace(damaged, self._unused('damaged-' + damaged.name))
        return bool(self.all())


def read_newest(directory: Path, read: Callable[[Path], object]) -> list[Path]:
    """Calls `read` with the newest checkpoint that is intact and can be read.

    Args:
      directory: Folder of the checkpoints.
      read: Called with the folder of one checkpoint. If it raises anything but a MemoryError, it is
        called with the next older one, since the content of a verified file can be unusable.

    Returns:
      The newer checkpoints, which were skipped as damaged.

    Raises:
      CheckpointError: There are checkpoints, but none can be restored.
      MemoryError: Memory ran out, which does not mean that a checkpoint is damaged.
    """
    paths = newest_first(directory)
    faults: list[str] = []
    for path in paths:
        fault = find_damage(path)
        if not fault:
            try:
                read(path)
                return paths[: len(faults)]
            except MemoryError:
                raise
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


def newest_first(directory: Path) -> list[Path]:
    """Folders of all checkpoints in a folder, intact or not; [] if the folder is missing."""
    return sorted(filter(_parse, _paths(directory)), key=_parse, reverse=True)


def none_in(directory: Path) -> str:
    """The message that a folder has no checkpoint, with files in it that may be meant."""
    names = sorted(path.name for path in _paths(directory) if not path.name.startswith('.'))
    only = f', only {", ".join(names)}: a checkpoint is named by its agent steps' if names else ''
    return f'no checkpoint in {directory}{only}'


def _paths(directory):
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def agent_steps(path: Path) -> int:
    """Agent steps that a run had taken when it saved the checkpoint in folder `path`."""
    return _parse(path)[0]


def _name(agent_steps):
    return f'{agent_steps:012d}'


def _parse(path):
    """(agent steps, suffix) of the folder of a checkpoint; () of any other path."""
    match = re.fullmatch(r'(\d+)(?:-(\d+))?', path.name)
    return (int(match[1]), int(match[2] or 0)) if match else ()


def write_content(
    folder: Path, state: dict[str, Any], arrays: dict[str, dict[str, np.ndarray]], variables
) -> None:
    """Writes the content of a checkpoint.

    Args:
      folder: Empty folder.
      state: Values that JSON can express.
      arrays: {part: {name: array}}.
      variables: All variables, as a tf.train.Checkpoint.
    """
    (folder / 'state.json').write_text(json.dumps({'format': FORMAT, **state}))
    named = {f'{part}_{name}': x for part, group in arrays.items() for name, x in group.items()}
    content = io.BytesIO()  # On a full disk NumPy itself would leave an open archive.
    np.savez_compressed(content, **named)
    (folder / 'arrays.npz').write_bytes(content.getvalue())
    with disk.tensorflow_path(folder) as name:
        variables.write(f'{name}/variables')


def read_state(folder: Path) -> dict[str, Any]:
    """Reads the state in a checkpoint; raises a CheckpointError if another version wrote it."""
    state = json.loads((folder / 'state.json').read_text())
    if state['format'] != FORMAT:
        raise CheckpointError(f'{folder} has format {state["format"]}, not {FORMAT}')
    return state


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Reads {part_name: array} from a checkpoint."""
    with np.load(folder / 'arrays.npz', allow_pickle=False) as file:
        return dict(file)


def arrays_of(part: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{name: array} of one part, as given to `write_content`."""
    prefix = f'{part}_'
    return {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}


def read_variables(folder: Path, variables) -> Any:
    """Restores a tf.train.Checkpoint; returns its status, on which the caller asserts."""
    with disk.tensorflow_path(folder) as name:
        return variables.read(f'{name}/variables')


def find_damage(path: str | Path) -> str:
    """Describes the damage to the checkpoint in folder `path`; '' if it is intact."""
    path = Path(path)
    manifest = path / _MANIFEST
    try:
        if not manifest.is_file():
            return f'{_MANIFEST} is missing'
        files = json.loads(manifest.read_text())
        found = {str(file.relative_to(path)) for file in _files(path)} - {_MANIFEST}
        for name in sorted(found ^ files.keys()):
            return f'{name} ' + ('is missing' if name in files else 'was not saved with it')
        for name, saved in files.items():
            if disk.fingerprint(path / name) != saved:
                return f'{name} differs from the saved file'
    except MemoryError:
        raise
    except Exception as error:  # A damaged manifest may hold anything.
        return _described(error)
    return ''


def _files(folder):
    return sorted(path for path in folder.rglob('*') if path.is_file())


def _described(error):
    return f'{type(error).__name__}: {error}'.partition('\n')[0]
