"""The oracle: backward induction as in the paper, with a table and a loop; slow and literal."""

import numpy as np


def backward_induction(
    rewards,
    discounts,
    actions,
    next_q,
    reward_bonus,
    next_bonus,
    *,
    beta,
    alpha_1,
    alpha_2,
    greedy,
    mask_next_bonus=True,
    next_actions=None,
):
    """Same arguments and result as `ob2i_tf.targets.backward_induction`, in float64."""
    table = np.array(next_q, np.float64)  # [T, K, A]
    length, heads, _ = table.shape
    initial = table.argmax(-1) if next_actions is None else next_actions
    y = np.zeros((length, heads))
    for t in reversed(range(length)):
        reward = rewards[t] + alpha_1 * reward_bonus[t]
        for k in range(heads):
            following = None
            if t < length - 1:
                following = actions[t + 1]
                table[t, k, following] = beta * y[t + 1, k] + (1 - beta) * table[t, k, following]
            greedy_action = initial[t, k]
            value = table[t, k, greedy_action]
            if greedy == 'updated':
                greedy_action = table[t, k].argmax()
                value = table[t, k, greedy_action]
            elif greedy == 'released':
                value = table[t, k].max()
            if greedy_action != following or not mask_next_bonus:
                value += alpha_2 * next_bonus[t, greedy_action]
            y[t, k] = reward + discounts[t] * value
    return y
