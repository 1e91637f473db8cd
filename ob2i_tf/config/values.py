"""Values of bindings, and the configurables that they name.

A value is a literal, a container of values, a Reference or a Macro.
"""

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping

import gin

REGISTRY = gin.config._REGISTRY  # gin has no public way to list its configurables.
EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scopes/name` or, with `evaluate`, `@scopes/name()`."""

    scopes: tuple[str, ...]
    name: str
    evaluate: bool

    def __str__(self) -> str:
        return '@' + '/'.join([*self.scopes, self.name]) + '()' * self.evaluate


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%name`."""

    name: str


def leaves(value: typing.Any) -> 'Iterator[Reference | Macro]':
    """The references and macros in a value."""
    if isinstance(value, (Reference, Macro)):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves([*value.keys(), *value.values()])


def map_leaves(function: Callable[[typing.Any], typing.Any], value: typing.Any) -> typing.Any:
    """Applies `function` to everything in a value that is not a container."""
    if isinstance(value, dict):
        return {map_leaves(function, k): map_leaves(function, v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_leaves(function, item) for item in value)
    return function(value)


def expand(value: typing.Any, macros: Mapping[str, typing.Any]) -> typing.Any:
    """Replaces the macros and gin constants in a value, except undefined ones.

    Args:
      value: Value to expand.
      macros: {name: value}.
    """

    def expanded(leaf):
        if not isinstance(leaf, Macro):
            return leaf
        if leaf.name in macros:
            others = {name: value for name, value in macros.items() if name != leaf.name}
            return expand(macros[leaf.name], others)
        return gin.config._CONSTANTS.get_match(leaf.name, leaf)

    return map_leaves(expanded, value)


def from_python(value: typing.Any) -> typing.Any:
    """A default argument as a value: configurables become references."""

    def converted(leaf):
        found = gin.config._inverse_lookup(leaf) if callable(leaf) else None
        return Reference((), found.selector, False) if found else leaf

    return map_leaves(converted, value)


def to_gin(value: typing.Any) -> typing.Any:
    """A value as gin stores it."""

    def converted(leaf):
        if isinstance(leaf, Reference):
            name = '/'.join([*leaf.scopes, leaf.name])
            return gin.config.ConfigurableReference(name, leaf.evaluate)
        return leaf

    return map_leaves(converted, value)


def from_gin(value: typing.Any) -> typing.Any:
    """The inverse of `to_gin`."""

    def converted(leaf):
        if not isinstance(leaf, gin.config.ConfigurableReference):
            return leaf
        name = leaf.configurable.selector
        if name in ('gin.macro', 'gin.constant') and leaf.evaluate:
            return Macro('/'.join(leaf.scopes))
        return Reference(tuple(leaf.scopes), name, leaf.evaluate)

    return map_leaves(converted, value)


def text(value: typing.Any) -> str:
    """A value in gin syntax; ValueError if gin cannot express it."""
    if isinstance(value, Reference):
        name = REGISTRY.minimal_selector(selector(value.name))
        return str(dataclasses.replace(value, name=name))
    if type(value) is dict:
        return '{' + ', '.join(f'{text(k)}: {text(v)}' for k, v in value.items()) + '}'
    if type(value) is list:
        return '[' + ', '.join(map(text, value)) + ']'
    if type(value) is tuple:
        return '(' + ', '.join(map(text, value)) + (',)' if len(value) == 1 else ')')
    if type(value) in (int, float, str, bytes, bool, type(None)):
        shown = repr(value)
        if shown.strip('-') not in ('inf', 'nan'):
            return shown
    raise ValueError(f'gin cannot express {value!r}')


def selector(name: str) -> str:
    """The full name of a configurable; KeyError unless exactly one matches."""
    selectors = REGISTRY.matching_selectors(name)
    if len(selectors) != 1:
        raise KeyError(f'{len(selectors)} configurables named {name!r}')
    return selectors[0]


def short(selector: str) -> str:
    """The name of a configurable without its modules."""
    return selector.rpartition('.')[2]


class Parameter(typing.NamedTuple):
    """One parameter of a configurable."""

    default: typing.Any  # EMPTY: the caller supplies it.
    hint: typing.Any
    bindable: bool


def parameters(selector: str) -> dict[str, Parameter]:
    """All parameters of a configurable except *args and **kwargs."""
    lists = [
        (configurable.allowlist, configurable.denylist or ())
        for configurable in map(REGISTRY.__getitem__, inherited(selector))
    ]
    function = _called(selector)
    is_class = inspect.isclass(REGISTRY[selector].wrapped)
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # Annotations undefined at run time are not checked.
        hints = {}
    found = list(inspect.signature(function).parameters.items())[is_class:]
    return {
        name: Parameter(
            p.default,
            hints.get(name, typing.Any),
            p.default is not EMPTY
            and all(
                name not in denied and name in (allowed or [name]) for allowed, denied in lists
            ),
        )
        for name, p in found
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def _called(selector):
    """The function that a configurable calls; for a class, its constructor."""
    function = REGISTRY[selector].wrapped
    if inspect.isclass(function):
        function = gin.config._find_class_construction_fn(function)
    return inspect.unwrap(function)


def bases(selector: str) -> list[str]:
    """Configurables that a configurable class inherits from, nearest first."""
    wrapped = REGISTRY[selector].wrapped
    ancestors = wrapped.__mro__[1:] if inspect.isclass(wrapped) else ()
    return [base.selector for base in map(gin.config._inverse_lookup, ancestors) if base]


def inherited(selector: str) -> list[str]:
    """A configurable, and those of its bases whose constructor it inherits, nearest first.

    A binding of such a base also applies to the configurable, unless it has the binding itself.
    """
    constructor = _called(selector)
    return [selector, *(base for base in bases(selector) if _called(base) is constructor)]


def bindable(selector: str) -> dict[str, Parameter]:
    """The parameters of a configurable that gin may bind."""
    return {name: p for name, p in parameters(selector).items() if p.bindable}


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """' (did you mean ...?)', or ''."""
    lower: dict[str, str] = {}
    for other in sorted(set(known)):
        lower.setdefault(other.lower(), other)
    found = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=cutoff)
    return f' (did you mean {" or ".join(repr(lower[n]) for n in found)}?)' if found else ''
