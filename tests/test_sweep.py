"""Sweeps: what their trials are, and that they run what is missing."""

import csv
import json
import os
import shlex
import signal
import threading
import time

import psutil
import pytest

from ob2i_tf import sweep
from ob2i_tf.errors import ConfigError

ray = pytest.importorskip('ray')

TINY = (
    'Runner.num_iterations = 2', 'Runner.training_steps = 20', 'horizon = 10',
    'EpisodeReplay.capacity_transitions = 100',
)  # fmt: skip
FILE = 'lsvi_epsilon_linear_mdp.gin'


def test_trials_are_all_combinations_each_in_its_folder(tmp_path):
    made = sweep.trials(
        ['ob2i_atari.gin', 'bebu_atari.gin'], tmp_path,
        [('linear.final', ['0.1', '0.0']), ('Agent.train_period', ['4', '8'])],
        ['Q*Bert'], 3, ['Runner.num_envs = 2'],
    )  # fmt: skip
    assert len(made) == len({trial.base_dir for trial in made}) == 2 * 2 * 2 * 3
    assert str(made[0].base_dir.relative_to(tmp_path)) == (
        'ob2i_atari/final=0.1/train_period=4/Q_Bert/seed0'
    )
    assert made[-1].bindings == (
        'Runner.num_envs = 2', 'linear.final = 0.0', 'Agent.train_period = 8',
        "make_environment.name = 'Q*Bert'", 'Runner.seed = 2',
    )  # fmt: skip
    sweep.check(made)


@pytest.mark.parametrize('text', ['Agent.train_period', '= 1', 'a = 1,, 2', 'a ='])
def test_a_grid_that_is_none_is_named(text):
    with pytest.raises(ConfigError, match=f'--grid={text!r}'):
        sweep.parse_grid(text)
    assert sweep.parse_grid('a.b = 1, 2') == ('a.b', ['1', '2'])


def test_a_wrong_configuration_stops_before_anything_runs(tmp_path, capsys):
    status = sweep.main(
        [f'--gin_files={FILE}', f'--base_dir={tmp_path}', '--grid=Agent.trainperiod = 1, 2']
    )
    assert status == 2
    assert 'trainperiod' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_print_gives_a_command_for_each_trial(tmp_path, capsys):
    sweep.main([f'--gin_files={FILE}', f'--base_dir={tmp_path}', '--seeds=2', '--print'])
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line)[-1] for line in lines] == [
        f'--base_dir={tmp_path}/lsvi_epsilon_linear_mdp/seed{seed}' for seed in range(2)
    ]


@pytest.fixture(scope='module')
def on_ray():
    yield
    ray.shutdown()


def run(made, retries=1):
    """(trials that are not complete, what was reported of each)."""
    reports = {}

    def report(trial, status, lines):
        reports[trial.base_dir.name] = status, lines

    return sweep.Sweep(processes=2, cpus=1, retries=retries).run(made, report), reports


def starts(trial):
    return trial.log.read_text().count('Starting in')


def resumes(trial):
    return trial.log.read_text().count('Resuming in')


def test_a_sweep_runs_what_is_missing_and_names_what_fails(tmp_path, on_ray):
    made = sweep.trials([FILE], tmp_path, seeds=2, bindings=TINY)
    broken = made[1].base_dir
    broken.mkdir(parents=True)
    (broken / 'train.csv').write_text('rows\n' * 5)  # Without a checkpoint: a run refuses.
    missing, reports = run(made)
    assert missing == [made[1]]
    assert reports['seed0'] == (0, [])
    status, lines = reports['seed1']
    assert status == 1 and lines[-1].startswith('error: ') and 'no checkpoint' in lines[-1]
    log = made[1].log.read_text()
    assert sum(line.startswith('error: ') for line in log.splitlines()) == 2  # Tried again once.
    with open(made[0].base_dir / 'train.csv', newline='') as file:
        assert len(list(csv.DictReader(file))) == 2
    missing, reports = run(made, retries=0)
    assert missing == [made[1]] and list(reports) == ['seed1']  # The other is not run again.
    assert starts(made[0]) == 1


def test_a_trial_whose_worker_dies_goes_on_from_its_checkpoint(tmp_path, on_ray):
    """The worker is the parent of the trial's process; another one takes the trial over."""
    (trial,) = sweep.trials([FILE], tmp_path, bindings=(*TINY[1:], 'Runner.num_iterations = 60'))

    def kill_worker():
        while trial.iterations()[0] < 2:
            time.sleep(0.02)
        with open(trial.base_dir / 'environment.json') as file:
            first.append(json.load(file)['started'])
        for process in psutil.process_iter(['cmdline']):
            if f'--base_dir={trial.base_dir}' in (process.info['cmdline'] or []):
                os.kill(process.ppid(), signal.SIGKILL)

    first = []
    killer = threading.Thread(target=kill_worker)
    killer.start()
    missing, reports = run([trial])
    killer.join()
    assert not missing and reports == {'seed0': (0, [])}
    assert (starts(trial), resumes(trial)) == (1, 1)
    assert 'Saved after SIGTERM' in trial.log.read_text()
    assert trial.iterations() == (60, 60)
    with open(trial.base_dir / 'environment.json') as file:
        assert [earlier['started'] for earlier in json.load(file)['earlier']] == first
