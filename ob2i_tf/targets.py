"""Regression targets: one-step and backward induction (paper, section 3.2 and Algorithm 2).

The path of a transition: replay stores it as part of an Episode. An update (updates.py) draws
episodes, computes Q~ with the target network and the bonuses B and B~ (bonuses.py), and calls one
of the two functions below. The learner (learner.py) then regresses Q^k(s, a) on the results.

Pure functions of arrays, in float32; they run eagerly and inside `tf.function`, for any T. T is the
number of transitions of an episode, B of a batch, K the number of heads, A the number of actions.
"""

import typing
from typing import Any, Literal

import tensorflow as tf

GreedyReading = Literal['initial', 'updated', 'released']
GREEDY_READINGS = typing.get_args(GreedyReading)

_LOWEST = tf.float32.min  # Minus infinity, except that it stays finite when multiplied by 0.


def argmax_actions(q_values: Any) -> tf.Tensor:
    """The argmax of each head: [..., K, A] -> [..., K] int32."""
    return tf.argmax(q_values, axis=-1, output_type=tf.int32)


def one_step(
    rewards: Any,
    discounts: Any,
    next_q: Any,
    *,
    reward_bonus: Any = None,
    next_bonus: Any = None,
    alpha_1: float = 0.0,
    alpha_2: float = 0.0,
    online_next_q: Any = None,
    next_actions: Any = None,
) -> tf.Tensor:
    """One-step targets with bonuses, for every head (paper, eq. 4 without its mask).

        y[b,k] = r[b] + alpha_1 B[b] + discount[b] (Q~[b,k,a'] + alpha_2 B~[b,a'])
        a' = argmax_a Q~[b,k,a], unless given

    Args:
      rewards: [B].
      discounts: [B], gamma, or 0 after a terminal.
      next_q: [B, K, A], Q~, the target network at the next observations.
      reward_bonus: [B], the bonus B; None: no bonus.
      next_bonus: [B, A], the bonus B~; None: no bonus.
      alpha_1: Weight of reward_bonus.
      alpha_2: Weight of next_bonus.
      online_next_q: [B, K, A], the online network at the next observations; if given, a' is its
        argmax (double Q-learning, van Hasselt et al. 2016).
      next_actions: [B, K] int, a'; None: the argmax.

    Returns:
      [B, K].

    Raises:
      ValueError: Shapes disagree.
    """
    rewards, discounts, next_q, alpha_1, alpha_2 = map(
        _float32, (rewards, discounts, next_q, alpha_1, alpha_2)
    )
    reward_bonus = tf.zeros_like(rewards) if reward_bonus is None else _float32(reward_bonus)
    next_bonus = tf.zeros_like(next_q[:, 0]) if next_bonus is None else _float32(next_bonus)
    selector_q = next_q if online_next_q is None else _float32(online_next_q)
    next_actions = argmax_actions(selector_q) if next_actions is None else next_actions
    next_actions = tf.cast(next_actions, tf.int64)
    tf.debugging.assert_shapes(
        [
            (rewards, 'B'),
            (discounts, 'B'),
            (reward_bonus, 'B'),
            (next_q, 'BKA'),
            (next_bonus, 'BA'),
            (selector_q, 'BKA'),
            (next_actions, 'BK'),
        ]
    )
    value = _select(next_q, next_actions)
    value += alpha_2 * tf.gather(next_bonus, next_actions, batch_dims=1)
    return (rewards + alpha_1 * reward_bonus)[:, None] + discounts[:, None] * value


