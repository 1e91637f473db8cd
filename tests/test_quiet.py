"""No command prints what TensorFlow says when it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.test_compatibility import STORED

ROOT = Path(__file__).resolve().parents[1]
SMALL = '--gin_files=lsvi_epsilon_linear_mdp.gin'


def stderr(*command):
    """What `python command` prints to stderr."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stderr.decode()


@pytest.mark.parametrize(
    'command',
    [
        ('ob2i_tf.evaluate', STORED, '--games=1', '--out={folder}/games.csv'),
        ('ob2i_tf.analysis.episode', STORED, '--out={folder}'),
        ('ob2i_tf.analysis', STORED, '--out={folder}'),
        ('ob2i_tf.sweep', SMALL, '--base_dir={folder}', '--print'),
        ('campaigns.fuzz', '--count=1'),
    ],
    ids=lambda command: command[0],
)
def test_a_command_prints_no_lines_of_tensorflow(command, tmp_path):
    module, *arguments = (str(each).format(folder=tmp_path) for each in command)
    assert stderr('-m', module, *arguments) == ''


@pytest.mark.parametrize(
    'modules', ['benchmarks.__main__', 'benchmarks.checkpoints, benchmarks.export_hlo']
)
def test_a_benchmark_starts_silently(modules):
    assert stderr('-c', f'import {modules}, tensorflow as tf; tf.zeros(3) + 1') == ''


def test_an_experiment_starts_silently():
    assert stderr('-m', 'experiments.figure_1', '--help') == ''


def test_training_says_only_what_the_run_says(tmp_path):
    bindings = ('Runner.num_iterations = 1', 'Runner.training_steps = 20', 'horizon = 10')
    flags = (f'--gin_bindings={binding}' for binding in bindings)
    printed = stderr('-m', 'ob2i_tf.training.main', SMALL, f'--base_dir={tmp_path}/run', *flags)
    assert 'Starting in' in printed
    assert not any(noise in printed for noise in ('oneDNN', 'cuInit', 'absl::', 'rebuild'))
    assert 'Nothing will be learned' not in printed  # Its regressions need no learner step.
