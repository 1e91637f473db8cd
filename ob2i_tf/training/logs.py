"""Logs of a run: CSV tables, TensorBoard, timers and profiles.

To log another number per iteration, see `RunLogs.write_iteration`: for TensorBoard alone, add it to
`scalars`; for train.csv and TensorBoard, to `train` and to `run_folder.COLUMNS['train']`. Numbers
in the reports of the learner and the update are averaged in `Means`, by name. What TensorBoard
shows beside these rows depends on the time of day and on resumes; nothing else does.
"""

import collections
import contextlib
import csv
import hashlib
import io
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf
from absl import logging

from ob2i_tf.errors import CheckpointError, ConfigError
from ob2i_tf.training import checkpoints, disk, tensorboard
from ob2i_tf.training.run_folder import COLUMNS, RunFolder

_RECENT_SECONDS = 180  # Between points in TensorBoard within an iteration.
_RECENT = ('score', 'episode_length', 'loss', 'q_mean', 'bonus_mean', 'next_bonus_mean')
_HISTOGRAMS = ('q_mean', 'bonus_mean', 'next_bonus_mean')  # Of what learner steps report.


class Means:
    """Means of named numbers since the last row; `state` can be saved and restored."""

    def __init__(self, state: Mapping[str, Iterable] | None = None):
        self._sums = {name: tuple(pair) for name, pair in (state or {}).items()}

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = (total + float(value), count + 1)

    def mean(self, name: str) -> float:
        """Mean of a number; NaN if it was never added."""
        total, count = self._sums.get(name, (0.0, 0))
        return total / count if count else math.nan

    def count(self, name: str) -> int:
        return self._sums.get(name, (0.0, 0))[1]

    def state(self) -> dict[str, tuple]:
        return self._sums


class Timers:
    """Wall-clock timers by phase; the phases also appear in a profile.

    `with timers('act'): ...` adds to `seconds['act']`.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = collections.defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with tf.profiler.experimental.Trace(name):
                yield
        finally:
            self.seconds[name] += time.perf_counter() - start


class CsvLog:
    """A CSV file that only grows, and can be cut back to its state at a checkpoint.

    Args:
      path: Path of the file.
      columns: Names of the columns.
      seen: Result of `fingerprint` at the checkpoint to resume from; None starts a new file.

    Raises:
      CheckpointError: The file no longer starts with the rows of the checkpoint; it is unchanged.
    """

    def __init__(self, path: Path, columns: tuple[str, ...], seen: dict[str, Any] | None = None):
        self._path = Path(path)
        self._columns = columns
        if seen:
            self._cut_back(seen)
        else:
            disk.write_text(path, ','.join(columns) + '\n')
        self._digest = hashlib.sha256(self._path.read_bytes())
        self._left = disk.identity(path)

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends a row, which has exactly the columns; `fingerprint` syncs it to disk.

        Raises:
          OSError: The disk is full, or another program changed the file.
        """
        text = io.StringIO()
        csv.writer(text, lineterminator='\n').writerow(
            [_text(row[column]) for column in self._columns]
        )
        disk.check_identity(self._path, self._left)
        with disk.open_nofollow(self._path, 'ab') as file:
            file.write(text.getvalue().encode())
        self._digest.update(text.getvalue().encode())
        self._left = disk.identity(self._path)

    def fingerprint(self) -> dict[str, Any]:
        """Syncs the file; returns its `disk.fingerprint`, which a checkpoint keeps.

        Raises:
          FileChangedError: Another program changed the file.
        """
        disk.sync(self._path)
        fingerprint = disk.fingerprint(self._path)
        if fingerprint['sha256'] != self._digest.hexdigest():
            raise disk.FileChangedError(self._path)
        return fingerprint

    def _cut_back(self, seen):
        found: dict[str, Any] = {'bytes': 0}
        if self._path.exists():
            found = disk.fingerprint(self._path, seen['bytes'])
        if {**found, **seen} != found:
            fault = (
                'rows were changed'
                if found['bytes'] == seen['bytes']
                else f'rows are missing: it has {found["bytes"]} bytes, not {seen["bytes"]}'
            )
            raise CheckpointError(
                f'{self._path} no longer matches its checkpoint: {fault}; restore the file, or '
                'move the run folder away to start over'
            )
        with disk.open_nofollow(self._path, 'r+b') as file:
            file.truncate(seen['bytes'])  # Synced by `fingerprint`; a power cut may undo it.


