"""The learner: one compiled gradient step, and the target network."""

import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import networks, optimizers, types
from ob2i_tf.errors import NotFiniteError
from ob2i_tf.parameters import Above, checked
from ob2i_tf.tracing import Compiled, check_traced


@gin.configurable
def squared_error(targets: tf.Tensor, q_values: tf.Tensor) -> tf.Tensor:
    """(target - Q)^2, elementwise (paper, Algorithm 2)."""
    return tf.square(targets - q_values)


@gin.configurable
def huber(targets: tf.Tensor, q_values: tf.Tensor) -> tf.Tensor:
    """Huber's loss with delta 1, elementwise (the released code)."""
    difference = targets - q_values
    size = tf.abs(difference)
    return tf.where(size <= 1, 0.5 * tf.square(difference), size - 0.5)


@gin.configurable(denylist=['seed', 'xla'])
@checked
class QLearner(tf.Module):
    """Regresses the network on batches of targets.

    The loss is the mean over batch and heads of loss(target, Q^k(s, a)). Rows of weight 0 do not
    count, and a head that is masked out of a row contributes 0.

    Args:
      network: Online network, with its variables.
      target_network: Target network, with its variables.
      seed: Seed of the noise of noisy networks, drawn anew for each step.
      xla: Whether XLA compiles the step.
      optimizer: Builds the optimizer, see optimizers.py.
      loss: Maps targets and Q-values of the actions, both [B, K], to losses [B, K].
      loss_scale: Factor on the loss; the released code divides the loss by K.
      max_gradient_norm: Global norm at which gradients are clipped (paper, table 4), separately for
        each of the network's `variable_groups`; None: they are not clipped.
      target_init: 'copy' starts the target network equal to the online one; 'random' keeps its
        initial weights until the first copy (the released code).

    Raises:
      ValueError: An argument is out of range; the message names the binding.
      ConfigError: The loss cannot be traced, is not float32 or has no gradient.
    """

    def __init__(
        self,
        network: Any,
        target_network: Any,
        seed: int = 0,
        xla: bool = False,
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
            functools.partial(_with_gradient, loss),
            (heads, heads),
            (heads, heads),  # The losses and their gradient.
            'targets and Q-values [n, K] to losses [n, K], float32 and differentiable',
        )
        self.network = network
        self.target_network = target_network
        self._optimizer = optimizer()
        self._generator = tf.random.Generator.from_seed(seed)
        self._loss = loss
        self._loss_scale = loss_scale
        self._max_norm = max_gradient_norm
        self._xla = xla
        self._compiled_step: Compiled | None = None
        self._optimizer._create_all_weights(network.trainable_variables)  # For checkpoints.
        if target_init == 'copy':
            self.update_target()

    def __str__(self) -> str:
        """The bindings, for errors."""
        loss = getattr(self._loss, '__name__', self._loss)
        return f'Runner.learner = @{type(self).__name__} with QLearner.loss = @{loss}'

    @property
    def learner_steps(self) -> int:
        """Number of learner steps taken."""
        return int(self._optimizer.iterations)

    def step(self, batch: types.Batch) -> tuple[dict[str, float], np.ndarray]:
        """One gradient step on `batch`.

        Returns:
          {'loss': ..., 'q_mean': ...} as floats; and |target - Q| [B], averaged over heads.

        Raises:
          NotFiniteError: The loss is NaN or infinite; the weights are already corrupted.
        """
        loss, q_mean, errors = self.compiled_step(batch)(*batch[:-1])
        return self.report(loss, q_mean, batch.targets), errors.numpy()

    def report(self, loss: Any, q_mean: Any, targets: Any) -> dict[str, float]:
        """The report of a step, see `step`; raises a NotFiniteError like it."""
        loss, q_mean = float(loss), float(q_mean)
        if not (np.isfinite(loss) and np.isfinite(q_mean)):
            raise NotFiniteError(
                f'{self}: loss {loss}, mean Q-value {q_mean} at learner step {self.learner_steps}; '
                f'targets of this batch: min {np.min(targets)}, max {np.max(targets)}'
            )
        return {'loss': loss, 'q_mean': q_mean}

    def compiled_step(self, batch: types.Batch) -> Compiled:
        """The step, compiled for batches like this one, with any number of rows."""
        if self._compiled_step is None:
            # One trace for all sizes, so that a resumed run computes like an uninterrupted one.
            signature = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in batch[:-1]]
            self._compiled_step = Compiled(self._step, signature, self._xla)
        return self._compiled_step

    @tf.function(autograph=False)
    def update_target(self) -> None:
        """Copies the online network into the target network."""
        networks.copy_variables(self.network, self.target_network)

    def _step(self, observations, actions, targets, weights, masks):
        """The step on the columns of a Batch: loss, mean Q-value, absolute errors [B]."""
        seed = self._generator.make_seeds()[:, 0]
        groups = self.network.variable_groups
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(groups)
            # The gradients of tf.gather, and of a mean without keepdims, would compute shapes on a
            # GPU and wait for them.
            actions = tf.cast(actions, tf.int32)
            taken = tf.stack([tf.range(tf.shape(actions)[0]), actions], axis=1)
            q_values = tf.gather_nd(
                tf.transpose(self.network(observations, seed), (0, 2, 1)), taken
            )
            losses = tf.reduce_mean(masks * self._loss(targets, q_values), axis=1, keepdims=True)
            losses = tf.squeeze(losses, axis=1)
            loss = tf.reduce_sum(weights * losses) / tf.reduce_sum(weights)
            scaled_loss = self._loss_scale * loss
        gradients = []
        for group, group_gradients in zip(groups, tape.gradient(scaled_loss, groups)):
            gradients += zip(_clip_by_global_norm(group_gradients, self._max_norm), group)
        self._optimizer.apply_gradients(gradients)
        q_mean = tf.reduce_sum(weights * tf.reduce_mean(q_values, axis=1)) / tf.reduce_sum(weights)
        return loss, q_mean, tf.reduce_mean(tf.abs(targets - q_values), axis=1)


def check_finite(when: str, **modules: tf.Module) -> None:
    """Raises NotFiniteError, naming the variable, unless all variables of the modules are finite.

    Args:
      when: Time of the check, appended to the message.
      **modules: tf.Module by name; a variable that several share is reported under the first name.
    """
    checked_ids = set()
    for name, module in modules.items():
        for variable in module.variables:
            if id(variable) in checked_ids:
                continue
            checked_ids.add(id(variable))
            if variable.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(variable)):
                raise NotFiniteError(f'{name}: {variable.name} holds NaN or infinity {when}')


def _with_gradient(loss, targets, q_values):
    with tf.GradientTape() as tape:
        tape.watch(q_values)
        losses = loss(targets, q_values)
    return losses, tape.gradient(losses, q_values)


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
