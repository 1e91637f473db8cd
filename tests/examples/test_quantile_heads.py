"""The example's functions on numbers worked out by hand, and against loops."""

import numpy as np
import pytest
import tensorflow as tf

from examples.quantile_heads import quantile_heads
from ob2i_tf import bonuses, learner, networks, types
from tests import atari
from tests.test_updates import HISTORY, parts

# One state, K = 2 heads of N = 3 quantiles, A = 2 actions.
Q_VALUES = np.array([[[0, 1], [0, 1], [9, 1], [4, 1], [5, 7], [6, 10]]], np.float32)
MEANS = [[[3, 1], [5, 6]]]


def test_head_means_and_next_actions_by_hand():
    np.testing.assert_array_equal(quantile_heads.head_means(Q_VALUES, 3), MEANS)
    # Two quantiles in three of the first head prefer action 1, its mean action 0.
    np.testing.assert_array_equal(quantile_heads.greedy_by_mean(Q_VALUES, 3), [[0] * 3 + [1] * 3])


def test_the_bonus_is_the_spread_of_the_means_by_hand():
    """The means of action 0 are 3 and 5, of action 1 they are 1 and 6."""
    bonus = quantile_heads.BonusOfMeans(bonuses.UcbBonus(normalize_next_bonus=False), 3)
    rows, one = np.zeros(1, np.int32), np.ones(1, np.float32)
    q_values, next_actions = tf.constant(Q_VALUES), quantile_heads.greedy_by_mean(Q_VALUES, 3)
    experience = types.Experience(
        None, rows, rows, rows + 1, one, q_values, next_actions, lambda: q_values
    )
    reward_bonus, next_bonus, _ = bonus(experience)
    np.testing.assert_allclose(reward_bonus, [2.5])
    np.testing.assert_allclose(next_bonus, [[1, 2.5]])


def test_the_bonus_within_is_built_for_the_heads(caplog):
    bonus = quantile_heads.BonusOfMeans(bonuses.UcbBonus(), num_quantiles=3)
    bonus.build((), num_heads=3, num_actions=2, seed=0)
    assert 'standard deviation of one head is 0' in caplog.text