def backward_induction(
    rewards: Any,
    discounts: Any,
    actions: Any,
    next_q: Any,
    reward_bonus: Any,
    next_bonus: Any,
    *,
    beta: Any,
    alpha_1: float,
    alpha_2: float,
    greedy: GreedyReading = 'initial',
    mask_next_bonus: bool = True,
    is_last: Any = None,
    next_actions: Any = None,
) -> tf.Tensor:
    """Targets of a whole episode, from its end to its start (paper, Algorithm 2).

        y[T-1,k] = r[T-1] + alpha_1 B[T-1]
                   + discount[T-1] (max_a Q~[T-1,k,a] + alpha_2 B~[T-1,a'])
        for t = T-2 .. 0:
          Q~[t,k,a_{t+1}] <- beta y[t+1,k] + (1 - beta) Q~[t,k,a_{t+1}]
          y[t,k] = r[t] + alpha_1 B[t]
                   + discount[t] (Q~[t,k,a'] + alpha_2 1{a' != a_{t+1}} B~[t,a'])

    At a terminal the discount is 0, and the first line is the paper's r + alpha_1 B; a truncated
    episode bootstraps. The paper and its code read a' in three ways, which give different numbers:

      'initial': the argmax of Q~[t,k] before the loop (Algorithm 2);
      'updated': the argmax of Q~[t,k] after its update, for value, mask and bonus (section 3.2);
      'released': the value is the maximum of the updated column, while mask and bonus follow the
        argmax before the loop (the authors' code).

    With both alphas 0, 'initial' is BEBU (Algorithm 3), and the other two, then equal, are EBU in
    each head (Lee et al. 2019, Algorithm 1). With beta = 0 as well, all three are `one_step`.

    Args:
      rewards: [T].
      discounts: [T], gamma, or 0 after a terminal.
      actions: [T] int, the actions taken.
      next_q: [T, K, A], Q~, the target network at the next observations s_1 .. s_T.
      reward_bonus: [T], B, the bonus of the pairs (s_t, a_t).
      next_bonus: [T, A], B~, the bonus at the next observations, already normalised.
      beta: Diffusion factor in [0, 1], the share of y[t+1] in the updated Q~; or [K], one per head.
      alpha_1: Weight of reward_bonus.
      alpha_2: Weight of next_bonus.
      greedy: One of GREEDY_READINGS.
      mask_next_bonus: Whether B~ is multiplied by 1{a' != a_{t+1}}.
      is_last: [T] bool, marks the last row of each episode if the rows hold several complete
        episodes, one after another; None: a single episode.
      next_actions: [T, K] int, replaces the argmax before the loop; 'updated' ignores it.

    Returns:
      [T, K].

    Raises:
      ValueError: `greedy` is unknown, or shapes disagree.
    """
    if greedy not in GREEDY_READINGS:
        raise ValueError(f'greedy must be one of {GREEDY_READINGS}, got {greedy!r}')
    rewards, discounts, next_q, reward_bonus, next_bonus = map(
        _float32, (rewards, discounts, next_q, reward_bonus, next_bonus)
    )
    beta, alpha_1, alpha_2 = map(_float32, (beta, alpha_1, alpha_2))
    next_actions = argmax_actions(next_q) if next_actions is None else next_actions
    # TensorFlow compares int32 in the main memory, even on a GPU.
    actions, next_actions = tf.cast(actions, tf.int64), tf.cast(next_actions, tf.int64)
    tf.debugging.assert_shapes(
        [
            (rewards, 'T'),
            (discounts, 'T'),
            (actions, 'T'),
            (reward_bonus, 'T'),
            (next_q, 'TKA'),
            (next_bonus, 'TA'),
            (next_actions, 'TK'),
        ]
    )

    # Everything below is [T, K]. The last row has no a_{t+1}; -1 differs from every action.
    nothing = tf.constant([-1], tf.int64)
    taken = tf.concat([actions[1:], nothing], axis=0)
    if is_last is not None:
        taken = tf.where(is_last, nothing, taken)
    taken = taken[:, None]
    reward = (rewards + alpha_1 * reward_bonus)[:, None]
    discount = discounts[:, None]
    next_value = _select(next_q, next_actions)
    bonus = alpha_2 * tf.gather(next_bonus, next_actions, batch_dims=1)
    is_taken = next_actions == taken  # 1 minus the paper's mask.
    if mask_next_bonus:
        bonus = tf.where(is_taken, 0.0, bonus)

    if greedy == 'initial':
        trace = beta * tf.cast(is_taken, tf.float32)
        return _reverse_scan(
            lowest=tf.fill(tf.shape(next_value), _LOWEST),
            offset=reward + discount * ((1 - trace) * next_value + bonus),
            slope=discount * trace,
        )

    has_taken = taken >= 0
    taken_value = _select(next_q, tf.maximum(taken, 0) + tf.zeros_like(next_actions))
    taken_column = tf.one_hot(taken, tf.shape(next_q)[-1], on_value=True, off_value=False)
    other_q = tf.where(taken_column, _LOWEST, next_q)
    best_other = tf.argmax(other_q, axis=-1)
    best_other_value = _select(other_q, best_other)

    if greedy == 'released':
        return _reverse_scan(
            lowest=reward + discount * (best_other_value + bonus),
            offset=tf.where(
                has_taken, reward + discount * ((1 - beta) * taken_value + bonus), _LOWEST
            ),
            slope=discount * beta * tf.cast(has_taken, tf.float32) * tf.ones_like(next_value),
        )

    # 'updated' jumps where the argmax changes, so it is not an associative scan.
    best_other_bonus = alpha_2 * tf.gather(next_bonus, best_other, batch_dims=1)
    taken_bonus = tf.zeros_like(best_other_bonus)
    if not mask_next_bonus:
        taken_bonus += alpha_2 * tf.gather(next_bonus, tf.maximum(taken, 0), batch_dims=1)
    taken_is_lower = taken < best_other  # On a tie, argmax takes the lower index.

    def step(y, row):
        (
            reward,
            discount,
            has_taken,
            taken_value,
            taken_bonus,
            taken_is_lower,
            best_other_value,
            best_other_bonus,
        ) = row
        updated = beta * y + (1 - beta) * taken_value
        follow = (updated > best_other_value) | ((updated == best_other_value) & taken_is_lower)
        follow &= has_taken
        value = tf.where(follow, updated + taken_bonus, best_other_value + best_other_bonus)
        return reward + discount * value

    rows = (
        reward,
        discount,
        has_taken,
        taken_value,
        taken_bonus,
        taken_is_lower,
        best_other_value,
        best_other_bonus,
    )
    return tf.scan(step, rows, initializer=tf.zeros_like(next_value[0]), reverse=True)


