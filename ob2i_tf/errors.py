"""Errors that the user can fix: the program ends with one line that says how, not a traceback."""

import contextlib
import os
import signal
import threading


class UserError(Exception):
    """A run that cannot start or go on for a reason outside the code; exit status 1."""


class ConfigError(UserError):
    """A configuration that is wrong; its message names the file or flag, and the binding; 2."""


class NotFiniteError(UserError):
    """NaN or infinity in the loss, a target or a Q-value."""


class CheckpointError(UserError):
    """A run folder that cannot be resumed from."""


@contextlib.contextmanager
def one_line_on_interrupt():
    """Decorates a command: Ctrl-C ends it at once, with one line and exit status 130.

    A command that has something to save sets its own handler once it has.
    """

    def end(number, frame):
        os.write(2, b'\nerror: interrupted\n')
        os._exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def missing_package(error: ModuleNotFoundError, extra):
    """What to say of a package of one of the project's extras."""
    return f"{error.name} is missing: pip install -c constraints.txt -e '.[{extra}]'"
