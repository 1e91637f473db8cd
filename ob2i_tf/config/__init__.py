"""The gin layer: a configuration that is wrong is an error here, before anything is built.

gin itself lets much pass in silence: a macro that nobody uses, a scope that nobody enters, a
binding on something that the run never builds, any name on a configurable with **kwargs, 1e3 for a
count. It cannot know better, because it does not know what will be called. Here a run is the graph
of the configurables that are reachable from `Runner`:
  - through gin references, `@f` and `@f()`, in bindings and in what macros stand for;
  - through default arguments that are configurables themselves;
  - through `uses`, by which code declares the parts that it always builds.
A parameter without a default is given by the code that builds the thing, and cannot be bound; gin
has `gin.REQUIRED` for one that the user has to bind. The one exception is `make_environment.name`.
"""

import collections.abc
import contextlib
import dataclasses
import difflib
import importlib
import inspect
import os
import re
import tokenize
import types
import typing

import gin
from gin import config_parser

from ob2i_tf.config import installed, resources
from ob2i_tf.errors import ConfigError

_ENVIRONMENT = 'make_environment'
_REGISTRY = gin.config._REGISTRY  # gin has no public way to list its configurables.
_USES = {}


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scopes/name` or, with `evaluate`, `@scopes/name()`."""

    scopes: tuple
    name: str
    evaluate: bool

    def __str__(self):
        return '@' + '/'.join([*self.scopes, self.name]) + '()' * self.evaluate


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%name`."""

    name: str


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/name.parameter = value`, or with parameter '' the macro `name = value`."""

    scope: str
    name: str
    parameter: str
    value: typing.Any
    where: str

    def __str__(self):
        return f'{self.scope}/'.lstrip('/') + self.name + f'.{self.parameter}'.rstrip('.')

    @property
    def key(self):
        if not self.parameter:
            return self.name
        return self.scope, _selector(self.name), self.parameter

    def error(self, message):
        return ConfigError(f'{self.where}: {self}: {message}')


@dataclasses.dataclass(frozen=True)
class _Import:
    statement: config_parser.ImportStatement
    where: str


class _Delegate(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_name, evaluate):
        *scopes, name = scoped_name.split('/')
        return Reference(tuple(scopes), name, evaluate)

    def macro(self, name):
        return Macro(name)


def uses(name, *parts):
    """Declares that the configurable `name` builds `parts` by itself, whatever gin binds.

    A part that is built within `gin.config_scope('s')` is declared as 's/part'.
    """
    _USES.setdefault(name, {}).update(dict.fromkeys(parts))


# Reading: files and flags -> bindings. Nothing needs to be registered yet.


def read(gin_files, bindings=()):
    """Reads gin files, then bindings, each overriding what came before.

    A file is looked for as given, beside the file that includes it, and in the folder gin/.

    Args:
      gin_files: names of files.
      bindings: texts in gin's syntax.

    Returns:
      Layers, each a list of bindings and imports: one for the bindings given, one for each stretch
      of a file between its includes.

    Raises:
      ConfigError: a file is missing or cannot be read, or the syntax is wrong.
    """
    layers = []
    for name in gin_files:
        _read_file(name, layers, including=())
    layers.append([])
    for text in bindings:
        _read_text(text, layers, lambda line, text=text: f'--gin_bindings={text.strip()!r}')
    return layers


def find(name, beside=''):
    """Path of a gin file; ConfigError names the folders that were searched."""
    name = os.path.expanduser(name)
    folders = list(dict.fromkeys(['', os.path.dirname(beside), resources.folder('gin')]))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    near = _near(name, available())
    raise ConfigError(
        f'gin file {name!r} not found; looked in '
        f'{", ".join(folder or os.curdir for folder in folders)}{near}'
    )


def available():
    """Names of the project's own gin files."""
    return sorted(f for f in os.listdir(resources.folder('gin')) if f.endswith('.gin'))


def _read_file(name, layers, including, where=''):
    path = None
    try:
        path = find(name, including[-1] if including else '')
        if path in including:
            raise ConfigError(f'{name!r} includes itself')
        with open(path, encoding='utf-8-sig') as file:
            text = file.read()
    except ConfigError as error:
        raise ConfigError(f'{where}{error}') from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'{where}gin file {name!r} cannot be read: {error}') from None
    layers.append([])
    _read_text(text, layers, lambda line: f'{name}:{line}', including + (path,))