def _text(value):
    """Floats as the shortest text that reads back as the same number."""
    return repr(float(value)) if isinstance(value, float) else value


class RunLogs:
    """All CSV tables of a run and its TensorBoard files.

    Args:
      folder: Run folder.
      iteration: First iteration that will be logged.
      seen: Result of `fingerprints` at the checkpoint to resume from; None starts new tables.
      also: Called with ({tag: number}, frames) for each point in TensorBoard.

    Raises:
      CheckpointError: Several iterations are logged but there is no checkpoint, or a table no
        longer matches its checkpoint.
      UserError: train.csv cannot be read.
    """

    def __init__(
        self,
        folder: RunFolder,
        iteration: int = 0,
        seen: dict[str, dict] | None = None,
        also: Callable[[dict[str, float], int], None] = lambda numbers, frames: None,
    ):
        self._also = also
        if seen is None:
            self._check_new(folder)
        self._tables = {
            name: CsvLog(folder.table(name), columns, seen and seen[name])
            for name, columns in COLUMNS.items()
        }
        self._tensorboard = tensorboard.TensorBoard(folder.tensorboard, iteration)
        self._recent, self._recent_until = Means(), time.monotonic() + _RECENT_SECONDS
        self._learned: dict[str, list[float]] = collections.defaultdict(list)  # This iteration.

    def write_configuration(self, resolved: str, bound: str) -> None:
        """See `TensorBoard.write_configuration`."""
        self._tensorboard.write_configuration(resolved, bound)

    def fingerprints(self) -> dict[str, dict]:
        """{table: its fingerprint}, which a checkpoint keeps."""
        return {name: table.fingerprint() for name, table in self._tables.items()}

    def write_game(self, frames: int, game) -> None:
        """Logs a training game, a `loop.Game`, that ended at `frames`."""
        self._tables['episodes'].write(_game_row(frames, game))
        self._recent.add(game.named())

    def learned(self, report: Mapping[str, float]) -> None:
        """Notes the report of a learner step for TensorBoard."""
        self._recent.add(report)
        for name in _HISTOGRAMS:
            if name in report:
                self._learned[name].append(report[name])

    def recent_is_due(self) -> bool:
        """Whether `write_recent` would write."""
        return time.monotonic() >= self._recent_until

    def write_recent(self, iteration: int, frames: int, epsilon: float) -> None:
        """Every few minutes adds a point to TensorBoard: means since the last one."""
        if not self.recent_is_due():
            return
        scalars = {f'recent/{name}': self._recent.mean(name) for name in _RECENT}
        scalars['recent/epsilon'] = epsilon
        self._write_points(iteration, frames, scalars)
        self._recent, self._recent_until = Means(), time.monotonic() + _RECENT_SECONDS

    def write_iteration(
        self,
        iteration: int,
        parts,
        means: Means,
        steps_per_second: float,
        games: list | None,
        recording: tensorboard.GameRecording | None,
    ) -> None:
        """Logs an iteration: all its numbers are collected here.

        Args:
          iteration: Number of the iteration.
          parts: Parts of the run, a `build.Parts`.
          means: Means of the iteration.
          steps_per_second: Agent steps per second of training.
          games: Games of the evaluation, [loop.Game]; None without an evaluation.
          recording: GameRecording of the evaluation; None without one.
        """
        environment, agent = parts.environment, parts.agent
        train = {
            'iteration': iteration,
            'frames': parts.frames,
            'agent_steps': agent.agent_steps,
            'learner_steps': parts.learner.learner_steps,
            'episodes': means.count('score'),
            **{f'{name}_mean': means.mean(name) for name in ('score', 'return', 'episode_length')},
            **{
                name: means.mean(name)
                for name in ('loss', 'bonus_mean', 'next_bonus_mean', 'q_mean')
            },
            'epsilon': agent.epsilon,
            'agent_steps_per_second': steps_per_second,
        }
        self._tables['train'].write(train)
        scalars = {f'train/{name}': train[name] for name in COLUMNS['train'][3:]}
        scalars['process/resident_gigabytes'] = psutil.Process().memory_info().rss / 1e9
        scalars['replay/transitions'] = parts.replay.num_transitions
        for name, seconds in parts.timers.seconds.items():
            scalars[f'process/seconds_{name}'.replace(' ', '_')] = seconds
        if parts.update.bonus is not None:
            bonus = {name: means.mean(name) for name in COLUMNS['bonus'][2:]}
            position = {'iteration': iteration, 'frames': train['frames']}
            self._tables['bonus'].write({**position, **bonus})
            scalars |= {f'bonus/{name}': mean for name, mean in bonus.items()}
        lengths = {'train': train['episode_length_mean']}
        if games is not None:
            row = self._write_evaluation(iteration, train['frames'], games)
            scalars |= {f'eval/{name}': row[name] for name in COLUMNS['eval'][2:]}
            lengths['eval'] = np.mean([game.length for game in games] or [math.nan])
        if environment.shortest_path:
            for name, length in lengths.items():
                scalars[f'{name}/relative_length'] = length / environment.shortest_path
        learned = {f'learner_steps/{name}': self._learned[name] for name in _HISTOGRAMS}
        pictures = [
            *tensorboard.histograms(learned),
            *(recording.values('eval/game') if recording else ()),
        ]
        self._write_points(iteration, train['frames'], scalars, pictures)
        self._learned.clear()

    def _write_points(self, iteration, frames, scalars, others=()):
        values = [*tensorboard.scalars(scalars), *others]
        self._tensorboard.write(iteration, frames, values)
        self._also(scalars, frames)

    def _write_evaluation(self, iteration, frames, games):
        if not games:
            logging.warning(
                'The evaluation of iteration %s has no score: no game ended within '
                'Runner.evaluation_steps.',
                iteration,
            )
        for game in games:
            self._tables['eval_episodes'].write({'iteration': iteration, **_game_row(frames, game)})
        scores = np.array([game.score for game in games] or [math.nan])
        names = ('mean', 'std', 'min', 'max')
        row = {
            'iteration': iteration,
            'frames': frames,
            'episodes': len(games),
            **{f'score_{name}': float(getattr(scores, name)()) for name in names},
        }
        self._tables['eval'].write(row)
        return row

    @staticmethod
    def _check_new(folder):
        rows, none = len(folder.read_rows('train')), checkpoints.none_in(folder.checkpoints)
        if rows > 1:
            raise CheckpointError(
                f'{folder} has several logged iterations but {none}; move the run folder away to '
                'start over'
            )
        if rows == 1:  # For example, killed between the row of an iteration and its checkpoint.
            logging.warning(
                '%s has one logged iteration but %s: the run starts over.', folder, none
            )


