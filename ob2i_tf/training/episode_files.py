"""Replay on disk: each episode is written once, compressed, and verified when it is loaded."""

import collections
import itertools
import math
import os
import threading
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from backports.zstd import zipfile  # That of Python 3.14, whose archives may use Zstandard.

from ob2i_tf.replay import STEP, EpisodeReplay
from ob2i_tf.training import disk

_FORMAT = 3
_FORMATS = (2, _FORMAT)  # In format 2, of version 1.0, the archives are deflated.
_PREFIX = 'episodes-'
_SEGMENT_BYTES = 64 * 2**20  # Before compression.
_THREADS = 4  # They unpack segments while the main thread appends episodes.
# NumPy parses the headers of arrays by `ast`, which fails at random in several threads (CPython
# 3.11, SystemError, where the garbage collector has callbacks).
_HEADERS = threading.Lock()


class ReplayDamagedError(ValueError):
    """A saved replay differs from what was saved."""


class EpisodeFiles:
    """Saves the episodes and the random state of a replay, and restores them.

    Each episode is written once, to a *segment*, a file of several episodes. No other object may
    load episodes into the replay meanwhile.

    Args:
      directory: Folder of the files; created at the first `flush` or `save`.
      replay: The replay.
    """

    def __init__(self, directory: str | Path, replay: EpisodeReplay):
        self.directory = os.path.abspath(directory)
        self.replay = replay
        self._frame_bytes = math.prod(replay.observation_shape) * replay.observation_dtype.itemsize
        self._segments: list[dict[str, Any]] = []  # Oldest first, as in a manifest.
        self._written: dict[str, tuple[int, int]] = {}  # File name -> its `disk.identity`.
        self._unsaved = 0  # Episodes with lower numbers are in segments.

    def flush(self) -> None:
        """Writes those new episodes that fill segments ahead of the next `save`.

        Regular calls spread the time that `save` takes. Raises OSError like `save`.
        """
        self._write_new(all_of_them=False)

    def save(self) -> dict[str, Any]:
        """Writes the episodes that were added since the last call to new files.

        Returns:
          A manifest that JSON can express. With the files that it lists, `load` needs nothing else.

        Raises:
          OSError: Another program changed a file, or a file could not be written; the error names
            it. Nothing is lost, and the replay can be saved again.
        """
        self._write_new(all_of_them=True)
        for segment in self._segments:
            disk.check_identity(self._path(segment), self._written[segment['file']])
        return {
            'format': _FORMAT,
            **self._layout(),
            'first_id': self.replay.first_episode,
            'first_transition_id': self.replay.first_transition,
            'num_episodes': self.replay.num_episodes,
            'num_transitions': self.replay.num_transitions,
            'rng': self.replay.rng.bit_generator.state,
            'segments': list(self._segments),
        }

    def load(self, manifest: dict[str, Any]) -> None:
        """Restores episodes and random state.

        Args:
          manifest: Manifest from `save`, intact, as that of a verified checkpoint is.

        Raises:
          ReplayDamagedError: A file is damaged; the error names it. The replay is unchanged or
            empty.
          ValueError: The replay was saved with other frames or another history, or exceeds the
            capacity.
          MemoryError: The episodes do not fit into memory; the replay is empty.
        """
        expected = {'format': _FORMAT, **self._layout()}
        saved = {name: manifest[name] for name in expected}
        if saved['format'] not in _FORMATS or {**saved, 'format': _FORMAT} != expected:
            raise ValueError(f'the replay in {self.directory} was saved as {saved}, not {expected}')
        if manifest['num_transitions'] > self.replay.capacity_transitions:
            raise ValueError(
                f'the replay in {self.directory} holds {manifest["num_transitions"]:,} '
                'transitions, more than EpisodeReplay.capacity_transitions = '
                f'{self.replay.capacity_transitions:,}'
            )
        for segment in manifest['segments']:
            _verify(self._path(segment), segment)

        self._segments, self._written, self._unsaved = [], {}, 0
        self.replay.clear(manifest['first_id'], manifest['first_transition_id'])
        try:
            self._load_segments(manifest)
        except (ReplayDamagedError, MemoryError):
            self.replay.clear()
            raise
        self.replay.rng.bit_generator.state = manifest['rng']
        self._segments = list(manifest['segments'])
        self._written = {
            segment['file']: disk.identity(self._path(segment)) for segment in self._segments
        }
        self._unsaved = self.replay.first_episode + self.replay.num_episodes

    def prune(self, manifests: Iterable[dict[str, Any]]) -> None:
        """Deletes the files that neither `manifests` nor the next `save` refer to."""
        segments = [*self._segments, *(s for manifest in manifests for s in manifest['segments'])]
        kept = {segment['file'] for segment in segments}
        for name in os.listdir(self.directory):
            if name.startswith(_PREFIX) and name not in kept:
                os.remove(os.path.join(self.directory, name))

    def _layout(self):
        return {
            'frame_shape': list(self.replay.observation_shape),
            'frame_dtype': self.replay.observation_dtype.name,
            'history': self.replay.history,
        }

    def _path(self, segment):
        return os.path.join(self.directory, segment['file'])

    def _write_new(self, all_of_them):
        if not os.path.isdir(self.directory):  # Not at every flush, since it takes a sync.
            disk.make_folder(self.directory)
        replay = self.replay
        start = max(self._unsaved - replay.first_episode, 0)
        stop, size = start, 0
        while stop < replay.num_episodes:
            length = replay.episode_length(stop)
            size += (replay.history + length) * self._frame_bytes + length * STEP.itemsize
            stop += 1
            if size >= _SEGMENT_BYTES or (all_of_them and stop == replay.num_episodes):
                self._segments.append(self._write_segment(start, stop))
                self._unsaved = replay.first_episode + stop
                start, size = stop, 0
        self._segments = [s for s in self._segments if s['last_id'] >= replay.first_episode]
        self._written = {s['file']: self._written[s['file']] for s in self._segments}

    def _write_segment(self, start, stop):
        """Writes the episodes start .. stop - 1 to a file, which is intact or absent.

        The file is an .npz of three arrays: the lengths of the episodes, their concatenated steps
        and their concatenated frames.
        """
        replay = self.replay
        episodes = [replay.episode(index) for index in range(start, stop)]
        lengths = np.array([len(steps) for _, steps in episodes])
        frames_header = {
            'descr': np.lib.format.dtype_to_descr(replay.observation_dtype),
            'fortran_order': False,
            'shape': (sum(len(frames) for frames, _ in episodes), *replay.observation_shape),
        }
        ids = replay.first_episode + start, replay.first_episode + stop - 1
        name = f'{_PREFIX}{ids[0]:010d}-{ids[1]:010d}-'
        aside = os.path.join(self.directory, f'{name}{uuid.uuid4().hex[:8]}.tmp')
        try:
            with open(aside, 'wb') as file:
                with zipfile.ZipFile(file, 'w', zipfile.ZIP_ZSTANDARD) as archive:
                    with archive.open('lengths.npy', 'w', force_zip64=True) as member:
                        np.lib.format.write_array(member, lengths, allow_pickle=False)
                    with archive.open('steps.npy', 'w', force_zip64=True) as member:
                        steps = np.concatenate([steps for _, steps in episodes])
                        np.lib.format.write_array(member, steps, allow_pickle=False)
                    with archive.open('frames.npy', 'w', force_zip64=True) as member:
                        np.lib.format.write_array_header_1_0(member, frames_header)
                        for frames, _ in episodes:
                            member.write(frames.data)
                file.flush()
                os.fsync(file.fileno())
            segment = {'first_id': ids[0], 'last_id': ids[1], **disk.fingerprint(aside)}
            # Named by content, so that a file of an older checkpoint is never replaced by other
            # episodes with the same numbers.
            segment['file'] = f'{name}{segment["sha256"][:16]}.npz'
            os.replace(aside, self._path(segment))
            disk.sync(self.directory)
            self._written[segment['file']] = disk.identity(self._path(segment))
        except BaseException as error:
            if os.path.exists(aside):
                os.remove(aside)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror or str(error), aside) from error
            raise
        return segment

    def _load_segments(self, manifest):
        waiting = iter(manifest['segments'])
        read: collections.deque = collections.deque()
        with ThreadPoolExecutor(_THREADS) as pool:
            for segment in manifest['segments']:
                # No further ahead, since `append` copies short episodes.
                for ahead in itertools.islice(waiting, _THREADS - len(read)):
                    read.append(pool.submit(self._read_segment, ahead))
                try:
                    for frames, steps in read.popleft().result():
                        self.replay.append(frames, steps)
                except MemoryError:
                    raise
                except Exception as error:  # A damaged file may hold anything.
                    path = self._path(segment)
                    raise ReplayDamagedError(f'{path} cannot be read: {error!r}') from error
        if (self.replay.num_episodes, self.replay.num_transitions) != (
            manifest['num_episodes'],
            manifest['num_transitions'],
        ):
            raise ReplayDamagedError(f'the files in {self.directory} do not match the manifest')

    def _read_segment(self, segment):
        """[(frames, steps)] of the episodes of a file that belong to the replay.

        Frames are unpacked to where they stay.
        """
        first_episode, episodes = self.replay.first_episode, []
        with zipfile.ZipFile(self._path(segment)) as archive:
            with _HEADERS, archive.open('lengths.npy') as member:
                lengths = np.lib.format.read_array(member, allow_pickle=False)
            with _HEADERS, archive.open('steps.npy') as member:
                steps = np.lib.format.read_array(member, allow_pickle=False)
            with archive.open('frames.npy') as stored:
                with _HEADERS:
                    np.lib.format.read_magic(stored)
                    np.lib.format.read_array_header_1_0(stored)
                for index, length in enumerate(lengths.tolist(), segment['first_id']):
                    if index < first_episode:
                        size = (self.replay.history + length) * self._frame_bytes
                        stored.seek(size, os.SEEK_CUR)
                    else:
                        frames = self.replay.new_frames(length)
                        _read_into(frames, stored)
                        episodes.append((frames, steps[:length]))
                    steps = steps[length:]
        return episodes


def _read_into(array, file):
    """Fills a contiguous array from a file, at most CHUNK_BYTES of which are in memory twice."""
    view = memoryview(array.reshape(-1).view(np.uint8))
    for start in range(0, len(view), disk.CHUNK_BYTES):
        chunk = view[start : start + disk.CHUNK_BYTES]
        if file.readinto(chunk) != len(chunk):
            raise EOFError('frames are missing')


def _verify(path, segment):
    try:
        found = disk.fingerprint(path)
    except OSError as error:
        raise ReplayDamagedError(f'{path} cannot be read: {error.strerror}') from error
    if {**segment, **found} != segment:
        raise ReplayDamagedError(f'{path} differs from the saved file')
