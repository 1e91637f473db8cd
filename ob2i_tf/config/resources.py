"""Locates the project's data folders, in a checkout and after a plain install."""

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def folder(name: str) -> str:
    """Path of 'gin', 'agents' or 'third_party', whatever the working directory."""
    # The installed one first: next to an installed package lies the folder gin/ of gin-config.
    installed = os.path.join(_PACKAGE, '_data', name)
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(_PACKAGE), name)
