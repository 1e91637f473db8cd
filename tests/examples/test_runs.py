"""Each example trains from its folder, resumes byte for byte, and is a small file."""

import csv
import signal
from pathlib import Path

import pytest

from ob2i_tf.analysis import load
from tests.processes import start

EXAMPLES = Path(__file__).resolve().parents[2] / 'examples'
TABLES = ('train', 'eval', 'episodes', 'eval_episodes', 'bonus')
SHORT = {
    'Runner.num_iterations': 2,
    'Runner.training_steps': 120,
    'MultiHeadQNetwork.hidden_units': 8,
    'batch_size': 32,
    'Agent.learning_starts': 40,
    'Agent.train_period': 2,
    'Agent.target_period': 40,
    'EpisodeReplay.capacity_transitions': 100,
}
CARTPOLE = {**SHORT, 'Runner.evaluation_steps': 160}
SETTINGS = {
    'cartpole': CARTPOLE,
    'prioritized_episodes': SHORT,
    'quantile_heads': {**SHORT, 'quantiles': 3},
    'vector_cartpole': CARTPOLE,
}
REPORTED_AS = {  # Method and task.
    'cartpole': ('OB2I', 'CartPole-v1'),
    'prioritized_episodes': ('OB2I-prioritised', 'DeepSea 10'),
    'quantile_heads': ('OB2I-QR', 'DeepSea 10'),
    'vector_cartpole': ('OB2I', 'make_vector_cartpole'),
}


def train(example, base_dir, status=0, stop_at=None, settings=None):
    """Runs an example's command in its folder; returns its output."""
    output = Path(f'{base_dir}.stderr')
    settings = SETTINGS[example] if settings is None else settings
    argv = [
        '../../run_experiment.py',
        f'--gin_files={example}.gin',
        f'--base_dir={base_dir}',
        *(f'--gin_bindings={name} = {value}' for name, value in settings.items()),
    ]
    process = start(argv, output, cwd=EXAMPLES / example, stop_at=stop_at)
    process.join(timeout=300)
    process.kill()
    assert process.exitcode == status, output.read_text()[-3000:]
    return output.read_text()


def rows(base_dir):
    """The lines of all tables; of train.csv without the last column, which is a speed."""
    tables = {name: (base_dir / f'{name}.csv').read_text().splitlines() for name in TABLES}
    tables['train'] = [line.rpartition(',')[0] for line in tables['train']]
    return tables


def test_these_are_all_examples():
    names = {path.name for path in EXAMPLES.iterdir() if path.is_dir()} - {'__pycache__'}
    assert names == set(SETTINGS)
    assert all(
        f'[{name}]({name}/README.md)' in (EXAMPLES / 'README.md').read_text() for name in names
    )


@pytest.mark.parametrize('example', SETTINGS)
def test_stopped_in_the_middle_and_resumed(example, tmp_path):
    straight, resumed = tmp_path / 'straight', tmp_path / 'resumed'
    train(example, straight)
    assert int(rows(straight)['train'][-1].split(',')[3]) > 80  # Learner steps.
    assert 'Starting' in train(example, resumed, 128 + signal.SIGTERM, stop_at=160)
    assert 'Resuming' in train(example, resumed)
    assert rows(resumed) == rows(straight)
    (run,) = load.load([straight]).runs
    assert (run.method, run.game) == REPORTED_AS[example]


def test_cartpole_learns(tmp_path):
    """Random actions score about 20."""
    settings = {'Runner.num_iterations': 3, 'Runner.evaluation_steps': 1500}
    train('cartpole', tmp_path / 'run', settings=settings)
    with open(tmp_path / 'run' / 'eval.csv', newline='') as file:
        assert float(list(csv.DictReader(file))[-1]['score_mean']) > 100


@pytest.mark.parametrize('example', SETTINGS)
def test_each_file_has_fewer_than_150_lines(example):
    files = [path for path in (EXAMPLES / example).iterdir() if path.is_file()]
    assert {f'{example}.gin', 'README.md'} <= {path.name for path in files}
    assert all(len(path.read_text().splitlines()) < 150 for path in files)
