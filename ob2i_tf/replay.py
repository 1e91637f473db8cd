"""Whole-episode replay over TF-Agents' episodic table; the only module that imports tf_agents.

A row of the table is one episode, in two slots: its frames, each stored once ([history + T,
*frame], context first), and its steps ([T], see STEP). A slot is a list of one element, the whole
array: so adding is one copy, reading is an alias, and a stack is a slice.
"""

import bisect
import contextlib
import hashlib
import io
import json
import math
import mmap
import os
import stat
import uuid
import warnings
import zipfile
from pathlib import Path, PurePosixPath

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf.errors import UserError
from ob2i_tf.training import disk
from ob2i_tf.types import Episode, Transitions

with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Its import lets gym say farewell, at length.
    from tf_agents.replay_buffers import episodic_table

STEP = np.dtype([('action', '<i4'), ('reward', '<f4'), ('discount', '<f4')])

_FORMAT = 2
_PREFIX = 'episodes-'
_SEGMENT_BYTES = 64 * 2**20  # Before compression.
_OWN_PAGES_BYTES = 2**16


class EmptyReplayError(RuntimeError):
    """There is nothing to sample yet; learning has to be postponed."""


class EpisodeTooLongError(UserError, ValueError):
    """An episode that does not fit into replay."""


class ReplayDamagedError(ValueError):
    """A saved replay is not what was saved."""


def stack(frames, places, history):
    """[n, *stack]: row i holds the frames places[i] .. places[i] + history - 1."""
    if history == 1:
        return frames[places]
    return np.stack([frames[places + i] for i in range(history)], axis=-1)


def _stacks(windows):
    """n windows [history, *frame] -> [n, *stack]."""
    frames = np.stack(windows, axis=1)
    return frames[0] if len(frames) == 1 else np.stack(frames, axis=-1)


