"""LSVI as a posterior: its arguments and its state in checkpoints."""

import numpy as np
import pytest

from ob2i_tf import acting, networks, types
from ob2i_tf.errors import ConfigError
from ob2i_tf.linear import agents

HORIZON, ACTIONS, FEATURES = 3, 2, 4
SHAPE = (ACTIONS, HORIZON * FEATURES)


def posterior_of(**keywords):
    network = networks.build(agents.LinearQNetwork(ACTIONS, 1), SHAPE, np.float32)
    keywords = {'method': 'ucb', 'horizon': HORIZON, **keywords}
    return agents.LsviPosterior(network, network, None, 1, 0, **keywords)


def observation(rng, h):
    blocks = np.zeros((1, ACTIONS, HORIZON, FEATURES), np.float32)
    blocks[:, :, h] = rng.random((1, ACTIONS, FEATURES))
    return blocks.reshape(1, *SHAPE)


def play(posterior, rng, steps):
    for step in steps:
        h = step % HORIZON
        over = np.array([h == HORIZON - 1])
        posterior.observe(
            types.Step(
                observation(rng, h),
                np.array([rng.integers(ACTIONS)]),
                np.zeros(1, np.int32),
                np.array([rng.random()]),
                np.ones(1),
                observation(rng, h),
                over,
                over,
                step,
            )
        )


def test_a_posterior_saved_within_an_episode_goes_on_the_same():
    first, other, rng = posterior_of(), posterior_of(), np.random.default_rng(0)
    play(first, rng, range(3 * HORIZON + 2))
    other.set_state(first.state())
    for posterior in (first, other):
        play(posterior, np.random.default_rng(1), range(3 * HORIZON + 2, 5 * HORIZON))
    for h in range(HORIZON):
        asked = observation(np.random.default_rng(h), h)
        np.testing.assert_array_equal(first.sample(asked, None), other.sample(asked, None))
        np.testing.assert_array_equal(first.mean(asked), other.mean(asked))
        assert (first.sample(asked, None).numpy() > first.mean(asked).numpy()).all()  # Its bonus.


def test_what_it_cannot_take_is_refused():
    network = networks.build(
        networks.MultiHeadQNetwork(ACTIONS, 1, hidden_units=4, conv_layers=()), SHAPE, np.float32
    )
    with pytest.raises(ValueError, match='LinearQNetwork, got MultiHeadQNetwork'):
        agents.LsviPosterior(network, network, None, 1, 0, 'ucb', HORIZON)
    network = networks.build(agents.LinearQNetwork(ACTIONS, 10), SHAPE, np.float32)
    with pytest.raises(ValueError, match='LinearQNetwork.num_heads = 1, got 10'):
        agents.LsviPosterior(network, network, None, 1, 0, 'ucb', HORIZON)


def test_an_episode_of_another_length_is_refused():
    posterior = posterior_of()
    with pytest.raises(ConfigError, match='horizon = 3, but an episode took 2 agent steps'):
        play(posterior, np.random.default_rng(0), range(1, HORIZON))


@pytest.mark.parametrize(
    'keywords, name',
    [
        ({'lower': 1.0, 'upper': 0.5}, 'lower = 1.0'),
        ({'lower': 0.5, 'upper': 0.5}, 'upper = 0.5'),
        ({'lower': -0.1}, 'lower must be at least 0, got -0.1'),
        ({'regularisation': 0.0}, 'regularisation must be above 0, got 0.0'),
        ({'bonus_scale': -1.0}, 'bonus_scale must be at least 0'),
        ({'noise_scale': -1.0}, 'noise_scale must be at least 0'),
        ({'horizon': 0}, 'horizon must be at least 1, got 0'),
        ({'method': 'best'}, "method must be one of 'ucb', .*, got 'best'"),
    ],
)
def test_what_is_out_of_range_is_named(keywords, name):
    with pytest.raises(ValueError, match=name):
        posterior_of(**keywords)


def test_it_is_not_for_xla():
    with pytest.raises(ValueError, match='cannot be compiled with LsviPosterior'):
        acting.Policy(posterior_of(), acting.mean_preferences, xla=True)
