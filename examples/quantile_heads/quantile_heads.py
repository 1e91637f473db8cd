"""Quantile (QR) heads with backward induction: OB2I over distributions (Dabney et al. 2018).

A head has N quantiles per action instead of one value, as N columns of [B, K N, A] that the package
treats as heads: columns k N .. k N + N - 1 are head k, and column k N + i is its quantile at the
level (i + 1/2) / N. So backward induction carries each quantile from the end of an episode to its
start, and beta averages two quantile functions. Only the parts below must know which columns belong
together: the choice of a', the preference, the bonus and the loss. `num_quantiles`, N, must be the
same in all of them, so it has no default. The package stays untouched.
"""

from collections.abc import Callable

import gin
import tensorflow as tf

from ob2i_tf import acting, bonuses, networks, targets


@gin.configurable(denylist=['seed', 'prior_seed'])
class QuantileQNetwork(networks.QNetwork):
    """K heads of N quantiles: [B, *stack] -> [B, K N, A].

    With priors (`MultiHeadQNetwork.prior_scale`) each quantile has a separate one.

    Args:
      num_actions: Number of actions, A.
      num_quantiles: Quantiles per head and action, N.
      network: Builds the network that computes the quantiles, K heads with A N outputs each.
      seed, prior_seed: See MultiHeadQNetwork.
    """

    def __init__(
        self,
        num_actions: int,
        num_quantiles: int = gin.REQUIRED,
        network: Callable = networks.MultiHeadQNetwork,
        seed: int = 0,
        prior_seed: int = 0,
    ):
        super().__init__(name='quantile_q_network')
        self.outputs_of = network(num_actions * num_quantiles, seed=seed, prior_seed=prior_seed)
        self.num_actions = num_actions
        self.num_heads = self.outputs_of.num_heads * num_quantiles  # For the rest of the package.
        self.trains_output = self.outputs_of.trains_output

    def call(self, observations, seed=None):
        outputs = self.outputs_of(observations, seed)  # [B, K, N A]
        return tf.reshape(outputs, (-1, self.num_heads, self.num_actions))


def head_means(q_values, num_quantiles):
    """The mean of each head's quantiles, its value: [..., K N, A] -> [..., K, A]."""
    q_values = tf.convert_to_tensor(q_values)
    columns, num_actions = q_values.shape[-2:]
    split = (columns // num_quantiles, num_quantiles, num_actions)
    split = tf.concat([tf.shape(q_values)[:-2], split], axis=0)
    return tf.reduce_mean(tf.reshape(q_values, split), axis=-2)


@gin.configurable
def quantile_head_preferences(q_values, heads, num_quantiles: int = gin.REQUIRED):
    """The mean of the head to which the drawn column belongs: [B, K N, A], [B] -> [B, A]."""
    return acting.head_preferences(head_means(q_values, num_quantiles), heads // num_quantiles)


@gin.configurable
def greedy_by_mean(q_values, num_quantiles: int = gin.REQUIRED):
    """a', the same for all quantiles of a head: [..., K N, A] -> [..., K N] int32."""
    greedy = targets.argmax_actions(head_means(q_values, num_quantiles))
    return tf.repeat(greedy, num_quantiles, axis=-1)


@gin.configurable
class BonusOfMeans(bonuses.Bonus):
    """A bonus computed from the heads' means, so that OB2I's is the spread of these means.

    The spread of quantiles within a head is the randomness of the return, and earns no bonus.

    Args:
      bonus: Bonus, such as UcbBonus, that sees the means.
      num_quantiles: Quantiles per head and action, N.
    """

    def __init__(self, bonus: bonuses.Bonus = gin.REQUIRED, num_quantiles: int = gin.REQUIRED):
        super().__init__(name='bonus_of_means')
        self.bonus = bonus
        self.num_quantiles = num_quantiles
        self.needs_whole_episodes = bonus.needs_whole_episodes

    def build(self, frame_shape, num_heads, num_actions, seed):
        self.bonus.build(frame_shape, num_heads // self.num_quantiles, num_actions, seed)

    def __call__(self, experience):
        next_q = head_means(experience.next_q, self.num_quantiles)
        return self.bonus(
            experience._replace(
                next_q=next_q,
                next_actions=experience.next_actions[:, :: self.num_quantiles],
                q_values=lambda: head_means(experience.q_values(), self.num_quantiles),
            )
        )


@gin.configurable
def quantile_huber(target_quantiles, quantiles, num_quantiles: int = gin.REQUIRED):
    """Each quantile's regression on all N target quantiles of its head.

        loss[i] = mean over j of |tau[i] - 1{y[j] < q[i]}| Huber(y[j] - q[i])

    That is Dabney et al. (2018), eq. 10, with kappa 1; QLearner takes the mean over i and the
    heads, whereas they sum over i.

    Args:
      target_quantiles, quantiles: Quantiles y and q, [B, K N].
      num_quantiles: Quantiles per head and action, N; tau[i] = (i + 1/2) / N.

    Returns:
      [B, K N].
    """
    shape = (-1, quantiles.shape[1] // num_quantiles, num_quantiles)
    y, q = tf.reshape(target_quantiles, shape), tf.reshape(quantiles, shape)
    difference = y[:, :, None, :] - q[..., None]  # [B, K, i, j]
    size = tf.abs(difference)
    huber = tf.where(size <= 1, 0.5 * tf.square(difference), size - 0.5)
    tau = (tf.range(num_quantiles, dtype=tf.float32)[:, None] + 0.5) / num_quantiles
    weights = tf.abs(tau - tf.cast(difference < 0, tf.float32))
    return tf.reshape(tf.reduce_mean(weights * huber, axis=-1), tf.shape(quantiles))
