"""What the README shows works as it stands there."""

import csv
import re
import shlex
from pathlib import Path

import gin
import pytest

from ob2i_tf import config
from ob2i_tf.training import runner  # noqa: F401, which registers all parts
from tests.processes import start

README = (Path(__file__).resolve().parents[1] / 'README.md').read_text()
ABLATION = {  # The last folder of a command's --base_dir -> the row's own gin file.
    'ob2i': 'ob2i_atari.gin',
    'bootdqn_ucb': 'bootdqn_ucb_atari.gin',
    'bebu': 'bebu_atari.gin',
    'bootdqn': 'bootdqn_atari.gin',
    'bebu_rnd': 'bebu_rnd_atari.gin',
}
SHORT = {
    'Runner.num_iterations': 2,
    'Runner.training_steps': 80,
    'Runner.evaluation_steps': 20,
    'make_atari.max_episode_frames': 24,
    'MultiHeadQNetwork.hidden_units': 8,
    'MultiHeadQNetwork.conv_layers': '((4, 8, 8),)',
    'EpisodeReplay.capacity_transitions': 200,
    'Agent.learning_starts': 40,
}


@pytest.fixture
def clean_gin():
    gin.clear_config()
    yield
    gin.clear_config()


def code_blocks(language, text=README):
    blocks = re.findall(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S)
    return [text for name, text in blocks if name == language]


def commands():
    """The arguments of every command line that runs an experiment."""
    blocks = ''.join(code_blocks('')).replace('\\\n', ' ')
    inline = re.findall(r'`(python run_experiment.py [^`]*)`', README)
    lines = [line for line in [*blocks.splitlines(), *inline] if 'run_experiment.py' in line]
    return [shlex.split(line)[2:] for line in lines]


def bound_by(arguments):
    """gin files and bindings of a command line."""
    flags = [argument.partition('=')[::2] for argument in arguments]
    return [[value for flag, value in flags if flag == f'--gin_{n}'] for n in ('files', 'bindings')]


def test_every_gin_file_has_its_command():
    named = {file for arguments in commands() for file in bound_by(arguments)[0]}
    smaller_or_released = {'ob2i_atari_small.gin', 'ob2i_atari_released.gin'}
    assert named - {'softmax.gin'} == set(config.available()) - smaller_or_released
    assert all(f'`{file}`' in README for file in smaller_or_released)


def test_the_ablation_is_one_command_with_other_bindings(clean_gin):
    seen = {}
    for arguments in commands():
        (base_dir,) = [a for a in arguments if 'base_dir' in a] or ['']
        if 'runs/ablation/' in base_dir:
            files, bindings = bound_by(arguments)
            assert files == ['ob2i_atari.gin']
            config.load(files, bindings)
            seen[base_dir.rpartition('/')[2]] = config.resolved_config()
    assert set(seen) == set(ABLATION)
    for name, file in ABLATION.items():
        config.load([file])
        assert seen[name] == config.resolved_config()


def train(folder, name, module, file, settings=SHORT):
    """Trains `name`.gin, which is `file`, with `name`.py, which is `module`; returns config.gin."""
    (folder / f'{name}.py').write_text(module)
    (folder / f'{name}.gin').write_text(file)
    process = start(
        [
            'run_experiment.py',
            f'--gin_files={name}.gin',
            f'--base_dir={folder}/run',
            *(f'--gin_bindings={binding} = {value}' for binding, value in settings.items()),
        ],
        output=folder / 'stderr',
        cwd=folder,
    )
    process.join(timeout=120)
    assert process.exitcode == 0, (folder / 'stderr').read_text()[-2000:]
    with open(folder / 'run' / 'train.csv', newline='') as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 2 and all(float(row['loss']) > 0 for row in rows)
    return (folder / 'run' / 'config.gin').read_text()


def test_the_exploration_method_of_ones_own_trains(tmp_path):
    (module,), (file,) = code_blocks('python'), code_blocks('gin')
    saved = train(tmp_path, 'softmax', module, file)
    assert 'import softmax' in saved
    assert 'Agent.preferences = @softmax_preferences' in saved


MYOPIC = """
import gin
import numpy as np
from ob2i_tf import posteriors, types, updates


@gin.configurable(denylist=['xla'])
class MyUpdate(updates.Update):
    def __init__(self, *parts, xla, scale: float = 1.0):
        super().__init__(*parts, xla=xla)
        self._scale = scale

    def next_batch(self):
        rows = self.replay.sample_transitions(8)
        shape = len(rows.actions), self.network.num_heads
        targets = np.broadcast_to(self._scale * rows.rewards[:, None] + 1, shape)
        ones = np.ones(shape, np.float32)
        return types.Batch(rows.observations, rows.actions, targets, ones[:, 0], ones), {}


@gin.configurable(denylist=['seed'])
class MyPosterior(posteriors.Posterior):
    def sample(self, observations, seed):
        return -self.mean(observations)
"""


def test_an_update_and_a_posterior_of_ones_own_train(tmp_path):
    file = """import myopic
include 'bebu_atari.gin'
Runner.update = @MyUpdate
MyUpdate.scale = 0.5
Runner.posterior = @MyPosterior
"""
    saved = train(tmp_path, 'myopic', MYOPIC, file)
    assert 'MyUpdate.scale = 0.5' in saved and 'Runner.posterior = @MyPosterior' in saved
