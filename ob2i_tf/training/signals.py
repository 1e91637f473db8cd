"""Signals that ask a run to save and stop."""

import signal

from absl import logging

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Notes, while it is entered, that the process was asked to stop.

    SIGHUP is left alone where it is ignored, as under nohup. A second SIGINT ends the process at
    once; schedulers repeat SIGTERM, people repeat Ctrl-C.

    Attributes:
      signal: The signal that was received; None before.
    """

    def __init__(self):
        self.signal = None
        self._previous = {}

    def __bool__(self):
        return self.signal is not None

    def __enter__(self):
        for number in _ASKING:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        del frame
        self.signal = signal.Signals(number)
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
        logging.warning('%s: saving, then stopping.', self.signal.name)
