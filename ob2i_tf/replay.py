"""Complete episodes in memory, in TF-Agents' episodic table; only this module imports tf_agents.

The table is the store of record. A row is one episode, in two slots: its frames, each stored once
([history + T, *frame], context first), and its steps ([T], see STEP). A slot is a list of one
element, the entire array, so adding is one copy, reading is an alias, and a stack is a slice. A
query of the table takes 0.1 ms, so the arrays that it returned are cached as views.
"""

import bisect
import contextlib
import io
import math
import mmap
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf.errors import UserError
from ob2i_tf.frames import stack_windows
from ob2i_tf.parameters import AtLeast, checked
from ob2i_tf.types import Episode, Transitions

with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Importing it prints gym's deprecation notice.
    from tf_agents.replay_buffers import episodic_table

_Count = Annotated[int, AtLeast(1)]
_FIELDS = ('action', 'reward', 'discount')
STEP = np.dtype(list(zip(_FIELDS, ('<i4', '<f4', '<f4'))))

_SEPARATE_PAGES_BYTES = 2**16


class EmptyReplayError(RuntimeError):
    """Replay holds nothing to sample yet, so learning must be postponed."""


class EpisodeTooLongError(UserError, ValueError):
    """An episode does not fit into replay."""


@gin.configurable(denylist=['history', 'seed', 'observation_dtype'])
@checked
class EpisodeReplay:
    """The newest complete episodes, up to a number of transitions. Not thread-safe.

    Memory is allocated as episodes arrive.

    Episodes have indices 0 .. num_episodes - 1, oldest first, and transitions have ids, their
    numbers in order of arrival. A subclass that draws episodes by another rule overrides
    `draw_episode` or `candidates`. To keep track of the contents it extends `append` and
    `drop_oldest`, called once per episode that arrives or leaves, and `learned`. Through `state`
    and `set_state` it keeps further data in checkpoints, besides the episodes and `rng`.

    Args:
      observation_shape: Shape of a single frame.
      capacity_transitions: Largest number of transitions; the oldest episodes leave first.
      capacity_episodes: Largest number of episodes; None: any number.
      history: Frames in a stack.
      seed: int or np.random.SeedSequence.
      observation_dtype: Type of the frames, integer or floating.

    Attributes:
      observation_shape, observation_dtype, history, capacity_transitions, capacity_episodes: See
        Args; capacity_episodes is infinite if it was None.
      rng: NumPy generator of all draws.

    Raises:
      ValueError: An argument is out of range.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        capacity_transitions: _Count = gin.REQUIRED,
        history: _Count = 1,
        seed=0,
        observation_dtype: Any = np.uint8,
        capacity_episodes: _Count | None = None,
    ):
        self.observation_shape = tuple(int(size) for size in observation_shape)
        self.observation_dtype = np.dtype(observation_dtype)
        self.history = int(history)
        if self.observation_dtype.kind not in 'iuf':
            raise ValueError(
                'EpisodeReplay.observation_dtype: expected an integer or floating type, got '
                f'{self.observation_dtype}'
            )
        self.capacity_transitions = int(capacity_transitions)
        self.capacity_episodes = math.inf if capacity_episodes is None else capacity_episodes
        self.rng = np.random.default_rng(seed)

        self._specs = (
            tf.TensorSpec((None, *self.observation_shape), self.observation_dtype, 'frames'),
            tf.TensorSpec((None, len(_FIELDS)), tf.int32, 'steps'),
        )
        with tf.device('CPU:0'):
            self._table = episodic_table.EpisodicTable(self._specs, self.capacity_transitions)
            self._element_shapes = [
                tf.constant([-1, *spec.shape[1:]], tf.int32) for spec in self._specs
            ]
        self._rows: list[int] = []  # The table's row of each stored episode, oldest first.
        self._views: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # By row, see `_read`.
        self._free_rows: list[int] = []
        self._bounds = [0]  # Episode i is the transitions _bounds[i] .. _bounds[i + 1] - 1, by id.
        self._first_episode = 0

    @property
    def capacity_bytes(self) -> int:
        """Memory that the transitions of a full replay take."""
        frame_bytes = math.prod(self.observation_shape) * self.observation_dtype.itemsize
        return self.capacity_transitions * (frame_bytes + STEP.itemsize)

    @property
    def num_transitions(self) -> int:
        return self._bounds[-1] - self._bounds[0]

    @property
    def num_episodes(self) -> int:
        return len(self._rows)

    @property
    def first_episode(self) -> int:
        """Number, in order of arrival, of the oldest stored episode; if none, of the next one."""
        return self._first_episode

    @property
    def first_transition(self) -> int:
        """Id of the oldest stored transition; if none, of the next one."""
        return self._bounds[0]

    @property
    def can_sample(self) -> bool:
        """Whether `sample_episode` has an episode to draw."""
        return bool(self.candidates)

    @property
    def candidates(self) -> range:
        """Indices of the episodes that `sample_episode` may draw; here all."""
        return range(self.num_episodes)

    def add_episode(self, episode: Episode) -> None:
        """Copies a complete episode, and drops the oldest ones that no longer fit.

        Raises:
          ValueError: The episode is malformed.
          EpisodeTooLongError: The episode is longer than the capacity.
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
        steps['action'] = _validated('actions', episode.actions, length, 'iu')
        steps['reward'] = _validated('rewards', episode.rewards, length, 'iuf')
        steps['discount'] = _validated('discounts', episode.discounts, length, 'iuf')
        if length > self.capacity_transitions:
            raise EpisodeTooLongError(
                f'an episode of {length:,} transitions does not fit into a replay of '
                f'EpisodeReplay.capacity_transitions = {self.capacity_transitions:,}'
            )
        while (
            self.num_transitions + length > self.capacity_transitions
            or self.num_episodes >= self.capacity_episodes
        ):
            self.drop_oldest()
        frames = self.new_frames(length)
        frames[: self.history - 1] = context
        frames[self.history - 1 :] = observations
        self.append(frames, steps)

    def sample_episode(self) -> Episode:
        """An Episode, chosen by `draw_episode`; its context is set, its frames are read-only.

        Raises:
          EmptyReplayError: `can_sample` is False.
        """
        return self.sample_episodes(1)[0]

    def sample_episodes(self, num_transitions: int) -> list[Episode]:
        """Episodes of at least `num_transitions` in all, each drawn as by `sample_episode`.

        Raises:
          EmptyReplayError: `can_sample` is False.
        """
        candidates = self.candidates
        if not candidates:
            raise EmptyReplayError(
                f'no episode to sample among the {self.num_episodes} complete episodes of replay'
            )
        indices = []
        while num_transitions > 0:
            index = self.draw_episode(candidates)
            if not (isinstance(index, (int, np.integer)) and int(index) in candidates):
                raise UserError(
                    f'{type(self).__name__}.draw_episode must return one of {candidates}, got '
                    f'{index!r}'
                )
            indices.append(index)
            num_transitions -= self.episode_length(index)
        context = self.history - 1
        return [
            Episode(frames[context:], *_split_steps(steps), frames[:context], self._bounds[index])
            for index, (frames, steps) in zip(indices, self._read(indices))
        ]

    def sample_transitions(self, n: int, n_steps: int = 1) -> Transitions:
        """Transitions drawn uniformly with replacement.

        Args:
          n: Number of transitions.
          n_steps: Steps per transition, fewer where its episode ends. Its reward is the discounted
            sum of their rewards, its discount the product of their discounts.

        Raises:
          EmptyReplayError: No complete episode is stored.
        """
        if not self.num_transitions:
            raise EmptyReplayError('no transition to sample: replay holds 0 complete episodes')
        ids = self._bounds[0] + self.rng.integers(self.num_transitions, size=n)
        indices = self.indices_of(ids).tolist()
        times = [i - self._bounds[index] for i, index in zip(ids.tolist(), indices)]
        windows, next_windows = [], []
        columns = np.empty(n, STEP)
        for row, ((frames, steps), t) in enumerate(zip(self._read(indices), times)):
            steps = steps[t : t + n_steps]
            columns[row] = (steps['action'][0], *_n_step_return(steps))
            windows.append(frames[t : t + self.history])
            next_windows.append(frames[t + len(steps) :][: self.history])
        return Transitions(
            stack_windows(windows), *_split_steps(columns), stack_windows(next_windows), ids
        )

    def draw_episode(self, candidates: range) -> int:
        """Index of the episode to sample next, drawn by `rng`; here uniformly.

        Args:
          candidates: See the property; never empty.
        """
        return self.rng.integers(candidates.start, candidates.stop)

    def append(self, frames: np.ndarray, steps: np.ndarray) -> None:
        """Stores an episode as the newest one; called when one is added or loaded.

        Args:
          frames: [history + T, *frame] from `new_frames`, filled; replay owns them from now on.
          steps: [T] STEP.
        """
        row = self._free_rows.pop() if self._free_rows else self.num_episodes
        with tf.device('CPU:0'):
            if frames.nbytes < _SEPARATE_PAGES_BYTES:
                frames = tf.convert_to_tensor(frames)
            else:
                frames = tf.experimental.dlpack.from_dlpack(frames.__dlpack__())  # No copy.
            steps = tf.convert_to_tensor(steps.view(np.int32).reshape(-1, len(_FIELDS)))
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

    def drop_oldest(self) -> None:
        """Removes the oldest episode."""
        row = self._rows.pop(0)
        del self._bounds[0]
        self._first_episode += 1
        with tf.device('CPU:0'):
            self._table.clear_rows([row])  # Erasing would keep the episode's memory.
        self._views.pop(row, None)
        self._free_rows.append(row)

    def learned(self, ids: np.ndarray, errors: np.ndarray) -> None:
        """Called after each learner step; does nothing here.

        Args:
          ids: [n] int64, ids of the transitions learned from; some may have left replay.
          errors: [n] float32, absolute TD errors, averaged over heads.
        """

    def state(self) -> dict[str, np.ndarray]:
        """{name: array} that a checkpoint keeps beyond the episodes and `rng`; here nothing."""
        return {}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores the result of `state`, after the same episodes were loaded."""
        del arrays

    def episode_length(self, index: int) -> int:
        """Number of transitions of a stored episode."""
        return self._bounds[index + 1] - self._bounds[index]

    def episode(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """(frames [history + T, *frame], steps [T] STEP) of a stored episode, read-only."""
        return self._read([index])[0]

    def indices_of(self, ids: np.ndarray) -> np.ndarray:
        """Indices [n] int64 of the episodes that hold the transitions ids [n]; -1 if they left."""
        return np.array([bisect.bisect_right(self._bounds, i) - 1 for i in ids.tolist()], np.int64)

    def new_frames(self, length: int) -> np.ndarray:
        """Uninitialised frames for `append`, for an episode of `length` transitions."""
        shape = (self.history + length, *self.observation_shape)
        size = math.prod(shape) * self.observation_dtype.itemsize
        if size < _SEPARATE_PAGES_BYTES:
            return np.empty(shape, self.observation_dtype)
        # Separate pages return to the system when the episode leaves. On the heap, episodes of many
        # lengths that arrive and leave take half as much memory again.
        try:
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f'{size:,} bytes for an episode: {error.strerror}') from error
        return np.frombuffer(pages, self.observation_dtype).reshape(shape)

    def clear(self, first_episode: int = 0, first_transition: int = 0) -> None:
        """Removes all episodes; the next one, and its first transition, get these numbers."""
        while self.num_episodes:
            self.drop_oldest()
        self._first_episode = first_episode
        self._bounds = [first_transition]

    def _check_frames(self, name, frames, count):
        expected = (count, *self.observation_shape)
        if frames.dtype != self.observation_dtype or frames.shape != expected:
            raise ValueError(
                f'Episode.{name}: expected {self.observation_dtype} {expected}, got '
                f'{frames.dtype} {frames.shape}'
            )

    def _read(self, indices):
        """[(frames, steps)] of the episodes at `indices`, as read-only views of the table."""
        rows = [self._rows[index] for index in indices]
        uncached = [row for row in dict.fromkeys(rows) if row not in self._views]
        if uncached:
            self._views.update(zip(uncached, self._read_table(uncached)))
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


def _validated(name, values, length, dtype_kinds):
    values = np.asarray(values)
    if values.dtype.kind not in dtype_kinds or values.shape != (length,):
        kind = 'integers' if dtype_kinds == 'iu' else 'numbers'
        raise ValueError(
            f'Episode.{name}: expected {kind} ({length},), got {values.dtype} {values.shape}'
        )
    if dtype_kinds == 'iu':
        return values
    with np.errstate(over='ignore'):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        step = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f'Episode.{name}: expected finite numbers, got {values[step]} at {step}')
    return values


def _n_step_return(steps):
    """The discounted sum of the rewards, and the product of the discounts."""
    total, factor = 0.0, 1.0
    for reward, discount in zip(steps['reward'].tolist(), steps['discount'].tolist()):
        total += factor * reward
        factor *= discount
    return total, factor


def _split_steps(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    actions, rewards, discounts = (np.ascontiguousarray(steps[name]) for name in _FIELDS)
    return actions, rewards, discounts
