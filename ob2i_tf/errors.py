"""Errors that the user can fix: the program ends with one line that says how, not a traceback."""


class UserError(Exception):
    """A run that cannot start or go on for a reason outside the code; exit status 1."""


class ConfigError(UserError):
    """A configuration that is wrong; its message names the file or flag, and the binding; 2."""


class NotFiniteError(UserError):
    """NaN or infinity in the loss, a target or a Q-value."""


class CheckpointError(UserError):
    """A run folder that cannot be resumed from."""


def missing_package(error: ModuleNotFoundError, extra):
    """What to say of a package of one of the project's extras."""
    package = error.name.partition('.')[0]
    return f"{package} is missing: pip install -c constraints.txt -e '.[{extra}]'"
