"""Factories of optimizers; gin binds their parameters."""

from typing import Annotated

import gin
import tensorflow as tf

from ob2i_tf.parameters import AtLeast, Below, checked

_NotNegative = Annotated[float, AtLeast(0)]
_Decay = Annotated[float, AtLeast(0), Below(1)]


@gin.configurable
@checked
def adam(
    learning_rate: _NotNegative = gin.REQUIRED,
    beta_1: _Decay = 0.9,
    beta_2: _Decay = 0.999,
    epsilon: _NotNegative = 1e-7,
) -> tf.keras.optimizers.legacy.Adam:
    """Adam, bias-corrected, with epsilon added to the root of the uncorrected second moment.

    The defaults are the paper's (tables 3 and 4). One fused op per variable.
    """
    return tf.keras.optimizers.legacy.Adam(learning_rate, beta_1, beta_2, epsilon)


@gin.configurable
@checked
def rmsprop(
    learning_rate: _NotNegative = gin.REQUIRED,
    decay: _Decay = 0.95,
    momentum: _Decay = 0.0,
    epsilon: _NotNegative = 0.01,
    centered: bool = True,
) -> tf.keras.optimizers.legacy.RMSprop:
    """RMSProp with step = learning_rate g / sqrt(E[g^2] - E[g]^2 + epsilon) (Mnih et al. 2015).

    Without `centered`, E[g] is left out.
    """
    # For a momentum of 0 Keras uses another formula, sqrt(E[g^2] - E[g]^2) + epsilon, which is NaN
    # where rounding makes the difference negative; passing a function selects the fused op.
    return tf.keras.optimizers.legacy.RMSprop(
        learning_rate, decay, lambda: momentum, epsilon, centered
    )
