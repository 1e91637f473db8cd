"""What a run writes while it goes on: CSV files, TensorBoard, and sums between two rows."""

import collections
import contextlib
import csv
import hashlib
import io
import math
import os
import time
from pathlib import Path

import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from ob2i_tf.errors import CheckpointError
from ob2i_tf.training import disk


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


class Phases:
    """Where the time of a run goes: seconds by name, and the same names in a profile.

    `with phases('act'): ...` adds to `seconds['act']`, a dict.
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

    def describe(self):
        """See `disk.describe`; FileChangedError if the file is not as it was written."""
        description = disk.describe(self._path)
        if description['sha256'] != self._digest.hexdigest():
            raise disk.FileChangedError(self._path)
        return description

    def _cut_back(self, seen):
        there = {'bytes': 0}
        if self._path.exists():
            there = disk.describe(self._path, seen['bytes'])
        if {**there, **seen} != there:
            fault = (
                'rows are changed'
                if there['bytes'] == seen['bytes']
                else f'rows are missing: it has {there["bytes"]} bytes, not {seen["bytes"]}'
            )
            raise CheckpointError(
                f'{self._path} is not what it was when its checkpoint was made, {fault}; put the '
                'file back, or move the run folder away to start over'
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
