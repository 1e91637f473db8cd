"""Common behaviour of all commands."""

import contextlib
import io
import os
import signal
import sys
import threading


@contextlib.contextmanager
def command():
    """Decorates the `main` of a command.

    Standard streams that the shell closed are opened, and any path can be printed. Ctrl-C ends the
    command at once, with one line and exit status 130; a command that has something to save sets a
    handler when it has.
    """
    _set_up_streams()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _set_up_streams():
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # Else the next file would take its number, and what C++ code prints.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, 'w')
    sys.stderr = sys.stderr or open(os.devnull, 'w')
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')


def _end(number, frame):
    del frame
    os.write(2, b'\nerror: interrupted\n')
    os._exit(128 + number)
