"""bsuite's exploration experiments: the environments are bsuite's, and tables follow from runs."""

import csv
import functools
from pathlib import Path

import bsuite
import numpy as np
import pytest
from gymnasium.utils import seeding

from experiments.bsuite import __main__ as study
from experiments.bsuite import environments, recorded
from experiments.bsuite import run as one_run
from experiments.deep_sea import __main__ as deep_sea
from ob2i_tf import environments as of_package
from ob2i_tf.training import main

HERE = Path(study.__file__).parent


@pytest.mark.parametrize('bsuite_id', study.EXPERIMENTS)
def test_rewards_ends_and_observations_are_those_of_bsuite(bsuite_id):
    env = environments.BsuiteEnv(functools.partial(recorded.make, bsuite_id))
    theirs = bsuite.load_from_id(bsuite_id)
    theirs._rng.seed(int(seeding.np_random(5)[0].integers(2**31)))
    assert env.action_space.n == theirs.action_spec().num_values
    rng, rewarded = np.random.default_rng(0), 0
    observation, _ = env.reset(seed=5)
    for episode in range(20):
        their_step, steps, over = theirs.reset(), 0, False
        while not over:
            np.testing.assert_array_equal(observation, their_step.observation)
            assert env.observation_space.contains(observation)
            action = 1 if episode == 0 else int(rng.integers(env.action_space.n))
            observation, reward, over, truncated, _ = env.step(action)
            their_step, steps = theirs.step(action), steps + 1
            assert (reward, over, truncated) == (their_step.reward, their_step.last(), False)
            rewarded += reward != 0
        assert steps <= one_run.LONGEST and their_step.discount == 0
        observation, _ = env.reset()
    assert rewarded > 20


def test_ids_are_names_of_environments_with_seeds():
    def starts(seed):
        return of_package.make('cartpole_swingup/10', num_envs=2, seed=seed).reset()[0]

    np.testing.assert_array_equal(starts(1), starts(1))
    first, second = starts(1)
    assert first.shape == (1, 8) and (first != second).any() and (starts(1) != starts(2)).any()


def test_the_noise_of_the_sea_is_no_treasure():
    """Going right reaches it with probability (1 - 1/N)^(N - 1), 0.387 for 10; left, never."""
    episodes = []
    env = recorded.Recorded(
        recorded.make('deep_sea_stochastic/0', 0), episodes, lambda rows: len(rows) == 2000
    )
    sea = env._env
    with pytest.raises(recorded.Over):
        while True:
            step = env.reset()
            while not step.last():
                right = int(sea._action_mapping[sea._row, sea._column])
                step = env.step(right if len(episodes) % 2 == 0 else 1 - right)
    assert {episode.agent_steps for episode in episodes} == {10}
    found = np.array([episode.found for episode in episodes])
    scores = np.array([episode.score for episode in episodes])
    assert set(found[::2]) == {0, 1} and found[::2].mean() == pytest.approx(0.9**9, abs=0.05)
    assert scores[found == 1].mean() == pytest.approx(0.99, abs=0.2)
    assert not found[1::2].any() and (scores[1::2] > deep_sea.FOUND).mean() > 0.2


def test_found_counts_the_upright_steps_of_each_episode():
    episodes = []
    env = recorded.Recorded(recorded.make('cartpole_swingup/0', 0), episodes, lambda rows: False)
    for angle in (0.0, np.pi, 0.0):
        env.reset()
        env._env._state = env._env._state._replace(theta=angle, theta_dot=0.0)
        step = env.step(1)
        env._env._state = env._env._state._replace(x=9.0)
        assert not step.last() and env.step(1).last()
    assert [(episode.score, episode.found) for episode in episodes] == [(1, 1), (0, 0), (1, 1)]


def test_a_sea_is_solved_as_in_the_study_of_deep_sea():
    rng = np.random.default_rng(0)
    drawn = [(rng.random(200) < share) & (np.arange(200) > 50) for share in (0.05, 0.1, 0.2)]
    for found in (*drawn, np.arange(30) >= 27, np.arange(200) >= 180):  # A tenth is not enough.
        rows = [recorded.Episode(0.0, int(each), 10, 0.0) for each in found]
        at = next((n for n in range(1, len(found) + 1) if recorded.solved(rows[:n])), None)
        assert at == deep_sea.solved_at(found.astype(float))


def test_the_command_runs_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, 'SEA_EPISODES', 25)
    monkeypatch.setattr(study, 'SWINGUP_EPISODES', 2)
    runs, out = tmp_path / 'runs', tmp_path / 'out'
    ids = ['deep_sea_stochastic/0', 'cartpole_swingup/10']
    command = [f'--base_dir={runs}', f'--out={out}', '--seeds=1', '--methods', 'ob2i']
    command += ['--experiments', *ids]
    assert study.main(command) == 0
    rows = {row['experiment']: row for row in csv.DictReader(open(out / 'runs.csv'))}
    assert rows[ids[0]]['episodes'] == '25' and rows[ids[0]]['agent_steps'] == '250'
    assert rows[ids[0]]['solved'] == 'False' and rows[ids[1]]['episodes'] == '2'
    episodes = study.read(runs / ids[1] / 'ob2i' / 'seed0.csv')
    scores = [episode.score for episode in episodes]
    assert float(rows[ids[1]]['score_best']) == pytest.approx(max(scores), abs=1e-3)
    assert 0 < episodes[0].processor_seconds < episodes[1].processor_seconds
    (runs / ids[1] / 'ob2i' / 'seed0.csv').write_text(
        'score,found,agent_steps,processor_seconds\n1.0,6,7,8.0\n'
    )
    assert study.main(command) == 0  # Which it reads instead of running it again.
    kept = {row['experiment']: row for row in csv.DictReader(open(out / 'runs.csv'))}
    assert kept[ids[0]] == rows[ids[0]] and kept[ids[1]]['found'] == '6'
    assert '| OB2I | no |  |  |  | 1 (1) |' in capsys.readouterr().out


def test_the_swing_up_goes_over_each_method(clean_gin, capsys):
    for method in study.METHODS.keys() - {'bsuite'}:
        files = [f'{method}_deep_sea.gin', str(HERE / 'cartpole_swingup.gin')]
        main.train(files, base_dir='/nowhere', dry_run=True)
        assert "make_environment.name = 'cartpole_swingup/0'" in capsys.readouterr().out


def test_bsuites_method_needs_its_interpreter(tmp_path, capsys):
    with pytest.raises(SystemExit, match='2'):
        study.main([f'--out={tmp_path}', '--speed', '--peer_python=/nowhere/python'])
    assert '--peer_python' in capsys.readouterr().err


def test_the_table_of_the_readme_follows_from_the_runs():
    text = (HERE / 'README.md').read_text()
    if (HERE / 'runs.csv').exists():
        with open(HERE / 'runs.csv', newline='') as file:
            assert study.table(list(csv.DictReader(file))) in text
    else:
        assert '**Answer.** None yet' in text
    keys = ('experiment', 'method', 'seed', 'episodes', 'solved', 'score_mean', 'score_best')
    made = [
        ('deep_sea_stochastic/5', 'bsuite', '0', '1234', 'True', '0', '1'),
        ('deep_sea_stochastic/5', 'bsuite', '1', '2000', 'False', '0', '1'),
        ('cartpole_swingup/5', 'bsuite', '0', '200', '', '-12.4', '103.6'),
    ]
    rows = [dict(zip(keys, row), processor_seconds='1800') for row in made]
    last = study.table(rows).splitlines()[-1]
    assert last == "| bsuite's BootDQN |  | 1,234, no |  | -12 (104) |  | 1.5 |"
