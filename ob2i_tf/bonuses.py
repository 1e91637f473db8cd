"""Exploration bonuses: what an agent is paid for visiting the unknown."""

import gin
import tensorflow as tf


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
  deviations = q_values - tf.reduce_mean(q_values, axis=-2, keepdims=True)
  variance = tf.reduce_mean(tf.square(deviations), axis=-2)
  positive = variance > 0
  return tf.where(positive, tf.sqrt(tf.where(positive, variance, 1)), 0)
