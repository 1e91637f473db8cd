"""Signals that ask a run to save and stop."""

import signal
from types import FrameType
from typing import Any

from absl import logging

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Context that records a request to stop; it is true once there was one.

    SIGHUP stays ignored if it was, as under nohup. A second SIGINT ends the process at once, since
    people repeat Ctrl-C; schedulers repeat SIGTERM.

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

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal = signal.Signals(number)
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
        logging.warning('%s: saving, then stopping.', self.signal.name)
