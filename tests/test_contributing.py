"""The examples in CONTRIBUTING.md work exactly as printed."""

import itertools

import pytest

from tests.markdown import SHORT, code_blocks, read, train

TEXT = read('CONTRIBUTING.md')


# Blocks of which a run can have only one of each row; each is left out of some of the runs.
ALTERNATIVES = (
    ('UcbBonus.statistic', 'Runner.network = @BoundedQNetwork'),
    ('EpisodicUpdate.bonus', 'Runner.network = @TwoLayerQNetwork'),
    ('Runner.update', 'Runner.network = @BoundedQNetwork'),
)


@pytest.mark.parametrize('chosen', ALTERNATIVES, ids=lambda chosen: chosen[0])
def test_the_parts_of_ones_own_train(chosen, tmp_path):
    starts = sorted(set(itertools.chain(*ALTERNATIVES)))
    blocks = code_blocks('gin', TEXT)
    for start in starts:
        (block,) = (block for block in blocks if block.startswith(start))
        if start not in chosen:
            blocks.remove(block)
    module = '\n'.join(code_blocks('python', TEXT))
    saved = train(tmp_path, 'mine', module, '\n'.join(blocks), SHORT)
    lines = [line for block in blocks for line in block.splitlines() if ' = ' in line]
    assert all(line in saved for line in lines)
