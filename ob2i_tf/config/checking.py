"""Bindings -> gin's own state, or an error that names the file, the line and the binding.

gin silently accepts unused macros, scopes never entered, bindings on parts that the run never
builds, any name on a configurable with **kwargs, and 1e3 for a count. It does not know which
configurables will be called. Here a run is the graph of the configurables reachable from `Runner`:
  - through references, `@f` and `@f()`, in bindings and in the macros that these use;
  - through default arguments that are configurables themselves;
  - through a parameter annotated with `Selects`, whose value selects a configurable;
  - through `uses`, with which code declares parts that it always builds.
A parameter without a default is supplied by the caller and cannot be bound; a default of
`gin.REQUIRED` must be overridden.
"""

import contextlib
import importlib
import inspect
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import gin

from ob2i_tf import parameters
from ob2i_tf.config import installed, values
from ob2i_tf.config.reading import Binding, Import, read
from ob2i_tf.config.renamed import RENAMED
from ob2i_tf.config.values import Macro, Reference, short
from ob2i_tf.errors import ConfigError

ROOTS = ('Runner',)
_Node = tuple[tuple[str, ...], str]  # Scopes in force, selector.
_USES: dict[str, list[str]] = {}


def uses(name: str, *parts: str) -> None:
    """Declares that the configurable `name` always builds `parts`, whatever gin binds.

    Not needed for the configurable bases of a class, nor for parts that are bindings or defaults.
    A part that is built within `gin.config_scope('s')` is declared as 's/part'.
    """
    _USES.setdefault(name, []).extend(parts)


def load(
    gin_files: Iterable[str],
    bindings: Iterable[str] = (),
    roots: Sequence[str] = ROOTS,
    allow_imports: Iterable[str] | None = None,
) -> None:
    """Makes the given files and bindings gin's complete configuration.

    A binding in a file must be used by the run as configured at the end of that file or of a later
    one; so a later file or flag may replace a part whose parameters earlier files bind. A binding
    given as a flag must be used by the final configuration.

    Args:
      gin_files: Names of files.
      bindings: Bindings in gin syntax.
      roots: Configurables that the run starts from.
      allow_imports: Modules and packages that the files may import besides those of installed
        distributions; None allows any.

    Raises:
      ConfigError: The configuration is wrong; the error names the file and line, or the flag, and
        the binding.
    """
    apply(read(gin_files, bindings), roots, allow_imports)


def apply(
    layers: Iterable[list[Binding | Import]],
    roots: Sequence[str] = ROOTS,
    allow_imports: Iterable[str] | None = None,
) -> None:
    """Checks the layers of `read`; the bindings that the run uses become gin's configuration."""
    gin.clear_config()
    bound: dict[Any, Binding] = {}
    unused: dict[Any, Binding] = {}
    for layer in layers:
        for binding in layer:
            if isinstance(binding, Import):
                _import(binding, allow_imports)
                continue
            _check_names(binding)
            for store in (bound, unused):
                store.pop(_key(binding), None)  # Ordered by the last binding.
                store[_key(binding)] = binding
        run = Run(bound.values(), roots)
        unused = {key: binding for key, binding in unused.items() if not run.consumes(binding)}
    for binding in bound.values():
        _check_macros(binding, binding.value, run.macros)
    run.check_values()
    for binding in unused.values():
        raise binding.error(run.why_unused(binding))
    used = [b for b in bound.values() if b.parameter and run.consumes(b)]
    for selector in {selector for _, selector in run.nodes}:
        for name in reversed(values.inherited(selector)):
            for binding in used:
                if values.selector(binding.name) == name:
                    key = binding.scope, selector, binding.parameter
                    gin.bind_parameter(key, values.to_gin(run.expand(binding.value)))