@gin.configurable(denylist=['history', 'seed', 'observation_dtype'])
class EpisodeReplay:
    """The newest complete episodes, up to a number of transitions. Not thread-safe.

    Memory is taken as episodes come; whether the machine has it is checked at construction.

    Args:
      observation_shape: of a single frame.
      capacity_transitions: the oldest whole episodes leave so that no more are stored.
      capacity_episodes: the same for a number of episodes; None: any number.
      history: frames in a stack.
      seed: int or np.random.SeedSequence.
      observation_dtype: of the frames, integer or floating.
      exclude_oldest_episodes: `sample_episode` never draws these; the released code has 5.
      exclude_newest_episodes: likewise; the released code has 3.

    Raises:
      ValueError: an argument is out of range, or the capacity exceeds the machine's memory.
    """

    def __init__(
        self,
        observation_shape,
        capacity_transitions: int = gin.REQUIRED,
        history: int = 1,
        seed=0,
        observation_dtype=np.uint8,
        capacity_episodes: int | None = None,
        exclude_oldest_episodes: int = 0,
        exclude_newest_episodes: int = 0,
    ):
        for name, count, least in (
            ('capacity_transitions', capacity_transitions, 1),
            ('capacity_episodes', 1 if capacity_episodes is None else capacity_episodes, 1),
            ('history', history, 1),
            ('exclude_oldest_episodes', exclude_oldest_episodes, 0),
            ('exclude_newest_episodes', exclude_newest_episodes, 0),
        ):
            if not isinstance(count, (int, np.integer)) or count < least:
                raise ValueError(
                    f'EpisodeReplay.{name} = {count!r}: expected a whole number, {least} or more'
                )
        self.observation_shape = tuple(int(size) for size in observation_shape)
        self.observation_dtype = np.dtype(observation_dtype)
        self.history = int(history)
        if self.observation_dtype.kind not in 'iuf':
            raise ValueError(
                'EpisodeReplay.observation_dtype: expected an integer or floating type, got '
                f'{self.observation_dtype}'
            )
        self.capacity_transitions = int(capacity_transitions)
        self._capacity_episodes = math.inf if capacity_episodes is None else capacity_episodes
        self._excluded = int(exclude_oldest_episodes), int(exclude_newest_episodes)
        if self._capacity_episodes <= sum(self._excluded):
            raise ValueError(
                f'EpisodeReplay.capacity_episodes = {capacity_episodes} leaves no episode to draw '
                f'beside exclude_oldest_episodes + exclude_newest_episodes = {sum(self._excluded)}'
            )
        self._rng = np.random.default_rng(seed)
        self._check_budget()

        self._specs = (
            tf.TensorSpec((None, *self.observation_shape), self.observation_dtype, 'frames'),
            tf.TensorSpec((None, len(STEP)), tf.int32, 'steps'),
        )
        with tf.device('CPU:0'):
            self._table = episodic_table.EpisodicTable(self._specs, self.capacity_transitions)
            self._element_shapes = [
                tf.constant([-1, *spec.shape[1:]], tf.int32) for spec in self._specs
            ]
        self._rows = []  # Of the table; one for each stored episode, oldest first.
        self._views = {}  # Of what the table has in a row, since asking it takes 0.1 ms.
        self._free_rows = []
        self._bounds = [0]  # Episode i is the transitions _bounds[i] .. _bounds[i + 1] - 1, by id.
        self._first_id = 0  # Episodes are numbered in order of arrival; the oldest stored one's.
        self._forget_saved()

    @property
    def num_transitions(self):
        return self._bounds[-1] - self._bounds[0]

    @property
    def num_episodes(self):
        return len(self._rows)

    @property
    def can_sample(self):
        """Whether `sample_episode` has an episode to draw."""
        return self.num_episodes > sum(self._excluded)

    def add_episode(self, episode):
        """Copies a complete episode, and drops the oldest ones that no longer fit.

        Raises:
          ValueError: the episode is not well formed.
          EpisodeTooLongError: it is longer than the capacity.
        """
        observations = np.asarray(episode.observations)
        length = len(observations) - 1 if observations.ndim else 0
        if length < 1:
            raise ValueError(
                'Episode.observations: expected the frames of at least 1 transition, got shape '
                f'{observations.shape}'
            )
        self._check_frames('observations', observations, length + 1)
        context = episode.context
        if context is None:
            context = observations[:1]  # Broadcasts.
        else:
            context = np.asarray(context)
            self._check_frames('context', context, self.history - 1)
        steps = np.empty(length, STEP)
        steps['action'] = _checked('actions', episode.actions, length, 'iu')
        steps['reward'] = _checked('rewards', episode.rewards, length, 'iuf')
        steps['discount'] = _checked('discounts', episode.discounts, length, 'iuf')
        if length > self.capacity_transitions:
            raise EpisodeTooLongError(
                f'an episode of {length:,} transitions does not fit into a replay of '
                f'EpisodeReplay.capacity_transitions = {self.capacity_transitions:,}'
            )
        while (
            self.num_transitions + length > self.capacity_transitions
            or self.num_episodes >= self._capacity_episodes
        ):
            self._drop_oldest()
        frames = self._new_frames(length)
        frames[: self.history - 1] = context
        frames[self.history - 1 :] = observations
        self._append(frames, steps)

    def sample_episode(self):
        """An Episode, uniformly over episodes; its context is filled, its frames are read-only.

        Raises:
          EmptyReplayError: `can_sample` is False.
        """
        return self.sample_episodes(1)[0]

    def sample_episodes(self, num_transitions):
        """As many Episodes, each drawn like `sample_episode`, as have so many transitions."""
        oldest, newest = self._excluded
        if not self.can_sample:
            raise EmptyReplayError(
                f'no episode to sample: replay holds {self.num_episodes} complete episodes '
                f'({self.num_transitions} transitions), of which the oldest {oldest} and the '
                f'newest {newest} are excluded'
            )
        indices = []
        while num_transitions > 0:
            indices.append(self._rng.integers(oldest, self.num_episodes - newest))
            num_transitions -= self._bounds[indices[-1] + 1] - self._bounds[indices[-1]]
        context = self.history - 1
        return [
            Episode(frames[context:], *_columns(steps), frames[:context], self._bounds[index])
            for index, (frames, steps) in zip(indices, self._read(indices))
        ]

    def sample_transitions(self, n, n_steps=1):
        """Transitions, n of them, uniformly over transitions, with replacement.

        Args:
          n: how many.
          n_steps: each goes over so many steps, or fewer where its episode ends; its reward is the
            discounted sum of theirs, its discount the product.

        Raises:
          EmptyReplayError: no complete episode is stored.
        """
        if not self.num_transitions:
            raise EmptyReplayError('no transition to sample: replay holds 0 complete episodes')
        ids = self._bounds[0] + self._rng.integers(self.num_transitions, size=n)
        indices = [bisect.bisect_right(self._bounds, i) - 1 for i in ids.tolist()]
        times = [i - self._bounds[index] for i, index in zip(ids.tolist(), indices)]
        windows, next_windows = [], []
        columns = np.empty(n, STEP)
        for row, ((frames, steps), t) in enumerate(zip(self._read(indices), times)):
            steps = steps[t : t + n_steps]
            columns[row] = (steps['action'][0], *_discounted(steps))
            windows.append(frames[t : t + self.history])
            next_windows.append(frames[t + len(steps) :][: self.history])
        return Transitions(_stacks(windows), *_columns(columns), _stacks(next_windows), ids)

    def learned(self, ids, errors):
        """Called after each learner step with the ids and absolute errors [n] of its rows."""

    def state(self):
        return {}

    def set_state(self, arrays):
        del arrays

    # Memory.

    def _check_budget(self):
        need = self.capacity_transitions * (self._frame_bytes + STEP.itemsize)
        machine = machine_memory_bytes()
        size = (
            f'{self.capacity_transitions:,} transitions of '
            f'{"x".join(map(str, self.observation_shape)) or "scalar"} {self.observation_dtype} = '
            f'{_gigabytes(need)}'
        )
        if need > machine:
            raise ValueError(
                f'EpisodeReplay.capacity_transitions = {self.capacity_transitions}: {size}, but '
                f'the machine has {_gigabytes(machine)}'
            )
        logging.info('replay: %s (machine: %s)', size, _gigabytes(machine))

    @property
    def _frame_bytes(self):
        return math.prod(self.observation_shape) * self.observation_dtype.itemsize

    def _check_frames(self, name, frames, count):
        expected = (count, *self.observation_shape)
        if frames.dtype != self.observation_dtype or frames.shape != expected:
            raise ValueError(
                f'Episode.{name}: expected {self.observation_dtype} {expected}, got '
                f'{frames.dtype} {frames.shape}'
            )

    def _new_frames(self, length):
        """Uninitialised frames of an episode of `length` transitions, context included."""
        shape = (self.history + length, *self.observation_shape)
        size = math.prod(shape) * self.observation_dtype.itemsize
        if size < _OWN_PAGES_BYTES:
            return np.empty(shape, self.observation_dtype)
        # Pages of its own go back to the system when the episode leaves. From the heap, episodes of
        # many lengths that come and go take half as much again.
        try:
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f'no {size:,} bytes for an episode: {error.strerror}') from error
        return np.frombuffer(pages, self.observation_dtype).reshape(shape)

    def _append(self, frames, steps):
        """Stores an episode; `frames` come from `_new_frames` and belong to the table from now."""
        row = self._free_rows.pop() if self._free_rows else self.num_episodes
        with tf.device('CPU:0'):
            if frames.nbytes < _OWN_PAGES_BYTES:
                frames = tf.convert_to_tensor(frames)
            else:
                frames = tf.experimental.dlpack.from_dlpack(frames.__dlpack__())  # No copy.
            steps = tf.convert_to_tensor(steps.view(np.int32).reshape(-1, len(STEP)))
            lists = [
                tf.raw_ops.TensorListPushBack(
                    input_handle=tf.raw_ops.EmptyTensorList(
                        element_shape=shape, max_num_elements=-1, element_dtype=spec.dtype
                    ),
                    tensor=tensor,
                )
                for spec, shape, tensor in zip(self._specs, self._element_shapes, (frames, steps))
            ]
            self._table.extend(row, tuple(lists))
        self._rows.append(row)
        self._bounds.append(self._bounds[-1] + len(steps))

    def _drop_oldest(self):
        row = self._rows.pop(0)
        del self._bounds[0]
        self._first_id += 1
        with tf.device('CPU:0'):
            self._table.clear_rows([row])  # Erasing would keep the episode's memory.
        self._views.pop(row, None)
        self._free_rows.append(row)

    def _read(self, indices):
        """[(frames, steps)] of the episodes at `indices`, as read-only views of the table."""
        rows = [self._rows[index] for index in indices]
        unseen = [row for row in dict.fromkeys(rows) if row not in self._views]
        if unseen:
            self._views.update(zip(unseen, self._read_table(unseen)))
        return [self._views[row] for row in rows]

    def _read_table(self, rows):
        with tf.device('CPU:0'):
            slots = self._table.get_episode_lists(rows)
            frames, steps = (
                [
                    np.asarray(
                        memoryview(
                            tf.raw_ops.TensorListGetItem(
                                input_handle=list_,
                                index=0,
                                element_shape=shape,
                                element_dtype=spec.dtype,
                            )
                        )
                    )
                    for list_ in tf.unstack(lists)
                ]
                for lists, spec, shape in zip(slots, self._specs, self._element_shapes)
            )
        return [(f, s.reshape(-1).view(STEP)) for f, s in zip(frames, steps)]

    # Disk.

    def flush(self, directory):
        """Writes new episodes ahead of the next `save`, as far as they fill whole segments.

        Called now and then, it spreads the time that `save` takes. Raises OSError like `save`.
        """
        self._write_new(directory, all_of_them=False)

    def save(self, directory):
        """Writes the episodes that were added since the last time to new files in `directory`.

        Returns:
          A manifest, to be kept as JSON: with the files that it lists, all that `load` needs.

        Raises:
          OSError: naming the file that another program changed, or that could not be written:
            then nothing is lost, and the replay can be saved again.
        """
        self._write_new(directory, all_of_them=True)
        for segment in self._segments:
            path = os.path.join(directory, segment['file'])
            disk.check_identity(path, self._written[segment['file']])
        manifest = {
            'format': _FORMAT,
            **self._layout(),
            'first_id': self._first_id,
            'first_transition_id': self._bounds[0],
            'num_episodes': self.num_episodes,
            'num_transitions': self.num_transitions,
            'rng': self._rng.bit_generator.state,
            'segments': self._segments,
        }
        return json.loads(json.dumps({**manifest, 'sha256': _digest(manifest)}))

    def load(self, directory, manifest):
        """Becomes the replay that was saved: the same episodes, the same samples to come.

        Args:
          directory: where it was saved.
          manifest: what `save` returned.

        Raises:
          ReplayDamagedError: naming the file; the replay is then as it was, or empty.
          ValueError: it was saved with other frames or another history, or is beyond the capacity.
        """
        directory = os.path.abspath(directory)
        try:
            content = {name: value for name, value in manifest.items() if name != 'sha256'}
            whole = manifest['sha256'] == _digest(content)
        except (AttributeError, KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise ReplayDamagedError(f'the manifest of {directory} is not what was saved')
        expected = {'format': _FORMAT, **self._layout()}
        saved = {name: manifest[name] for name in expected}
        if saved != expected:
            raise ValueError(f'the replay in {directory} was saved as {saved}, not {expected}')
        if manifest['num_transitions'] > self.capacity_transitions:
            raise ValueError(
                f'the replay in {directory} holds {manifest["num_transitions"]:,} transitions, '
                f'more than EpisodeReplay.capacity_transitions = {self.capacity_transitions:,}'
            )
        for segment in manifest['segments']:
            _verify(directory, segment)

        self._clear()
        self._first_id = manifest['first_id']
        self._bounds = [manifest['first_transition_id']]
        for segment in manifest['segments']:
            path = os.path.join(directory, segment['file'])
            try:
                self._load_segment(path, segment)
            except Exception as error:  # A damaged file may hold anything.
                self._clear()
                raise ReplayDamagedError(f'{path} cannot be read: {error!r}') from error
        if (self.num_episodes, self.num_transitions) != (
            manifest['num_episodes'],
            manifest['num_transitions'],
        ):
            self._clear()
            raise ReplayDamagedError(f'the files in {directory} do not hold what the manifest says')
        self._rng.bit_generator.state = manifest['rng']
        self._directory = directory
        self._segments = list(manifest['segments'])
        self._written = {
            segment['file']: disk.identity(os.path.join(directory, segment['file']))
            for segment in self._segments
        }
        self._unsaved_id = self._first_id + self.num_episodes

    def prune(self, directory, manifests):
        """Deletes the files of `directory` that neither `manifests` nor the next save refers to."""
        kept = {segment['file'] for manifest in manifests for segment in manifest['segments']}
        if os.path.abspath(directory) == self._directory:
            kept.update(segment['file'] for segment in self._segments)
        for name in os.listdir(directory):
            if name.startswith(_PREFIX) and name not in kept:
                os.remove(os.path.join(directory, name))

    def _layout(self):
        return {
            'frame_shape': list(self.observation_shape),
            'frame_dtype': self.observation_dtype.name,
            'history': self.history,
        }

    def _clear(self):
        while self._rows:
            self._drop_oldest()
        self._forget_saved()

    def _forget_saved(self):
        self._directory = None
        self._segments = []  # Written there, oldest first, as in a manifest.
        self._written = {}  # File name -> its `disk.identity`.
        self._unsaved_id = 0  # Older episodes are in segments.

    def _write_new(self, directory, all_of_them):
        directory = os.path.abspath(directory)
        if directory != self._directory:
            self._forget_saved()
            self._directory = directory
        if not os.path.isdir(directory):  # At every flush it would take a sync.
            disk.make_folder(directory)
        start = max(self._unsaved_id - self._first_id, 0)
        stop, size = start, 0
        while stop < self.num_episodes:
            length = self._bounds[stop + 1] - self._bounds[stop]
            size += (self.history + length) * self._frame_bytes + length * STEP.itemsize
            stop += 1
            if size >= _SEGMENT_BYTES or (all_of_them and stop == self.num_episodes):
                self._segments.append(self._write_segment(directory, start, stop))
                self._unsaved_id = self._first_id + stop
                start, size = stop, 0
        self._segments = [s for s in self._segments if s['last_id'] >= self._first_id]
        self._written = {s['file']: self._written[s['file']] for s in self._segments}

    def _write_segment(self, directory, start, stop):
        """Writes the episodes start .. stop - 1 to a file, which is whole or not there.

        It is an .npz of three arrays: the lengths of the episodes, their steps one after another,
        and their frames one after another.
        """
        lengths = np.diff(self._bounds[start : stop + 1])
        rows = self.history * len(lengths) + int(lengths.sum())
        frames_header = {
            'descr': np.lib.format.dtype_to_descr(self.observation_dtype),
            'fortran_order': False,
            'shape': (rows, *self.observation_shape),
        }
        ids = self._first_id + start, self._first_id + stop - 1
        name = f'{_PREFIX}{ids[0]:010d}-{ids[1]:010d}-'
        aside = os.path.join(directory, f'{name}{uuid.uuid4().hex[:8]}.tmp')
        try:
            with open(aside, 'wb') as file:
                with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                    with archive.open('lengths.npy', 'w', force_zip64=True) as member:
                        np.lib.format.write_array(member, lengths, allow_pickle=False)
                    with archive.open('steps.npy', 'w', force_zip64=True) as member:
                        steps = [self._read([index])[0][1] for index in range(start, stop)]
                        np.lib.format.write_array(member, np.concatenate(steps), allow_pickle=False)
                    with archive.open('frames.npy', 'w', force_zip64=True) as member:
                        np.lib.format.write_array_header_1_0(member, frames_header)
                        for index in range(start, stop):
                            for chunk in _chunks(self._read([index])[0][0]):
                                member.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            segment = {'first_id': ids[0], 'last_id': ids[1], **disk.describe(aside)}
            # The name tells the content: what an older checkpoint refers to is never replaced by
            # other episodes of the same numbers.
            segment['file'] = f'{name}{segment["sha256"][:16]}.npz'
            path = os.path.join(directory, segment['file'])
            os.replace(aside, path)
            disk.sync(directory)
            self._written[segment['file']] = disk.identity(path)
        except BaseException as error:
            if os.path.exists(aside):
                os.remove(aside)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror or str(error), aside) from error
            raise
        return segment

    def _load_segment(self, path, segment):
        """Appends the episodes of a file that have not left; one at a time is in memory twice."""
        disk.check_unpacked(path)
        with zipfile.ZipFile(path) as archive:
            with archive.open('lengths.npy') as member:
                lengths = np.lib.format.read_array(member, allow_pickle=False)
            with archive.open('steps.npy') as member:
                steps = np.lib.format.read_array(member, allow_pickle=False)
            with archive.open('frames.npy') as member:
                np.lib.format.read_magic(member)
                np.lib.format.read_array_header_1_0(member)
                for index, length in enumerate(lengths.tolist(), segment['first_id']):
                    if index < self._first_id:
                        member.seek((self.history + length) * self._frame_bytes, os.SEEK_CUR)
                    else:
                        frames = self._new_frames(length)
                        for chunk in _chunks(frames):
                            if member.readinto(chunk) != len(chunk):
                                raise EOFError('frames are missing')
                        self._append(frames, steps[:length])
                    steps = steps[length:]


