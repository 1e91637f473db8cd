"""Targets against hand-computed values, identities and the literal loop."""

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import targets
from tests import oracle

TWO_HEADS = {
    'rewards': [0.0, 0.0, 1.0],
    'discounts': [0.9, 0.9, 0.0],
    'actions': [0, 1, 0],
    'next_q': np.array(
        [[[0.5, 0.2], [0.1, 0.4]], [[0.3, 0.6], [0.7, 0.2]], [[0.0, 0.0], [0.0, 0.0]]], np.float32
    ),
    'reward_bonus': [0.1, 0.2, 0.3],
}
TWO_HEADS['next_bonus'] = TWO_HEADS['next_q'].std(axis=1)

ONE_HEAD = {
    'rewards': [0.0, 0.0, 1.0],
    'discounts': [0.9, 0.9, 0.0],
    'next_q': np.array([[[1.5, 2.0]], [[0.5, 0.4]], [[7.0, 7.0]]], np.float32),
    'reward_bonus': [0.1, 0.2, 0.3],
    'next_bonus': np.array([[0.6, 0.8], [0.2, 0.7], [5.0, 5.0]], np.float32),
}


@pytest.mark.parametrize(
    'greedy, alpha, expected',
    [
        ('initial', 1.0, [[0.73, 0.775], [0.92, 1.1], [1.3, 1.3]]),
        ('updated', 1.0, [[0.604, 0.775], [0.92, 1.1], [1.3, 1.3]]),
        ('released', 1.0, [[0.865, 0.775], [1.1, 1.1], [1.3, 1.3]]),
        ('initial', 0.0, [[0.45, 0.52425], [0.54, 0.765], [1.0, 1.0]]),
        ('updated', 0.0, [[0.45, 0.52425], [0.585, 0.765], [1.0, 1.0]]),
        ('released', 0.0, [[0.45, 0.52425], [0.585, 0.765], [1.0, 1.0]]),
    ],
)
def test_two_heads_by_hand(greedy, alpha, expected):
    y = targets.backward_induction(
        **TWO_HEADS, beta=0.5, alpha_1=alpha, alpha_2=alpha, greedy=greedy
    )
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    'greedy, actions, first',
    [
        ('initial', [0, 1, 0], 1.228825),
        ('updated', [0, 1, 0], 1.414),
        ('released', [0, 1, 0], 1.36),
        ('initial', [0, 0, 0], 1.882),
        ('updated', [0, 0, 0], 1.882),
        ('released', [0, 0, 0], 1.882),
    ],
)
def test_one_head_by_hand(greedy, actions, first):
    y = targets.backward_induction(
        **ONE_HEAD, actions=actions, beta=0.5, alpha_1=0.1, alpha_2=0.1, greedy=greedy
    )
    np.testing.assert_allclose(y[:, 0], [first, 0.7085, 1.03], rtol=0, atol=1e-6)


def episode(length, heads=3, num_actions=4, seed=0, terminal=True, ties=False):
    """Random arguments of backward_induction; with `ties`, values on a coarse grid."""
    rng = np.random.default_rng([length, heads, num_actions, seed])

    def draw(*shape):
        values = rng.normal(size=shape)
        return (np.round(values) if ties else values).astype(np.float32)

    discounts = np.full(length, 0.97, np.float32)
    if terminal:
        discounts[-1] = 0
    return (
        draw(length),
        discounts,
        rng.integers(num_actions, size=length).astype(np.int32),
        draw(length, heads, num_actions),
        np.abs(draw(length)),
        np.abs(draw(length, num_actions)),
    )


@pytest.fixture(scope='module', params=targets.GREEDY_READINGS)
def reading(request):
    """A reading of a', and backward induction compiled for it with length and weights left open."""
    greedy = request.param
    vector, count = tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)

    @tf.function(
        input_signature=[
            vector,
            vector,
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, None, None], tf.float32),
            vector,
            tf.TensorSpec([None, None], tf.float32),
            count,
            count,
            count,
        ]
    )
    def compiled(*arguments):
        *arrays, beta, alpha_1, alpha_2 = arguments
        return targets.backward_induction(
            *arrays, beta=beta, alpha_1=alpha_1, alpha_2=alpha_2, greedy=greedy
        )

    return greedy, compiled


