"""Questions to gin's present state, however it came about."""

import contextlib
import re

import gin

from ob2i_tf.config import values
from ob2i_tf.config.checking import ROOTS, Run
from ob2i_tf.errors import ConfigError


def value(name, roots=ROOTS):
    """The value of 'Name.parameter' outside any scope, bound or default, macros resolved."""
    configurable, _, parameter = name.rpartition('.')
    run = Run.of_gin(roots)
    return run.expand(run.nodes[(), values.selector(configurable)][parameter])


def bound(configurable):
    """{parameter: value} of a configurable, by its defaults and gin's unscoped bindings."""
    selector = gin.config._inverse_lookup(configurable).selector
    defaults = {
        name: parameter.default
        for name, parameter in values.parameters(selector).items()
        if parameter.default is not values.EMPTY
    }
    return {**defaults, **gin.get_bindings(configurable)}


def resolved_config(roots=ROOTS):
    """gin's state as a text that alone reproduces the run, and that does not change when loaded.

    It holds every parameter, bound or default, of everything that the run uses, macros resolved.
    A default that gin cannot express is left out.
    """
    run = Run.of_gin(roots)
    groups = {}
    for (scopes, selector), node in run.nodes.items():
        bindable = values.bindable(selector)
        if scopes and ((), selector) in run.nodes:  # The rest is inherited.
            bindable = [name for name, b in run.bindings(scopes, selector).items() if b.scope]
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
def construction_errors():
    """Turns errors of the project's own constructors into a ConfigError."""
    try:
        yield
    except TypeError as error:
        made = re.search(
            r"No values supplied by Gin .*?In call to configurable '(\w+)'", str(error), re.DOTALL
        )
        if made:
            raise ConfigError(
                f'{made[1]} cannot be constructed from gin alone: write @{made[1]}, not '
                f'@{made[1]}(), or bind what it lacks: {str(error).partition(chr(10))[0]}'
            ) from error
        raise
    except MemoryError as error:
        raise ConfigError(f'this needs more memory than there is: {error}') from error
    except ValueError as error:
        raised_in = error.__traceback__
        while raised_in.tb_next:
            raised_in = raised_in.tb_next
        if raised_in.tb_frame.f_globals.get('__name__', '').startswith('ob2i_tf.'):
            # gin adds lines that say which configurable was being called.
            raise ConfigError(str(error).partition('\n  In call to configurable')[0]) from error
        raise
