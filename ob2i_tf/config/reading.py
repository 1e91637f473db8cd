"""Gin files and flags -> bindings with file and line; no configurable needs to be registered."""

import dataclasses
import os
import tokenize
import typing
from collections.abc import Callable, Iterable, Mapping

from gin import config_parser

from ob2i_tf.config import resources, values
from ob2i_tf.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/name.parameter = value`, or with parameter '' the macro `name = value`.

    Attributes:
      where: File and line, or the flag, for errors.
    """

    scope: str
    name: str
    parameter: str
    value: typing.Any
    where: str

    def __str__(self) -> str:
        return f'{self.scope}/'.lstrip('/') + self.name + f'.{self.parameter}'.rstrip('.')

    def error(self, message: object) -> ConfigError:
        return ConfigError(f'{self.where}: {self}: {message}')


@dataclasses.dataclass(frozen=True)
class Import:
    """`import module`."""

    statement: config_parser.ImportStatement
    where: str


class _Delegate(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_name: str, evaluate: bool) -> values.Reference:
        *scopes, name = scoped_name.split('/')
        return values.Reference(tuple(scopes), name, evaluate)

    def macro(self, name: str) -> values.Macro:
        return values.Macro(name)


def read(gin_files: Iterable[str], bindings: Iterable[str] = ()) -> list[list[Binding | Import]]:
    """Reads gin files, then bindings, each overriding the ones before.

    A file is searched for as given, beside the file that includes it, and in the folder gin/.

    Args:
      gin_files: Names of files.
      bindings: Bindings in gin syntax.

    Returns:
      Layers of bindings and imports: one for each part of a file between its includes, and one for
      `bindings`.

    Raises:
      ConfigError: A file is missing or cannot be read, no file has a binding, or the syntax is
        wrong.
    """
    layers: list[list[Binding | Import]] = []
    for name in gin_files:
        _read_file(name, layers, including=())
    if layers and not any(layers):
        raise ConfigError(f'no binding in {", ".join(gin_files)}')
    layers.append([])
    for text in bindings:
        _read_flag(text, layers)
    return layers


def as_flags(bindings: Mapping[str, typing.Any]) -> list[str]:
    """Bindings of Python values in gin syntax.

    Args:
      bindings: {name: value}. A string that starts with @ or %, also within a container, is a
        reference or a macro, such as '@head_preferences'.

    Raises:
      ConfigError: gin cannot express a value.
    """

    def leaf(value):
        is_reference = isinstance(value, str) and value.startswith(('@', '%'))
        return values.Verbatim(value) if is_reference else value

    flags = []
    for name, value in bindings.items():
        try:
            flags.append(f'{name} = {values.text(values.map_leaves(leaf, value))}')
        except ValueError as error:
            raise ConfigError(f'{name}: {error}') from None
    return flags


def available() -> list[str]:
    """Names of the gin files that come with the package."""
    return sorted(f for f in os.listdir(resources.folder('gin')) if f.endswith('.gin'))


def _find(name: str, beside: str) -> str:
    """Path of a gin file; the ConfigError for a missing one lists the searched folders."""
    name = os.path.expanduser(name)
    folders = list(dict.fromkeys(['', os.path.dirname(beside), resources.folder('gin')]))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) or os.path.isdir(path):  # Which `open` rejects.
            return path
    searched = ', '.join(folder or os.curdir for folder in folders)
    near = values.near(name, available())
    raise ConfigError(f'gin file {name!r} not found; looked in {searched}{near}')


def _read_file(name, layers, including, where=''):
    try:
        path = _find(name, including[-1] if including else '')
        if path in including:
            raise ConfigError(f'{name!r} includes itself')
        with open(path, encoding='utf-8-sig') as file:
            text = file.read()
    except ConfigError as error:
        raise ConfigError(f'{where}{error}') from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'{where}gin file {name!r} cannot be read: {error}') from None
    layers.append([])
    _read_text(text, layers, lambda line: f'{name}:{line}', (*including, path))


def _read_flag(text: str, layers: list) -> None:
    _read_text(text, layers, lambda line: f'--gin_bindings={text.strip()!r}')


def _read_text(
    text: str, layers: list, where: Callable[[int], str], including: tuple[str, ...] = ()
) -> None:
    """Parses gin syntax and appends bindings to the last layer."""
    before, nul, _ = text.partition('\0')
    if nul:  # Where the tokenizer of Python would end the text.
        raise ConfigError(f'{where(before.count(chr(10)) + 1)}: not gin syntax: a NUL character')
    parser = None
    try:
        parser = config_parser.ConfigParser(text, _Delegate())
        # Not a for loop: an early end of the tokens would look like the end of the text.
        while (statement := parser.parse_statement()) is not None:
            at = where(statement.location.line_num)
            if isinstance(statement, config_parser.BindingStatement):
                layers[-1].append(_binding(statement, at))
            elif isinstance(statement, config_parser.IncludeStatement):
                _read_file(statement.filename, layers, including, f'{at}: ')
                layers.append([])
            elif isinstance(statement, config_parser.ImportStatement):
                layers[-1].append(Import(statement, at))
    except (
        *(SyntaxError, tokenize.TokenError, StopIteration),
        *(ValueError, TypeError, IndexError, RecursionError),  # gin's parser lets these escape.
    ) as error:
        reason = ' '.join(str(error.args[0] if error.args else 'unexpected end').split())
        if 'Failed to parse token' in reason:
            token = reason.rpartition(' token ')[2]
            reason = f'{token} is not a valid value (strings need quotes)'
        line = parser.current_token.start[0] if parser and parser.current_token else 1
        raise ConfigError(f'{where(line)}: not gin syntax: {reason}') from None


def _binding(statement, where):
    scope, name, parameter = statement.scope, statement.selector, statement.arg_name
    if not parameter:  # A macro; its name may contain slashes.
        scope, name = '', f'{scope}/{name}'.lstrip('/')
    elif name in ('macro', 'gin.macro') and parameter == 'value':  # A macro's long form.
        scope, name, parameter = '', scope, ''
    return Binding(scope, name, parameter, statement.value, where)
