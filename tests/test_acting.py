import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import acting, networks, posteriors

THREE_HEADS = np.array([[[1.0, 0.0], [1.2, 0.4], [0.8, -0.4]]], np.float32)


def test_each_preference_by_hand():
    q_values = THREE_HEADS
    np.testing.assert_allclose(acting.mean_preferences(q_values), [[1.0, 0.0]], atol=1e-7)
    std = np.sqrt([0.08 / 3, 0.32 / 3])
    np.testing.assert_allclose(
        acting.ucb_preferences(q_values, 0.5), [[1 + 0.5 * std[0], 0.5 * std[1]]], atol=1e-6
    )
    np.testing.assert_allclose(
        acting.ids_preferences(q_values, scale=0.1, rho=1.0, epsilon=1e-5),
        [[-0.0405156, -10.8558852]], rtol=1e-5,
    )  # fmt: skip
    np.testing.assert_allclose(acting.vote_preferences(q_values), [[3.0, 0.0]])
    both = np.concatenate([q_values, -q_values])
    np.testing.assert_allclose(acting.head_preferences(both, [1, 2]), [[1.2, 0.4], [-0.8, 0.4]])


def test_ids_where_the_heads_agree_is_greedy_and_finite():
    q_values = np.tile(np.array([1.0, 3.0, 2.0], np.float32), (1, 10, 1))
    preferences = acting.ids_preferences(q_values, 0.1, 1.0, 1e-5).numpy()
    assert np.isfinite(preferences).all() and preferences.argmax() == 1
    q_values[0, :5, 0] += 1.0  # Two actions of zero spread, one with some.
    assert np.isfinite(acting.ids_preferences(q_values, 0.1, 1.0, 1e-5)).all()


def test_tied_votes_are_drawn_uniformly_among_the_tied():
    votes = np.array([[0.0, 5.0, 5.0]], np.float32)
    drawn = [acting.greedy_actions(votes, np.random.default_rng(s))[0] for s in range(1000)]
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] == 0
    assert abs(counts[1] - 500) < 60  # 3.8 standard deviations of a fair coin.
    lowest = [
        acting.greedy_actions(votes, np.random.default_rng(s), 'lowest')[0] for s in range(20)
    ]
    assert set(lowest) == {1}


def test_ties_are_drawn_only_where_they_are():
    preferences = np.array([[1.0, 2.0], [3.0, 3.0], [5.0, 4.0]], np.float32)
    for seed in range(20):
        actions = acting.greedy_actions(preferences, np.random.default_rng(seed))
        assert actions.dtype == np.int32 and actions[0] == 1 and actions[2] == 0


@pytest.fixture(scope='module')
def network():
    return networks.build(
        networks.MultiHeadQNetwork(4, 3, hidden_units=8, conv_layers=((4, 8, 8),)), (84, 84, 4),
        tf.uint8,
    )  # fmt: skip


def policy_of(network, preferences, **keywords):
    posterior = posteriors.EnsemblePosterior(network, network, None, 1, 0)
    return acting.Policy(posterior, preferences, **keywords)


def observations(count):
    return np.random.default_rng(count).integers(0, 256, (count, 84, 84, 4), dtype=np.uint8)


@pytest.mark.parametrize('count', [1, 5])
def test_policy_is_greedy_on_its_preference(network, count):
    stacks, heads = observations(count), np.arange(count, dtype=np.int32) % 3
    rng = np.random.default_rng(0)
    q_values = network(stacks).numpy()
    policy = policy_of(network, acting.head_preferences)
    expected = q_values[np.arange(count), heads].argmax(-1)
    np.testing.assert_array_equal(policy.actions(stacks, heads, 0.0, rng), expected)
    policy = policy_of(network, acting.mean_preferences)
    np.testing.assert_array_equal(
        policy.actions(stacks, heads, 0.0, rng), q_values.mean(1).argmax(-1)
    )


def test_epsilon_is_the_share_of_random_actions(network):
    stacks, heads = observations(1), np.zeros(1, np.int32)
    policy = policy_of(network, acting.head_preferences)
    rng = np.random.default_rng(1)
    greedy = policy.actions(stacks, heads, 0.0, rng)[0]
    others = sum(policy.actions(stacks, heads, 0.4, rng)[0] != greedy for _ in range(2000))
    assert abs(others - 2000 * 0.4 * 3 / 4) < 85  # 4 standard deviations.
    uniform = np.bincount([policy.actions(stacks, heads, 1.0, rng)[0] for _ in range(2000)])
    assert uniform.min() > 420
    with pytest.raises(ValueError, match='tie_break'):
        policy_of(network, acting.mean_preferences, tie_break='first')
