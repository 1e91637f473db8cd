"""Signals that ask a run to save and stop."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from absl import logging

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Context that records a request to stop; it is true once there was one.

    SIGHUP stays ignored if it was, as under nohup. A second SIGINT ends the process at once, since
    people repeat Ctrl-C; schedulers repeat SIGTERM. Where Python handled SIGINT itself, as in a
    notebook, the second one is a KeyboardInterrupt.

    Attributes:
      signal: The signal that was received; None before.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> 'StopRequest':
        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def exit_if_asked(self, position: Callable[[], str]) -> None:
        """Ends the program if it was asked to stop.

        Args:
          position: Describes where the run is saved.
        """
        if self.signal:
            logging.warning(
                'Stopped by %s, saved at %s; run the same command to resume.',
                self.signal.name,
                position(),
            )
            sys.exit(128 + self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal = signal.Signals(number)
        if number == signal.SIGINT:
            in_notebook = self._previous[self.signal] is signal.default_int_handler
            signal.signal(number, signal.default_int_handler if in_notebook else signal.SIG_DFL)
        logging.warning('%s: saving, then stopping.', self.signal.name)
