"""Changes the modules of the algorithm in one place at a time, and checks that a test fails.

  python -m tests.mutants --count=60 --seed=0 --jobs=2
  python -m tests.mutants --only=targets.py:147    # every change of one line

The places are drawn from the syntax tree: operators, constants, conditions and arguments. Each
change is made in a temporary copy of the project. There the test files that import the module run,
the one named after it first, until a test fails; taking a minute longer than all these tests took
without a change counts as a failure. Exit status: 0 if EQUIVALENT lists every survivor.
"""

import argparse
import ast
import contextlib
import copy
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = 'ob2i_tf'
MODULES = (
    'targets',
    'bonuses',
    'moments',
    'acting',
    'networks',
    'posteriors.base',
    'posteriors.ube',
    'posteriors.bayesian_linear',
    'posteriors.adaptive',
    'replay',
    'training.episode_files',
    'updates',
    'released',
    'learner',
    'learner_step',
    'agent',
    'schedules',
    'optimizers',
    'chunks',
    'seeds',
    'parameters',
    'linear.lsvi',
)
# Survivors that need no test, in blocks of three lines: the two of `Mutant.key`, and the reason.
EQUIVALENT = Path(__file__).with_name('mutants_equivalent.txt')
# Run for every module, since it checks the values of parameters, defaults included.
TABLE = ['tests/test_gin_files.py::test_a_file_comes_to_the_values_of_the_table']
SWAPPED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
# Functions whose arguments may be in any order.
SYMMETRIC = ('max', 'min', 'maximum', 'minimum', 'squared_difference')


class Mutant(NamedTuple):
    file: str  # Within the package.
    line: int
    text: str  # The line, stripped.
    before: str
    after: str
    source: str  # Source of the changed module.

    @property
    def key(self):
        """Identifies the change, whatever its line number."""
        return f'{self.file}: {self.text}', f'{self.before} -> {self.after}'


