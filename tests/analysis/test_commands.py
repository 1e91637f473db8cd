"""The analysis commands where the packages of their extra are not installed."""

import subprocess
import sys

import pytest

WITHOUT = """
import runpy, sys
sys.modules[{package!r}] = None  # As if it were not installed.
sys.argv = ['command', *{arguments}]
runpy.run_module({module!r}, run_name='__main__')
"""


@pytest.mark.parametrize(
    'module, package, arguments',
    [
        ('ob2i_tf.analysis', 'pandas', ['runs']),
        ('experiments.mnist_maze', 'pandas', ['runs']),
        ('experiments.regret', 'pandas', ['runs']),
        ('experiments.theorem_1', 'matplotlib', []),
        ('experiments.figure_1', 'matplotlib', []),
    ],
)
def test_a_missing_extra_is_one_line_that_says_how_to_install_it(
    module, package, arguments, tmp_path
):
    code = WITHOUT.format(
        package=package,
        arguments=[*arguments, '--out', str(tmp_path / 'out')],
        module=module,
    )
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stdout == ''
    assert ended.stderr.splitlines()[-1] == (
        f"error: {package} is missing: pip install -c constraints.txt -e '.[analysis]'"
    )
    assert 'Traceback' not in ended.stderr
    assert not (tmp_path / 'out').exists()
