"""Ranges of parameters in annotations, checked by constructors and by the gin layer alike.

  @gin.configurable
  @parameters.checked
  class Update:
      def __init__(self, batch_size: Annotated[int, AtLeast(1)] = 32): ...

`Update(0)` raises ValueError('Update.batch_size must be at least 1, got 0'). The check covers
numbers, strings, literals, None, classes, and unions and containers of these. Numbers must be
finite in float32, in which TensorFlow computes, so NaN never fits.
"""

import functools
import inspect
import numbers
import types
import typing
from collections import abc

_SEQUENCES = (tuple, list, abc.Sequence, abc.Iterable, abc.Collection)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
ANY = object()  # A value that fits every annotation.
_LARGEST = 3.4028234663852886e38  # The largest float32.
_FINITE = f'within +-{_LARGEST:.2g}'


class Range(typing.NamedTuple):
    """Metadata of an Annotated number."""

    text: str  # Follows 'must be'.
    contains: typing.Callable[[typing.Any], bool]


class Selects(typing.NamedTuple):
    """Metadata of an Annotated value that selects a configurable, for the gin layer."""

    function: typing.Callable[[typing.Any], typing.Any]  # ValueError: nothing is selected.


def AtLeast(least: float) -> Range:
    return Range(f'at least {least}', lambda value: value >= least)


def AtMost(most: float) -> Range:
    return Range(f'at most {most}', lambda value: value <= most)


def Above(bound: float) -> Range:
    return Range(f'above {bound}', lambda value: value > bound)


def Below(bound: float) -> Range:
    return Range(f'below {bound}', lambda value: value < bound)


def Within(least: float, most: float) -> Range:
    return Range(f'in {least}..{most}', lambda value: least <= value <= most)


def checked(function_or_class: typing.Any) -> typing.Any:
    """Decorator: checks the arguments of a function, or of a constructor, on each call.

    Defaults and parameters without an annotation are not checked. A check costs some microseconds
    per call.
    """
    if inspect.isclass(function_or_class):
        function_or_class.__init__ = checked(function_or_class.__init__)  # type: ignore[method-assign]
        return function_or_class
    function = function_or_class
    signature = inspect.signature(function)
    parameters = signature.parameters
    hints = typing.get_type_hints(function, include_extras=True)
    is_constructor = function.__name__ == '__init__'

    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        for name, value in (*zip(parameters, arguments), *keywords.items()):
            if name in hints and value is not parameters[name].default:
                expected = misfit(value, hints[name])
                if expected:
                    owner = type(arguments[0]) if is_constructor else function
                    made = f': write @{value.__name__}()' if inspect.isclass(value) else ''
                    raise ValueError(
                        f'{owner.__name__}.{name} must be {expected}, got {value!r}{made}'
                    )
        return function(*arguments, **keywords)

    wrapper.__signature__ = signature  # type: ignore  # gin does not look behind a wrapper.
    return wrapper


def misfit(value: typing.Any, hint: typing.Any) -> str:
    """Describes the values that `hint` allows if `value` is not one; '' if it is, or may be.

    The description follows 'must be' or 'expected': 'int', 'at least 1', "one of 'a', 'b'".
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is ANY:
        return ''
    if origin is typing.Annotated:
        expected = misfit(value, arguments[0])
        ranges = [r for r in arguments[1:] if isinstance(r, Range)]
        outside = expected in ('', _FINITE) and not all(r.contains(value) for r in ranges)
        return ' and '.join(r.text for r in ranges) if outside else expected
    if origin in (typing.Union, types.UnionType):
        found = [misfit(value, argument) for argument in arguments]
        return ' or '.join(found) if all(found) else ''
    if not _fits(value, hint, origin, arguments):
        return describe(hint)
    if hint in (int, float) and not -_LARGEST <= value <= _LARGEST:
        return _FINITE
    return ''


def _fits(value, hint, origin, arguments):
    if origin is typing.Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    kind = origin or hint
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is abc.Callable:
        return callable(value)
    if kind in _MAPPINGS:
        return isinstance(value, abc.Mapping) and all(
            not misfit(item, wanted)
            for pair in value.items()
            for item, wanted in zip(pair, arguments)
        )
    if kind in _SEQUENCES:
        if isinstance(value, (str, bytes, abc.Mapping)):
            return False
        if not isinstance(value, abc.Collection):  # An iterator can be read only once.
            return kind is abc.Iterable and isinstance(value, kind)
        items = list(value)
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            return len(items) == len(arguments) and not any(map(misfit, items, arguments))
        return not arguments or not any(misfit(item, arguments[0]) for item in items)
    try:
        return not isinstance(kind, type) or isinstance(value, kind)
    except TypeError:  # A protocol.
        return True


def describe(hint: typing.Any) -> str:
    """A type hint in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        ranges = [r.text for r in arguments[1:] if isinstance(r, Range)]
        return ' '.join([describe(arguments[0]), ' and '.join(ranges)]).strip()
    if origin in (typing.Union, types.UnionType):
        return ' or '.join(map(describe, arguments))
    if origin is typing.Literal:
        return 'one of ' + ', '.join(map(repr, arguments))
    kind = origin or hint
    if kind is type(None):
        return 'None'
    if kind is abc.Callable:
        return 'a function or class'
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        return f'({", ".join(map(describe, arguments))})'
    if kind in _MAPPINGS:
        return 'a mapping' + (f' of {" to ".join(map(describe, arguments))}' if arguments else '')
    if kind in _SEQUENCES:
        return 'a sequence' + (f' of {describe(arguments[0])}' if arguments else '')
    return getattr(kind, '__name__', str(kind))


def choices(hint: typing.Any) -> list:
    """The values that a Literal in `hint` allows."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return list(arguments)
    return [choice for argument in arguments for choice in choices(argument)]
