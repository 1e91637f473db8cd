import functools

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import acting, bonuses, networks, posteriors, schedules
from ob2i_tf.errors import ConfigError, UserError

THREE_HEADS = np.array([[[1.0, 0.0], [1.2, 0.4], [0.8, -0.4]]], np.float32)
# Variances 0.08 / 3 and 0.32 / 3, regrets 0.0326599 and 1.0489898, lambda_ids 0.1: regret^2 over
# log(1 + variance / 4) + 1e-5.
IDS_WITH_RHO_2 = [[-0.1602915, -41.7961296]]


def test_each_preference_by_hand():
    q_values = THREE_HEADS
    np.testing.assert_allclose(acting.mean_preferences(q_values), [[1.0, 0.0]], atol=1e-7)
    std = np.sqrt([0.08 / 3, 0.32 / 3])
    np.testing.assert_allclose(
        acting.ucb_preferences(q_values, 0.5), [[1 + 0.5 * std[0], 0.5 * std[1]]], atol=1e-6
    )
    np.testing.assert_allclose(
        acting.ids_preferences(q_values, scale=0.1, rho=1.0, epsilon=1e-5),
        [[-0.0405156, -10.8558852]],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        acting.ids_preferences(q_values, scale=0.1, rho=2.0, epsilon=1e-5),
        IDS_WITH_RHO_2,
        rtol=1e-5,
    )
    np.testing.assert_allclose(acting.vote_preferences(q_values), [[3.0, 0.0]])
    both = np.concatenate([q_values, -q_values])
    np.testing.assert_allclose(acting.head_preferences(both, [1, 2]), [[1.2, 0.4], [-0.8, 0.4]])


def test_ids_where_the_heads_agree_is_greedy_and_finite():
    q_values = np.tile(np.array([1.0, 3.0, 2.0], np.float32), (1, 10, 1))
    preferences = acting.ids_preferences(q_values, 0.1, 1.0, 1e-5).numpy()
    assert np.isfinite(preferences).all() and preferences.argmax() == 1
    q_values[0, :5, 0] += 1.0  # Two actions of zero spread, one with some.
    assert np.isfinite(acting.ids_preferences(q_values, 0.1, 1.0, 1e-5)).all()


def test_ids_without_a_spread_of_returns_is_refused():
    for wrong in ('rho', 'epsilon'):  # Every action alike, or 0 / 0.
        with pytest.raises(ValueError, match=f'ids_preferences.{wrong} must be above 0, got 0.0'):
            acting.ids_preferences(THREE_HEADS, **{wrong: 0.0})


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
        networks.MultiHeadQNetwork(4, 3, hidden_units=8, conv_layers=((4, 8, 8),)),
        (84, 84, 4),
        tf.uint8,
    )


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


@pytest.fixture(scope='module')
def noisy_network():
    network = networks.MultiHeadQNetwork(
        4, 3, hidden_units=8, conv_layers=((4, 8, 8),), noise='factorised', seed=1
    )
    return networks.build(network, (84, 84, 4), tf.uint8)


@pytest.mark.parametrize('preferences', [acting.mean_preferences, acting.head_preferences])
@pytest.mark.parametrize('count', [1, 5])
def test_belief_is_the_mean_or_a_sample(noisy_network, count, preferences):
    stacks, heads = observations(count), np.arange(count, dtype=np.int32) % 3
    q_values = noisy_network(stacks).numpy()  # Without noise.
    values = {
        acting.mean_preferences: q_values.mean(1),
        acting.head_preferences: q_values[np.arange(count), heads],
    }[preferences]
    rng = np.random.default_rng(0)
    by_mean = policy_of(noisy_network, preferences, belief='mean')
    for _ in range(5):
        np.testing.assert_array_equal(by_mean.actions(stacks, heads, 0.0, rng), values.argmax(-1))
    other = acting.mean_preferences if preferences is acting.head_preferences else preferences
    same = policy_of(noisy_network, other, belief='mean').with_preferences(
        preferences
    )  # Belief goes with it.
    for _ in range(5):
        np.testing.assert_array_equal(same.actions(stacks, heads, 0.0, rng), values.argmax(-1))
    by_sample = policy_of(noisy_network, preferences)
    actions = np.array([by_sample.actions(stacks, heads, 0.0, rng) for _ in range(30)])
    assert (actions != actions[0]).any()  # The noise is drawn anew for each call.
    again = np.random.default_rng(1), np.random.default_rng(1)
    drawn = [
        [by_sample.actions(stacks, heads, 0.0, rng).tolist() for _ in range(10)] for rng in again
    ]
    assert drawn[0] == drawn[1]


