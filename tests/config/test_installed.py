"""Imports in the run folder of another person."""

import json
import subprocess
import sys

import pytest

from ob2i_tf import evaluate
from ob2i_tf.analysis import episode
from ob2i_tf.config import installed
from ob2i_tf.errors import ConfigError
from ob2i_tf.training.restore import restore

pytestmark = pytest.mark.usefixtures('clean_gin')
LEAVES_A_MARK = 'import pathlib\npathlib.Path({mark!r}).touch()\n'


def write_module(path, mark):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LEAVES_A_MARK.format(mark=str(mark)))


@pytest.fixture
def gift(tmp_path, monkeypatch):
    """The folder of a run whose config.gin includes a file that imports a module beside it.

    As for `python -m`, the working folder is the first of sys.path.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / 'runs' / 'gift'
    write_module(folder / 'payload.py', tmp_path / 'mark')
    (folder / 'config.gin').write_text("include 'parts.gin'\n")
    (folder / 'parts.gin').write_text('import runs.gift.payload\n')
    yield folder
    for name in [name for name in sys.modules if name.partition('.')[0] == 'runs']:
        del sys.modules[name]


REFUSED = (
    'parts.gin:1: import runs.gift.payload: not part of an installed distribution; if you trust '
    'its code, allow it: --allow_imports=runs.gift.payload, or in Python '
    "allow_imports=['runs.gift.payload']"
)


def test_what_reads_a_run_folder_runs_nothing_of_it(gift, tmp_path, capsys):
    assert evaluate.main([str(gift), f'--out={tmp_path}/games.csv']) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f'error: {gift}: {REFUSED}'
    assert episode.main([str(gift), f'--out={tmp_path}/viewer']) == 1
    assert capsys.readouterr().err == f'error: {REFUSED}\n'
    with pytest.raises(ConfigError, match='--allow_imports=runs.gift.payload'):
        restore(gift, ['runs.gift.pay', 'gift'])
    assert not (tmp_path / 'mark').exists() and 'runs' not in sys.modules


def test_a_command_in_its_own_process_refuses_too(gift, tmp_path):
    ended = subprocess.run(
        [sys.executable, '-m', 'ob2i_tf.evaluate', 'runs', '--out=games.csv'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f'error: {gift}: {REFUSED}'
    assert not (tmp_path / 'mark').exists()


@pytest.mark.parametrize(
    'flags',
    [
        ['--allow_imports=runs.gift.payload'],
        ['--allow_imports=other, runs'],
        ['--allow_imports=other', '--allow_imports=runs.gift'],
    ],
)
def test_what_the_user_names_is_imported(gift, tmp_path, capsys, flags):
    assert evaluate.main([str(gift), f'--out={tmp_path}/games.csv', *flags]) == 1
    assert 'Runner.num_iterations must be bound' in capsys.readouterr().err  # It got that far.
    assert (tmp_path / 'mark').exists()


@pytest.mark.parametrize(
    'module',
    [
        'numpy',
        'google.protobuf.message',
        'tf_agents.utils',
        'ob2i_tf.linear.agents',
    ],
)
def test_installed_modules_may_be_imported(module):
    assert installed.may_import(module)


@pytest.mark.parametrize(
    'module, path',
    [
        ('yaml', 'yaml.py'),
        ('yaml.nodes', 'yaml/__init__.py'),
        ('google.own', 'google/own.py'),
        ('numpy.own', 'numpy/own.py'),
        ('six.own', 'own.py'),
        ('loose', 'loose.py'),
        ('nowhere', 'other.py'),
        ('__main__', 'other.py'),
    ],
)
def test_files_in_the_working_folder_are_not_installed(module, path, gift, tmp_path, monkeypatch):
    """Not under the names of installed modules either, nor with what looks like a distribution."""
    monkeypatch.delitem(sys.modules, 'yaml', raising=False)
    (tmp_path / 'loose-1.dist-info').mkdir()
    (tmp_path / 'loose-1.dist-info' / 'top_level.txt').write_text('loose\n')
    write_module(tmp_path / path, tmp_path / 'mark')
    before = set(sys.modules)
    assert not installed.may_import(module)
    assert set(sys.modules) == before and not (tmp_path / 'mark').exists()


def test_a_working_folder_called_site_packages_is_none(tmp_path, monkeypatch):
    folder = tmp_path / 'site-packages'
    write_module(folder / 'loose.py', tmp_path / 'mark')
    monkeypatch.syspath_prepend(folder)
    assert installed.may_import('loose')  # As the folder of another environment is.
    monkeypatch.chdir(folder)
    assert not installed.may_import('loose')


def test_an_editable_install_is_one_of_its_top_level_modules(gift, tmp_path, monkeypatch):
    packages = tmp_path / 'env' / 'site-packages'
    monkeypatch.syspath_prepend(packages)
    record = packages / 'mine-1.dist-info'
    record.mkdir(parents=True)
    (record / 'METADATA').write_text('Name: mine\nVersion: 1\n')
    (record / 'top_level.txt').write_text('mine\n')
    origin = {'dir_info': {'editable': True}, 'url': tmp_path.as_uri()}
    (record / 'direct_url.json').write_text(json.dumps(origin))
    write_module(tmp_path / 'mine.py', tmp_path / 'mark')
    assert installed.may_import('mine')
    assert not installed.may_import('runs.gift.payload')
    (record / 'direct_url.json').write_text(json.dumps({**origin, 'dir_info': {}}))
    assert not installed.may_import('mine')
