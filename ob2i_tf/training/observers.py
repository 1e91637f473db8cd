"""Loggers of the user's own, beside the tables and TensorBoard; docs/running.md has examples.

`Runner.observers` holds factories without arguments. What each makes has three methods:

  start(folder, settings, step)  before the first row of a process: the run folder, a Path; the
                                 complete configuration, {'Name.parameter': value}; and the frames
                                 after which rows follow, 0 unless the run resumes
  log(values, step)              with each row of train.csv, and with each point within an
                                 iteration: {tag: number}, as in TensorBoard, at `step` frames
  end(complete)                  when the process ends, and whether the run is complete

A resumed run starts its observers anew. It repeats the rows that follow its checkpoint, so `log`
may see a step again that an earlier process logged after that checkpoint.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from ob2i_tf.errors import UserError
from ob2i_tf.training.tensorboard import hyperparameters


class Observers:
    """The observers of a run; `close` ends them.

    The run does not depend on them: it starts only if all of them do, but one that fails later is
    reported in one line and left out from then on.

    Args:
      factories: See above.
    """

    def __init__(self, factories: Sequence[Callable]):
        self._factories = factories
        self._observers: list[Any] = []
        self.complete = False

    def start(self, folder: Path, resolved: str, step: int) -> None:
        """Makes and starts the observers; those that started must be closed, even after an error.

        Args:
          folder: Run folder.
          resolved: The complete configuration.
          step: Frames that are done.

        Raises:
          UserError: One of them fails.
        """
        for factory in self._factories:
            name = getattr(factory, '__name__', str(factory))
            try:
                observer = factory()
                observer.start(folder, hyperparameters(resolved), step)
            except Exception as error:  # It may be user code.
                raise UserError(
                    f'Runner.observers: {name} did not start: {_text(error)}'
                ) from error
            self._observers.append(observer)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Passes {tag: number} on, without NaN, which means not measured."""
        self._call('log', {tag: x for tag, x in values.items() if not math.isnan(x)}, step)

    def close(self) -> None:
        self._call('end', self.complete)

    def _call(self, method, *arguments):
        for observer in list(self._observers):
            try:
                getattr(observer, method)(*arguments)
            except Exception as error:  # It may be user code.
                self._observers.remove(observer)
                logging.warning(
                    '%s.%s failed, and the run continues without it: %s',
                    type(observer).__name__,
                    method,
                    _text(error),
                )


def _text(error):
    return ' '.join(f'{type(error).__name__}: {error}'.split())