@pytest.mark.parametrize('ties', [False, True])
def test_every_length_agrees_with_the_literal_loop(reading, ties):
    greedy, compiled = reading
    for length in range(1, 71):
        for beta, alpha in ((0.5, 0.3), (1.0, 0.1), (0.0, 0.0)):
            arrays = episode(length, seed=length, terminal=length % 2 == 0, ties=ties)
            weights = {'beta': beta, 'alpha_1': alpha, 'alpha_2': 2 * alpha}
            expected = oracle.backward_induction(*arrays, **weights, greedy=greedy)
            y = compiled(*arrays, *weights.values())
            np.testing.assert_allclose(y, expected, rtol=0, atol=5e-5)
            if length in (1, 2, 3, 8, 33, 70):
                eager = targets.backward_induction(*arrays, **weights, greedy=greedy)
                np.testing.assert_allclose(eager, expected, rtol=0, atol=5e-5)
    assert compiled.experimental_get_tracing_count() == 1


def test_a_long_episode_stays_accurate(reading):
    greedy, compiled = reading
    arrays = episode(5000, heads=2, num_actions=3)
    expected = oracle.backward_induction(*arrays, beta=1.0, alpha_1=0.1, alpha_2=0.1, greedy=greedy)
    np.testing.assert_allclose(compiled(*arrays, 1.0, 0.1, 0.1), expected, rtol=1e-5, atol=1e-4)


def test_a_single_action(reading):
    greedy, compiled = reading
    arrays = episode(9, num_actions=1)
    expected = oracle.backward_induction(*arrays, beta=0.5, alpha_1=0.1, alpha_2=0.1, greedy=greedy)
    np.testing.assert_allclose(compiled(*arrays, 0.5, 0.1, 0.1), expected, rtol=0, atol=1e-5)


def test_without_diffusion_and_bonus_it_is_the_one_step_target(reading):
    greedy, _ = reading
    rewards, discounts, actions, next_q, reward_bonus, next_bonus = episode(40)
    y = targets.backward_induction(
        rewards,
        discounts,
        actions,
        next_q,
        reward_bonus,
        next_bonus,
        beta=0.0,
        alpha_1=0.0,
        alpha_2=0.0,
        greedy=greedy,
    )
    np.testing.assert_allclose(y, targets.one_step(rewards, discounts, next_q), atol=1e-6)


@pytest.mark.parametrize('greedy', targets.GREEDY_READINGS)
def test_episodes_one_after_another_by_hand(greedy):
    """Two episodes of 2 and 1 transitions, both truncated; the values suit all readings."""
    y = targets.backward_induction(
        rewards=[0.0, 1.0, 2.0],
        discounts=[0.5, 0.5, 0.5],
        actions=[0, 1, 0],
        next_q=np.array([[[1.0, 3.0]], [[4.0, 2.0]], [[7.0, 8.0]]], np.float32),
        reward_bonus=[0.1, 0.2, 0.3],
        next_bonus=[[0.3, 0.4], [0.6, 0.7], [0.8, 0.9]],
        beta=0.5,
        alpha_1=1.0,
        alpha_2=1.0,
        greedy=greedy,
        is_last=[False, True, True],
    )
    second = 2 + 0.3 + 0.5 * (8 + 0.9)
    first_end = 1 + 0.2 + 0.5 * (4 + 0.6)  # Without the second episode's action 0.
    first_start = 0.1 + 0.5 * (0.5 * first_end + 0.5 * 3)
    np.testing.assert_allclose(y[:, 0], [first_start, first_end, second], rtol=1e-6)


def test_initial_is_a_lambda_return():
    rewards, discounts, actions, next_q, *bonuses = episode(50)
    y = targets.backward_induction(
        rewards, discounts, actions, next_q, *bonuses, beta=0.6, alpha_1=0.0, alpha_2=0.0
    )
    best = next_q.argmax(-1)
    expected = np.zeros_like(y)
    for k in range(next_q.shape[1]):
        bootstrap = next_q.max(-1)[:, k]
        trace = np.zeros(50)
        trace[:-1] = 0.6 * (best[:-1, k] == actions[1:])
        result = 0.0
        for t in reversed(range(50)):
            mixed = (1 - trace[t]) * bootstrap[t] + trace[t] * result
            result = rewards[t] + discounts[t] * mixed
            expected[t, k] = result
    np.testing.assert_allclose(y, expected, atol=1e-5)


