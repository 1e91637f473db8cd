"""Logs of a run: CSV tables, TensorBoard, means between two rows, and timers."""

import collections
import contextlib
import csv
import hashlib
import io
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import tensorflow as tf
import tqdm
from absl import logging
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from ob2i_tf.errors import CheckpointError
from ob2i_tf.training import disk
from ob2i_tf.training.run_folder import COLUMNS


class Means:
    """Means of named numbers, whose sums can be saved; NaN where nothing was added."""

    def __init__(self, state=None):
        self._sums = {name: tuple(pair) for name, pair in (state or {}).items()}

    def add(self, values):
        for name, value in values.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = (total + float(value), count + 1)

    def mean(self, name):
        total, count = self._sums.get(name, (0.0, 0))
        return total / count if count else math.nan

    def count(self, name):
        return self._sums.get(name, (0.0, 0))[1]

    def state(self):
        return self._sums


class Timers:
    """Wall-clock seconds by phase, and the same names in a profile.

    `with timers('act'): ...` adds to `seconds['act']`.
    """

    def __init__(self):
        self.seconds = collections.defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        try:
            with tf.profiler.experimental.Trace(name):
                yield
        finally:
            self.seconds[name] += time.perf_counter() - start


class CsvLog:
    """A CSV file that only grows, and can be cut back to what a checkpoint saw of it.

    Args:
      path: Path of the file.
      columns: Its header.
      seen: Result of `describe` when the checkpoint to resume from was made; None starts the file
        anew.

    Raises:
      CheckpointError: if the file is no longer what it was then; it is left as it is.
    """

    def __init__(self, path, columns, seen=None):
        self._path = Path(path)
        self._columns = columns
        if seen:
            self._cut_back(seen)
        else:
            disk.write_text(path, ','.join(columns) + '\n')
        self._digest = hashlib.sha256(self._path.read_bytes())
        self._left = disk.identity(path)

    def write(self, row):
        """Appends a row (a dict with exactly the columns) and brings it to the disk.

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
            file.flush()
            os.fsync(file.fileno())
        self._digest.update(text.getvalue().encode())
        self._left = disk.identity(self._path)

    def fingerprint(self):
        """See `disk.fingerprint`; FileChangedError if the file is not as it was written."""
        description = disk.fingerprint(self._path)
        if description['sha256'] != self._digest.hexdigest():
            raise disk.FileChangedError(self._path)
        return description

    def _cut_back(self, seen):
        there = {'bytes': 0}
        if self._path.exists():
            there = disk.fingerprint(self._path, seen['bytes'])
        if {**there, **seen} != there:
            fault = (
                'rows are changed'
                if there['bytes'] == seen['bytes']
                else f'rows are missing: it has {there["bytes"]} bytes, not {seen["bytes"]}'
            )
            raise CheckpointError(
                f'{self._path} no longer matches its checkpoint: {fault}; restore the file, or '
                'move the run folder away to start over'
            )
        with disk.open_nofollow(self._path, 'r+b') as file:
            file.truncate(seen['bytes'])  # Synced with the next row; until then more may stay.


def _text(value):
    """Floats as the shortest text that reads back as the same number."""
    return repr(float(value)) if isinstance(value, float) else value


class TensorBoard:
    """One event file an iteration, so that a resumed run replaces what it repeats.

    TensorBoard shows the files of a folder as one run.
    """

    def __init__(self, directory, first_iteration):
        self._directory = Path(directory)
        self._directory.mkdir(exist_ok=True)
        for path in self._directory.iterdir():
            if path.name.startswith('events.') and path.name >= self._name(first_iteration):
                path.unlink()

    def write(self, iteration, frames, scalars):
        """Writes {tag: number} at x = frames; NaN, that is nothing measured, is left out."""
        path = self._directory / self._name(iteration)
        now = time.time()
        events = [event_pb2.Event(wall_time=now, file_version='brain.Event:2')]
        for tag, number in scalars.items():
            if not math.isnan(number):
                value = summary_pb2.Summary.Value(tag=tag, simple_value=number)
                events.append(
                    event_pb2.Event(
                        wall_time=now, step=frames, summary=summary_pb2.Summary(value=[value])
                    )
                )
        # TensorFlow's own writer takes only paths in UTF-8.
        with disk.open_nofollow(path, 'wb') as file:
            writer = RecordWriter(file)
            for event in events:
                writer.write(event.SerializeToString())

    @staticmethod
    def _name(iteration):
        return f'events.out.tfevents.{iteration:010d}.ob2i_tf'


class RunLogs:
    """All tables of a run, its TensorBoard files, and the means of the iteration in progress.

    Args:
      folder: RunFolder.
      iteration: The first one that is to be logged.
      seen: Result of `describe` when the checkpoint to resume from was made; None starts anew.

    Raises:
      CheckpointError: There are rows of several iterations without a checkpoint, or a table no
        longer matches its checkpoint.
    """

    def __init__(self, folder, iteration=0, seen=None):
        if seen is None:
            self._check_new(folder)
        self._tables = {
            name: CsvLog(folder.table(name), columns, seen and seen[name])
            for name, columns in COLUMNS.items()
        }
        self._tensorboard = TensorBoard(folder.tensorboard, iteration)

    def fingerprints(self):
        """{table: what a checkpoint says of it}."""
        return {name: table.fingerprint() for name, table in self._tables.items()}

    def write_game(self, frames, game):
        """Logs a finished training game (a `loop.Game`) at this number of frames."""
        self._tables['episodes'].write(_game_row(frames, game))

    def write_iteration(self, iteration, parts, means, steps_per_second, games):
        """Logs an iteration.

        Args:
          iteration: Its number.
          parts: build.Parts.
          means: Means of the iteration.
          steps_per_second: Agent steps per second of training.
          games: [loop.Game] of the evaluation; None if there was none.
        """
        environment, agent = parts.environment, parts.agent
        train = {
            'iteration': iteration,
            'frames': agent.agent_steps * environment.frames_per_step,
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
        scalars['process/traces'] = parts.num_traces()
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
        self._tensorboard.write(iteration, train['frames'], scalars)

    def _write_evaluation(self, iteration, frames, games):
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
        rows = len(folder.rows('train'))
        if rows > 1:
            raise CheckpointError(
                f'{folder} has several logged iterations but no checkpoint; move the folder to '
                'start over'
            )
        if rows == 1:  # As after a kill between an iteration's row and its checkpoint.
            logging.warning(
                '%s has one logged iteration but no checkpoint: the run starts over.', folder
            )


def _game_row(frames, game):
    return {'frames': frames, 'score': game.score, 'length': game.length}


def progress_bar(total, done):
    """A tqdm progress bar in frames."""
    return tqdm.tqdm(
        total=total,
        initial=done,
        unit='frames',
        unit_scale=True,
        dynamic_ncols=True,
        mininterval=1 if sys.stderr.isatty() else 60,  # Seconds; a log is no screen.
    )


def log_best_and_last(rows):
    """Logs the best and the last evaluation, of the rows of eval.csv."""
    rows = [row for row in rows if row['score_mean'] != 'nan']
    if rows:
        best = max(rows, key=lambda row: float(row['score_mean']))
        logging.info(
            'Evaluation score: best %.6g at %s frames, last %.6g at %s frames.',
            float(best['score_mean']),
            f'{int(best["frames"]):,}',
            float(rows[-1]['score_mean']),
            f'{int(rows[-1]["frames"]):,}',
        )


class Profile:
    """TensorFlow's profiler between two agent steps; read it with tensorboard-plugin-profile.

    Args:
      agent_steps: (first, last) agent steps; None: never.
      folder: The tensorboard folder of the run.
    """

    def __init__(self, agent_steps, folder):
        self._first, self._last = agent_steps or (math.inf, math.inf)
        self._folder = folder
        self._recording = contextlib.ExitStack()
        self._started = False

    def update(self, agent_steps):
        """Starts or stops at this agent step."""
        if not self._started and self._first <= agent_steps < self._last:
            self._started = True
            folder = self._recording.enter_context(disk.tensorflow_path(self._folder))
            tf.profiler.experimental.start(folder)
            self._recording.callback(tf.profiler.experimental.stop)
        if agent_steps >= self._last:
            self.stop()

    def stop(self):
        self._recording.close()