class Run:
    """The graph of the configurables that are reachable from the roots under given bindings.

    Attributes:
      macros: {name: Binding}.
      nodes: {(scopes in force, selector): {parameter: value}} of all configurables that the run may
        call; values are bound or defaults.
    """

    def __init__(self, bindings: Iterable[Binding], roots: Sequence[str] = ROOTS):
        bindings = list(bindings)
        self.macros = {b.name: b for b in bindings if not b.parameter}
        self._bound = {_key(b): b for b in bindings if b.parameter}
        self._used_macros: set[str] = set()
        self.nodes: dict[_Node, dict[str, Any]] = {}
        todo: list[_Node] = [((), values.selector(root)) for root in roots]
        while todo:
            node = todo.pop()
            if node not in self.nodes:
                self.nodes[node] = self._values(*node)
                todo.extend(self._parts(*node))

    @classmethod
    def of_gin(cls, roots: Sequence[str] = ROOTS) -> 'Run':
        """The run in gin's current state, however its bindings were made."""
        bindings = []
        for (scope, name), bound in gin.config._CONFIG.items():
            for parameter, value in bound.items():
                value = values.from_gin(value)
                if name == 'gin.macro':
                    bindings.append(Binding('', scope, '', value, where=''))
                else:
                    bindings.append(Binding(scope, name, parameter, value, where=''))
        return cls(bindings, roots)

    def expand(self, value: Any) -> Any:
        """Replaces the macros in a value."""
        return values.expand(value, {name: b.value for name, b in self.macros.items()})

    def bindings(self, scopes: tuple[str, ...], selector: str) -> dict[str, Binding]:
        """{parameter: binding in force} of a node; inner scopes win over outer ones.

        Within a scope, a class wins over the bases whose constructor it inherits.
        """
        prefixes = ['/'.join(scopes[:depth]) for depth in range(len(scopes) + 1)]
        return {
            parameter: binding
            for prefix, owner in itertools.product(prefixes, reversed(values.inherited(selector)))
            for (scope, name, parameter), binding in self._bound.items()
            if (scope, name) == (prefix, owner)
        }

    def _values(self, scopes, selector):
        defaults = {n: values.from_python(p.default) for n, p in values.bindable(selector).items()}
        return {**defaults, **{n: b.value for n, b in self.bindings(scopes, selector).items()}}

    def _parts(self, scopes, selector):
        """The nodes that a node may call."""
        node = self.nodes[scopes, selector]
        for name, p in values.bindable(selector).items():
            for reference in self._references(node[name]):
                yield reference.scopes or scopes, values.selector(reference.name)
            with contextlib.suppress(ValueError):  # Reported by `check_values`.
                yield from ((scopes, s) for s in _selected(self.expand(node[name]), p.hint))
        inherited = values.inherited(selector)
        for base in values.bases(selector):  # Its constructor may call those of its bases.
            if base not in inherited:
                yield scopes, base
        for name, parts in _USES.items():
            if not set(inherited).isdisjoint(values.REGISTRY.matching_selectors(name)):
                for part in parts:
                    *inner, part_name = part.split('/')
                    yield (*scopes, *inner), values.selector(part_name)

    def _references(self, value, within=()):
        for leaf in values.leaves(value):
            if isinstance(leaf, Reference):
                yield leaf
            elif leaf.name in self.macros and leaf.name not in within:
                self._used_macros.add(leaf.name)
                yield from self._references(self.macros[leaf.name].value, (*within, leaf.name))

    def consumes(self, binding: Binding) -> bool:
        """Whether a node uses a binding or, if it is a macro's, the macro."""
        if not binding.parameter:
            return binding.name in self._used_macros
        selector, within = values.selector(binding.name), f'{binding.scope}/'.lstrip('/')
        return any(
            '/'.join([*scopes, '']).startswith(within) and selector in values.inherited(name)
            for scopes, name in self.nodes
        )

    def why_unused(self, binding: Binding) -> str:
        """Explains why `consumes` is false."""
        if not binding.parameter:
            wanted = [
                leaf.name
                for other in [*self._bound.values(), *self.macros.values()]
                for leaf in values.leaves(other.value)
                if isinstance(leaf, Macro)
            ]
            return (
                f'a macro that nothing in this run uses{values.near(binding.name, wanted)} '
                '(a parameter is bound as Name.parameter = value)'
            )
        selector = values.selector(binding.name)
        if any(selector in values.inherited(name) for _, name in self.nodes):
            scopes = {
                '/'.join(scopes[: i + 1]) for scopes, _ in self.nodes for i in range(len(scopes))
            }
            near = values.near(binding.scope, scopes)
            return f'nothing in this run enters the scope {binding.scope!r}{near}'
        return f'nothing in this run uses {binding.name}{self._instead(selector)}'

    def _instead(self, selector):
        """'; Name.parameter is @other' if the run uses another one of the same kind, or ''."""
        for (_, owner), node in self.nodes.items():
            for name in values.bindable(owner):
                for other in self._references(node[name]):
                    if _akin(selector, values.selector(other.name)):
                        return f'; {short(owner)}.{name} is {values.text(other)}'
        return ''

    def check_values(self) -> None:
        """Raises a ConfigError if a value is missing or does not fit its parameter."""
        for (scopes, selector), node in self.nodes.items():
            bindings = self.bindings(scopes, selector)
            for name, p in values.bindable(selector).items():
                value, binding = self.expand(node[name]), bindings.get(name)
                if value is gin.REQUIRED:
                    where = f'{binding.where}: ' if binding else ''
                    raise ConfigError(f'{where}{short(selector)}.{name} must be bound')
                if binding:
                    _check_value(binding, value, p)


