"""Mutated gin files and bindings: each must be accepted, or rejected with one clear line.

  python -m campaigns.fuzz --count=5000 --seed=0

Nothing is trained; one process reads and checks each case, and writes the resolved configuration. A
case fails if anything except a ConfigError is raised, if the message does not name its file or
flag, if an accepted binding is missing from the resolved configuration, or if that configuration
does not resolve to itself.
"""

import ast
import collections
import random
import re
import sys
import tempfile
from pathlib import Path

import gin

from ob2i_tf import cli, config
from ob2i_tf.config import resources
from ob2i_tf.errors import ConfigError

VALUES = (
    *('0', '1', '-1', '3', '1e3', '1e-3', '0.5', '-0.0', '1e999', 'True', 'None'),
    *("''", "'x'", "'Pong'", "'initial'", '()', '[1, 2]', '((1, 2, 3),)', '{}', "{'a': 1}"),
    *('@adam', '@adam()', '@UcbBonus()', '@UcbBonus', '@TransitionUpdate', '@head_preferences'),
    *('@linear', '%horizon', '%nothing', '@nothing', '9' * 30, '0x10', '1_000', 'nan'),
    *("b'x'", '1j', '...', 'lambda: 0', '-', '(1', '@', '%', '"""a\nb"""', '1 + 1', "'a' 'b'"),
    *('gin.REQUIRED', '%gin.REQUIRED', '@gin.macro()', '1 # c'),
)
LINES = (
    *('import no_such_module', 'import os.path', 'import gin as g', 'from os import path'),
    *("include 'base/atari.gin'", "include 'nothing.gin'", "include ''", 'include', 'import'),
    *('x = 1', 'a/b = 2', 'a/b/c.d = 3', 'Runner:', '  seed = 1', '# nothing'),
    *(';', '\\', '\f', '\t'),
)
ALPHABET = '@%()[]{}.,:/=\'"\\\n \t#-+0123456789eExabcTrueNone_$?!;*\x00\xe9\u2028\ufeff'


def _gin_files():
    folder = Path(resources.folder('gin'))
    return {p.name: p.read_text() for p in sorted(folder.glob('*.gin'))}


def _names():
    """'Name.parameter' of every binding in the project's files."""
    files = (path.read_text() for path in Path(resources.folder('gin')).rglob('*.gin'))
    return sorted(set(re.findall(r'^([\w/]+\.\w+) =', '\n'.join(files), re.M)))


def _mutated_text(rng, text):
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        text = (
            text[:at]
            + rng.choice(['', *rng.choices(ALPHABET, k=3)])
            + text[at + rng.choice([0, 0, 1, 3, 20]) :]
        )
    return text


def mutated(rng, texts, names):
    """One case: (text of a gin file, or None for an unchanged file; name of the file; bindings)."""
    gin_file = rng.choice(sorted(texts))
    binding = f'{rng.choice(names)} = {rng.choice(VALUES)}'
    kind = rng.randrange(6)
    if kind == 0:  # A binding of the project, with another value.
        return None, gin_file, [binding]
    if kind == 1:  # A misspelt binding.
        return None, gin_file, [_mutated_text(rng, binding)]
    if kind == 2:  # Several, which may conflict.
        return None, gin_file, [f'{rng.choice(names)} = {rng.choice(VALUES)}' for _ in range(3)]
    if kind == 3:
        return None, gin_file, [f'{rng.choice(["x", "a", "Runner"])}/{binding}']
    lines = texts[gin_file].splitlines()
    if kind == 4:  # A file with lines doubled, dropped, swapped or new.
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(lines) + 1)
            lines[at : at + rng.randint(0, 1)] = [rng.choice([binding, *LINES, *lines])]
        return '\n'.join(lines), gin_file, []
    return _mutated_text(rng, texts[gin_file]), gin_file, []


def fault(path, bindings):
    """The fault in how the case ends, or ''; and 'accepted', 'refused' or 'raised'."""
    try:
        layers = config.read([path], bindings)
        config.apply(layers)
    except ConfigError as error:
        message = ' '.join(str(error).split())
        named = any(part in message for part in ('--gin_bindings', '.gin', ' must be bound'))
        return '' if named else f'names no file or flag: {message}', 'refused'
    except Exception as error:
        return f'{type(error).__name__}: {error}', 'raised'
    text = config.resolved_config()
    for binding in layers[-1] if bindings else ():
        ignored = _ignored(binding, layers, text)
        if ignored:
            return ignored, 'accepted'
    try:
        config.load([], [text])
        again = config.resolved_config()
    except ConfigError as error:
        return f'its config.gin does not load: {error}', 'accepted'
    return '' if again == text else 'its config.gin does not resolve to itself', 'accepted'


def _ignored(binding, layers, text):
    """The fault that the last literal binding of a name is not in the resolved text, or ''."""
    parameter = getattr(binding, 'parameter', '')
    of_name = [b for layer in layers for b in layer if getattr(b, 'parameter', '') == parameter]
    if not parameter or of_name[-1] is not binding:
        return ''
    values = re.findall(rf'^\S*\.{re.escape(parameter)} = (.*)$', text, re.M)
    try:
        there = [ast.literal_eval(value) for value in values if not value.startswith('@')]
        if any(type(v) is type(binding.value) and v == binding.value for v in there):
            return ''
        ast.literal_eval(repr(binding.value))
    except (ValueError, SyntaxError):
        return ''  # References are compared by loading the text again.
    return f'{binding} = {binding.value!r} is ignored; the text has {values}'


def campaign(count, seed):
    """(counts of outcomes, failed cases); deterministic given the seed."""
    from ob2i_tf.training import runner  # noqa: F401, which registers all parts

    rng, texts = random.Random(seed), _gin_files()
    names = _names()
    outcomes, failures = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'case.gin'
        for _ in range(count):
            text, gin_file, bindings = mutated(rng, texts, names)
            if text is not None:
                path.write_text(text, encoding='utf-8')
            try:
                wrong, outcome = fault(gin_file if text is None else str(path), bindings)
            finally:
                gin.clear_config()
            outcomes[outcome] += 1
            if wrong:
                failures.append((gin_file, bindings or text, wrong))
    return outcomes, failures


def main(argv=None):
    parser = cli.parser('campaigns.fuzz', __doc__)
    parser.add_argument('--count', type=int, default=5000)
    parser.add_argument('--seed', type=int, default=0)
    arguments = parser.parse_args(argv)
    outcomes, failures = campaign(arguments.count, arguments.seed)
    for gin_file, case, wrong in failures:
        print(f'{gin_file}: {case!r}\n  {wrong}')
    print(
        f'{arguments.count} cases, seed {arguments.seed}: {dict(outcomes)}, '
        f'{len(failures)} failures'
    )
    return int(bool(failures))


if __name__ == '__main__':
    sys.exit(main())
