"""Ctrl-C of commands that have nothing to save."""

import signal
import subprocess
import sys

import pytest

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
