"""The examples in CONTRIBUTING.md work exactly as printed."""

import pytest

from tests.markdown import SHORT, code_blocks, read, train

TEXT = read('CONTRIBUTING.md')


@pytest.mark.parametrize('with_update', [False, True])  # An update takes the place of its bonus.
def test_the_parts_of_ones_own_train(with_update, tmp_path):
    blocks = code_blocks('gin', TEXT)
    (update,) = (block for block in blocks if block.startswith('Runner.update'))
    (bonus,) = (block for block in blocks if block.startswith('UcbBonus'))
    blocks.remove(bonus if with_update else update)
    module = '\n'.join(code_blocks('python', TEXT))
    saved = train(tmp_path, 'mine', module, '\n'.join(blocks), SHORT)
    lines = [line for block in blocks for line in block.splitlines() if ' = ' in line]
    assert all(line in saved for line in lines)
