"""The project installed without its checkout."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    'LICENSE',
    'MANIFEST.in',
    'README.md',
    'pyproject.toml',
    'setup.py',
    'agents',
    'gin',
    'ob2i_tf',
    'third_party',
)


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """A folder that `pip install .` filled, from a copy of the sources."""
    source = tmp_path_factory.mktemp('source')
    for name in PARTS:
        path = ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, source / name)
    folder = tmp_path_factory.mktemp('site')
    subprocess.run(
        [
            sys.executable,
            '-m',
            'pip',
            'install',
            '--quiet',
            '--no-deps',
            '--no-build-isolation',
            '--no-index',
            '--target',
            str(folder),
            str(source),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def run(installed, *arguments, cwd):
    environment = {**os.environ, 'PYTHONPATH': str(installed)}
    environment.pop('TF_USE_LEGACY_KERAS', None)
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_its_data_comes_along_and_nothing_shadows_gin(installed, tmp_path):
    done = run(
        installed,
        '-c',
        'import gin, ob2i_tf, os\n'
        'from ob2i_tf import config\n'
        'from ob2i_tf.config import resources\n'
        'gin.configurable\n'
        'print(ob2i_tf.__file__)\n'
        'print(*config.available())\n'
        'print(os.path.isdir(os.path.join(resources.folder("third_party"), "published_scores")))\n'
        'from ob2i_tf.training.checkpoints import find_damage\n'
        'agents = resources.folder("agents")\n'
        'print([find_damage(os.path.join(folder, name)) for folder, names, _ in os.walk(agents)'
        ' for name in names if name.isdecimal()])\n'
        'from ob2i_tf.analysis.templates import render\n'
        'print("A &lt; B" in render("page.html", title="A < B"))',
        cwd=tmp_path,
    )
    where, files, scores, damage, template = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed)
    assert files.split() == sorted(path.name for path in (ROOT / 'gin').glob('*.gin'))
    assert scores == template == 'True' and damage == "['']"
    templates = Path('ob2i_tf', 'analysis', 'templates')
    names = {path.name for path in (ROOT / templates).glob('*.*')}
    assert names <= {path.name for path in (installed / templates).iterdir()}
    assert not (installed / 'gin').exists()
    assert (installed / 'ob2i_tf' / 'py.typed').is_file()  # Type checkers then read annotations.


def test_it_runs_from_another_folder(installed, tmp_path):
    command = [str(installed / 'bin' / 'ob2i-tf'), '--gin_files=ob2i_atari.gin']
    done = run(installed, *command, '--gin_bindings=Runner.num_iterations = 0', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, *others = done.stderr.splitlines()
    assert 'No GPU' in first or 'Training on' in first  # And no complaint of TensorFlow's.
    assert not re.search('GPU|cuda|CUDA', '\n'.join(others))
    (base_dir,) = (tmp_path / 'runs' / 'ob2i_atari').glob('*/seed0')
    assert 'make_environment.name' in (base_dir / 'config.gin').read_text()
    done = run(installed, *command, '--gin_bindings=Runner.sed = 0', cwd=tmp_path)
    assert done.returncode == 2
    assert 'Runner.sed' in done.stderr.splitlines()[-1]


def test_every_extra_that_is_named_exists(installed):
    (metadata,) = installed.glob('ob2i_tf-*.dist-info/METADATA')
    extras = set(re.findall(r'^Provides-Extra: (.*)$', metadata.read_text(), re.MULTILINE))
    # pip before 23.3 takes "a_b" and the metadata's "a-b" for two names, and only warns.
    assert all(re.fullmatch('[a-z]+', extra) for extra in extras)
    paths = [ROOT / 'README.md', *ROOT.glob('docs/*.md'), *(ROOT / 'ob2i_tf').rglob('*.py')]
    texts = [path.read_text() for path in paths]
    named = re.findall(r"(?:ob2i_tf|'\.)\[([a-z_,-]+)\]", '\n'.join(texts))
    named += re.findall(r'^TEST_EXTRAS \?= (.*)$', (ROOT / 'Makefile').read_text(), re.MULTILINE)
    assert len(named) >= 3
    assert {extra for names in named for extra in names.split(',')} <= extras
