"""Regret of made-up runs on a linear MDP, against sums step by step."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from experiments.regret import __main__ as regret
from ob2i_tf import replay, types
from ob2i_tf.analysis import load
from ob2i_tf.environments import linear_mdp
from ob2i_tf.errors import UserError
from ob2i_tf.training import checkpoints
from ob2i_tf.training.episode_files import EpisodeFiles

MDP = {
    'kind': 'linear',
    'num_states': 3,
    'num_actions': 2,
    'horizon': 4,
    'num_features': 5,
    'mdp_seed': 1,
}


def write_run(base, name, seed, actions, capacity=100_000):
    """A run that took `actions`, [episodes, at most 4 steps]; returns the states it was in."""
    mdp = linear_mdp.draw_mdp(*MDP.values())
    env = linear_mdp.LinearMdp(mdp)
    env.reset(seed=seed)
    shape = env.observation_space.shape
    stored = replay.EpisodeReplay(shape, capacity, observation_dtype=np.float32)
    folder = base / name / f'seed{seed}'
    files = EpisodeFiles(folder / 'replay', stored)
    visited = []
    for chosen in actions:
        observations, states = [env.reset()[0]], []
        for action in chosen:
            states.append(env._state)
            observations.append(env.step(action)[0])
        zeros = np.zeros(len(chosen))
        stored.add_episode(types.Episode(np.array(observations), np.array(chosen), zeros, zeros))
        visited.append(states)
        if len(visited) % 50 == 0:  # Several files.
            files.save()
    save(folder, 1, files.save())
    bindings = {f'make_linear_mdp.{key}': repr(value) for key, value in MDP.items()}
    bindings |= {
        'make_environment.name': "'LinearMDP'",
        'Runner.method': repr({'ucb': 'LSVI-UCB', 'greedy': 'epsilon-greedy LSVI'}.get(name, name)),
        'Runner.seed': seed,
        'Runner.posterior': '@LsviPosterior',
        'LsviPosterior.method': repr(name),
    }
    (folder / 'config.gin').write_text(''.join(f'{k} = {v}\n' for k, v in bindings.items()))
    for table in ('train', 'eval'):
        (folder / f'{table}.csv').write_text('iteration,frames\n')
    return visited


def save(folder, agent_steps, manifest):
    """Saves a checkpoint with only the content that is read."""
    checkpoints.Checkpoints(make(folder / 'checkpoints')).save(
        agent_steps,
        lambda aside: (aside / 'state.json').write_text(json.dumps({'replay': manifest})),
    )


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_regret_is_what_actions_cost_against_the_best(tmp_path):
    actions = [[0, 1, 1, 0], [1, 0], [1, 1, 1, 1], [0, 0, 0]]  # Some were cut short.
    visited = write_run(tmp_path, 'ucb', 0, actions)
    q_values = linear_mdp.draw_mdp(*MDP.values()).optimal_values()
    costs = [
        sum(max(q_values[h][s]) - q_values[h][s][a] for h, (s, a) in enumerate(zip(states, chosen)))
        for states, chosen in zip(visited, actions)
    ]
    (run,) = load.load([tmp_path]).runs
    np.testing.assert_allclose(regret.of_run(run), np.cumsum(costs))
    assert costs[0] > 0


def test_the_regret_of_a_policy_is_what_it_lacks_of_the_best_return(tmp_path):
    """Its expectation is V* - V^pi, here for the policy that always takes action 0."""
    write_run(tmp_path, 'ucb', 0, [[0, 0, 0, 0]] * 3000)
    mdp = linear_mdp.draw_mdp(*MDP.values())
    value = np.zeros(3)
    for _ in range(mdp.horizon):
        value = mdp.rewards[:, 0] + mdp.transitions[:, 0] @ value
    (run,) = load.load([tmp_path]).runs
    a_episode = np.diff(regret.of_run(run), prepend=0)
    error = a_episode.std() / np.sqrt(len(a_episode))
    best = mdp.optimal_values()[0, 0].max()
    assert a_episode.mean() == pytest.approx(best - value[0], abs=4 * error)
    assert error < 0.05 * a_episode.mean()


def test_a_replay_that_lacks_episodes_is_named(tmp_path):
    write_run(tmp_path, 'ucb', 0, [[0, 0, 0, 0]] * 30, capacity=40)
    (run,) = load.load([tmp_path]).runs
    with pytest.raises(UserError, match='no longer holds the first 20 episodes'):
        regret.of_run(run)
    (file,) = (run.path / 'replay').iterdir()
    state = run.path / 'checkpoints' / '000000000001' / 'state.json'
    save(run.path, 2, {**json.loads(state.read_text())['replay'], 'first_id': 0})
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match='cannot be read'):
        regret.of_run(run)


def test_the_newest_whole_checkpoint_counts(tmp_path):
    write_run(tmp_path, 'ucb', 0, [[0, 0, 0, 0]] * 30)
    (run,) = load.load([tmp_path]).runs
    checkpoints = run.path / 'checkpoints'
    shutil.copytree(checkpoints / '000000000001', checkpoints / 'damaged-000000000000')
    (checkpoints / 'damaged-000000000000' / 'state.json').write_text('{')
    shutil.copytree(checkpoints / '000000000001', checkpoints / '000000000002')
    (checkpoints / '000000000002' / 'state.json').write_text('{"replay": {}}')
    assert len(regret.of_run(run)) == 30
    shutil.rmtree(checkpoints / '000000000001')
    with pytest.raises(UserError, match='no checkpoint in .* can be restored'):
        regret.of_run(run)


def test_evaluations_are_missed_only_where_there_should_be_some(tmp_path):
    write_run(tmp_path, 'ucb', 0, [[0]])
    config = tmp_path / 'ucb' / 'seed0' / 'config.gin'
    assert any('eval.csv holds no row' in problem for problem in load.load([tmp_path]).problems)
    config.write_text(config.read_text() + 'Runner.evaluation_steps = 0\n')
    assert not any('eval.csv' in problem for problem in load.load([tmp_path]).problems)


def test_the_exponent_tells_learning_from_not_learning():
    episodes = np.arange(20, 2001, 20)
    columns = pd.MultiIndex.from_tuples(
        [('learns', '0'), ('learns', '1'), ('never', '0'), ('none', '0')], names=['method', 'seed']
    )
    table = pd.DataFrame(
        np.stack([3 * np.sqrt(episodes), 5 * episodes**0.2, 0.5 * episodes, 0 * episodes], axis=1),
        pd.Index(episodes, name='episode'),
        columns,
    )
    rows = regret.summary(table)
    assert rows.loc['learns', 'exponent'] == pytest.approx(0.35)
    assert rows.loc['learns', 'lowest_exponent'] == pytest.approx(0.2)
    assert rows.loc['learns', 'highest_exponent'] == pytest.approx(0.5)
    assert rows.loc['never', 'exponent'] == pytest.approx(1)
    assert rows.loc['never', 'regret'] == pytest.approx(1000)
    assert rows.loc['none', 'regret'] == 0 and np.isnan(rows.loc['none', 'exponent'])
    assert rows['seeds'].to_dict() == {'learns': 2, 'never': 1, 'none': 1}


def test_the_command_writes_its_files(tmp_path, capsys):
    for name in ('ucb', 'greedy'):
        for seed in (0, 1):
            write_run(tmp_path / 'runs', name, seed, [[seed] * 4] * 120)
    assert regret.main([str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 0
    names = {path.name for path in (tmp_path / 'out').iterdir()}
    figure = {f'regret.{form}' for form in ('png', 'svg', 'pdf')}
    assert names == {'regret.csv', 'summary.csv', *figure}
    long = pd.read_csv(tmp_path / 'out' / 'regret.csv')
    assert set(long['method']) == {'LSVI-UCB', 'epsilon-greedy LSVI'}
    assert long['episode'].max() == 120 and len(long) == 4 * regret.POINTS
    capsys.readouterr()
    write_run(tmp_path / 'empty', 'ucb', 0, [])
    assert regret.main([str(tmp_path / 'empty'), '--out', str(tmp_path / 'out')]) == 1
    assert 'has no episode' in capsys.readouterr().err


def test_a_run_that_cannot_be_read_is_left_out_and_a_short_one_named(tmp_path, capsys):
    for seed, episodes in ((0, 50), (1, 20), (2, 50)):
        write_run(tmp_path / 'runs', 'ucb', seed, [[0, 1]] * episodes)
    shutil.rmtree(tmp_path / 'runs' / 'ucb' / 'seed2' / 'checkpoints')
    assert regret.main([str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 0
    said = capsys.readouterr().err
    assert 'seed2: left out:' in said and 'holds no checkpoint' in said
    assert 'curves end at 20 episodes, all that seed 1 of LSVI-UCB has' in said
    long = pd.read_csv(tmp_path / 'out' / 'regret.csv')
    assert set(long['seed']) == {0, 1} and long['episode'].max() == 20
