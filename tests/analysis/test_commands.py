"""The analysis commands where the packages of their extra are not installed."""

import subprocess
import sys

import pytest

WITHOUT = """
import runpy, sys
sys.modules[{package!r}] = None  # As if it were not installed.
sys.argv = ['command', 'runs', '--out', {out!r}]
runpy.run_module({module!r}, run_name='__main__')
"""


@pytest.mark.parametrize('module', ['__main__', 'mazes', 'regret'])
def test_a_missing_extra_is_one_line_that_says_how_to_install_it(module, tmp_path):
    code = WITHOUT.format(
        package='pandas', out=str(tmp_path / 'out'), module=f'ob2i_tf.analysis.{module}'
    )
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stdout == ''
    assert ended.stderr == (
        "error: pandas is missing: pip install -c constraints.txt -e '.[analysis]'\n"
    )
    assert not (tmp_path / 'out').exists()
