"""What all commands share: parsing of arguments, errors in one line, streams and Ctrl-C."""

import argparse
import contextlib
import functools
import io
import os
import signal
import sys
import threading
import traceback

from ob2i_tf.errors import ConfigError, UserError, missing_extra


def parser(module, description):
    """The parser of `python -m <module>`, whose help shows the description as it is."""
    return argparse.ArgumentParser(
        f'python -m {module}',
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def count(text, least=1):
    """Type of an argument that is an integer of at least `least`."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f'must be an integer >= {least}, got {text!r}')
    return int(text)


@contextlib.contextmanager
def extra(name):
    """Ends the program with one line if a package of this extra is missing in an import."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SystemExit(f'error: {missing_extra(error, name)}') from None


def command(expected=(UserError, OSError)):
    """Decorates the `main` of a command, which returns the exit status.

    An expected error becomes one line and exit status 1, or 2 for a ConfigError; any other
    exception is a bug, whose traceback is printed before the line. Standard streams that the shell
    closed are opened, and any path can be printed. Ctrl-C, unless ignored, ends the command at
    once, with one line and exit status 130; a command installs another handler when it has
    something to save.

    Args:
      expected: Exceptions that the user can fix.
    """

    def decorate(main):
        @functools.wraps(main)
        def wrapped(*arguments, **keywords):
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


def print_error(error):
    """Prints an error to stderr as one line."""
    # gin adds lines that say which configurable was being called.
    message = str(error).partition('\n  In call to configurable')[0]
    with contextlib.suppress(OSError):  # Nobody may read stdout any more.
        sys.stdout.flush()
    print('error:', ' '.join(message.split()), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _ended_by_interrupts():
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