def test_a_preference_that_goes_wrong_is_named(network, capfd):
    def undefined(q_values):
        return acting.mean_preferences(q_values) * np.nan

    def failing(q_values):
        def fail(_):
            raise RuntimeError('no preference')

        values = tf.numpy_function(fail, [q_values], tf.float32)
        return tf.ensure_shape(values, [None, q_values.shape[-1]])

    rng = np.random.default_rng(0)
    for preferences, reason in (
        (undefined, 'gives NaN: [[nan, '),
        (failing, 'raised UnknownError in actions: RuntimeError: no preference'),
    ):
        policy = policy_of(network, preferences, name='Agent.preferences')
        with pytest.raises(UserError) as error:
            policy.actions(observations(1), np.zeros(1, np.int32), 0.0, rng)
        bindings = f'Agent.preferences = @{preferences.__name__} with Runner.posterior = @'
        assert str(error.value).startswith(f'{bindings}EnsemblePosterior {reason}')
        assert ('in fail' in capfd.readouterr().err) == (preferences is failing)


def test_unknown_beliefs_are_refused(network):
    with pytest.raises(ValueError, match="belief must be one of .*'median'"):
        policy_of(network, acting.mean_preferences, belief='median')


def test_a_preference_that_draws_gets_fresh_seeds(network):
    def uniform(q_values, seed):
        return tf.random.stateless_uniform((tf.shape(q_values)[0], tf.shape(q_values)[2]), seed)

    def uniform_with_heads(q_values, heads, seed):
        return uniform(tf.gather(q_values, heads, axis=1, batch_dims=1)[:, None], seed)

    stacks, heads = observations(2), np.zeros(2, np.int32)
    for belief, preferences in (
        ('mean', uniform),
        ('sample', uniform),
        ('mean', uniform_with_heads),
    ):
        policy = policy_of(network, preferences, belief=belief)
        rng = np.random.default_rng(0)
        actions = np.array([policy.actions(stacks, heads, 0.0, rng) for _ in range(300)])
        for row in actions.T:
            assert abs(np.bincount(row, minlength=4) - 75).max() < 30  # 4 standard deviations.
        assert 0.1 < (actions[:, 0] == actions[:, 1]).mean() < 0.4


def test_the_seed_of_a_preference_is_not_that_of_the_belief():
    seeds = []

    class Belief(posteriors.Posterior):
        def sample(self, observations, seed):
            seeds.append(seed)
            return tf.zeros((1, 1, 2))

    def preferences(q_values, seed):
        seeds.append(seed)
        return q_values[:, 0]

    network = networks.MultiHeadQNetwork(2, 1, 4, conv_layers=())
    policy = acting.Policy(Belief(network, network, None, 1, 0), preferences)
    seeds.clear()
    tf.config.run_functions_eagerly(True)
    try:
        for _ in range(2):
            policy.actions(
                np.zeros((1, 2), np.float32),
                np.zeros(1, np.int32),
                0.0,
                np.random.default_rng(len(seeds)),
            )
    finally:
        tf.config.run_functions_eagerly(False)
    assert len({tuple(seed.numpy()) for seed in seeds}) == 4


def test_xla_acts_the_same():
    x = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 4), dtype=np.uint8)
    network = networks.build(
        networks.MultiHeadQNetwork(4, 6, 8, conv_layers=((4, 4, 4),)), x.shape[1:], tf.uint8
    )
    for preferences in (acting.head_preferences, acting.ids_preferences):
        actions = []
        for xla in (False, True):
            posterior = posteriors.EnsemblePosterior(network, network, None, 5, 0)
            policy = acting.Policy(posterior, preferences, xla=xla)
            rng = np.random.default_rng(1)
            actions.append(
                [
                    policy.actions(x, rng.integers(6, size=5, dtype=np.int32), 0.2, rng)
                    for _ in range(20)
                ]
            )
        np.testing.assert_array_equal(*actions)


def test_a_preference_sees_all_heads_unless_it_says_that_it_looks_at_one(network):
    seen = []

    def followed_and_uncertain(q_values, heads):
        seen.append(q_values.shape[1])
        return acting.head_preferences(q_values, heads) + 0.5 * bonuses.ensemble_std(q_values)

    stacks, heads = observations(1), np.array([2], np.int32)
    values = network(stacks).numpy()[0]
    expected = (values[2] + 0.5 * values.std(axis=0)).argmax()
    policy = policy_of(network, followed_and_uncertain)
    seen.clear()
    (action,) = policy.actions(stacks, heads, 0.0, np.random.default_rng(0))
    assert (action, seen) == (expected, [3])
    assert acting.head_preferences.followed_head_only


def test_integer_values_are_numbers_too():
    q_values = np.array([[[1, 3, 2], [2, 3, 3]]])
    for preferences in (
        acting.mean_preferences,
        acting.ucb_preferences,
        acting.ids_preferences,
        acting.vote_preferences,
    ):
        np.testing.assert_array_equal(
            preferences(q_values), preferences(q_values.astype(np.float32))
        )
    np.testing.assert_array_equal(acting.mean_preferences(q_values), [[1.5, 3.0, 2.5]])


@pytest.mark.parametrize(
    'preferences',
    [
        functools.partial(acting.ids_preferences, rho=0.0),
        lambda q_values: q_values,
        lambda q_values: 1.0,
        lambda q_values: q_values['a'],
        schedules.linear,
    ],
)
def test_a_preference_that_is_none_is_refused_at_once(network, preferences):
    with pytest.raises(ConfigError, match='Agent.preferences must map|ids_preferences.rho'):
        policy_of(network, preferences, name='Agent.preferences')
