"""The optimizers, built with the numbers that gin binds."""

import math

import gin
import tensorflow as tf


@gin.configurable
def adam(
    learning_rate: float = gin.REQUIRED,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
):
    """Adam, bias-corrected, epsilon added to the root of the uncorrected second moment.

    The defaults are the paper's (tables 3 and 4). One fused op per variable.
    """
    _check('adam', ('learning_rate', 'epsilon'), (learning_rate, epsilon))
    _check('adam', ('beta_1', 'beta_2'), (beta_1, beta_2), below=1)
    return tf.keras.optimizers.legacy.Adam(learning_rate, beta_1, beta_2, epsilon)


@gin.configurable
def rmsprop(
    learning_rate: float = gin.REQUIRED,
    decay: float = 0.95,
    momentum: float = 0.0,
    epsilon: float = 0.01,
    centered: bool = True,
):
    """RMSProp with step = learning_rate g / sqrt(E[g^2] - E[g]^2 + epsilon) (Mnih et al. 2015).

    Without `centered`, E[g] is left out.
    """
    _check('rmsprop', ('learning_rate', 'epsilon'), (learning_rate, epsilon))
    _check('rmsprop', ('decay', 'momentum'), (decay, momentum), below=1)
    # A momentum of 0 would be left to another formula of Keras, sqrt(E[g^2] - E[g]^2) + epsilon,
    # which is NaN where rounding makes the difference negative; a function selects the fused op.
    return tf.keras.optimizers.legacy.RMSprop(
        learning_rate, decay, lambda: momentum, epsilon, centered
    )


def _check(optimizer, names, values, below=math.inf):
    for name, value in zip(names, values):
        if not 0 <= value < below:
            upper = f' and must be below {below}' if math.isfinite(below) else ''
            raise ValueError(f'{optimizer}.{name} must not be negative{upper}, got {value}')
