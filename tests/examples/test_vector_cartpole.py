"""The example's environment is CartPole, pole by pole, and keeps the contract."""

import contextlib

import gymnasium
import numpy as np
import pytest

from examples.vector_cartpole.vector_cartpole import make_vector_cartpole
from ob2i_tf.environments.watched import Watched


def balance(observations):
    """Actions that keep the pole up for 500 steps."""
    return (observations @ np.array([0.05, 0.2, 1.0, 0.5]) > 0).astype(np.int32)


@pytest.mark.parametrize(('steps', 'balanced'), [(200, False), (70, True)])
def test_each_pole_is_cartpole_of_gymnasium(steps, balanced):
    """Random actions end in terminals, good ones at a limit of 30."""
    limit, rng = 30, np.random.default_rng(0)
    one = gymnasium.make('CartPole-v1').unwrapped
    one.reset()
    ends, lengths = np.zeros(2, int), np.zeros(3, int)
    with contextlib.closing(Watched(make_vector_cartpole(3, 5, max_episode_steps=limit))) as env:
        seen, _ = env.reset()
        for _ in range(steps):
            actions = balance(seen) if balanced else rng.integers(2, size=3, dtype=np.int32)
            following, rewards, terminated, truncated, info = env.step(actions)
            lengths += 1
            np.testing.assert_array_equal(truncated, lengths == limit)
            np.testing.assert_array_equal(info['game_over'], terminated | truncated)
            for pole in range(3):
                one.state, one.steps_beyond_terminated = seen[pole], None
                expected, reward, ended, *_ = one.step(actions[pole])
                np.testing.assert_allclose(info['final_obs'][pole], expected, rtol=1e-4, atol=1e-6)
                assert (rewards[pole], terminated[pole]) == (reward, ended)
                if info['game_over'][pole]:
                    lengths[pole] = 0
                    assert (np.abs(following[pole]) <= 0.05).all()
                else:
                    np.testing.assert_array_equal(following[pole], info['final_obs'][pole])
            ends += [terminated.sum(), truncated.sum()]
            seen = following
    assert ends.argmax() == balanced and ends.max() >= 6


def test_seeds_decide_every_start():
    def shown(seed, reset_seed=None):
        env = make_vector_cartpole(4, seed)
        starts = [env.reset(seed=reset_seed)[0]]
        starts += [env.step(np.zeros(4, np.int32))[0] for _ in range(30)]
        return np.concatenate([*starts, env.reset()[0]])

    np.testing.assert_array_equal(shown(1), shown(1))
    np.testing.assert_array_equal(shown(2, reset_seed=7), shown(3, reset_seed=7))
    starts = np.concatenate([shown(seed)[:4] for seed in range(5)])
    assert len(np.unique(starts)) == starts.size