def machine_memory_bytes(groups='/proc/self/cgroup', root='/sys/fs/cgroup'):
    """Physical memory, or the least limit of the control groups that this process is in."""
    sizes = [os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')]
    for path in _memory_limits(groups, Path(root)):
        try:
            sizes.append(int(path.read_text()))
        except (OSError, ValueError):  # ValueError: 'max'.
            continue
    return min(sizes)


def _memory_limits(groups, root):
    """Files that may hold a limit: of the group of this process, and of all that hold it."""
    own = {'': '/', 'memory': '/'}  # {controller: group}; version 2 has one tree without a name.
    with contextlib.suppress(OSError):  # Not Linux.
        for line in Path(groups).read_text().splitlines():
            _, controllers, group = line.split(':', 2)
            own |= dict.fromkeys(own.keys() & set(controllers.split(',')), group)
    for controller, name in (('', 'memory.max'), ('memory', 'memory.limit_in_bytes')):
        group = PurePosixPath(own[controller])
        for folder in (group, *group.parents):
            yield root / controller / str(folder).lstrip('/') / name


def _gigabytes(size):
    return f'{size / 1e9:,.1f} GB'


def _checked(name, values, length, kinds):
    values = np.asarray(values)
    if values.dtype.kind not in kinds or values.shape != (length,):
        kind = 'integers' if kinds == 'iu' else 'numbers'
        raise ValueError(
            f'Episode.{name}: expected {kind} ({length},), got {values.dtype} {values.shape}'
        )
    if kinds == 'iu':
        return values
    with np.errstate(over='ignore'):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        step = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f'Episode.{name}: expected finite numbers, got {values[step]} at {step}')
    return values