@pytest.mark.parametrize('column', range(6))
def test_a_column_acts_by_the_mean_of_its_head(column):
    acts_by = quantile_heads.quantile_head_preferences(Q_VALUES, np.array([column]), 3)
    np.testing.assert_array_equal(acts_by, [MEANS[0][column // 3]])


def test_head_means_of_any_leading_shape():
    q_values = np.random.default_rng(0).normal(size=(4, 5, 6, 2)).astype(np.float32)
    means = [q_values[:, :, 3 * k : 3 * k + 3].mean(2) for k in range(2)]
    np.testing.assert_allclose(
        quantile_heads.head_means(q_values, 3), np.stack(means, 2), atol=1e-6
    )


def quantile_huber(y, q):
    """Dabney et al. (2018), eq. 9 and 10, with kappa 1, of one head: [N] and [N] -> [N]."""
    losses = np.zeros(len(q))
    for i in range(len(q)):
        tau = (2 * i + 1) / (2 * len(q))
        for target in y:
            u = target - q[i]
            huber = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
            losses[i] += abs(tau - (u < 0)) * huber / len(y)
    return losses


def test_quantile_huber_by_hand():
    """N = 2: tau is 1/4, 3/4; y - q is 2, -1 for the first quantile and 1, -2 for the second."""
    loss = quantile_heads.quantile_huber(np.float32([[3, 0]]), np.float32([[1, 2]]), 2)
    first = (0.25 * 1.5 + 0.75 * 0.5) / 2
    second = (0.75 * 0.5 + 0.25 * 1.5) / 2
    np.testing.assert_allclose(loss, [[first, second]])


@pytest.mark.parametrize('num_quantiles', [1, 2, 4, 8])
def test_quantile_huber_against_loops(num_quantiles):
    y, q = np.random.default_rng(0).normal(size=(2, 5, 3, num_quantiles)).astype(np.float32)
    y[0, 0, 0] = q[0, 0, 0]
    loss = quantile_heads.quantile_huber(y.reshape(5, -1), q.reshape(5, -1), num_quantiles)
    expected = [[quantile_huber(*head) for head in zip(*row)] for row in zip(y, q)]
    np.testing.assert_allclose(loss, np.reshape(expected, (5, -1)), atol=1e-6)


def test_one_quantile_has_half_of_hubers_loss():
    y, q = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    np.testing.assert_allclose(
        2 * quantile_heads.quantile_huber(y, q, 1), learner.huber(y, q), atol=1e-7
    )


def quantile_network(num_quantiles, seed, num_heads=4):
    network = quantile_heads.QuantileQNetwork(
        3,
        num_quantiles,
        lambda num_actions, **seeds: networks.MultiHeadQNetwork(
            num_actions, num_heads, 16, conv_layers=(), **seeds
        ),
        seed=seed,
    )
    return networks.build(network, (2, 2, HISTORY), tf.uint8)


def test_columns_of_the_network():
    network = quantile_network(5, seed=1)
    stacks = np.random.default_rng(0).integers(0, 256, (7, 2, 2, HISTORY), dtype=np.uint8)
    outputs, columns = network.outputs_of(stacks).numpy(), network(stacks).numpy()
    assert outputs.shape == (7, 4, 15) and columns.shape == (7, network.num_heads, 3)
    for head in range(4):
        for quantile in range(5):
            of_quantile = outputs[:, head, 3 * quantile : 3 * quantile + 3]
            np.testing.assert_array_equal(columns[:, 5 * head + quantile], of_quantile)


def update_of(replay, pair, num_quantiles):
    return atari.EpisodicUpdate(
        replay,
        *pair,
        beta=0.7,
        alpha_1=0.3,
        alpha_2=0.2,
        batching='episode',
        bonus=quantile_heads.BonusOfMeans(bonuses.UcbBonus(), num_quantiles),
        next_actions=lambda q: quantile_heads.greedy_by_mean(q, num_quantiles),
    )


def test_one_quantile_has_the_targets_of_ob2i():
    replay, network, target_network, _ = parts(length=30)
    weights = {'beta': 0.7, 'alpha_1': 0.3, 'alpha_2': 0.2, 'batching': 'episode'}
    ordinary = atari.EpisodicUpdate(
        replay, network, target_network, bonus=bonuses.UcbBonus(), **weights
    )
    pair = [quantile_network(1, seed) for seed in (1, 2)]
    (batch, report), (expected, _) = (
        update.next_batch() for update in (update_of(replay, pair, 1), ordinary)
    )
    assert report['bonus_mean'] > 0 and report['next_bonus_mean'] > 0
    np.testing.assert_array_equal(batch.targets, expected.targets)


def backward_induction(episode, next_q, best, reward_bonus, next_bonus):
    """The paper's Algorithm 2 for one column: [T, A], a' [T], [T] and [T, A] -> [T]."""
    y, (beta, alpha_1, alpha_2) = np.zeros(len(best)), (0.7, 0.3, 0.2)
    for t in reversed(range(len(best))):
        value = next_q[t, best[t]]
        if t + 1 < len(best) and best[t] == episode.actions[t + 1]:
            value = beta * y[t + 1] + (1 - beta) * value
        else:
            value += alpha_2 * next_bonus[t, best[t]]
        y[t] = episode.rewards[t] + alpha_1 * reward_bonus[t] + episode.discounts[t] * value
    return y


def test_each_quantile_goes_through_backward_induction():
    """Against a loop over one column, which is given a' and the bonuses."""
    replay, *_, (episode,) = parts(length=30)
    pair = [quantile_network(3, seed) for seed in (1, 2)]
    batch, _ = update_of(replay, pair, 3).next_batch()
    frames = np.concatenate([episode.context, episode.observations])
    stacks = np.stack([frames[i : i + 31] for i in range(HISTORY)], axis=-1)
    q_values, next_q = (n(x).numpy() for n, x in zip(pair, (stacks[:-1], stacks[1:])))
    means, next_means = (x.reshape(30, 4, 3, 3).mean(2) for x in (q_values, next_q))
    next_bonus = next_means.std(1)
    seen = np.take_along_axis(next_bonus, next_means.argmax(-1), axis=1)[episode.discounts > 0]
    for head in range(4):
        for column in range(3 * head, 3 * head + 3):
            expected = backward_induction(
                episode,
                next_q[:, column],
                next_means[:, head].argmax(-1),
                means.std(1)[np.arange(30), episode.actions],
                next_bonus / seen.std(),
            )
            np.testing.assert_allclose(batch.targets[:30, column], expected, atol=1e-4)
