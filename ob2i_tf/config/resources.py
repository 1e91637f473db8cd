"""Where the project's data folders lie: in a checkout, and after a plain install."""

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def folder(name):
    """Path of the folder `name` ('gin' or 'third_party'), whatever the working directory."""
    # Installed first: beside an installed package lies gin-config's own folder gin/.
    installed = os.path.join(_PACKAGE, '_data', name)
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(_PACKAGE), name)
