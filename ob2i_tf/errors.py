"""Errors the user can fix: the program ends with a line of explanation instead of a traceback."""


class UserError(Exception):
    """A run cannot start or continue for a reason outside the code; exit status 1."""


class ConfigError(UserError):
    """A wrong configuration; the message names the file or flag, and the binding; status 2."""


class NotFiniteError(UserError):
    """NaN or infinity in the loss, a target or a Q-value."""


class CheckpointError(UserError):
    """A run folder that a run cannot resume from."""


def missing_extra(error: ModuleNotFoundError, extra: str) -> str:
    """The message for a missing package that belongs to one of the project's extras."""
    package = (error.name or '').partition('.')[0]
    return f'{package} is missing: {install_command(extra)}'


def install_command(extra: str) -> str:
    """The command that installs one of the project's extras."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"
