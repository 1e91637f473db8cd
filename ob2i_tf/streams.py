"""Standard streams that every command can rely on."""

import io
import os
import sys


def set_up():
    """Opens those that the shell closed, and lets any path be printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # Else the next file would take its number, and what C++ code prints.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, 'w')
    sys.stderr = sys.stderr or open(os.devnull, 'w')
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')
