"""A run of version 1.0 is loaded and resumed by every later version 1.x."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from ob2i_tf.training import main
from ob2i_tf.training.restore import restore
from ob2i_tf.training.run_folder import RunFolder

# OB2I on Deep Sea of size 4: 3 heads of 4 hidden units, 60 agent steps.
STORED = Path(__file__).resolve().parents[1] / 'data' / 'run_1.0'


@pytest.fixture
def copy(tmp_path):
    return RunFolder(shutil.copytree(STORED, tmp_path / 'run'))


def test_a_stored_agent_has_the_values_of_then(copy):
    agent = restore(copy.path)
    assert agent.agent_steps == 60
    surface = np.zeros((1, 4, 4), np.uint8)
    surface[0, 0, 0] = 255
    np.testing.assert_allclose(
        agent.posterior.mean(surface),
        [[[-0.089598, -0.621580], [-0.807528, 0.128006], [0.756191, 0.980286]]],
        atol=1e-5,
    )


def test_a_stored_run_resumes(copy):
    first = (STORED / 'train.csv').read_text()
    status = main.main(
        [
            'run_experiment.py',
            f'--gin_files={copy.config}',
            '--gin_bindings=Runner.num_iterations = 2',
            f'--base_dir={copy}',
        ]
    )
    assert status == 0
    assert copy.table('train').read_text().startswith(first)
    assert [row['agent_steps'] for row in copy.rows('train')] == ['60', '120']
    assert {path.name for path in copy.checkpoints.iterdir()} == {'000000000060', '000000000120'}
    assert len(copy.rows('episodes')) == 30
