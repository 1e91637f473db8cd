"""One compiled gradient step, and the target network."""

from typing import Literal

import numpy as np
import tensorflow as tf

import gin
from ob2i_tf import networks, types
from ob2i_tf.errors import NotFiniteError

LOSSES = ('squared', 'huber')
TARGET_INITS = ('copy', 'random')


@gin.configurable
class QLearner(tf.Module):
    """Regresses the network on batches of targets with Adam.

    The loss is the mean over batch and heads of (target - Q^k(s, a))^2; rows of weight 0 do not
    count. Defaults are the paper's for Atari (table 4).

    Args:
      network: the online network, built.
      target_network: its twin, built.
      loss: 'squared' (the paper) or 'huber' with delta 1 (the released code).
      loss_scale: factor on the loss; the released code divides it by K.
      learning_rate, adam_beta_1, adam_beta_2, adam_epsilon: of Adam, bias-corrected, epsilon added
        to the square root of the uncorrected second moment as in TensorFlow's own op.
      max_gradient_norm: the global norm at which gradients are clipped.
      target_init: 'copy' starts the target network equal to the online one; 'random' leaves it at
        its own initial weights until the first copy (the released code).
    """

    def __init__(
        self,
        network,
        target_network,
        loss: Literal[LOSSES] = 'squared',
        loss_scale: float = 1.0,
        learning_rate: float = 2.5e-4,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_epsilon: float = 1e-7,
        max_gradient_norm: float = 10.0,
        target_init: Literal[TARGET_INITS] = 'copy',
    ):
        super().__init__(name='learner')
        if loss not in LOSSES:
            raise ValueError(f'QLearner.loss must be one of {LOSSES}, got {loss!r}')
        if target_init not in TARGET_INITS:
            raise ValueError(
                f'QLearner.target_init must be one of {TARGET_INITS}, got {target_init!r}'
            )
        self.network = network
        self.target_network = target_network
        self._loss = loss
        self._loss_scale = loss_scale
        self._learning_rate = learning_rate
        self._betas = (adam_beta_1, adam_beta_2)
        self._epsilon = adam_epsilon
        self._max_norm = max_gradient_norm
        self._first_moments = [_slot(v) for v in network.trainable_variables]
        self._second_moments = [_slot(v) for v in network.trainable_variables]
        self._steps = tf.Variable(0, dtype=tf.int64, trainable=False, name='learner_steps')
        if target_init == 'copy':
            self.update_target()

    @property
    def learner_steps(self):
        return int(self._steps)

    def step(self, batch: types.Batch):
        """One gradient step on `batch`; returns {'loss': ..., 'q_mean': ...} as floats.

        Raises:
          NotFiniteError: if the loss is NaN or infinite; the weights are then already spoilt.
        """
        loss, q_mean = (float(x) for x in self._step(*batch))
        if not (np.isfinite(loss) and np.isfinite(q_mean)):
            raise NotFiniteError(
                f'loss {loss}, mean Q-value {q_mean} at learner step {self.learner_steps}; '
                f'targets of this batch: min {np.min(batch.targets)}, max {np.max(batch.targets)}'
            )
        return {'loss': loss, 'q_mean': q_mean}

    def check_finite(self):
        """Raises NotFiniteError, naming the variable, unless all weights are finite."""
        for variable in self.network.variables:
            if not bool(tf.reduce_all(tf.math.is_finite(variable))):
                raise NotFiniteError(
                    f'{variable.name} holds NaN or infinity after learner step {self.learner_steps}'
                )

    def compiled_functions(self):
        return [self._step, self.update_target]

    @tf.function
    def update_target(self):
        """Copies the online network into the target network."""
        networks.copy_variables(self.network, self.target_network)

    @tf.function(reduce_retracing=True)
    def _step(self, observations, actions, targets, weights):
        variables = self.network.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            q_values = tf.gather(
                tf.transpose(self.network(observations), (0, 2, 1)), actions, axis=1, batch_dims=1
            )
            errors = tf.reduce_mean(self._error(targets - q_values), axis=1)
            loss = tf.reduce_sum(weights * errors) / tf.reduce_sum(weights)
            scaled_loss = self._loss_scale * loss
        gradients = tape.gradient(scaled_loss, variables)
        self._apply(_clip_by_global_norm(gradients, self._max_norm))
        q_mean = tf.reduce_sum(weights * tf.reduce_mean(q_values, axis=1)) / tf.reduce_sum(weights)
        return loss, q_mean

    def _error(self, difference):
        if self._loss == 'squared':
            return tf.square(difference)
        size = tf.abs(difference)
        return tf.where(size <= 1, 0.5 * tf.square(difference), size - 0.5)

    def _apply(self, gradients):
        """Adam by TensorFlow's fused op, which touches each array once."""
        steps = tf.cast(self._steps.assign_add(1), tf.float32)
        beta_1, beta_2 = self._betas
        for variable, first, second, gradient in zip(
            self.network.trainable_variables, self._first_moments, self._second_moments, gradients
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=tf.pow(beta_1, steps),
                beta2_power=tf.pow(beta_2, steps),
                lr=self._learning_rate,
                beta1=beta_1,
                beta2=beta_2,
                epsilon=self._epsilon,
                grad=gradient,
            )


def _slot(variable):
    return tf.Variable(tf.zeros_like(variable), trainable=False)


def _clip_by_global_norm(gradients, max_norm):
    """Like tf.clip_by_global_norm, but leaves gradients below the norm untouched and unread."""
    norm = tf.sqrt(tf.add_n([2 * tf.nn.l2_loss(gradient) for gradient in gradients]))
    return tf.cond(
        norm > max_norm,
        lambda: [gradient * (max_norm / norm) for gradient in gradients],
        lambda: [tf.identity(gradient) for gradient in gradients],
    )