def changes(node):
    """Pairs of a node, which is `node` or its condition, and a replacement."""
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPPED:
        yield node, _with(node, op=SWAPPED[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            yield node, _with(node, ops=_put(node.ops, i, SWAPPED[type(operator)]()))
    elif isinstance(node, ast.UnaryOp):
        yield node, node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        for value in sorted({node.value + 1, node.value * 2} - {node.value}):
            yield node, ast.Constant(value)
    elif isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg != 'name':
                yield node, _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
        if ast.unparse(node.func).rpartition('.')[2] not in SYMMETRIC:
            for i, (one, other) in enumerate(zip(node.args, node.args[1:])):
                yield node, _with(node, args=_put(_put(node.args, i, other), i + 1, one))
    if isinstance(getattr(node, 'test', None), ast.expr):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)


def _with(node, **fields):
    changed = copy.copy(node)
    vars(changed).update(fields)
    return changed


def _put(items, index, item):
    return [*items[:index], item, *items[index + 1 :]]


def walk(node):
    """The nodes that are worth changing: no strings, annotations, errors or logs."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ('annotation', 'returns', 'decorator_list'):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.JoinedStr)):
                continue
            if not (isinstance(child, ast.Call) and ast.unparse(child.func).startswith('logging.')):
                yield from walk(child)


def mutants_of(module):
    file = file_of(module)
    source = (ROOT / PACKAGE / file).read_text()
    lines = source.splitlines(keepends=True)
    data, original = source.encode(), ast.dump(ast.parse(source))
    starts = [0, *itertools.accumulate(len(line.encode()) for line in lines)]
    for node in walk(ast.parse(source)):
        for at, changed in changes(node):
            start = starts[at.lineno - 1] + at.col_offset  # Columns are bytes.
            end = starts[at.end_lineno - 1] + at.end_col_offset
            after = ast.unparse(changed)
            if not isinstance(changed, (ast.Constant, ast.Call, ast.Name)):
                after = f'({after})'
            changed_source = (data[:start] + after.encode() + data[end:]).decode()
            if ast.dump(ast.parse(changed_source)) != original:
                line = lines[at.lineno - 1].strip()
                yield Mutant(file, at.lineno, line, ast.unparse(at), after, changed_source)


def tests_of(module):
    """The test files that import a module, the one named after it first.

    If there are none, those of the modules that import it.
    """
    found = [path for path in (ROOT / 'tests').rglob('test_*.py') if imports(path, module)]
    if not found:
        users = [user for user in MODULES if imports(ROOT / PACKAGE / file_of(user), module)]
        return sorted(set().union(*map(tests_of, users)))
    own = f'test_{module.rpartition(".")[2]}.py'
    found.sort(key=lambda path: (path.name != own, path))
    return [*(str(path.relative_to(ROOT)) for path in found), *TABLE]


def imports(path, module):
    """Whether a file imports the module or its package."""
    wanted = f'{PACKAGE}.{module}'
    text = path.read_text()
    lines = text.splitlines()
    return any(
        node.module == wanted
        or {f'{node.module}.{a.name}' for a in node.names} & {wanted, wanted.rpartition('.')[0]}
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and 'noqa: F401' not in lines[node.lineno - 1]
    )


def file_of(module):
    return module.replace('.', '/') + '.py'


def _run(tree, tests, log):
    """Runs the tests of the copy in a separate process; exits with pytest's status."""
    os.setsid()  # Killing the group ends processes that the tests start, too.
    with open(log, 'w') as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    for name in [name for name in sys.modules if name.split('.')[0] in (PACKAGE, 'tests', 'gin')]:
        del sys.modules[name]
    sys.stdout = open(1, 'w', buffering=1)

    import pytest

    status = pytest.main(['-x', '-q', '-n', '0', '-p', 'no:cacheprovider', *tests])
    assert tree.samefile(Path(sys.modules[PACKAGE].__file__).parents[1])
    sys.stdout.flush()
    os._exit(status)


class Slot:
    """A copy of the project, and the mutant whose tests run in it."""

    def __init__(self, folder):
        self.tree, self.log = folder / 'tree', folder / 'log'
        ignored = shutil.ignore_patterns('.*', '*.egg-info', '__pycache__', 'build', 'dist')
        shutil.copytree(ROOT, self.tree, ignore=ignored)

    def start(self, mutant, tests, seconds):
        self.mutant, self.deadline = mutant, time.monotonic() + seconds
        if mutant:
            (self.tree / PACKAGE / mutant.file).write_text(mutant.source)
        self.process = multiprocessing.get_context('fork').Process(
            target=_run, args=(self.tree, tests, self.log)
        )
        self.process.start()

    def finish(self):
        """None while the tests run; then the test that failed, or '' if all passed."""
        self.process.join(timeout=0.2)
        took_too_long = time.monotonic() > self.deadline
        if self.process.is_alive() and not took_too_long:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        if self.mutant:
            shutil.copy(ROOT / PACKAGE / self.mutant.file, self.tree / PACKAGE / self.mutant.file)
        if took_too_long:
            return 'the time limit'
        printed = self.log.read_text(errors='replace').splitlines()
        failed = [line.split()[1] for line in printed if line.startswith(('FAILED', 'ERROR'))]
        if self.process.exitcode == 0:
            return ''
        return failed[0] if failed else f'status {self.process.exitcode}'


def known():
    """{(place, change): reason} of the survivors that need no test."""
    text = EQUIVALENT.read_text() if EQUIVALENT.exists() else ''
    blocks = [block.splitlines() for block in text.split('\n\n') if ' -> ' in block]
    return {(place, change): ' '.join(reason) for place, change, *reason in blocks}


def drawn(arguments):
    found = {module: list(mutants_of(module)) for module in MODULES}
    together = [(mutant, module) for module in MODULES for mutant in found[module]]
    for place, change in known().keys() - {mutant.key for mutant, _ in together}:
        print(f'{EQUIVALENT.name} is outdated: {place}: {change}')
    if arguments.only:
        file, _, line = arguments.only.partition(':')
        return [m for m in together if m[0].file == file and line in ('', str(m[0].line))]
    return random.Random(arguments.seed).sample(together, min(arguments.count, len(together)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--count', type=int, default=60, help='number of changes to draw')
    parser.add_argument('--seed', type=int, default=0, help='seed of the draw')
    parser.add_argument('--jobs', type=int, default=1, help='changes tested in parallel')
    parser.add_argument('--only', help='FILE or FILE:LINE: test all changes there, draw none')
    arguments = parser.parse_args()
    waiting, reasons, unexplained = drawn(arguments), known(), 0
    tests = {module: tests_of(module) for _, module in waiting}

    # A cached module could pass for a mutant of the same size, written in the same second.
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONDONTWRITEBYTECODE='1', TF_USE_LEGACY_KERAS='1')
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import tensorflow  # noqa: F401, loaded once, before the processes of the tests are forked.

    with tempfile.TemporaryDirectory() as folder:
        slots = [Slot(Path(folder) / str(index)) for index in range(arguments.jobs)]
        started = time.monotonic()
        slots[0].start(None, sorted(set().union(*tests.values())), seconds=3600)
        while (failed := slots[0].finish()) is None:
            pass
        if failed:
            sys.exit(f'error: {failed} fails without any change:\n{slots[0].log.read_text()}')
        seconds = time.monotonic() - started
        print(f'{seconds:.0f} s for the tests without any change', flush=True)
        idle, busy, counts = slots, [], {'killed': 0, 'survived': 0, 'equivalent': 0}
        while waiting or busy:
            while waiting and idle:
                mutant, module = waiting.pop(0)
                busy.append(idle.pop())
                busy[-1].start(mutant, tests[module], seconds + 60)
            for slot in list(busy):
                if (by := slot.finish()) is None:
                    continue
                busy.remove(slot)
                idle.append(slot)
                mutant = slot.mutant
                verdict = 'killed' if by else 'equivalent' if mutant.key in reasons else 'survived'
                counts[verdict] += 1
                unexplained += verdict == 'survived'
                change = mutant.key[1] if not by else textwrap.shorten(mutant.key[1], 90)
                print(f'{verdict:<10} {mutant.file}:{mutant.line}  {change}  [{by}]', flush=True)
    print(', '.join(f'{count} {verdict}' for verdict, count in counts.items()))
    sys.exit(unexplained > 0)


if __name__ == '__main__':
    main()
