"""Running moments of a stream of numbers."""

from typing import Any

import tensorflow as tf

from ob2i_tf.chunks import floating


class RunningStd(tf.Module):
    """The population standard deviation of all values seen so far.

    OB2I divides the bonus of the next value by it, "a running estimate of its standard deviation"
    (paper, appendix D.1): no mean is subtracted and nothing is forgotten. Batches are merged by the
    parallel form of Welford's recursion, in float64.

    Args:
      prior_count: Weight, in values, of a prior with mean 0 and variance 1. 0 gives exactly the
        moments of the data.
      shape: Shape of one value; each element has separate moments.
    """

    def __init__(self, prior_count: float = 0.0, shape: tuple[int, ...] = ()):
        super().__init__(name='running_std')
        self.count = tf.Variable(prior_count, dtype=tf.float64, trainable=False, name='count')
        self.mean = tf.Variable(
            tf.zeros(shape, tf.float64), dtype=tf.float64, trainable=False, name='mean'
        )
        self.squares = tf.Variable(  # Sum of squared deviations from the mean.
            tf.fill(shape, tf.constant(prior_count, tf.float64)), trainable=False, name='squares'
        )

    @property
    def std(self) -> tf.Tensor:
        """Standard deviation [*shape], float64; 1 while unknown or 0, to avoid division by 0."""
        variance = tf.math.divide_no_nan(self.squares, self.count)
        return tf.where(variance > 0, tf.sqrt(variance), tf.ones_like(variance))

    def update(self, x: Any, weights: Any = None) -> None:
        """Adds all values of x to the moments.

        Args:
          x: [..., *shape].
          weights: [...], how often each value counts; None: once each.
        """
        x = tf.reshape(tf.cast(x, tf.float64), (-1, *self.mean.shape))
        weights = tf.ones(tf.shape(x)[:1], tf.float64) if weights is None else weights
        weights = tf.reshape(tf.cast(weights, tf.float64), (-1, *[1] * self.mean.shape.rank))
        count = tf.reduce_sum(weights)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weights * x, axis=0), count)
        squares = tf.reduce_sum(weights * tf.square(x - mean), axis=0)
        total = self.count + count
        delta = mean - self.mean
        share = tf.math.divide_no_nan(count, total)
        self.squares.assign_add(squares + tf.square(delta) * self.count * share)
        self.mean.assign_add(delta * share)
        self.count.assign(total)

    def normalize(self, x: Any) -> tf.Tensor:
        """x / running standard deviation, in the type of x (float32 for integers)."""
        x = floating(x)
        return x / tf.cast(self.std, x.dtype)