def ebu(rewards, actions, next_q, beta, gamma):
    """Lee et al. (2019), Algorithm 1, as they write it; next_q is [T, A]."""
    table = np.array(next_q, np.float64)
    y = np.zeros(len(rewards))
    y[-1] = rewards[-1]
    for t in range(len(rewards) - 2, -1, -1):
        table[t, actions[t + 1]] = beta * y[t + 1] + (1 - beta) * table[t, actions[t + 1]]
        y[t] = rewards[t] + gamma * table[t].max()
    return y


@pytest.mark.parametrize('greedy', ['updated', 'released'])
def test_ebu_takes_the_maximum_of_the_updated_column(greedy):
    keywords = {'beta': 0.5, 'alpha_1': 0.0, 'alpha_2': 0.0, 'greedy': greedy}
    rewards, discounts, actions, next_q, *bonuses = episode(30)
    discounts = np.where(np.arange(30) < 29, 0.9, 0).astype(np.float32)  # It ends in a terminal.
    y = targets.backward_induction(rewards, discounts, actions, next_q, *bonuses, **keywords)
    for k in range(next_q.shape[1]):
        expected = ebu(rewards, actions, next_q[:, k], 0.5, 0.9)
        np.testing.assert_allclose(y[:, k], expected, atol=1e-5)


@pytest.mark.parametrize(
    'greedy, expected',
    [
        ('initial', [0.9] * 3 + [1000]),
        ('released', [729, 810, 900, 1000]),
    ],
)
def test_a_reward_goes_back_all_the_way_in_ebu_alone(greedy, expected):
    """The action taken is not the greedy one."""
    next_q = np.tile(np.array([0.0, 1.0], np.float32), (4, 1, 1))
    nothing = np.zeros(4)
    y = targets.backward_induction(
        [0, 0, 0, 1000],
        [0.9, 0.9, 0.9, 0],
        [0, 0, 0, 0],
        next_q,
        nothing,
        np.zeros((4, 2)),
        beta=1.0,
        alpha_1=0.0,
        alpha_2=0.0,
        greedy=greedy,
    )
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-6)


def test_heads_do_not_see_each_other():
    rewards, discounts, actions, next_q, *bonuses = episode(30)
    keywords = {'beta': 0.5, 'alpha_1': 0.0, 'alpha_2': 0.0}
    of_all = targets.backward_induction(rewards, discounts, actions, next_q, *bonuses, **keywords)
    for k in range(next_q.shape[1]):
        of_one = targets.backward_induction(
            rewards, discounts, actions, next_q[:, k : k + 1], *bonuses, **keywords
        )
        np.testing.assert_allclose(of_one[:, 0], of_all[:, k], atol=1e-6)


def test_one_step_by_hand():
    next_q = np.array([[[1.0, 2.0], [4.0, 3.0]]], np.float32)
    y = targets.one_step([1.0], [0.5], next_q)
    np.testing.assert_allclose(y, [[2.0, 3.0]])
    y = targets.one_step(
        [1.0], [0.5], next_q, reward_bonus=[10.0], next_bonus=[[6.0, 8.0]], alpha_1=0.1, alpha_2=0.5
    )
    np.testing.assert_allclose(y, [[1 + 1 + 0.5 * (2 + 4), 1 + 1 + 0.5 * (4 + 3)]])
    y = targets.one_step([1.0], [0.5], next_q, online_next_q=-next_q)  # The other action each.
    np.testing.assert_allclose(y, [[1.5, 2.5]])


def test_one_step_from_a_given_action_by_hand():
    next_q = np.array([[[1.0, 2.0], [4.0, 3.0]]], np.float32)
    y = targets.one_step(
        [1.0], [0.5], next_q, next_bonus=[[6.0, 8.0]], alpha_2=0.5, next_actions=[[0, 0]]
    )
    np.testing.assert_allclose(y, [[1 + 0.5 * (1 + 3), 1 + 0.5 * (4 + 3)]])


@pytest.mark.parametrize('greedy', ['initial', 'released'])
def test_a_given_action_takes_the_place_of_the_initial_argmax(greedy):
    arrays = episode(40, num_actions=3)
    next_actions = np.random.default_rng(0).integers(3, size=arrays[3].shape[:2])
    weights = {'beta': 0.5, 'alpha_1': 0.3, 'alpha_2': 0.7, 'greedy': greedy}
    y = targets.backward_induction(*arrays, **weights, next_actions=next_actions)
    expected = oracle.backward_induction(*arrays, **weights, next_actions=next_actions)
    np.testing.assert_allclose(y, expected, rtol=0, atol=5e-5)
    assert np.abs(y - targets.backward_induction(*arrays, **weights)).max() > 0.1


