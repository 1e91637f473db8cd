"""Linear MDPs as environments: features in their blocks, transitions and rewards as specified."""

import collections

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ob2i_tf import environments
from ob2i_tf.environments.linear_mdp import LinearMdp, draw_mdp


def test_gymnasium_finds_nothing_to_object_to(recwarn):
    check_env(LinearMdp(draw_mdp('river_swim', 6, 2, 5, 5, 0)), skip_render_check=True)
    assert not recwarn.list


def test_features_stand_in_the_block_of_the_step():
    env = environments.make(
        'LinearMDP', kind='linear', num_states=3, num_actions=2, horizon=4, num_features=5
    )
    mdp = draw_mdp('linear', 3, 2, 4, 5, mdp_seed=0)
    observation = env.reset()[0][0]
    for step in range(4):
        assert observation.shape == (2, 20)
        blocks = observation.reshape(2, 4, 5)
        assert any(np.allclose(blocks[:, step], phi) for phi in mdp.features)
        assert not np.delete(blocks, step, axis=1).any()
        _, _, terminated, _, info = env.step(np.array([0]))
        assert terminated[0] == (step == 3)
        observation = info['final_obs'][0]
    assert not observation.any()


def test_transitions_and_rewards_have_their_probabilities():
    mdp = draw_mdp('tabular', 3, 2, 50, 5, mdp_seed=1)
    env = LinearMdp(mdp)
    env.reset(seed=0)
    seen, paid, count = collections.Counter(), collections.Counter(), collections.Counter()
    rng = np.random.default_rng(0)
    for _ in range(6000):
        pair = env._state, int(rng.integers(2))
        _, reward, terminated, *_ = env.step(pair[1])
        seen[(*pair, env._state)] += 1
        paid[pair] += reward
        count[pair] += 1
        if terminated:
            env.reset()
    for pair, n in count.items():
        if n > 300:
            for state in range(3):
                share = seen[(*pair, state)] / n
                assert abs(share - mdp.transitions[(*pair, state)]) < 4 * np.sqrt(0.25 / n)
            assert abs(paid[pair] / n - mdp.rewards[pair]) < 4 * np.sqrt(0.25 / n)
    assert sum(n > 300 for n in count.values()) >= 3


def test_river_swim_is_the_known_one():
    mdp = draw_mdp('river_swim', 6, 2, 20, 5, 0)
    np.testing.assert_allclose(mdp.transitions[0, 1], [0.4, 0.6, 0, 0, 0, 0])
    np.testing.assert_allclose(mdp.transitions[3, 1], [0, 0, 0.05, 0.6, 0.35, 0])
    np.testing.assert_allclose(mdp.transitions[5, 1], [0, 0, 0, 0, 0.4, 0.6])
    np.testing.assert_allclose(mdp.transitions[2, 0], [0, 1, 0, 0, 0, 0])
    assert (mdp.rewards[0, 0], mdp.rewards[5, 1], mdp.rewards.sum()) == (0.005, 1.0, 1.005)
    with pytest.raises(ValueError, match='river_swim has 2 actions'):
        draw_mdp('river_swim', 6, 3, 20, 5, 0)


def test_neighbouring_seeds_share_nothing_when_they_are_given_to_reset_either():
    played = []
    for seed in (0, 1):
        env = environments.make('LinearMDP', 2, kind='tabular', horizon=50)
        env.reset(seed=seed)
        steps = [env.step(np.zeros(2, int))[0].copy() for _ in range(40)]
        played += list(np.stack(steps, axis=1))
        env.reset(seed=seed)
        np.testing.assert_array_equal(env.step(np.zeros(2, int))[0], steps[0])
    for i, one in enumerate(played):
        assert not any((one == other).all() for other in played[:i])


@pytest.mark.parametrize(
    'keywords',
    [
        {'horizon': 0},
        {'num_states': 0},
        {'num_features': 0},
        {'mdp_seed': -1},
    ],
)
def test_numbers_that_are_too_small_are_named(keywords):
    ((name, value),) = keywords.items()
    with pytest.raises(ValueError, match=f'make_linear_mdp.{name} must be .* got {value}'):
        environments.make('LinearMDP', **keywords)
