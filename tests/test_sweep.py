"""Sweeps: what their trials are, and that they run what is missing."""

import csv
import shlex

import pytest

from ob2i_tf import sweep
from ob2i_tf.errors import ConfigError

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


def test_a_sweep_runs_what_is_missing_and_names_what_fails(tmp_path):
    made = sweep.trials([FILE], tmp_path, seeds=2, bindings=TINY)
    broken = made[1].base_dir
    broken.mkdir(parents=True)
    (broken / 'train.csv').write_text('rows\n' * 5)  # Without a checkpoint: a run refuses.
    ends = []
    missing = sweep.Sweep(2, retries=1).run(made, lambda *end: ends.append(end))
    assert missing == [made[1]]
    assert sorted((trial.base_dir.name, status) for trial, status, _ in ends) == [
        ('seed0', 0), ('seed1', 1)
    ]  # fmt: skip
    (line,) = [line for trial, _, line in ends if trial is made[1]]
    assert line.startswith('error: ') and 'no checkpoint' in line
    log = broken.with_name('seed1.log').read_text()
    assert sum(line.startswith('error: ') for line in log.splitlines()) == 2  # Tried again once.
    with open(made[0].base_dir / 'train.csv', newline='') as file:
        assert len(list(csv.DictReader(file))) == 2

    (broken / 'train.csv').unlink()
    before = (made[0].base_dir / 'environment.json').stat().st_mtime_ns
    assert not sweep.Sweep(2, retries=0).run(made, lambda *end: None)
    assert (made[0].base_dir / 'environment.json').stat().st_mtime_ns == before  # Not run again.