def _akin(*selectors):
    """Whether two configurables share a module, or a base class that is not Python's or Keras's."""
    one, other = (values.REGISTRY[selector].wrapped for selector in selectors)
    if not inspect.isclass(one) or not inspect.isclass(other):
        return type(one) is type(other) and one.__module__ == other.__module__
    packages = (base.__module__.partition('.')[0] for base in {*one.__mro__} & {*other.__mro__})
    return not {'builtins', 'tensorflow', 'tf_keras'}.issuperset(packages)


def _key(binding):
    """The key by which gin binds a parameter; the name of a macro."""
    if not binding.parameter:
        return binding.name
    return binding.scope, values.selector(binding.name), binding.parameter


def _import(binding, allow_imports):
    """Imports a module that registers configurables; config.gin repeats the import."""
    statement, where = binding.statement, binding.where
    if statement.alias or statement.module.startswith('__gin__'):
        raise ConfigError(f'{where}: only `import module` is supported')
    if allow_imports is not None and not installed.may_import(statement.module, allow_imports):
        raise ConfigError(
            f'{where}: import {statement.module}: not part of an installed distribution; if you '
            f'trust its code, allow it: --allow_imports={statement.module}, or in Python '
            f'allow_imports=[{statement.module!r}]'
        )
    try:
        importlib.import_module(statement.module)
    except (ImportError, SyntaxError) as error:
        hint = ''
        if isinstance(error, ModuleNotFoundError):
            hint = ' in the working directory, on PYTHONPATH or installed'
        raise ConfigError(f'{where}: import {statement.module}: {error}{hint}') from None
    gin.config._IMPORTS.add(statement)


def _check_names(binding):
    """Raises a ConfigError unless all names in a binding exist."""
    for leaf in values.leaves(binding.value):
        if isinstance(leaf, Reference):
            if '.' in ''.join(leaf.scopes):  # No binding could name this scope.
                raise binding.error(f'the scope of {leaf} has a dot')
            _check_configurable(binding, leaf.name)
            if values.selector(leaf.name) in ('gin.macro', 'gin.constant'):
                raise binding.error(f'{leaf} is not a macro reference; a macro is written %name')
    if not binding.parameter:
        return
    name, parameter = binding.name, binding.parameter
    _check_configurable(binding, name)
    selector = values.selector(name)
    known = values.parameters(selector)
    if parameter not in known:
        _check_renamed(binding, f'{short(name)}.{parameter}')
        near = values.near(parameter, values.bindable(selector)) or _elsewhere(parameter)
        raise binding.error(f'{name} has no parameter {parameter!r}{near}')
    if not known[parameter].bindable:
        runner = values.REGISTRY.matching_selectors('Runner')
        from_runner = runner and parameter in values.bindable(runner[0])
        see = f'; see Runner.{parameter}' if from_runner else ''
        raise binding.error(f'cannot be bound: it is supplied by the caller{see}')


