"""Bayesian linear regression on the last layer's features (Bayesian-DQN)."""

from typing import Annotated, Any, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import types
from ob2i_tf.parameters import Above, AtLeast, checked
from ob2i_tf.posteriors.base import SingleHeadPosterior

_STATES_PER_PASS = 256


@gin.configurable(denylist=['seed'])
@checked
class BayesianLinearPosterior(SingleHeadPosterior):
    """Bayesian-DQN: a posterior over the last layer's weights (Azizzadenesheli et al. 2018).

    Every `regression_period` copies into the target network, the weights w_a of each action get the
    posterior of a linear regression on transitions from replay, with y = r + gamma max_a' w^T
    phi(s') by the target network:

        w_a ~ N(mean_a, Cov_a),  Cov_a = (sum phi phi^T / noise_variance + I / prior_variance)^-1,
        mean_a = Cov_a (sum phi y) / noise_variance.

    The mean becomes the output layer of the online and the target network; gradients only train the
    features below it. The agent acts greedily by a sample of all w_a, which is kept for
    `sample_period` agent steps; double Q-learning chooses a' by the same sample.

    Args:
      regression_period: Copies into the target network per regression.
      regression_transitions: Transitions drawn from replay per regression; fewer as long as replay
        holds fewer.
      prior_variance: Prior variance of each weight.
      noise_variance: Variance of y around the regression.
      covariance: Covariance of the sample: 'posterior', see above, or 'released', prior_variance
        times that, and I before the first regression (the released code).
      sample_period: Agent steps per sample; the released code's effective value is 1, its intended
        value 1000.
      initial_std: Standard deviation of the output layer's weights until the first regression.
    """

    fits_output_layer = True

    def __init__(
        self,
        network: Any,
        target_network: Any,
        replay: Any,
        num_envs: int,
        seed: int,
        regression_period: Annotated[int, AtLeast(1)] = 10,
        regression_transitions: Annotated[int, AtLeast(1)] = 100_000,
        prior_variance: Annotated[float, Above(0)] = 1e-3,
        noise_variance: Annotated[float, Above(0)] = 1.0,
        covariance: Literal['posterior', 'released'] = 'posterior',
        sample_period: Annotated[int, AtLeast(1)] = 1000,
        initial_std: Annotated[float, AtLeast(0)] = 0.01,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if (
            network.value_heads is not None
            or network.noise is not None
            or network.prior_scale
            or network.value_scale != 1
        ):
            raise ValueError(
                'BayesianLinearPosterior does not support MultiHeadQNetwork.dueling, .noise, '
                '.prior_scale or .value_scale: it fits the output layer to the values themselves'
            )
        self._regression_period = regression_period
        self._regression_transitions = regression_transitions
        self._variances = prior_variance, noise_variance
        self._released = covariance == 'released'
        self._sample_period = sample_period
        self._copies = 0  # Into the target network.
        kernel = network.heads.output_layer.kernel  # [1, A, D]; the bias stays 0.
        scale = 1.0 if self._released else np.sqrt(prior_variance)
        self.cholesky = tf.Variable(
            scale * tf.eye(kernel.shape[-1], batch_shape=[kernel.shape[1]]),
            trainable=False,
            name='cholesky',
        )
        self.drawn = tf.Variable(tf.zeros(kernel.shape[1:]), trainable=False, name='drawn')
        self._set_mean(initial_std * self._generator.normal(kernel.shape[1:]))
        self._draw()

    def sample(self, observations: Any, seed: Any) -> tf.Tensor:
        return tf.matmul(self.phi(observations), self.drawn, transpose_b=True)[:, None]

    def observe(self, step: types.Step) -> None:
        for steps_done in range(1, len(step.actions) + 1):
            if (step.agent_steps + steps_done) % self._sample_period == 0:
                self._draw()

    def target_updated(self) -> None:
        self._copies += 1
        if self._copies % self._regression_period == 0 and self._replay.num_transitions:
            self._regress()

    def _regress(self):
        """Refits the posterior and draws from it."""
        size = self.cholesky.shape
        squares, products = tf.zeros(size, tf.float64), tf.zeros(size[:2], tf.float64)
        remaining = min(self._regression_transitions, self._replay.num_transitions)
        while remaining:
            rows = self._replay.sample_transitions(min(remaining, _STATES_PER_PASS))
            squares, products = self._add_moments(squares, products, *rows[:-1])
            remaining -= len(rows.actions)
        mean, covariance = regression_posterior(squares, products, *self._variances)
        if self._released:
            covariance *= self._variances[0]
        self.cholesky.assign(tf.cast(tf.linalg.cholesky(covariance), tf.float32))
        self._set_mean(tf.cast(mean, tf.float32))
        self._draw()

    @tf.function(reduce_retracing=True, autograph=False)
    def _add_moments(
        self, squares, products, observations, actions, rewards, discounts, next_observations
    ):
        """Adds sum phi phi^T [A, D, D] and sum phi y [A, D] of some transitions, in float64."""
        next_q = self.target_network(next_observations)[:, 0]
        y = tf.cast(rewards + discounts * tf.reduce_max(next_q, axis=-1), tf.float64)
        phi = tf.cast(self.phi(observations), tf.float64)
        taken = tf.one_hot(actions, self.network.num_actions, dtype=tf.float64)
        by_action = taken[:, :, None] * phi[:, None]  # [B, A, D]
        squares += tf.einsum('bad,be->ade', by_action, phi)
        return squares, products + tf.einsum('bad,b->ad', by_action, y)

    def _set_mean(self, mean):
        for network in (self.network, self.target_network):
            network.heads.output_layer.kernel.assign(mean[None])

    @tf.function(autograph=False)
    def _draw(self):
        mean = self.network.heads.output_layer.kernel[0]
        self.drawn.assign(
            mean + tf.linalg.matvec(self.cholesky, self._generator.normal(self.drawn.shape))
        )

    def state(self) -> dict[str, np.ndarray]:
        return {'copies': np.array(self._copies)}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        self._copies = int(arrays['copies'])


def regression_posterior(
    squares: tf.Tensor, products: tf.Tensor, prior_variance: float, noise_variance: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Bayesian linear regression without intercept, separately for A outputs.

    Args:
      squares: Sum of x x^T, [A, D, D].
      products: Sum of x y, [A, D].
      prior_variance: Prior variance of each weight, around 0.
      noise_variance: Variance of the noise of y.

    Returns:
      The posterior's means [A, D] and covariances [A, D, D].
    """
    identity = tf.eye(squares.shape[-1], dtype=squares.dtype)
    covariance = tf.linalg.inv(squares / noise_variance + identity / prior_variance)
    return tf.linalg.matvec(covariance, products) / noise_variance, covariance
