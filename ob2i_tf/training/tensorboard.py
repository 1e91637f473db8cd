"""TensorBoard's event files of a run, and what is written into them."""

import io
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image  # Which tensorboard requires.
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.hparams import summary_v2 as hparams_summary
from tensorboard.plugins.text import summary_v2 as text_summary
from tensorboard.summary.writer.record_writer import RecordWriter

from ob2i_tf.training import disk
from ob2i_tf.training.run_folder import parse_config

_FRAMES = 300  # Of a recording, which is then 10 to 200 kB on Atari.
_FRAME_MS = 66


class TensorBoard:
    """One event file per iteration, so that a resumed run replaces the iterations it repeats.

    TensorBoard shows all files of a folder as one run, and reads them in the order of their names.

    Args:
      directory: Folder of the files.
      first_iteration: Files of this iteration and later ones are deleted.
    """

    def __init__(self, directory: Path, first_iteration: int):
        self._directory = Path(directory)
        self._directory.mkdir(exist_ok=True)
        for path in self._directory.iterdir():
            if path.name.startswith('events.') and path.name >= self._name(first_iteration):
                path.unlink()

    def write(
        self, iteration: int, frames: int, values: Iterable[summary_pb2.Summary.Value]
    ) -> None:
        """Appends values at x = frames to the file of an iteration."""
        self._append(self._directory / self._name(iteration), 'ab', frames, values)

    def write_configuration(self, resolved: str, bound: str) -> None:
        """Writes, in place of an earlier one, the configuration as text and as hyperparameters.

        Args:
          resolved: The complete configuration.
          bound: The same without defaults, whose bindings become the hyperparameters.
        """
        text = '\n'.join(f'    {line}' for line in resolved.splitlines())  # A block of Markdown.
        values = [
            *text_summary.text_pb('configuration', text).value,
            *hparams_summary.hparams_pb(hyperparameters(bound)).value,
        ]
        path = self._directory / 'events.out.tfevents.-configuration.ob2i_tf'  # Before 0.
        self._append(path, 'wb', 0, values)

    @staticmethod
    def _append(path, mode, frames, values):
        now = time.time()
        # TensorFlow's own writer accepts only UTF-8 paths.
        with disk.open_nofollow(path, mode) as file:
            writer = RecordWriter(file)
            if not file.tell():
                version = event_pb2.Event(wall_time=now, file_version='brain.Event:2')
                writer.write(version.SerializeToString())
            for value in values:
                summary = summary_pb2.Summary(value=[value])
                event = event_pb2.Event(wall_time=now, step=frames, summary=summary)
                writer.write(event.SerializeToString())

    @staticmethod
    def _name(iteration):
        return f'events.out.tfevents.{iteration:010d}.ob2i_tf'


def scalars(numbers: Mapping[str, float]) -> list[summary_pb2.Summary.Value]:
    """{tag: number} as values; leaves out NaN, which means not measured."""
    return [
        summary_pb2.Summary.Value(tag=tag, simple_value=number)
        for tag, number in numbers.items()
        if not math.isnan(number)
    ]


def histograms(numbers: Mapping[str, Sequence[float]]) -> list[summary_pb2.Summary.Value]:
    """{tag: numbers} as values; leaves out what has no finite numbers."""
    finite = {tag: np.asarray(column)[np.isfinite(column)] for tag, column in numbers.items()}
    return [
        value
        for tag, column in finite.items()
        if len(column)
        for value in histogram_summary.histogram_pb(tag, column).value
    ]


def hyperparameters(bound: str) -> dict[str, Any]:
    """The bindings in a configuration; other values than scalars as text."""
    return {
        name: value if isinstance(value, (bool, int, float, str)) else repr(value)
        for name, value in parse_config(bound).items()
    }


class GameRecording:
    """The first game of the first environment, for a GIF of at most _FRAMES frames.

    Of a longer game every second frame is kept, every fourth, and so on.
    """

    def __init__(self) -> None:
        self._frames: list[np.ndarray] = []
        self._stride, self._steps, self._over = 1, 0, False

    def add(self, frames: np.ndarray, game_over: np.ndarray) -> None:
        """Adds a step.

        Args:
          frames: [B, height, width] uint8, the newest frame of each environment; the recording of
            anything else is empty.
          game_over: [B], whether the game ends with this step.
        """
        if self._over or frames.ndim != 3 or frames.dtype != np.uint8:
            return
        if self._steps % self._stride == 0:
            self._frames.append(frames[0] & 0xF0)  # 16 greys, which compress better.
            if len(self._frames) > _FRAMES:
                self._frames = self._frames[::2]
                self._stride *= 2
        self._steps += 1
        self._over = bool(game_over[0])

    def values(self, tag: str) -> list[summary_pb2.Summary.Value]:
        """The recording as an image; [] if it is empty."""
        if not self._frames:
            return []
        first, *others = map(Image.fromarray, self._frames)
        file = io.BytesIO()
        duration = min(_FRAME_MS * self._stride, 4 * _FRAME_MS)  # Long games are shown faster.
        first.save(
            file, format='GIF', save_all=True, append_images=others, duration=duration, loop=0
        )
        image = summary_pb2.Summary.Image(
            width=first.width,
            height=first.height,
            colorspace=1,
            encoded_image_string=file.getvalue(),
        )
        return [summary_pb2.Summary.Value(tag=tag, image=image)]
