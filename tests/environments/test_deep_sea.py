"""Deep Sea through `make`, by hand."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ob2i_tf import environments
from ob2i_tf.environments.deep_sea import DeepSea


def dive(env, right):
    """Plays an episode of the right actions, or of the others; returns frames and rewards."""
    frames, rewards = [env.reset()[0][0]], []
    inner = env.unwrapped.envs[0].unwrapped._env
    for _ in range(4):
        row, column = inner._row, inner._column
        action = int(inner._action_mapping[row, column]) ^ (not right)
        _, reward, terminated, truncated, info = env.step(np.array([action]))
        frames.append(info['final_obs'][0])
        rewards.append(float(reward[0]))
    assert terminated[0] and not truncated[0] and info['game_over'][0]
    return np.array(frames), rewards


def test_right_actions_reach_the_treasure_and_others_nothing():
    env = environments.make('deep_sea', size=4, mapping_seed=3)
    frames, rewards = dive(env, right=True)
    assert frames.dtype == np.uint8 and frames.shape == (5, 4, 4)
    for step in range(4):
        assert (np.argwhere(frames[step]) == [[step, step]]).all() and frames[step].max() == 255
    np.testing.assert_allclose(rewards, [-0.0025] * 3 + [0.9975], rtol=1e-5)
    frames, rewards = dive(env, right=False)
    assert all((np.argwhere(frames[step]) == [[step, 0]]).all() for step in range(4))
    np.testing.assert_array_equal(rewards, 0)


def test_gymnasium_finds_nothing_to_object_to(recwarn):
    check_env(DeepSea(5, mapping_seed=0, deterministic=True), skip_render_check=True)
    assert not recwarn.list


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match='make_deep_sea.size must be in 1..1000, got 0'):
        environments.make('DeepSea', size=0)


def test_its_seeds_and_its_noise():
    def rewards(seed, **keywords):
        env = environments.make('DeepSea', size=4, seed=seed, **keywords)
        env.reset()
        actions = np.random.default_rng(0).integers(2, size=(200, 1))
        return np.array([env.step(action)[1][0] for action in actions])

    noisy = {'deterministic': False}
    np.testing.assert_array_equal(rewards(1), rewards(2))
    np.testing.assert_array_equal(rewards(1, **noisy), rewards(1, **noisy))
    assert (rewards(1, **noisy) != rewards(2, **noisy)).any()
    at_the_ends = rewards(1, **noisy)[
        3::4
    ]  # bsuite's noise, N(0, 1), occurs in both bottom corners.
    assert (np.abs(at_the_ends) > 0.1).sum() > 5 and (np.abs(rewards(1)) < 0.01).sum() > 190


def test_a_negative_mapping_seed_is_named():
    with pytest.raises(ValueError, match='mapping_seed must be in 0..4294967295, got -1'):
        environments.make('DeepSea', mapping_seed=-1)
