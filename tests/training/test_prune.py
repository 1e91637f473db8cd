"""Freeing the replay of complete runs; the run is the stored one of tests/data."""

import contextlib
import shutil

import pytest

from ob2i_tf import evaluate
from ob2i_tf.training import disk, main, prune
from ob2i_tf.training.run_folder import RunFolder
from tests.training.test_compatibility import STORED

pytestmark = pytest.mark.usefixtures('clean_gin')


@pytest.fixture
def copy(tmp_path):
    return RunFolder(shutil.copytree(STORED, tmp_path / 'run'))


def files(folder):
    return {p.relative_to(folder.path): p.read_bytes() for p in folder.path.rglob('*.*')}


def test_without_the_flag_nothing_is_deleted(copy, capsys):
    before = files(copy)
    (episodes,) = copy.replay.iterdir()
    size = episodes.stat().st_size
    assert prune.main([str(copy.path.parent)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f'{copy}: {size:,} bytes',
        f'{size:,} bytes to be freed with --delete',
    ]
    assert files(copy) == before


def test_a_pruned_run_can_be_evaluated_but_not_continued(copy, tmp_path, capsys):
    (episodes,) = copy.replay.iterdir()
    size = episodes.stat().st_size
    assert prune.main([str(copy), '--delete']) == 0
    assert f'{size:,} bytes freed' in capsys.readouterr().out
    assert [path.name for path in copy.replay.iterdir()] == ['freed.txt']
    assert prune.main([str(copy), '--delete']) == 0
    assert capsys.readouterr().out.endswith('\n0 bytes freed\n')
    assert evaluate.main([str(copy), '--games=1', f'--out={tmp_path}/games.csv']) == 0
    before = files(copy)
    more = '--gin_bindings=Runner.num_iterations = 2'
    assert main.main(['run', f'--gin_files={copy.config}', more, f'--base_dir={copy}']) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f'error: {copy} cannot be continued: its replay was freed by ')
    assert files(copy) == before


def _damaged(copy):
    next(copy.newest_checkpoint().glob('variables.data*')).write_bytes(b'')


def _more_iterations(copy):
    text = copy.read_config().replace('num_iterations = 1', 'num_iterations = 2')
    copy.config.write_text(text)


def _linked(copy):
    shutil.move(copy.replay, copy.path.parent / 'elsewhere')
    copy.replay.symlink_to(copy.path.parent / 'elsewhere')


@pytest.mark.parametrize(
    'change, reason',
    [(_damaged, 'is damaged'), (_more_iterations, 'not complete'), (_linked, 'is a symbolic link')],
)
def test_other_runs_are_kept(copy, capsys, change, reason):
    change(copy)
    before = files(copy)
    assert prune.main([str(copy), '--delete']) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f'{copy}: kept, ') and reason in first and last == '0 bytes freed'
    assert files(copy) == before and list(copy.replay.glob('*.npz'))


def test_a_run_in_progress_is_kept(copy, capsys):
    with contextlib.closing(disk.Lock(copy.path)):
        assert prune.main([str(copy), '--delete']) == 0
    assert 'another process is running' in capsys.readouterr().out
    assert list(copy.replay.glob('*.npz'))
