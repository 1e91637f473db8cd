"""Streams and Ctrl-C of all commands."""

import contextlib
import io
import os
import signal
import sys
import threading


@contextlib.contextmanager
def command():
    """Decorates the `main` of a command.

    Standard streams that the shell closed are opened, and any path can be printed. Ctrl-C, unless
    ignored, ends the command at once, with one line and exit status 130. A command installs another
    handler when it has something to save.
    """
    _set_up_streams()
    previous = signal.getsignal(signal.SIGINT)
    in_thread = threading.current_thread() is not threading.main_thread()
    if in_thread or previous == signal.SIG_IGN:  # A shell script ignores it for `command &`.
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _set_up_streams():
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # Otherwise the next file gets this number, and the output of C++ code.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, 'w')
    sys.stderr = sys.stderr or open(os.devnull, 'w')
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')


def _end(number, frame):
    del frame
    with contextlib.suppress(OSError):  # Nobody may read it any more.
        os.write(2, b'\nerror: interrupted\n')
    os._exit(128 + number)
