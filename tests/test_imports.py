"""Imports run one way, TensorFlow is configured once, and only replay knows TF-Agents."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'ob2i_tf'
# A module may import what stands above it.
ORDER = (
    'types',
    'errors',
    'parameters',
    'cli',
    'seeds',
    'schedules',
    'chunks',
    'frames',
    'tracing',
    'moments',
    'optimizers',
    'networks',
    'posteriors.base',
    'posteriors.adaptive',
    'posteriors.ube',
    'posteriors.bayesian_linear',
    'posteriors',
    'bonuses',
    'acting',
    'targets',
    'config.resources',
    'config.installed',
    'config.values',
    'config.renamed',
    'config.reading',
    'config.checking',
    'config.resolved',
    'config.state',
    'config',
    'replay',
    'updates',
    'released',
    'learner',
    'learner_step',
    'training',
    'training.system',
    'training.disk',
    'training.episode_files',
    'training.checkpoints',
    'training.run_folder',
    'training.prune',
    'training.tensorboard',
    'training.logs',
    'agent',
    'training.loop',
    'training.signals',
    'environments.games',
    'environments.vector',
    'environments.digits',
    'environments.atari',
    'environments.mnist_maze',
    'environments.deep_sea',
    'environments.linear_mdp',
    'environments.registered',
    'environments.checked_env',
    'environments',
    'training.build',
    'training.estimates',
    'training.progress',
    'training.evaluation',
    'training.failures',
    'training.observers',
    'training.run_state',
    'training.runner',
    'training.restore',
    'linear',
    'linear.lsvi',
    'linear.agents',
    'training.main',
    'api',
    'sweep',
    'evaluate',
    'analysis',
    'analysis.load',
    'analysis.scores',
    'analysis.figures',
    'analysis.tables',
    'analysis.templates',
    'demo',
    'analysis.report',
    'analysis.__main__',
    'analysis.episode',
)
# Modules independent of learning, and the prefixes of the modules they may import.
APART = {
    'environments': ('environments', 'types', 'errors', 'parameters'),
    'analysis': (
        'analysis',
        'cli',
        'config.resources',
        'environments',
        'errors',
        'training.checkpoints',
        'training.disk',
        'training.run_folder',
    ),
    'training.checkpoints': ('errors', 'training.disk'),
    'training.logs': (
        'errors',
        'training.checkpoints',
        'training.disk',
        'training.run_folder',
        'training.tensorboard',
    ),
    'analysis.episode': (  # Which plays a game.
        'analysis',
        'acting',
        'api',
        'bonuses',
        'cli',
        'config',
        'environments',
        'errors',
        'frames',
        'training.loop',
    ),
}


def modules():
    for path in sorted(PACKAGE.rglob('*.py')):
        name = '.'.join(path.relative_to(PACKAGE).with_suffix('').parts)
        yield name.removesuffix('__init__').rstrip('.'), path


NAMES = {name for name, _ in modules()} - {''}


def imports_of(path):
    """Full names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f'{path}: a relative import'
            for alias in node.names:
                full = f'{node.module}.{alias.name}'
                yield full if full.removeprefix('ob2i_tf.') in NAMES else node.module


def local_imports(path):
    return {
        full.removeprefix('ob2i_tf.') for full in imports_of(path) if full.startswith('ob2i_tf.')
    }


@pytest.mark.parametrize('name', sorted(NAMES))
def test_imports_run_one_way(name):
    assert name in ORDER, 'a new module needs its place in ORDER'
    imported = local_imports(dict(modules())[name])
    later = {other for other in imported if ORDER.index(other) >= ORDER.index(name)}
    assert not later
    allowed = APART.get(name, APART.get(name.partition('.')[0]))
    if allowed:
        allowed = tuple(f'{prefix}.' for prefix in allowed)
        assert not {other for other in imported if not f'{other}.'.startswith(allowed)}


def test_only_replay_imports_tf_agents():
    users = {
        name
        for name, path in modules()
        if any(full.partition('.')[0] == 'tf_agents' for full in imports_of(path))
    }
    assert users == {'replay'}


def python(code):
    hidden = ('TF_USE_LEGACY_KERAS', 'TF_FORCE_GPU_ALLOW_GROWTH', 'PYTHONPATH')
    inherited = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [sys.executable, '-c', code],
        env=inherited,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_the_package_registers_the_maze_and_imports_no_tensorflow():
    show = 'print(gymnasium.spec("ob2i/MnistMaze-v0").entry_point, *sys.modules)'
    growth = 'print(os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])'  # Before the first op, on any entry.
    done = python(f'import os, sys, ob2i_tf, gymnasium; {growth}; {show}')
    growth, entry_point, *imported = done.stdout.split()
    assert growth == 'true'
    assert entry_point == 'ob2i_tf.environments.mnist_maze:MnistMaze', done.stderr
    assert 'tensorflow' not in imported


def test_modules_come_with_the_package_and_with_keras_2_when_they_are_asked_for():
    names = 'o.targets.__name__, o.environments.make.__name__'
    done = python(
        f'import ob2i_tf as o; print({names}); '
        'import tensorflow as tf; print(tf.keras.Model.__module__)'
    )
    targets, make, keras = done.stdout.split()
    assert (targets, make) == ('ob2i_tf.targets', 'make'), done.stderr
    assert keras.startswith('tf_keras.')
    done = python('import ob2i_tf; ob2i_tf.target')
    assert "module 'ob2i_tf' has no attribute 'target'" in done.stderr


def test_keras_3_imported_before_is_an_error_that_says_so():
    done = python('import tensorflow; import ob2i_tf')
    assert done.returncode == 1
    assert 'import ob2i_tf first' in done.stderr.splitlines()[-1]


def test_figures_leave_the_backend_of_a_notebook_alone():
    own = 'import matplotlib; matplotlib.use("svg"); '
    done = python(f'{own}from ob2i_tf.analysis import report; print(matplotlib.get_backend())')
    assert done.stdout == 'svg\n', done.stderr


def test_the_installed_releases_fit_together():
    done = subprocess.run([sys.executable, '-m', 'pip', 'check'], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
