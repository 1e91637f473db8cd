"""Writes the generated parts of docs/configuration.md and docs/gin_files.md to a folder.

  .venv/bin/python docs/tools/configuration.py build/docs

Parameters come from the signatures, annotations and docstrings of everything that gin can bind, and
values from the files in gin/.
"""

import collections
import inspect
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ob2i_tf.training import main as program  # noqa: E402

with program.stderr_held_back():
    import gin

    from ob2i_tf import config, parameters, released  # noqa: F401, registers parts as well
    from ob2i_tf.config import reading, resources, values
    from ob2i_tf.linear import agents  # noqa: F401, which registers LSVI
    from ob2i_tf.training import runner  # noqa: F401, which registers all other parts

GIN = Path(resources.folder('gin'))
SECTIONS = {  # {heading: modules}, along the path of a transition.
    'The run': ['training.runner'],
    'Environments': ['environments'],
    'Agent': ['agent', 'schedules', 'acting'],
    'Network and learner': ['networks', 'learner', 'optimizers'],
    'Targets': ['updates', 'bonuses', 'replay'],
    'Posteriors': ['posteriors'],
    'Linear MDPs': ['linear'],
    'The released code': ['released'],
}
_MANY = 8  # Values of one parameter, above which they are not listed.
_NAMES = re.compile(r'^\s*\**(\w+(?:, \**\w+)*): (.*)$')


def files() -> list[str]:
    """Names of all gin files, those in gin/base/ last."""
    return [path.relative_to(GIN).as_posix() for path in sorted(GIN.glob('*.gin'))] + [
        path.relative_to(GIN).as_posix() for path in sorted(GIN.glob('base/*.gin'))
    ]


def configurables() -> dict[str, str]:
    """{selector: module below ob2i_tf} of everything that gin can bind."""
    found = {}
    for selector, configurable in values.REGISTRY.items():
        module = configurable.wrapped.__module__
        if module.startswith('ob2i_tf.'):
            found[selector] = module.removeprefix('ob2i_tf.')
    return found


def bindings() -> dict[tuple[str, str], dict[str, str]]:
    """{(configurable, parameter): {gin file: value}}, from the lines of the file itself."""
    found: dict = collections.defaultdict(dict)
    for file in files():
        read = [b for layer in config.read([file]) for b in layer if isinstance(b, reading.Binding)]
        macros = {binding.name: binding.value for binding in read if not binding.parameter}
        for binding in read:
            if binding.parameter and binding.where.startswith(f'{file}:'):
                value = _code(values.text(values.expand(binding.value, macros)))
                if binding.scope:
                    value += f' in the scope `{binding.scope}`'
                found[binding.name, binding.parameter][file] = value
    return found


def arguments_of(function) -> dict[str, str]:
    """{parameter: its description} of a docstring's Args section."""
    lines = inspect.cleandoc(function.__doc__ or '').splitlines()
    found: dict[str, str] = {}
    if 'Args:' not in lines:
        return found
    names: list[str] = []
    for line in lines[lines.index('Args:') + 1 :]:
        if line and not line.startswith(' '):
            break
        start = _NAMES.match(line) if re.match(r'  \S', line) else None
        if start:
            names = [name.strip('* ') for name in start[1].split(',')]
            found.update(dict.fromkeys(names, start[2]))
        elif line.strip():
            found.update({name: f'{found[name]} {line.strip()}' for name in names})
    return found


def _code(text: str) -> str:
    return f'`{" ".join(text.split())}`'


def _default(parameter: values.Parameter) -> str:
    if parameter.default is gin.REQUIRED:
        return 'required'
    try:
        shown = values.text(values.from_python(parameter.default))
    except (ValueError, KeyError):
        shown = getattr(parameter.default, '__name__', repr(parameter.default))
    return f'default {_code(shown)}'


def _bound_by(values_of_files: dict[str, str]) -> str:
    where = collections.defaultdict(list)
    for file, value in values_of_files.items():
        where[value].append(_file_link(file))
    if len(where) > _MANY:
        return 'Bound by most [gin files](gin_files.md).'
    return 'Bound: ' + '; '.join(f'{value} in {", ".join(where[value])}' for value in where) + '.'


def _entry(selector: str, bound) -> str:
    wrapped = values.REGISTRY[selector].wrapped
    name = values.short(selector)
    summary = ' '.join(inspect.cleandoc(wrapped.__doc__ or '').partition('\n\n')[0].split())
    lines = [f'### {name}', '', summary, '']
    inherited = ', '.join(_code(values.short(base)) for base in values.bases(selector))
    if inherited:
        lines += [f'The parameters of {inherited} apply as well.', '']
    described = arguments_of(wrapped)
    for parameter, facts in values.bindable(selector).items():
        kind = parameters.describe(facts.hint)
        facts_of = ', '.join([kind] * (kind != 'Any') + [_default(facts)])
        lines += [f'`{parameter}` ({facts_of})', f':   {described.get(parameter, "")}', '']
        if (name, parameter) in bound:
            lines += [f'    {_bound_by(bound[name, parameter])}', '']
    return '\n'.join(lines)


def _anchor(file: str) -> str:
    return re.sub(r'[^a-z0-9_]+', '', file.lower())


def _file_link(file: str) -> str:
    return f'[{file.removesuffix(".gin")}](gin_files.md#{_anchor(file)})'


def reference() -> str:
    """The parameters of all configurables, in Markdown."""
    found, bound = configurables(), bindings()
    parts = []
    left = dict(found)
    for heading, modules in SECTIONS.items():
        parts.append(f'## {heading}\n')
        for module in modules:
            for selector, own in found.items():
                if own == module or own.startswith(f'{module}.'):
                    parts.append(_entry(selector, bound))
                    del left[selector]
    if left:
        raise SystemExit(f'error: no section of the reference has {", ".join(left)}')
    return '\n'.join(parts)


def gin_files() -> str:
    """Every gin file with its text, in Markdown."""
    parts = []
    for file in files():
        text = (GIN / file).read_text().rstrip()
        parts.append(f'## {file} {{ #{_anchor(file)} }}\n\n```gin\n{text}\n```\n')
    return '\n'.join(parts)


def main(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    for name, text in (('configuration', reference()), ('gin_files', gin_files())):
        (Path(folder) / f'{name}.md').write_text(text)


if __name__ == '__main__':
    main(*sys.argv[1:])