def _read_text(text, layers, where, including=()):
    """Parses gin syntax and appends bindings to the last layer."""
    parser = None
    try:
        parser = config_parser.ConfigParser(text, _Delegate())
        # Not iterated over: an early end of the tokens would look like the end of the text.
        while (statement := parser.parse_statement()) is not None:
            at = where(statement.location.line_num)
            if isinstance(statement, config_parser.BindingStatement):
                layers[-1].append(_binding(statement, at))
            elif isinstance(statement, config_parser.IncludeStatement):
                _read_file(statement.filename, layers, including, f'{at}: ')
                layers.append([])
            elif isinstance(statement, config_parser.ImportStatement):
                layers[-1].append(_Import(statement, at))
    except (
        *(SyntaxError, tokenize.TokenError, StopIteration),
        *(ValueError, TypeError, IndexError, RecursionError),  # gin's parser is not that careful.
    ) as error:
        reason = ' '.join(str(error.args[0] if error.args else 'unexpected end').split())
        if 'Failed to parse token' in reason:
            reason = f'{reason.rpartition(" token ")[2]} is no value (a text needs quotes)'
        line = parser.current_token.start[0] if parser and parser.current_token else 1
        raise ConfigError(f'{where(line)}: not gin syntax: {reason}') from None


def _binding(statement, where):
    scope, name, parameter = statement.scope, statement.selector, statement.arg_name
    if not parameter:  # A macro; its name may contain slashes.
        scope, name = '', f'{scope}/{name}'.lstrip('/')
    elif name in ('macro', 'gin.macro') and parameter == 'value':  # The long form of the same.
        scope, name, parameter = '', scope, ''
    return Binding(scope, name, parameter, statement.value, where)


def _import(statement, where, allow_imports):
    """Imports a module that registers configurables; config.gin repeats the import."""
    if statement.alias or statement.module.startswith('__gin__'):
        raise ConfigError(f'{where}: only `import module` is supported')
    if allow_imports is not None and not installed.may_import(statement.module, allow_imports):
        raise ConfigError(
            f'{where}: import {statement.module}: not part of an installed distribution; if you '
            f'trust its code, allow it with --allow_imports={statement.module}'
        )
    try:
        importlib.import_module(statement.module)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f'{where}: import {statement.module}: {error}') from None
    gin.config._IMPORTS.add(statement)


# Checking: bindings -> gin's own state.


def load(gin_files, bindings=(), roots=('Runner',), allow_imports=None):
    """Makes the given files and bindings gin's whole configuration, or says what is wrong.

    A binding has to be used, by the run as configured when its file ended, or when a later one did.
    So a file or a flag may choose another update, and what files before it bound on the first one
    is no error; but a flag has to be used in the end.

    Args:
      gin_files: Names of files.
      bindings: Texts in gin's syntax.
      roots: Configurables that the run starts from.
      allow_imports: Modules and packages that the files may import besides those of installed
        distributions; None allows any.

    Raises:
      ConfigError: naming the file and line or the flag, and the binding.
    """
    apply(read(gin_files, bindings), roots, allow_imports)


def apply(layers, roots=('Runner',), allow_imports=None):
    """Checks the layers of `read`; what the run uses of them becomes gin's whole configuration."""
    gin.clear_config()
    bound, macros, unused = {}, {}, []
    for layer in layers:
        for binding in layer:
            if isinstance(binding, _Import):
                _import(binding.statement, binding.where, allow_imports)
                continue
            _check_names(binding)
            store = bound if binding.parameter else macros
            store.pop(binding.key, None)  # The order is that of the last binding.
            store[binding.key] = binding
            unused = [other for other in unused if other.key != binding.key] + [binding]
        run = _Run(bound, macros, roots)
        unused = [binding for binding in unused if not run.consumes(binding)]

    for binding in [*macros.values(), *bound.values()]:
        _check_macros(binding, binding.value, macros)
    run.check_environment()
    for binding in unused:
        raise binding.error(run.why_unused(binding))
    values = {
        key: _expand(binding.value, macros)
        for key, binding in run.bound.items()
        if run.consumes(binding)
    }
    for (scope, selector, parameter), value in values.items():
        _check_type(run.bound[scope, selector, parameter], value, _signature(selector)[parameter])
    run.check_required()
    for key, value in values.items():
        gin.bind_parameter(key, _to_gin(value))


@dataclasses.dataclass(frozen=True)
class _Parameter:
    default: typing.Any  # inspect.Parameter.empty: the caller gives it.
    hint: typing.Any