def _reverse_scan(lowest, offset, slope):
    """y[t] = max(lowest[t], offset[t] + slope[t] y[t+1]) for slope >= 0, in O(log T) steps.

    Maps of this form are closed under composition, so the recursion is an associative scan: after n
    doublings, row t holds the composition of the maps t .. t + 2^n - 1. An episode's last row must
    have slope 0, since nothing follows it.

    Args:
      lowest, offset, slope: [T, K].

    Returns:
      [T, K].
    """

    def compose(distance, lowest, offset, slope):
        later_lowest, later_offset, later_slope = (
            tf.concat([x[distance:], tf.fill([distance, tf.shape(x)[1]], fill)], axis=0)
            for x, fill in ((lowest, _LOWEST), (offset, 0.0), (slope, 1.0))  # The identity.
        )
        return (
            2 * distance,
            tf.maximum(lowest, offset + slope * later_lowest),
            offset + slope * later_offset,
            slope * later_slope,
        )

    if offset.shape[0] is not None:
        rows = 1, lowest, offset, slope
        while rows[0] < offset.shape[0]:
            rows = compose(*rows)
        return tf.maximum(*rows[1:3])
    shape = tf.TensorShape([None, offset.shape[1]])
    _, lowest, offset, _ = tf.while_loop(
        lambda distance, *_: distance < tf.shape(offset)[0],
        compose,
        (1, lowest, offset, slope),
        shape_invariants=(tf.TensorShape([]), shape, shape, shape),
    )
    return tf.maximum(lowest, offset)


def _float32(x):
    return tf.cast(tf.convert_to_tensor(x), tf.float32)


def _select(values, indices):
    """Values [T, K, A] at indices [T, K] -> [T, K]."""
    return tf.gather(values, indices, batch_dims=2)
