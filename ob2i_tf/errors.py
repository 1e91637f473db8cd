"""Errors the user can fix: the program ends with a line of explanation instead of a traceback."""

from typing import Any

import numpy as np


class UserError(Exception):
    """A run cannot start or continue for a reason outside the code; exit status 1."""


class ConfigError(UserError):
    """A wrong configuration; the message names the file or flag, and the binding; status 2."""


class NotFiniteError(UserError):
    """NaN or infinity in the loss, a target or a Q-value."""


class CheckpointError(UserError):
    """A run folder that a run cannot resume from."""


def check_array(source: object, call: str, name: str, array: Any, shape: tuple, dtype: Any) -> None:
    """Checks an array `name` that a `call` of `source`, perhaps user code, returned.

    Raises:
      UserError: Its shape or type differs.
      NotFiniteError: It holds NaN or infinity.
    """
    actual_shape = getattr(array, 'shape', None)
    actual_dtype = getattr(array, 'dtype', type(array))
    if actual_shape != shape or not np.issubdtype(actual_dtype, dtype):
        expected = f'{getattr(dtype, "__name__", dtype)} {shape}'
        raise UserError(
            f'{source} returned {name} of {actual_dtype} {actual_shape} from {call}, not {expected}'
        )
    if array.dtype.kind == 'f' and not np.isfinite(array).all():
        raise NotFiniteError(f'{source} returned NaN or infinite {name} from {call}')


def missing_extra(error: ModuleNotFoundError, extra: str) -> str:
    """The message for a missing package that belongs to one of the project's extras."""
    package = (error.name or '').partition('.')[0]
    return f'{package} is missing: {install_command(extra)}'


def install_command(extra: str) -> str:
    """The command that installs one of the project's extras."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"