def test_wrong_arguments_are_refused():
    arrays = episode(5)
    weights = {'beta': 0.5, 'alpha_1': 0.0, 'alpha_2': 0.0}
    with pytest.raises(ValueError, match="greedy must be one of .* got 'argmax'"):
        targets.backward_induction(*arrays, **weights, greedy='argmax')
    with pytest.raises(ValueError):
        targets.backward_induction(arrays[0][:4], *arrays[1:], **weights)
    with pytest.raises(ValueError):
        targets.one_step(arrays[0], arrays[1], arrays[3][:, 0])


@pytest.mark.parametrize('mask_next_bonus', [True, False])
@pytest.mark.parametrize('ties', [False, True])
def test_mask_of_the_next_bonus_against_the_literal_loop(reading, mask_next_bonus, ties):
    greedy, _ = reading
    different = 0
    for length, beta in ((1, 0.5), (2, 0.5), (7, 1.0), (33, 0.5), (34, 0.0), (40, 0.9)):
        arrays = episode(length, num_actions=2, seed=5, terminal=length % 2 == 0, ties=ties)
        weights = {'beta': beta, 'alpha_1': 0.3, 'alpha_2': 0.7, 'greedy': greedy}
        expected = oracle.backward_induction(*arrays, **weights, mask_next_bonus=mask_next_bonus)
        y = targets.backward_induction(*arrays, **weights, mask_next_bonus=mask_next_bonus)
        np.testing.assert_allclose(y, expected, rtol=0, atol=5e-5)
        other = oracle.backward_induction(*arrays, **weights, mask_next_bonus=not mask_next_bonus)
        different += np.abs(y - other).max() > 0.1
    assert different >= 4


@pytest.mark.parametrize(
    'greedy, first', [('initial', 1.308925), ('updated', 1.414), ('released', 1.432)]
)
def test_one_head_by_hand_without_the_mask(greedy, first):
    y = targets.backward_induction(
        **ONE_HEAD,
        actions=[0, 1, 0],
        beta=0.5,
        alpha_1=0.1,
        alpha_2=0.1,
        greedy=greedy,
        mask_next_bonus=False,
    )
    np.testing.assert_allclose(y[:, 0], [first, 0.7265, 1.03], rtol=0, atol=1e-6)


@pytest.mark.parametrize('mask_next_bonus', [True, False])
def test_a_single_action_without_the_mask(reading, mask_next_bonus):
    greedy, _ = reading
    arrays = episode(9, num_actions=1, terminal=False)
    weights = {'beta': 0.5, 'alpha_1': 0.1, 'alpha_2': 0.2, 'greedy': greedy}
    expected = oracle.backward_induction(*arrays, **weights, mask_next_bonus=mask_next_bonus)
    y = targets.backward_induction(*arrays, **weights, mask_next_bonus=mask_next_bonus)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize('mask_next_bonus', [True, False])
def test_each_head_has_its_beta(reading, mask_next_bonus):
    greedy, _ = reading
    betas = np.array([0.0, 0.35, 1.0, 0.35], np.float32)
    for length in (1, 2, 30):
        rewards, discounts, actions, next_q, *bonus = episode(length, heads=4)
        weights = {'alpha_1': 0.1, 'alpha_2': 0.2, 'greedy': greedy}
        weights['mask_next_bonus'] = mask_next_bonus
        y = targets.backward_induction(
            rewards, discounts, actions, next_q, *bonus, beta=betas, **weights
        )
        assert y.shape == (length, 4)
        for k, beta in enumerate(betas):
            expected = oracle.backward_induction(
                rewards, discounts, actions, next_q[:, k : k + 1], *bonus, beta=beta, **weights
            )
            np.testing.assert_allclose(y[:, k : k + 1], expected, rtol=0, atol=5e-5)


def test_weights_may_be_lists_and_of_any_type(reading):
    greedy, _ = reading
    arrays = episode(9, heads=2)
    expected = targets.backward_induction(
        *arrays, beta=np.float32([0.5, 0.25]), alpha_1=0.5, alpha_2=1.0, greedy=greedy
    )
    for beta in ([0.5, 0.25], tf.constant([0.5, 0.25], tf.float64)):
        y = targets.backward_induction(
            *arrays, beta=beta, alpha_1=np.float64(0.5), alpha_2=tf.constant(1), greedy=greedy
        )
        np.testing.assert_array_equal(y, expected)