class _Run:
    """What is reachable from the roots, under given bindings.

    `make_environment` hands its keywords on to the builder of the environment's name, and gin lets
    a caller's keyword win. So that there is one place for each setting, and the last binding
    counts, a binding on such a keyword is one on the builder.

    Attributes:
      bound: (scope, selector, parameter) -> Binding.
      nodes: (scopes in force, selector) -> {parameter: value}, bound or default, of everything that
        the run may call.
    """

    def __init__(self, bound, macros, roots):
        self._macros = macros
        self._used_macros = set()
        self.bound = {}
        for binding in bound.values():
            key = self._key(binding, bound)
            self.bound.pop(key, None)
            self.bound[key] = binding
        self.nodes = {}
        todo = [((), _selector(root)) for root in roots]
        while todo:
            node = todo.pop()
            if node not in self.nodes:
                self.nodes[node] = self._values(node)
                todo.extend(self._parts(node))

    def _key(self, binding, bound=None):
        """(scope, selector, parameter), of the builder for what is a keyword of its own."""
        scope, selector, parameter = binding.key
        if _short(selector) == _ENVIRONMENT and parameter not in _signature(selector):
            builder, _ = self._builder(scope.split('/') if scope else [], selector, bound)
            if builder and parameter in _signature(builder):
                return scope, builder, parameter
        return binding.key

    def _builder(self, scopes, selector, bound=None):
        """(selector of the environment's builder or None, a ConfigError or None)."""
        name = self._bindings(scopes, selector, bound).get('name')
        if not name:
            return None, ConfigError(f'{_ENVIRONMENT}.name is not bound: it says what is learnt')
        value = _expand(name.value, self._macros)
        if not isinstance(value, str):
            return None, name.error('expected a text')
        try:
            builder = importlib.import_module('ob2i_tf.environments').builder_of(value)
        except ValueError as error:
            return None, name.error(error)
        return _from_default(builder).name, None

    def _bindings(self, scopes, selector, bound=None):
        """Parameter -> its binding in force, an inner scope's before an outer one's."""
        bound = self.bound if bound is None else bound
        prefixes = ['/'.join(scopes[:i]) for i in range(len(scopes) + 1)]
        return {
            parameter: bound[scope, name, parameter]
            for prefix in prefixes
            for scope, name, parameter in bound
            if (scope, name) == (prefix, selector)
        }

    def bound_within(self, scopes, selector):
        """The parameters that have a binding in one of the scopes."""
        return [name for name, b in self._bindings(scopes, selector).items() if b.scope]

    def _values(self, node):
        parameters, bindings = _signature(node[1]), self._bindings(*node)
        return {
            name: bindings[name].value if name in bindings else _from_default(parameter.default)
            for name, parameter in parameters.items()
            if name in bindings or parameter.default is not inspect.Parameter.empty
        }

    def _parts(self, node):
        """The nodes that a node may call."""
        scopes, selector = node
        for reference in self._references(list(self.nodes[node].values())):
            yield reference.scopes or scopes, _selector(reference.name)
        for name, parts in _USES.items():
            if selector in _REGISTRY.matching_selectors(name):
                for part in parts:
                    *inner, part_name = part.split('/')
                    yield (*scopes, *inner), _selector(part_name)
        if _short(selector) == _ENVIRONMENT:
            builder, _ = self._builder(scopes, selector)
            if builder:
                yield scopes, builder

    def _references(self, value, within=()):
        for leaf in _leaves(value):
            if isinstance(leaf, Reference):
                yield leaf
            elif leaf.name in self._macros and leaf.name not in within:
                self._used_macros.add(leaf.name)
                yield from self._references(self._macros[leaf.name].value, (*within, leaf.name))

    def _reached(self, scope, selector):
        """Whether a binding in `scope` reaches a node."""
        return any(
            name == selector and '/'.join([*scopes, '']).startswith(f'{scope}/'.lstrip('/'))
            for scopes, name in self.nodes
        )

    def consumes(self, binding):
        if not binding.parameter:
            return binding.name in self._used_macros
        scope, selector, parameter = self._key(binding)
        return self._reached(scope, selector) and parameter in _signature(selector)

    def why_unused(self, binding):
        if not binding.parameter:
            return (
                'a macro that nothing in this run uses'
                f'{_near(binding.name, self._wanted_macros())} '
                '(a parameter is bound as Name.parameter = value)'
            )
        scope, selector, parameter = self._key(binding)
        if self._reached(scope, selector):  # Only of make_environment is this not known before.
            builder, _ = self._builder(scope.split('/') if scope else [], selector)
            return f'{_short(builder)} has no parameter {parameter!r}' + _near(
                parameter, _signature(builder)
            )
        if any(name == selector for _, name in self.nodes):
            scopes = {
                '/'.join(scopes[: i + 1]) for scopes, _ in self.nodes for i in range(len(scopes))
            }
            return f'nothing in this run enters the scope {scope!r}{_near(scope, scopes)}'
        return f'nothing in this run uses {binding.name}'

    def _wanted_macros(self):
        return [
            leaf.name
            for binding in [*self.bound.values(), *self._macros.values()]
            for leaf in _leaves(binding.value)
            if isinstance(leaf, Macro)
        ]

    def check_environment(self):
        for scopes, selector in self.nodes:
            if _short(selector) == _ENVIRONMENT:
                _, error = self._builder(scopes, selector)
                if error:
                    raise error

    def check_required(self):
        for node, values in self.nodes.items():
            for parameter, value in values.items():
                if _expand(value, self._macros) is gin.REQUIRED:
                    binding = self._bindings(*node).get(parameter)
                    where = f'{binding.where}: ' if binding else ''
                    raise ConfigError(f'{where}{_short(node[1])}.{parameter} has to be bound')