def _discounted(steps):
    """The discounted sum of the rewards, and the product of the discounts."""
    total, factor = 0.0, 1.0
    for reward, discount in zip(steps['reward'].tolist(), steps['discount'].tolist()):
        total += factor * reward
        factor *= discount
    return total, factor


def _columns(steps):
    return (np.ascontiguousarray(steps[name]) for name in STEP.names)


def _chunks(array):
    """Byte views of a contiguous array, short enough not to matter in memory."""
    array = array.reshape(-1).view(np.uint8)
    for start in range(0, len(array), disk.CHUNK_BYTES):
        yield memoryview(array[start : start + disk.CHUNK_BYTES])


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _verify(directory, segment):
    path = os.path.join(directory, segment['file'])
    try:
        if os.path.dirname(segment['file']) or not stat.S_ISREG(os.lstat(path).st_mode):
            raise ReplayDamagedError(f'{path} is not a file of {directory}')
        size = os.path.getsize(path)
        if size != segment['bytes']:
            raise ReplayDamagedError(f'{path} has {size} bytes, not {segment["bytes"]}')
        if disk.describe(path)['sha256'] != segment['sha256']:
            raise ReplayDamagedError(f'{path} is not what was saved: its sha256 differs')
    except OSError as error:
        raise ReplayDamagedError(f'{path} cannot be read: {error.strerror}') from error
