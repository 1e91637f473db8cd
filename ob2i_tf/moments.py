"""Running moments of a stream of numbers."""

import tensorflow as tf


class RunningStd(tf.Module):
    """The population standard deviation of all values seen so far.

    OB2I divides the bonus of the next value by it, "a running estimate of its standard deviation"
    (paper, appendix D.1): no mean is subtracted and nothing is forgotten. Batches are merged by the
    parallel form of Welford's recursion, in float64.

    Args:
      prior_count: weight, in values, of a prior with mean 0 and variance 1. 0 gives exactly the
        moments of the data; the released code has 1e-4.
    """

    def __init__(self, prior_count=0.0):
        super().__init__(name='running_std')
        self.count = tf.Variable(prior_count, dtype=tf.float64, trainable=False, name='count')
        self.mean = tf.Variable(0.0, dtype=tf.float64, trainable=False, name='mean')
        self.squares = tf.Variable(  # Sum of squared deviations from the mean.
            prior_count, dtype=tf.float64, trainable=False, name='squares'
        )

    @property
    def std(self):
        """Standard deviation, float64; 1 while unknown or 0, so that nothing divides by 0."""
        variance = tf.math.divide_no_nan(self.squares, self.count)
        return tf.where(variance > 0, tf.sqrt(variance), 1.0)

    def update(self, x, weights=None):
        """Takes in all values of x, of any shape; those whose weight is 0 do not count."""
        x = tf.cast(x, tf.float64)
        weights = (
            tf.ones_like(x)
            if weights is None
            else tf.broadcast_to(tf.cast(weights, tf.float64), tf.shape(x))
        )
        count = tf.reduce_sum(weights)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weights * x), count)
        squares = tf.reduce_sum(weights * tf.square(x - mean))
        total = self.count + count
        delta = mean - self.mean
        share = tf.math.divide_no_nan(count, total)
        self.squares.assign_add(squares + tf.square(delta) * self.count * share)
        self.mean.assign_add(delta * share)
        self.count.assign(total)

    def normalize(self, x):
        """x / running standard deviation, in the type of x (float32 for integers)."""
        x = tf.convert_to_tensor(x)
        x = x if x.dtype.is_floating else tf.cast(x, tf.float32)
        return x / tf.cast(self.std, x.dtype)
