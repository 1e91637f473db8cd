"""Shared by all commands: parsing of arguments, one-line errors, standard streams and Ctrl-C."""

import argparse
import contextlib
import functools
import gc
import io
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator

from ob2i_tf.errors import ConfigError, UserError, missing_extra


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m <module>`; its help shows the description verbatim."""
    return argparse.ArgumentParser(
        f'python -m {module}',
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def count(text: str, least: int = 1) -> int:
    """Parses an argument that must be an integer of at least `least`."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f'must be an integer >= {least}, got {text!r}')
    return int(text)


def duration(seconds: float) -> str:
    """'45 s', '12 min', '3 h 20 min' or '4 days 3 h'."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f'{seconds:.0f} s'
    if minutes < 60:
        return f'{minutes} min'
    hours = round(seconds / 3600)
    if hours < 48:
        return f'{minutes // 60} h {minutes % 60} min'
    return f'{hours // 24} days {hours % 24} h'


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Context of imports that ends the program with one line if a package of an extra is missing.

    Args:
      name: Name of the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise SystemExit(f'error: {missing_extra(error, name)}') from None


def command(
    expected: type[Exception] | tuple[type[Exception], ...] = (UserError, OSError),
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorates the `main` of a command, which returns the exit status.

    An expected error becomes one line and exit status 1, or 2 for a ConfigError; any other
    exception is a bug, whose traceback is printed before the line. Standard streams that the shell
    closed are reopened, and any path can be printed. Ctrl-C, unless ignored, ends the command at
    once with one line and exit status 130; a command that has something to save installs another
    handler.

    Args:
      expected: Exceptions that the user can fix.
    """

    def decorate(main: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(main)
        def wrapped(*arguments, **keywords) -> int:
            _set_up_streams()
            with _ended_by_interrupts():
                try:
                    return main(*arguments, **keywords)
                except expected as error:
                    print_error(error)
                    return 2 if isinstance(error, ConfigError) else 1
                except Exception as error:
                    traceback.print_exc()
                    print_error(f'unexpected, see above: {type(error).__name__}: {error}')
                    return 1

        return wrapped

    return decorate


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages, which no setting turns off.

    TensorFlow's warnings show from then on. If the import fails, its messages do too.
    """
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
    sys.stderr.flush()
    stderr = os.dup(2)
    collecting = gc.isenabled()
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        try:
            gc.disable()  # An import makes no garbage; looking for it takes a tenth of the time.
            import tensorflow as tf

            tf.config.list_physical_devices('GPU')  # Without a GPU the first call prints an error.
        except BaseException:
            notes.seek(0)
            os.write(stderr, notes.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            if collecting:
                gc.enable()


def print_error(error: Exception | str) -> None:
    """Prints an error to stderr as one line."""
    with contextlib.suppress(OSError):  # The reader of stdout may be gone.
        sys.stdout.flush()
    print('error:', one_line(error), file=sys.stderr, flush=True)


def one_line(error: Exception | str) -> str:
    """The message of an error in one line, without gin's lines, and long values cut."""
    line = ' '.join(str(error).partition('\n  In call to configurable')[0].split())
    line = re.sub(r'(\w{40})\w{100,}', r'\1...', line)
    return line if len(line) <= 1000 else f'{line[:300]} ... {line[-300:]}'


@contextlib.contextmanager
def _ended_by_interrupts():
    previous = signal.getsignal(signal.SIGINT)
    in_thread = threading.current_thread() is not threading.main_thread()
    if in_thread or previous == signal.SIG_IGN:  # Shell scripts ignore it for `command &`.
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
        except OSError:  # The next file would get this number, and C++ code would write to it.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, 'w')
    sys.stderr = sys.stderr or open(os.devnull, 'w')
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')


def _end(number, frame):
    del frame
    with contextlib.suppress(OSError):  # The reader may be gone.
        os.write(2, b'\nerror: interrupted\n')
    os._exit(128 + number)
