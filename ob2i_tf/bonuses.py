"""Exploration bonuses: what an agent is paid for visiting the unknown."""

from typing import Callable

import tensorflow as tf

import gin
from ob2i_tf.moments import RunningStd


@gin.configurable
def ensemble_std(q_values):
    """The UCB-bonus of OB2I: how much the heads disagree (paper, eq. 2).

    The gradient is finite where all heads agree: 0, not NaN.

    Args:
      q_values: [..., K, A], the values of K heads.

    Returns:
      [..., A], the population standard deviation over the heads.
    """
    q_values = tf.convert_to_tensor(q_values)
    # Equal heads shifted by one of them are exactly 0, whatever their mean would round to.
    shifted = q_values - tf.stop_gradient(q_values[..., :1, :])
    deviations = shifted - tf.reduce_mean(shifted, axis=-2, keepdims=True)
    variance = tf.reduce_mean(tf.square(deviations), axis=-2)
    positive = variance > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, variance, 1)), 0)


@gin.configurable
class UcbBonus(tf.Module):
    """The bonuses B and B~ of a target, from the heads' values (paper, section 3.2).

    B is the bonus of the pairs (s, a) by the online network, B~ of the actions at s' by the target
    network, divided by its running standard deviation "to have a stable performance" (appendix D).

    Args:
      measure: maps values [..., K, A] to bonuses [..., A].
      normalize_reward_bonus: divide B by its running standard deviation too (the released code).
      normalize_next_bonus: divide B~ by its running standard deviation (the paper).
      prior_count: see `RunningStd`; the released code has 1e-4.
      rows_at_a_time: 0: the moments take in all rows, then divide them; n: they take in n rows at a
        time, from the end, and divide these (the released code: 32).
    """

    def __init__(
        self,
        measure: Callable = ensemble_std,
        normalize_reward_bonus: bool = False,
        normalize_next_bonus: bool = True,
        prior_count: float = 0.0,
        rows_at_a_time: int = 0,
    ):
        super().__init__(name='ucb_bonus')
        self._measure = measure
        self._normalize_reward_bonus = normalize_reward_bonus
        self._normalize_next_bonus = normalize_next_bonus
        self._rows_at_a_time = rows_at_a_time
        self.reward_bonus_std = RunningStd(prior_count)
        self.next_bonus_std = RunningStd(prior_count)

    def __call__(self, q_values, next_q, actions):
        """The bonuses of n transitions.

        Args:
          q_values: [n, K, A], the online network at the observations.
          next_q: [n, K, A], Q~, the target network at the next observations.
          actions: [n] int.

        Returns:
          B [n], B~ [n, A], and the means of both before normalisation.
        """
        reward_bonus = tf.gather(self._measure(q_values), actions, batch_dims=1)
        next_bonus = self._measure(next_q)
        means = tf.reduce_mean(reward_bonus), tf.reduce_mean(next_bonus)
        if self._normalize_reward_bonus:
            reward_bonus = self._normalize(self.reward_bonus_std, reward_bonus, reward_bonus)
        if self._normalize_next_bonus:
            # The moments are those of the paper's B~ in R^{K x T}: the bonus at each head's a'.
            greedy = tf.argmax(next_q, axis=-1, output_type=tf.int32)
            next_bonus = self._normalize(
                self.next_bonus_std, next_bonus, tf.gather(next_bonus, greedy, batch_dims=1)
            )
        return reward_bonus, next_bonus, means

    def _normalize(self, running_std, bonus, seen):
        """Takes `seen` [n, ...] into the moments and divides `bonus` [n, ...] by what results."""
        if not self._rows_at_a_time:
            running_std.update(seen)
            return running_std.normalize(bonus)
        end = tf.shape(bonus)[0]
        normalized = bonus[:0]
        shape = tf.TensorShape([None, *bonus.shape[1:]])
        while end > 0:
            tf.autograph.experimental.set_loop_options(shape_invariants=[(normalized, shape)])
            start = tf.maximum(0, end - self._rows_at_a_time)
            running_std.update(seen[start:end])
            normalized = tf.concat([running_std.normalize(bonus[start:end]), normalized], axis=0)
            end = start
        return normalized
