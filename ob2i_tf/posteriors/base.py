"""The interface of posteriors, and the posterior of bootstrapped heads."""

from typing import Any

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import networks, types


class Posterior(tf.Module):
    """Interface of posteriors, with defaults that suit an ensemble.

    Attributes:
      needs_learner: Whether its values are those of the network, which the learner trains.
      fits_output_layer: Whether the posterior, not gradients, fits the network's output layer.
      requires_head_preference: Whether it requires a preference function that follows a head.
      supports_xla: Whether XLA can compile it.

    Args:
      network: Online network, with its variables.
      target_network: Target network, with its variables.
      replay: EpisodeReplay; None where a trained agent is restored.
      num_envs: Number of environments that the agent acts in.
      seed: Seed of the random choices for which the caller passes neither a seed nor a generator.
    """

    needs_learner = True
    fits_output_layer = False
    requires_head_preference = False
    supports_xla = True

    def __init__(self, network: Any, target_network: Any, replay: Any, num_envs: int, seed: int):
        super().__init__(name='posterior')
        if network.trains_output == self.fits_output_layer:
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork.train_output = '
                f'{not self.fits_output_layer}'
            )
        self.network = network
        self.target_network = target_network
        self._replay = replay
        self._num_envs = num_envs
        self._generator = tf.random.Generator.from_seed(seed)

    def mean(self, observations: Any) -> tf.Tensor:
        """The mean: [B, *stack] -> [B, K, A]."""
        return self.network(observations)

    def sample(self, observations: Any, seed: Any) -> tf.Tensor:
        """A sample: [B, *stack] and a seed [2] int for stateless draws -> [B, K, A]."""
        return self.network(observations, seed)

    def double_q_values(self, observations: Any, seed: Any) -> tf.Tensor:
        """The values by which double Q-learning chooses a', with the shapes of `sample`."""
        return self.sample(observations, seed)

    def followed_head(
        self, observations: Any, heads: Any, seed: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Q-values, the mean if seed is None, and the followed heads' indices [B] in them.

        A posterior may return [B, 1, A] and zeros to compute the followed head alone.
        """
        q_values = self.mean(observations) if seed is None else self.sample(observations, seed)
        return q_values, heads

    def draw_heads(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Heads [count] int32 for environments to follow from now on."""
        return rng.integers(self.network.num_heads, size=count, dtype=np.int32)

    def evaluation_heads(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Like `draw_heads`, for evaluation; must not change the posterior."""
        return self.draw_heads(count, rng)

    def observe(self, step: types.Step) -> None:
        """Called after each step of the environments in training."""

    def end(self) -> None:
        """Called when an iteration ends, and with it the games in progress."""

    def target_updated(self) -> None:
        """Called after each copy into the target network."""

    def state(self) -> dict[str, np.ndarray]:
        """{name: array} that a checkpoint keeps besides the variables."""
        return {}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores the result of `state`."""
        del arrays


@gin.configurable(denylist=['seed'])
class EnsemblePosterior(Posterior):
    """The bootstrapped heads themselves (Osband et al. 2016), or the draws of a noisy network.

    A noisy network draws its noise anew for each call of `sample` and `double_q_values`, one draw
    for all observations of the call (Fortunato et al. 2018, section 3.1); `mean` uses no noise.
    """

    def followed_head(
        self, observations: Any, heads: Any, seed: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self.network.followed_head(observations, heads, seed)


class SingleHeadPosterior(Posterior):
    """Base class for a network with a single head, whose output layer is linear in phi [B, D]."""

    def __init__(self, network: Any, *arguments: Any):
        super().__init__(network, *arguments)
        if not isinstance(network, networks.MultiHeadQNetwork):
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork, got {type(network).__name__}'
            )
        if network.num_heads != 1:
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork.num_heads = 1, got '
                f'{network.num_heads}'
            )

    def phi(self, observations: Any) -> tf.Tensor:
        """Inputs of the output layer: [B, *stack] -> [B, D]."""
        return self.network.hidden(observations)[:, 0]