def _game_row(frames, game):
    return {'frames': frames, 'score': game.score, 'length': game.length}


class Profile:
    """TensorFlow's profiler between two agent steps; view it with tensorboard-plugin-profile.

    Args:
      agent_steps: First and last agent step; None: never.
      folder: The tensorboard folder of the run.

    Raises:
      ConfigError: The first agent step is negative or not before the last one.
    """

    def __init__(self, agent_steps: tuple[int, int] | None, folder: Path):
        if agent_steps and not 0 <= agent_steps[0] < agent_steps[1]:
            raise ConfigError(
                f'Runner.profile must be (first, last) agent steps or None, got {agent_steps!r}'
            )
        self._first: float
        self._last: float
        self._first, self._last = agent_steps or (math.inf, math.inf)
        self._folder = folder
        self._recording = contextlib.ExitStack()

    def update(self, agent_steps: int) -> None:
        """Starts or stops the profiler, if this agent step is the first or the last."""
        if self._first <= agent_steps < self._last:
            self._first = math.inf
            folder = self._recording.enter_context(disk.tensorflow_path(self._folder))
            tf.profiler.experimental.start(folder)
            self._recording.callback(tf.profiler.experimental.stop)
        if agent_steps >= self._last:
            self.close()

    def close(self) -> None:
        self._recording.close()
