"""The machine's memory, and what comes before TensorFlow."""

import os
import subprocess
import sys

import pytest

from ob2i_tf.errors import UserError
from ob2i_tf.training import system


@pytest.mark.parametrize(
    'groups, files, limit',
    [
        ('0::/job/step\n', {'job/memory.max': 3, 'job/step/memory.max': 5, 'memory.max': 9}, 3),
        ('0::/job/step\n', {'job/step/memory.max': 'max', 'other/memory.max': 2}, None),
        ('0::/\n', {'memory.max': 4}, 4),
        (None, {'memory.max': 4}, 4),
        (
            '3:cpu:/x\n4:hugetlb,memory:/job:1\n0::/\n',
            {'memory/job:1/memory.limit_in_bytes': 6, 'memory/x/memory.limit_in_bytes': 1},
            6,
        ),
    ],
)
def test_memory_is_the_least_limit_of_the_control_groups(tmp_path, groups, files, limit):
    if groups is not None:
        (tmp_path / 'cgroup').write_text(groups)
    for name, value in files.items():
        (tmp_path / 'root' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'root' / name).write_text(f'{value}\n')
    physical = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    found = system.memory_bytes(tmp_path / 'cgroup', tmp_path / 'root')
    assert found == (physical if limit is None else limit)


@pytest.mark.parametrize('installed, hidden', [(True, False), (True, True), (False, False)])
def test_a_gpu_that_tensorflow_cannot_use_is_reported(
    tmp_path, monkeypatch, caplog, installed, hidden
):
    monkeypatch.setattr(system, 'list_gpus', list)
    monkeypatch.setattr('glob.glob', lambda pattern: [])
    monkeypatch.setenv('PATH', str(tmp_path))
    if installed:
        (tmp_path / 'nvidia-smi').touch(mode=0o755)
    if hidden:
        monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    else:
        monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    system.report(require_gpu=False)
    (record,) = caplog.records
    with pytest.raises(UserError, match='sees no GPU') as error:
        system.report(require_gpu=True)
    for text in (record.getMessage(), str(error.value)):
        assert ("pip install -c constraints.txt -e '.[cuda]'" in text) == (installed and not hidden)


def test_freed_memory_can_be_kept_before_tensorflow_is_imported():
    code = (
        'import sys; from ob2i_tf.training import system; system.keep_freed_memory(); '
        'assert "tensorflow" not in sys.modules; system.list_gpus()'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