def _signature(selector):
    """{parameter: _Parameter} of what gin may bind."""
    configurable = _REGISTRY[selector]
    allowed, denied = configurable.allowlist, configurable.denylist or ()
    return {
        name: p
        for name, p in _signature_of(configurable.wrapped).items()
        if name not in denied
        and (not allowed or name in allowed)
        and (
            p.default is not inspect.Parameter.empty
            or (_short(selector), name) == (_ENVIRONMENT, 'name')
        )
    }


def _signature_of(fn_or_class):
    """{name: _Parameter} of what a function or a class's constructor takes by name."""
    fn = fn_or_class
    if inspect.isclass(fn):
        fn = gin.config._find_class_construction_fn(fn)
    fn = inspect.unwrap(fn)
    try:
        hints = typing.get_type_hints(fn)
    except (NameError, TypeError):  # Annotations that mean nothing at run time: no check.
        hints = {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = list(inspect.signature(fn).parameters.items())[inspect.isclass(fn_or_class) :]
    return {
        name: _Parameter(p.default, hints.get(name, typing.Any))
        for name, p in parameters
        if p.kind in by_name
    }


def _short(selector):
    return selector.rpartition('.')[2]


def _selector(name):
    """The full name of a configurable; KeyError if there is none or more than one."""
    selectors = _REGISTRY.matching_selectors(name)
    if len(selectors) != 1:
        raise KeyError(f'{name!r} is the name of {len(selectors)} configurables')
    return selectors[0]


def _check_names(binding):
    """The configurables and the parameter that a binding names exist."""
    for leaf in _leaves(binding.value):
        if isinstance(leaf, Reference):
            _check_configurable(binding, leaf.name)
            if _selector(leaf.name) in ('gin.macro', 'gin.constant'):
                raise binding.error(f'{leaf} stands for nothing; a macro is written %name')
    if not binding.parameter:
        return
    _check_configurable(binding, binding.name)
    selector = _selector(binding.name)
    parameters, all_parameters = _signature(selector), _signature_of(_REGISTRY[selector].wrapped)
    if binding.parameter in parameters:
        return
    if binding.parameter in all_parameters:
        without_default = all_parameters[binding.parameter].default is inspect.Parameter.empty
        decided_by = [
            f'Runner.{binding.parameter}'
            for runner in _REGISTRY.matching_selectors('Runner')
            if binding.parameter in _signature(runner)
        ]
        raise binding.error(
            'cannot be bound: the code that calls it gives it'
            + (', as it has no default' if without_default else '')
            + (f'; see {decided_by[0]}' if decided_by else '')
        )
    if _short(selector) != _ENVIRONMENT:  # Whose builder's keywords depend on its name.
        near = _near(binding.parameter, parameters)
        raise binding.error(f'{binding.name} has no parameter {binding.parameter!r}{near}')


def _check_configurable(binding, name):
    selectors = _REGISTRY.matching_selectors(name)
    if len(selectors) > 1:
        raise binding.error(f'{name!r} may be any of {", ".join(sorted(selectors))}')
    if not selectors:
        known = {
            _short(s) for s, _ in _REGISTRY.items() if not s.startswith(('gin.', 'tf_agents.'))
        }
        raise binding.error(f'nothing is called {name!r}{_near(name, known)}')


def _check_macros(binding, value, macros, within=()):
    for leaf in _leaves(value):
        if not isinstance(leaf, Macro):
            continue
        if leaf.name in within:
            raise binding.error(f'the macro {leaf.name!r} stands for itself')
        if leaf.name in macros:
            _check_macros(binding, macros[leaf.name].value, macros, (*within, leaf.name))
        elif len(gin.config._CONSTANTS.matching_selectors(leaf.name)) != 1:
            raise binding.error(f'the macro {leaf.name!r} is not defined{_near(leaf.name, macros)}')


def _check_type(binding, value, parameter):
    if value is gin.REQUIRED:
        return
    try:
        text = _text(value)
    except ValueError as error:
        raise binding.error(error) from None
    if _fits(value, parameter.hint) or (value is None and parameter.default is None):
        return
    near = ''
    if isinstance(value, str):
        choices = _choices(parameter.hint)
        near = _near(value, [c for c in choices if isinstance(c, str)])
        if value in choices:  # Of which several may be given.
            near = f' (write ({value!r},))'
    elif isinstance(value, float) and value.is_integer() and _fits(int(value), parameter.hint):
        near = f' (write {int(value)})'
    raise binding.error(f'expected {_describe(parameter.hint)}, got {text}{near}')


def _fits(value, hint):
    """Whether a value may be given where `hint` is asked for; True where that cannot be told."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _fits(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if isinstance(value, Reference) and value.evaluate:
        return True  # What it returns is seen when it is called.
    if origin is typing.Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    kind = origin or hint
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind in (bool, str, bytes):
        return isinstance(value, kind)
    if kind in (collections.abc.Callable, type):
        return isinstance(value, Reference)
    if kind in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
        return isinstance(value, dict) and (
            not arguments
            or all(
                _fits(key, arguments[0]) and _fits(item, arguments[1])
                for key, item in value.items()
            )
        )
    if kind in (
        tuple,
        list,
        collections.abc.Sequence,
        collections.abc.Iterable,
        collections.abc.Collection,
    ):
        if not isinstance(value, (tuple, list)):
            return False
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            return len(value) == len(arguments) and all(map(_fits, value, arguments))
        return not arguments or all(_fits(item, arguments[0]) for item in value)
    if not isinstance(kind, type) or kind is object or isinstance(value, Reference):
        return True
    try:
        return isinstance(value, kind)
    except TypeError:  # A protocol.
        return True


def _choices(hint):
    """The values that a Literal, also one within Optional or Union, allows."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return list(arguments)
    return [choice for argument in arguments for choice in _choices(argument)]


def _describe(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return ' or '.join(_describe(argument) for argument in arguments)
    if origin is typing.Literal:
        return 'one of ' + ', '.join(map(repr, arguments))
    if hint is type(None):
        return 'None'
    if (origin or hint) is collections.abc.Callable:
        return 'a reference, @name'
    return (
        hint.__name__
        if isinstance(hint, type) and not origin
        else re.sub(r'(typing|collections\.abc)\.', '', str(hint))
    )


def _near(name, known):
    """' (did you mean ...?)', or nothing."""
    lower = {}
    for other in sorted(set(known)):
        lower.setdefault(other.lower(), other)
    near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)
    return f' (did you mean {" or ".join(repr(lower[n]) for n in near)}?)' if near else ''


# Values: a literal, a container of values, a Reference or a Macro.


def _leaves(value):
    """The references and macros in a value."""
    if isinstance(value, (Reference, Macro)):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves([*value.keys(), *value.values()])


def _map(fn, value):
    """Applies `fn` to everything in a value that is no container."""
    if isinstance(value, dict):
        return {_map(fn, key): _map(fn, item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map(fn, item) for item in value)
    return fn(value)


def _expand(value, macros):
    """Replaces macros and gin's constants by what they stand for, as far as they are defined."""

    def expand(leaf):
        if not isinstance(leaf, Macro):
            return leaf
        if leaf.name in macros:
            rest = {name: binding for name, binding in macros.items() if name != leaf.name}
            return _expand(macros[leaf.name].value, rest)
        return gin.config._CONSTANTS.get_match(leaf.name, leaf)

    return _map(expand, value)


def _from_default(value):
    """A default argument as a value: configurables become references."""

    def convert(leaf):
        for selector, configurable in _REGISTRY.items():
            if leaf is configurable.wrapper or leaf is configurable.wrapped:
                return Reference((), selector, False)
        return leaf

    return _map(convert, value)


def _to_gin(value):
    return _map(
        lambda leaf: (
            gin.config.ConfigurableReference('/'.join([*leaf.scopes, leaf.name]), leaf.evaluate)
            if isinstance(leaf, Reference)
            else leaf
        ),
        value,
    )


def _from_gin(value):
    def convert(leaf):
        if not isinstance(leaf, gin.config.ConfigurableReference):
            return leaf
        selector = leaf.configurable.selector
        if selector in ('gin.macro', 'gin.constant') and leaf.evaluate:
            return Macro('/'.join(leaf.scopes))
        return Reference(tuple(leaf.scopes), selector, leaf.evaluate)

    return _map(convert, value)


def _text(value):
    """A value in gin's syntax; ValueError if gin has none for it."""
    if isinstance(value, Reference):
        return str(
            dataclasses.replace(value, name=_REGISTRY.minimal_selector(_selector(value.name)))
        )
    if type(value) is dict:
        return '{' + ', '.join(f'{_text(k)}: {_text(v)}' for k, v in value.items()) + '}'
    if type(value) is list:
        return '[' + ', '.join(map(_text, value)) + ']'
    if type(value) is tuple:
        return '(' + ', '.join(map(_text, value)) + (',)' if len(value) == 1 else ')')
    if type(value) in (int, float, str, bytes, bool, type(None)):
        text = repr(value)
        if text.strip('-') not in ('inf', 'nan'):
            return text
    raise ValueError(f'gin cannot express {value!r}')


# Asking gin's state, however it came about.


def _state(roots):
    bound, macros = {}, {}
    for (scope, selector), parameters in gin.config._CONFIG.items():
        for parameter, value in parameters.items():
            if selector == 'gin.macro':
                macros[scope] = Binding('', scope, '', _from_gin(value), '')
            else:
                binding = Binding(scope, selector, parameter, _from_gin(value), '')
                bound[scope, selector, parameter] = binding
    return _Run(bound, macros, roots), macros


def value(name, roots=('Runner',)):
    """The value of 'Name.parameter' outside any scope, bound or default, macros resolved."""
    configurable, _, parameter = name.rpartition('.')
    run, macros = _state(roots)
    return _expand(run.nodes[(), _selector(configurable)][parameter], macros)


def bound(configurable):
    """{parameter: value} of a configurable, by its defaults and gin's unscoped bindings."""
    defaults = {
        name: parameter.default
        for name, parameter in _signature_of(configurable).items()
        if parameter.default is not inspect.Parameter.empty
    }
    return {**defaults, **gin.get_bindings(configurable)}


@contextlib.contextmanager
def constructing():
    """What the project's own constructors reject is the configuration's fault, a ConfigError."""
    try:
        yield
    except TypeError as error:
        made = re.search(
            r"No values supplied by Gin .*?In call to configurable '(\w+)'", str(error), re.DOTALL
        )
        if made:
            raise ConfigError(
                f'{made[1]} needs more than a configuration says to be made: write @{made[1]}, not '
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


def resolved_config(roots=('Runner',)):
    """gin's state as a text that alone reproduces the run, and that does not change when loaded.

    It holds every parameter, bound or default, of everything that the run uses, macros resolved.
    Left out is what gin cannot express; there the default stands.
    """
    run, macros = _state(roots)
    groups = {}
    for scopes, selector in run.nodes:
        values = run.nodes[scopes, selector]
        if scopes and ((), selector) in run.nodes:  # The rest is inherited.
            values = {name: values[name] for name in run.bound_within(scopes, selector)}
        prefix = '/'.join([*scopes, _REGISTRY.minimal_selector(selector)])
        groups[prefix] = group = []
        for parameter in sorted(values):
            try:
                text = _text(_expand(values[parameter], macros))
            except ValueError:
                continue
            group.append(f'{prefix}.{parameter} = {text}')
    imports = sorted({statement.format() for statement in gin.config._IMPORTS})
    ordered = [imports, *(groups[prefix] for prefix in sorted(groups, key=str.lower))]
    return '\n\n'.join('\n'.join(group) for group in ordered if group) + '\n'
