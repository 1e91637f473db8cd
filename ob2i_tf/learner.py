"""One compiled gradient step, and the target network."""

from collections.abc import Callable
from typing import Annotated, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import networks, optimizers, types
from ob2i_tf.errors import NotFiniteError
from ob2i_tf.parameters import Above, checked
from ob2i_tf.tracing import Compiled, check_traced


@gin.configurable
def squared_error(targets, q_values):
    """(target - Q)^2, elementwise (paper, Algorithm 2)."""
    return tf.square(targets - q_values)


@gin.configurable
def huber(targets, q_values):
    """Huber's loss with delta 1, elementwise (the released code)."""
    difference = targets - q_values
    size = tf.abs(difference)
    return tf.where(size <= 1, 0.5 * tf.square(difference), size - 0.5)


@gin.configurable(denylist=['seed', 'xla'])
@checked
class QLearner(tf.Module):
    """Regresses the network on batches of targets.

    The loss is the mean over batch and heads of loss(target, Q^k(s, a)); rows of weight 0 do not
    count, and a head that a mask leaves out of a row adds 0 to it.

    Args:
      network: the online network, built.
      target_network: its twin, built.
      seed: of the noise of noisy networks, drawn anew for each step.
      xla: whether XLA compiles the step.
      optimizer: builds the optimizer, see optimizers.py.
      loss: Maps targets and Q-values of the actions, both [B, K], to losses [B, K].
      loss_scale: factor on the loss; the released code divides it by K.
      max_gradient_norm: the global norm at which gradients are clipped (paper, table 4), networks
        that learn apart each on their own; None: never.
      target_init: 'copy' starts the target network equal to the online one; 'random' leaves it at
        its own initial weights until the first copy (the released code).

    Raises:
      ValueError: a value that cannot be, with its binding.
    """

    def __init__(
        self,
        network,
        target_network,
        seed=0,
        xla=False,
        optimizer: Callable = optimizers.adam,
        loss: Callable = squared_error,
        loss_scale: Annotated[float, Above(0)] = 1.0,
        max_gradient_norm: Annotated[float, Above(0)] | None = 10.0,
        target_init: Literal['copy', 'random'] = 'copy',
    ):
        super().__init__(name='learner')
        heads = tf.TensorSpec([None, network.num_heads])
        check_traced(
            'QLearner.loss',
            loss,
            (heads, heads),
            (None, network.num_heads),
            'targets and Q-values [n, K] to losses [n, K]',
        )
        self.network = network
        self.target_network = target_network
        self._optimizer = optimizer()
        self._generator = tf.random.Generator.from_seed(seed)
        self._loss = loss
        self._loss_scale = loss_scale
        self._max_norm = max_gradient_norm
        self._xla = xla
        self._compiled_step = None
        self._optimizer._create_all_weights(network.trainable_variables)  # For checkpoints.
        if target_init == 'copy':
            self.update_target()

    @property
    def learner_steps(self):
        return int(self._optimizer.iterations)

    def step(self, batch: types.Batch):
        """One gradient step on `batch`.

        Returns:
          {'loss': ..., 'q_mean': ...} as floats; and |target - Q| [B], averaged over heads.

        Raises:
          NotFiniteError: if the loss is NaN or infinite; the weights are then already spoilt.
        """
        *means, errors = self.compiled_step(batch)(*batch[:-1])
        loss, q_mean = map(float, means)
        if not (np.isfinite(loss) and np.isfinite(q_mean)):
            raise NotFiniteError(
                f'loss {loss}, mean Q-value {q_mean} at learner step {self.learner_steps}; '
                f'targets of this batch: min {np.min(batch.targets)}, max {np.max(batch.targets)}'
            )
        return {'loss': loss, 'q_mean': q_mean}, errors.numpy()

    def compiled_functions(self):
        built = [] if self._compiled_step is None else [self._compiled_step.function]
        return [*built, self.update_target]

    def compiled_step(self, batch):
        """The step, compiled for batches like this one, with any number of rows."""
        if self._compiled_step is None:
            # One trace for all sizes: a run that goes on must compute as one that never stopped.
            signature = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in batch[:-1]]
            self._compiled_step = Compiled(self._step, signature, self._xla)
        return self._compiled_step

    @tf.function(autograph=False)
    def update_target(self):
        """Copies the online network into the target network."""
        networks.copy_variables(self.network, self.target_network)

    def _step(self, observations, actions, targets, weights, masks):
        """The step on the columns of a Batch: loss, mean Q-value, absolute errors [B]."""
        seed = self._generator.make_seeds()[:, 0]
        groups = self.network.variable_groups
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(groups)
            q_values = tf.gather(
                tf.transpose(self.network(observations, seed), (0, 2, 1)),
                actions,
                axis=1,
                batch_dims=1,
            )
            losses = tf.reduce_mean(masks * self._loss(targets, q_values), axis=1)
            loss = tf.reduce_sum(weights * losses) / tf.reduce_sum(weights)
            scaled_loss = self._loss_scale * loss
        gradients = []
        for group, of_group in zip(groups, tape.gradient(scaled_loss, groups)):
            gradients += zip(_clip_by_global_norm(of_group, self._max_norm), group)
        self._optimizer.apply_gradients(gradients)
        q_mean = tf.reduce_sum(weights * tf.reduce_mean(q_values, axis=1)) / tf.reduce_sum(weights)
        return loss, q_mean, tf.reduce_mean(tf.abs(targets - q_values), axis=1)


def check_finite(when, **modules):
    """Raises NotFiniteError, naming the variable, unless all variables of the modules are finite.

    Args:
      when: what the error is to say of the moment.
      **modules: tf.Module by name; a variable of several is named by the first.
    """
    looked_at = set()
    for name, module in modules.items():
        for variable in module.variables:
            if id(variable) in looked_at:
                continue
            looked_at.add(id(variable))
            if variable.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(variable)):
                raise NotFiniteError(f'{name}: {variable.name} holds NaN or infinity {when}')


def _clip_by_global_norm(gradients, max_norm):
    """Like tf.clip_by_global_norm, but leaves gradients below the norm untouched and unread."""
    if max_norm is None:
        return gradients
    norm = tf.sqrt(tf.add_n([2 * tf.nn.l2_loss(gradient) for gradient in gradients]))
    return tf.cond(
        norm > max_norm,
        lambda: [gradient * (max_norm / norm) for gradient in gradients],
        lambda: [tf.identity(gradient) for gradient in gradients],
    )
