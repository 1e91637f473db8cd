"""Quantile (QR) heads with backward induction: OB2I over distributions (Dabney et al. 2018).

A head has N quantiles per action instead of a value. Everything else sees its N quantiles as N
columns of [B, K N, A], so backward induction moves each quantile from an episode's end to its
start; only a', the followed head, the bonus and the loss have to know which columns belong to one
head. No file of the package changes.
"""

from collections.abc import Callable

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import acting, bonuses, networks, targets


@gin.configurable(denylist=['seed', 'prior_seed'])
class QuantileQNetwork(tf.keras.Model):
    """K heads of N quantiles on a network of K heads: [B, *stack] -> [B, K N, A].

    Args:
      num_actions: A.
      num_quantiles: N.
      network: Builds the network, see MultiHeadQNetwork.
      seed, prior_seed: Seeds of the network.
    """

    def __init__(
        self,
        num_actions,
        num_quantiles: int = 8,
        network: Callable = networks.MultiHeadQNetwork,
        seed: int = 0,
        prior_seed: int = 0,
    ):
        super().__init__(name='quantile_q_network')
        self.network = network(num_actions * num_quantiles, seed=seed, prior_seed=prior_seed)
        self.num_heads = self.network.num_heads * num_quantiles
        self.num_actions = num_actions
        self.trains_output = self.network.trains_output

    def call(self, observations, seed=None):
        columns = self.network(observations, seed)
        return tf.reshape(columns, (-1, self.num_heads, self.num_actions))

    def followed_head(self, observations, heads, seed=None):
        return self(observations, seed), heads  # All columns of a head are needed.

    @property
    def variable_groups(self):
        return self.network.variable_groups


@gin.configurable
def quantile_head_preferences(q_values, heads, num_quantiles: int = 8):
    """The mean of the head that a drawn column belongs to: [B, K N, A], [B] -> [B, A]."""
    return acting.head_preferences(_head_means(q_values, num_quantiles), heads // num_quantiles)


@gin.configurable
def greedy_by_mean(q_values, num_quantiles: int = 8):
    """a', the same for all quantiles of a head: [..., K N, A] -> [..., K N] int32."""
    greedy = targets.greedy_actions(_head_means(q_values, num_quantiles))
    return tf.repeat(greedy, num_quantiles, axis=-1)


@gin.configurable
def std_of_means(q_values, num_quantiles: int = 8):
    """The UCB-bonus, standard deviation over heads of their means: [..., K N, A] -> [..., A]."""
    return bonuses.ensemble_std(_head_means(q_values, num_quantiles))


@gin.configurable
def quantile_huber(target_quantiles, quantiles, num_quantiles: int = 8):
    """The loss of each quantile against all target quantiles of its head, with kappa 1.

    Args:
      target_quantiles, quantiles: [B, K N].
      num_quantiles: N.

    Returns:
      [B, K N]; Dabney et al. (2018), eq. 10, mean over targets.
    """
    by_head = tf.shape(quantiles)[0], -1, num_quantiles
    difference = (
        tf.reshape(target_quantiles, by_head)[:, :, None]
        - tf.reshape(quantiles, by_head)[..., None]
    )  # [B, K, N, N of targets]
    levels = ((np.arange(num_quantiles) + 0.5) / num_quantiles)[:, None]
    weights = tf.abs(levels - tf.cast(difference < 0, tf.float32))
    size = tf.abs(difference)
    huber = tf.where(size <= 1, 0.5 * tf.square(difference), size - 0.5)
    return tf.reshape(tf.reduce_mean(weights * huber, axis=-1), tf.shape(quantiles))


def _head_means(q_values, num_quantiles):
    """[..., K N, A] -> [..., K, A]."""
    shape = tf.shape(q_values)
    split = tf.concat([shape[:-2], [-1, num_quantiles], shape[-1:]], axis=0)
    means = tf.reduce_mean(tf.reshape(q_values, split), axis=-2)
    num_heads = None if q_values.shape[-2] is None else q_values.shape[-2] // num_quantiles
    return tf.ensure_shape(means, (*q_values.shape[:-2], num_heads, q_values.shape[-1]))
