"""Shared by all commands: parsing of arguments, one-line errors, standard streams and Ctrl-C."""

import argparse
import contextlib
import functools
import io
import os
import signal
import sys
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


def print_error(error: Exception | str) -> None:
    """Prints an error to stderr as one line."""
    # gin appends lines about the configurable that was being called.
    message = str(error).partition('\n  In call to configurable')[0]
    with contextlib.suppress(OSError):  # The reader of stdout may be gone.
        sys.stdout.flush()
    print('error:', ' '.join(message.split()), file=sys.stderr, flush=True)


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
