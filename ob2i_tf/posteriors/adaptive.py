"""Networks that train side by side, of which the best is followed (adaptive EBU)."""

from typing import Annotated

import gin
import numpy as np

from ob2i_tf import networks
from ob2i_tf.parameters import AtLeast, checked
from ob2i_tf.posteriors.base import EnsemblePosterior


@gin.configurable(denylist=['seed'])
@checked
class AdaptivePosterior(EnsemblePosterior):
    """Learners that take turns, and the best replaces the others (adaptive EBU, Lee et al. 2019).

    Learner i plays every K-th game. Every `selection_period` agent steps the learner with the
    largest sum of rewards since the last time is copied onto the others, online and target network
    (not the optimizer's moments), and all sums start at 0. Rewards of random actions before
    learning starts count for no learner.

    Args:
      selection_period: agent steps.
    """

    needs_heads = True

    def __init__(
        self,
        network,
        target_network,
        replay,
        num_envs,
        seed,
        selection_period: Annotated[int, AtLeast(1)] = 250_000,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if not isinstance(network, networks.IndependentQNetworks):
            raise ValueError('AdaptivePosterior needs Runner.network = @IndependentQNetworks')
        self._selection_period = selection_period
        self._games = 0  # Started.
        self._scores = np.zeros(network.num_heads)

    def draw_heads(self, count, rng):
        heads = (self._games + np.arange(count)) % self.network.num_heads
        self._games += count
        return heads.astype(np.int32)

    def evaluation_heads(self, count, rng):
        return np.full(count, self.best, np.int32)

    @property
    def best(self):
        """The learner with the largest sum of rewards so far; the first of equals."""
        return int(self._scores.argmax())

    def observe(self, step):
        for done, (head, reward) in enumerate(zip(step.heads, step.rewards), start=1):
            self._scores[head] += 0 if step.warmup else reward
            if (step.agent_steps + done) % self._selection_period == 0:
                for network in (self.network, self.target_network):
                    network.copy_from(self.best)
                self._scores[:] = 0

    def state(self):
        return {'scores': self._scores, 'games': np.array(self._games)}

    def set_state(self, arrays):
        self._scores = arrays['scores']
        self._games = int(arrays['games'])
