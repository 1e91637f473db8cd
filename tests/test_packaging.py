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


@pytest.fixture(scope='session')
def wheel(tmp_path_factory):
    """A wheel, built from a copy of the sources."""
    source, folder = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('wheel')
    for name in PARTS:
        path = ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, source / name)
    _pip(sys.executable, 'wheel', '--no-build-isolation', '--wheel-dir', folder, source)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope='session')
def installed(wheel, tmp_path_factory):
    """A virtual environment with the wheel."""
    folder = environment(tmp_path_factory.mktemp('environment'))
    _pip(folder / 'bin' / 'python', 'install', '--ignore-installed', wheel)
    return folder


def environment(folder):
    """Makes a virtual environment whose packages are those of this one; returns its folder."""
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', folder], check=True)
    (packages,) = folder.glob('lib/*/site-packages')
    others = [path for path in sys.path if path.endswith('-packages')]
    (packages / 'others.pth').write_text('\n'.join(others))
    return folder


def _pip(python, command, *arguments):
    options = ['--quiet', '--no-deps', '--no-index', '--disable-pip-version-check']
    subprocess.run(
        [python, '-m', 'pip', command, *options, *arguments], check=True, capture_output=True
    )


def run(installed, program, *arguments, cwd):
    """Runs a program of the environment in a folder; returns the finished process."""
    environment = dict(os.environ)
    for name in ('PYTHONPATH', 'TF_USE_LEGACY_KERAS'):
        environment.pop(name, None)
    command = [installed / 'bin' / program, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_its_data_comes_along_and_nothing_shadows_gin(installed, tmp_path):
    done = run(
        installed,
        'python',
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
    assert scores == template == 'True' and damage == "['', '']"
    (packages,) = installed.glob('lib/*/site-packages')
    templates = Path('ob2i_tf', 'analysis', 'templates')
    names = {path.name for path in (ROOT / templates).glob('*.*')}
    assert names <= {path.name for path in (packages / templates).iterdir()}
    assert not (packages / 'gin').exists()
    assert (packages / 'ob2i_tf' / 'py.typed').is_file()  # Type checkers then read annotations.


def test_it_runs_from_another_folder(installed, tmp_path):
    command = ['ob2i-tf', '--gin_files=ob2i_atari.gin']
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


@pytest.fixture
def metadata(installed):
    (path,) = installed.glob('lib/*/site-packages/ob2i_tf-*.dist-info/METADATA')
    return path.read_text()


def test_metadata_are_those_of_the_repository(metadata):
    (author,) = re.findall('^  - name: (.*)$', (ROOT / 'CITATION.cff').read_text(), re.MULTILINE)
    assert f'\nAuthor: {author}\n' in metadata
    assert metadata.endswith((ROOT / 'README.md').read_text())
    first, after = re.search(r'\nRequires-Python: >=3\.(\d+),<3\.(\d+)\n', metadata).groups()
    minors = re.findall(r'\nClassifier: Programming Language :: Python :: 3\.(\d+)', metadata)
    assert list(map(int, minors)) == list(range(int(first), int(after)))


def test_every_extra_that_is_named_exists(metadata):
    extras = set(re.findall(r'^Provides-Extra: (.*)$', metadata, re.MULTILINE))
    # pip before 23.3 takes "a_b" and the metadata's "a-b" for two names, and only warns.
    assert all(re.fullmatch('[a-z]+', extra) for extra in extras)
    paths = [ROOT / 'README.md', *ROOT.glob('docs/*.md'), *(ROOT / 'ob2i_tf').rglob('*.py')]
    texts = [path.read_text() for path in paths]
    named = re.findall(r"(?:ob2i_tf|'\.)\[([a-z_,-]+)\]", '\n'.join(texts))
    named += re.findall(r'^TEST_EXTRAS \?= (.*)$', (ROOT / 'Makefile').read_text(), re.MULTILINE)
    assert len(named) >= 3
    assert {extra for names in named for extra in names.split(',')} <= extras
