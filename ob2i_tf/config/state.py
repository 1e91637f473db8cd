"""gin's state, which is global, as an object that is in force for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any

import gin


class GinState:
    """A configuration of gin, empty at first.

    Within `entered` gin has this configuration, and what changes in it stays here; then gin has its
    earlier one again, also after an exception. What is registered with gin stays registered. gin's
    state belongs to the process, so no other thread may use gin meanwhile.
    """

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {
            '_CONFIG': {},
            '_CONFIG_IS_LOCKED': False,
            '_IMPORTS': set(),
            '_OPERATIVE_CONFIG': {},
            '_SINGLETONS': {},
        }

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which this is gin's configuration."""
        earlier = _exchange(self._variables)
        try:
            yield
        finally:
            self._variables = _exchange(earlier)


def _exchange(variables):
    """Sets gin's variables; returns what they were."""
    earlier = {name: getattr(gin.config, name) for name in variables}
    for name, value in variables.items():
        setattr(gin.config, name, value)
    return earlier
