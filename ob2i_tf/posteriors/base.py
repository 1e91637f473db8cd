"""The interface of posteriors, and the one of bootstrapped heads."""

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import networks, types


class Posterior(tf.Module):
    """The interface, with what most posteriors have in common.

    Attributes:
      sets_last_layer: whether it, and not gradients, decides the network's last layer.
      needs_heads: whether it has to be acted on by a preference that follows a head.
      compiles: whether XLA can compile it.

    Args:
      network: the online network, built.
      target_network: its twin, built.
      replay: EpisodeReplay.
      num_envs: environments that the agent acts in.
      seed: of all random choices that are not the caller's.
    """

    sets_last_layer = False
    needs_heads = False
    compiles = True

    def __init__(self, network, target_network, replay, num_envs, seed):
        super().__init__(name='posterior')
        if network.trains_output == self.sets_last_layer:
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork.train_output = '
                f'{not self.sets_last_layer}'
            )
        self.network = network
        self.target_network = target_network
        self._replay = replay
        self._num_envs = num_envs
        self._generator = tf.random.Generator.from_seed(seed)

    def mean(self, observations):
        """[B, *stack] -> [B, K, A]."""
        return self.network(observations)

    def sample(self, observations, seed):
        """[B, *stack], and a [2] int seed of stateless draws -> [B, K, A]."""
        return self.network(observations, seed)

    def selector(self, observations, seed):
        """As `sample`: what double Q-learning chooses the next action by."""
        return self.sample(observations, seed)

    def following(self, observations, heads, seed):
        """Q-values [B, K, A], the mean for seed None, and where in them [B] the heads are."""
        q_values = self.mean(observations) if seed is None else self.sample(observations, seed)
        return q_values, heads

    def draw_heads(self, count, rng):
        """The heads [count] int32 that environments follow from now on."""
        return rng.integers(self.network.num_heads, size=count, dtype=np.int32)

    def evaluation_heads(self, count, rng):
        """As `draw_heads`, for evaluation; it changes nothing."""
        return self.draw_heads(count, rng)

    def observe(self, step: types.Step):
        """Called after each step of the environments in training."""

    def end(self):
        """Called when the environments are about to be left."""

    def target_updated(self):
        """Called after each copy into the target network."""

    def state(self):
        """What a checkpoint keeps as arrays, by name; variables it keeps by itself."""
        return {}

    def set_state(self, arrays):
        del arrays

    def compiled_functions(self):
        """The tf.functions of its own whose traces a run counts."""
        return []


@gin.configurable(denylist=['seed'])
class EnsemblePosterior(Posterior):
    """The heads as they are (Osband et al. 2016), or the noise of a noisy network.

    A noisy network draws its noise anew for each call of `sample` and `selector`, one draw for all
    observations of the call (Fortunato et al. 2018, section 3.1); `mean` goes without.
    """

    def following(self, observations, heads, seed):
        return self.network.following(observations, heads, seed)


class SingleHeadPosterior(Posterior):
    """One for networks with a single head whose last layer sees the features phi [B, D]."""

    def __init__(self, network, *arguments):
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

    def phi(self, observations):
        return self.network.hidden(observations)[:, 0]
