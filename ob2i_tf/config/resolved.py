"""Queries of gin's current state, however its bindings were made."""

import contextlib
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gin

from ob2i_tf.config import values
from ob2i_tf.config.checking import ROOTS, Run
from ob2i_tf.errors import ConfigError


def value(name: str, roots: Sequence[str] = ROOTS) -> Any:
    """The value of 'Name.parameter' outside any scope, bound or default, with macros resolved."""
    configurable, _, parameter = name.rpartition('.')
    run = Run.of_gin(roots)
    return run.expand(run.nodes[(), values.selector(configurable)][parameter])


def bound(configurable: Callable) -> dict[str, Any]:
    """{parameter: value} of a configurable, from its defaults and gin's unscoped bindings."""
    selector = gin.config._inverse_lookup(configurable).selector
    defaults = {
        name: parameter.default
        for name, parameter in values.parameters(selector).items()
        if parameter.default is not values.EMPTY
    }
    return {**defaults, **gin.get_bindings(configurable)}


def resolved_config(roots: Sequence[str] = ROOTS, defaults: bool = True) -> str:
    """gin's state as text, which alone reproduces the run; loading it gives the same text.

    It holds every parameter, bound or default, of all configurables that the run uses, with macros
    resolved. Defaults that gin cannot express are left out.

    Args:
      roots: Configurables that the run starts from.
      defaults: Whether parameters that are not bound are included.
    """
    run = Run.of_gin(roots)
    groups: dict[str, list[str]] = {}
    for (scopes, selector), node in run.nodes.items():
        bindable: Iterable[str] = values.bindable(selector)
        if scopes and ((), selector) in run.nodes:  # The others are inherited.
            bindable = [name for name, b in run.bindings(scopes, selector).items() if b.scope]
        elif not defaults:
            bindable = run.bindings(scopes, selector)
        prefix = '/'.join([*scopes, values.REGISTRY.minimal_selector(selector)])
        groups[prefix] = group = []
        for parameter in sorted(bindable):
            with contextlib.suppress(ValueError):
                shown = values.text(run.expand(node[parameter]))
                group.append(f'{prefix}.{parameter} = {shown}')
    imports = sorted({statement.format() for statement in gin.config._IMPORTS})
    ordered = [imports, *(groups[prefix] for prefix in sorted(groups, key=str.lower))]
    return '\n\n'.join('\n'.join(group) for group in ordered if group) + '\n'


@contextlib.contextmanager
def construction_errors() -> Iterator[None]:
    """Context that turns errors of the package's own constructors into a ConfigError."""
    try:
        yield
    except TypeError as error:
        made = re.search(
            r"No values supplied by Gin .*?In call to configurable '(\w+)'", str(error), re.DOTALL
        )
        if made:
            raise ConfigError(
                f'{made[1]} cannot be constructed from gin alone: write @{made[1]}, not '
                f'@{made[1]}(), or bind the missing values: {str(error).partition(chr(10))[0]}'
            ) from error
        raise
    except MemoryError as error:
        made = re.search(r"In call to configurable '(?!Runner)(\w+)'", str(error))
        what = made[1] if made else 'this configuration'
        raise ConfigError(f'not enough memory for {what}: {error}') from error
    except ValueError as error:
        *_, (raised_in, _) = traceback.walk_tb(error.__traceback__)
        if raised_in.f_globals.get('__name__', '').startswith('ob2i_tf.'):
            # gin appends lines about the configurable that was being called.
            raise ConfigError(str(error).partition('\n  In call to configurable')[0]) from error
        raise
