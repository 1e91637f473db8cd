"""Errors and Ctrl-C of commands."""

import argparse
import signal
import subprocess
import sys

import pytest

from ob2i_tf import cli
from ob2i_tf.errors import ConfigError, UserError

COMMAND = """
import os, signal
from ob2i_tf import cli

@cli.command()
def main():
    os.kill(os.getpid(), signal.SIGINT)
    print('done')

main()
"""


@pytest.mark.parametrize(
    'reader, ignored, status, printed',
    [
        (True, False, 130, 'error: interrupted'),
        (False, False, 130, None),
        (True, True, 0, 'done'),
    ],
)
def test_an_interrupt_ends_a_command_unless_it_is_ignored(reader, ignored, status, printed):
    before = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None
    process = subprocess.Popen(
        [sys.executable, '-c', COMMAND],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=before,
    )
    if not reader:
        process.stdout.close()
    assert process.wait() == status
    assert not reader or process.stdout.read().strip() == printed


@pytest.mark.parametrize(
    'error, status, line, traceback',
    [
        (UserError('no run\n  at a'), 1, 'error: no run at a', False),
        (ConfigError('b = 1'), 2, 'error: b = 1', False),
        (OSError('disk'), 1, 'error: disk', False),
        (ValueError('c'), 1, 'error: unexpected, see above: ValueError: c', True),
        (ConfigError(f'a = {4999 * "1"}: b'), 2, f'error: a = {40 * "1"}...: b', False),
        (ConfigError(f'a {999 * "b "}c'), 2, f'error: a {149 * "b "} ... {149 * " b"} c', False),
    ],
)
def test_an_error_ends_a_command_in_one_line(capsys, error, status, line, traceback):
    @cli.command()
    def main():
        raise error

    assert main() == status
    *above, last = capsys.readouterr().err.splitlines()
    assert last == line and bool(above) == traceback


def test_a_count_is_an_integer_of_at_least_some_number():
    assert cli.count('3') == 3 and cli.count('0', least=0) == 0
    for text in ('0', '-1', '1.5', 'many'):
        with pytest.raises(argparse.ArgumentTypeError, match=f'>= 1, got {text!r}'):
            cli.count(text)
