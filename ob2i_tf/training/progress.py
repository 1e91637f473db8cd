"""What a run shows while it runs: a progress bar, the time it takes, and its last lines.

Where stderr is not a terminal, as in a log file, a line per minute replaces the bar.
"""

import collections
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping

import tqdm
from absl import logging

from ob2i_tf.cli import duration
from ob2i_tf.training import build, system
from ob2i_tf.training.run_folder import RunFolder

_UNCOUNTED = 20  # Learner steps that the speed ignores, since TensorFlow traces in the first ones.
_FORECAST_SECONDS = 30  # Of learning, before the time of the run is forecast.
_SHORT_SECONDS = 600  # Of a run that needs no forecast.
_LONG_SECONDS = 4 * 3600  # Of a run that should have a GPU.
_GAMES = 20  # Whose mean score is shown.
_LOSS_STEPS = 100  # Learner steps over which the loss is smoothed.


def _interval():
    return 1 if sys.stderr.isatty() else 60  # Seconds.


def _print_line(text):
    tqdm.tqdm.write(text, file=sys.stderr)


class Pace:
    """The speed of a run while it learns, in this process.

    What comes before does not count: random play until learning starts, steps that are played again
    after a resume, and the first learner steps.

    Args:
      clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._learner_steps = 0
        self._start: tuple[float, int] | None = None  # Seconds and frames.

    def learned(self) -> None:
        """Counts a learner step."""
        self._learner_steps += 1

    def measure(self, frames: int) -> tuple[float, float]:
        """(seconds of learning so far, frames per second), NaN if unknown, once `frames` are done.

        It starts to measure at the first call after enough learner steps.
        """
        if self._start is None:
            if self._learner_steps >= _UNCOUNTED:
                self._start = self._clock(), frames
            return math.nan, math.nan
        seconds = self._clock() - self._start[0]
        return seconds, (frames - self._start[1]) / seconds if seconds else math.nan


class ProgressBar:
    """A progress bar with the time left, the loss, the score of the last games and epsilon.

    Once the speed of learning is known, it also logs the `forecast`.

    Args:
      total: Frames of the complete run.
      done: Frames so far.
      unit: Unit of the task, 'frames' or 'steps'.
      gpu: Whether there is a GPU.
      clock: Seconds.
    """

    def __init__(
        self,
        total: int,
        done: int,
        unit: str,
        gpu: bool,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._frames, self._unit, self._gpu = total, done, unit, gpu
        self._clock, self._pace = clock, Pace(clock)
        self._loss = math.nan
        self._scores: collections.deque[float] = collections.deque(maxlen=_GAMES)
        self._start = self._clock()
        self._next = self._start + _interval()
        self._rate, self._epsilon = math.nan, math.nan
        self._forecast = False
        self._bar = tqdm.tqdm(
            total=total,
            initial=done,
            unit=unit,
            unit_scale=True,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
            bar_format='{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit} [{elapsed}{postfix}]',
        )

    def __enter__(self) -> 'ProgressBar':
        return self

    def __exit__(self, *error: object) -> None:
        self._show()
        self._bar.close()

    def learned(self, report: Mapping[str, float]) -> None:
        """Notes the report of a learner step."""
        self._pace.learned()
        loss = report['loss']
        self._loss = (
            loss if math.isnan(self._loss) else self._loss + (loss - self._loss) / _LOSS_STEPS
        )

    def played(self, games: Iterable) -> None:
        """Notes finished games, [loop.Game]."""
        self._scores.extend(game.score for game in games)

    def update(self, frames: int, epsilon: float) -> None:
        """Shows from time to time that the run has reached `frames`."""
        self._frames, self._epsilon = frames, epsilon
        seconds, self._rate = self._pace.measure(frames)
        if seconds > _FORECAST_SECONDS and not self._forecast:
            self._forecast = True
            text = forecast(self._total - frames, self._rate, self._unit, self._gpu)
            if text:
                logging.info('%s', text)
        if self._clock() >= self._next:
            self._next = self._clock() + _interval()
            self._show()

    def _show(self):
        if self._bar.disable:
            percent = 100 * self._frames // self._total if self._total else 100
            _print_line(
                f'{percent}% of {self._total:,} {self._unit}, '
                f'{duration(self._clock() - self._start)}: {self.text()}'
            )
            return
        self._bar.n = self._frames
        self._bar.set_postfix_str(self.text())

    def text(self) -> str:
        """What the bar shows beside the number of frames."""
        parts = []
        if self._rate > 0:
            left = duration((self._total - self._frames) / self._rate)
            parts = [f'{self._rate:.3g} {self._unit}/s', f'{left} left']
        if self._scores:
            parts.append(f'score={sum(self._scores) / len(self._scores):.6g}')
        if not math.isnan(self._loss):
            parts.append(f'loss={self._loss:.3g}')
        return ', '.join([*parts, f'epsilon={self._epsilon:.2f}'])


def run_progress_bar(parts: build.Parts, agent_steps: int) -> ProgressBar:
    """The progress bar of a run of `agent_steps`."""
    frames_per_step = parts.environment.frames_per_step
    return ProgressBar(
        agent_steps * frames_per_step,
        parts.frames,
        'frames' if frames_per_step > 1 else 'steps',
        bool(system.list_gpus()),
    )


def progress_bar(steps: Iterable, total: int, label: str) -> Iterable:
    """Iterates over steps with a temporary progress bar, shown if it takes some time."""
    if not sys.stderr.isatty():
        return _lines_of(steps, total, label)
    return tqdm.tqdm(
        steps,
        desc=label,
        total=total,
        unit='steps',
        leave=False,
        dynamic_ncols=True,
        mininterval=_interval(),
        delay=_interval(),
    )


def _lines_of(steps, total, label):
    due = time.monotonic() + _interval()
    for number, step in enumerate(steps):
        if time.monotonic() >= due:
            due = time.monotonic() + _interval()
            _print_line(f'{label}: {number:,} of {total:,} steps')
        yield step


def forecast(frames: int, rate: float, unit: str, gpu: bool) -> str:
    """Says how long training will take, and on Atari without a GPU what to run instead.

    Args:
      frames: Frames that remain.
      rate: Frames per second while the run learns.
      unit: Unit of the task; 'frames' on Atari.
      gpu: Whether there is a GPU.

    Returns:
      The text; '' if the run ends soon.
    """
    seconds = frames / rate if rate > 0 else math.inf
    if not _SHORT_SECONDS < seconds < math.inf:
        return ''
    text = (
        f'Training will take {duration(seconds)}, without evaluations: {frames:,} {unit} at '
        f'{rate:.3g} per second, measured while it learns.'
    )
    if seconds > _LONG_SECONDS and not gpu and unit == 'frames':
        text += (
            ' For results within half an hour without a GPU: '
            'ob2i-tf --gin_files=ob2i_atari_small.gin'
        )
    return text


def last_lines(folder: RunFolder) -> str:
    """The three lines that end a complete run: its scores, its folder, and the next command."""
    name, rows = 'Evaluation', folder.rows('eval')
    if not rows:
        name, rows = 'Training', folder.rows('train')
    rows = [row for row in rows if row['score_mean'] != 'nan']
    scores = 'no game ended.'
    if rows:
        best, last = max(rows, key=lambda row: float(row['score_mean'])), rows[-1]
        scores = ', '.join(
            f'{which} {float(row["score_mean"]):.6g} at {int(row["frames"]):,} frames'
            for which, row in (('best', best), ('last', last))
        )
    path = shlex.quote(str(folder))
    return (
        f'{name} score: {scores}\n'
        f'Complete: tables, checkpoints and TensorBoard files are in {folder}\n'
        f'Next: python -m ob2i_tf.analysis {path} --out report'
    )