def _check_configurable(binding, name):
    selectors = values.REGISTRY.matching_selectors(name)
    if len(selectors) > 1:
        raise binding.error(f'{name!r} may be any of {", ".join(sorted(selectors))}')
    if not selectors:
        _check_renamed(binding, short(name))
        near = values.near(name, map(short, _selectors()))
        raise binding.error(f'no configurable named {name!r}{near}')


def _check_renamed(binding, name):
    if name in RENAMED:
        raise binding.error(f'{name} is now called {RENAMED[name]}')


def _selectors():
    return [s for s, _ in values.REGISTRY.items() if not s.startswith(('gin.', 'tf_agents.'))]


def _elsewhere(parameter):
    """' (did you mean ...?)' for a parameter that other configurables have, or ''."""
    owners: dict[str, list[str]] = {}
    for selector in _selectors():
        for name in values.bindable(selector):
            owners.setdefault(name, []).append(f'{short(selector)}.{name}')
    near = [name for name in owners if values.near(parameter, [name], cutoff=0.8)]
    found = owners.get(parameter) or [owner for name in near for owner in owners[name]]
    return f' (did you mean {" or ".join(sorted(found)[:3])}?)' if found else ''


def _check_macros(binding, value, macros, within=()):
    for leaf in values.leaves(value):
        if not isinstance(leaf, Macro):
            continue
        if leaf.name in within:
            raise binding.error(f'the macro {leaf.name!r} is defined in terms of itself')
        if leaf.name in macros:
            _check_macros(binding, macros[leaf.name].value, macros, (*within, leaf.name))
        elif len(gin.config._CONSTANTS.matching_selectors(leaf.name)) != 1:
            near = values.near(leaf.name, macros)
            raise binding.error(f'the macro {leaf.name!r} is not defined{near}')


def _check_value(binding, value, parameter):
    """Raises a ConfigError unless the value fits the type and range in the annotation."""

    def as_python(leaf):
        if not isinstance(leaf, Reference):
            return leaf
        # The result of an evaluated reference is unknown before the call.
        return (
            parameters.ANY if leaf.evaluate else values.REGISTRY[values.selector(leaf.name)].wrapper
        )

    def misfit(value):
        return parameters.misfit(values.map_leaves(as_python, value), parameter.hint)

    try:
        shown = values.text(value)
    except ValueError as error:
        raise binding.error(error) from None
    expected = misfit(value)
    if not expected or repr(value) == repr(parameter.default):
        try:
            list(_selected(value, parameter.hint))
        except ValueError as error:
            raise binding.error(error) from None
        return
    near = ''
    if isinstance(value, str):
        choices = parameters.choices(parameter.hint)
        near = values.near(value, [c for c in choices if isinstance(c, str)])
        if value in choices:  # The parameter takes a sequence of them.
            near = f' (write ({value!r},))'
    elif isinstance(value, float) and value.is_integer() and not misfit(int(value)):
        near = f' (write {int(value)})'
    elif isinstance(value, Reference):
        near = f' (write {shown}() for its result)'
    raise binding.error(f'expected {expected}, got {shown}{near}')


def _selected(value, hint):
    """The names of configurables that a value selects, according to each `Selects` in `hint`."""
    for selects in getattr(hint, '__metadata__', ()):
        if isinstance(selects, parameters.Selects) and not parameters.misfit(value, hint):
            yield values.from_python(selects.function(value)).name
