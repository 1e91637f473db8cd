"""Several networks trained in parallel, of which the best replaces the others (adaptive EBU)."""

from typing import Annotated, Any

import gin
import numpy as np

from ob2i_tf import networks, types
from ob2i_tf.parameters import AtLeast, checked
from ob2i_tf.posteriors.base import EnsemblePosterior


@gin.configurable(denylist=['seed'])
@checked
class AdaptivePosterior(EnsemblePosterior):
    """K learners play in turn, and the best replaces the others (adaptive EBU, Lee et al. 2019).

    Learner i plays every K-th game. Every `selection_period` agent steps the learner with the
    largest sum of rewards in that period is copied onto the others, online and target network (but
    not the optimizer's moments), and all sums restart at 0. Rewards of the random actions before
    learning starts are not counted.

    Args:
      selection_period: Agent steps per selection.
    """

    requires_head_preference = True

    def __init__(
        self,
        network: Any,
        target_network: Any,
        replay: Any,
        num_envs: int,
        seed: int,
        selection_period: Annotated[int, AtLeast(1)] = 250_000,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if not isinstance(network, networks.IndependentQNetworks):
            raise ValueError('AdaptivePosterior needs Runner.network = @IndependentQNetworks')
        self._selection_period = selection_period
        self._games_started = 0
        self._scores = np.zeros(network.num_heads)

    def draw_heads(self, count: int, rng: np.random.Generator) -> np.ndarray:
        heads = (self._games_started + np.arange(count)) % self.network.num_heads
        self._games_started += count
        return heads.astype(np.int32)

    def evaluation_heads(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return np.full(count, self.best, np.int32)

    @property
    def best(self) -> int:
        """The learner with the largest sum of rewards in this period; the first one at a tie."""
        return int(self._scores.argmax())

    def observe(self, step: types.Step) -> None:
        for steps_done, (head, reward) in enumerate(zip(step.heads, step.rewards), start=1):
            self._scores[head] += 0 if step.warmup else reward
            if (step.agent_steps + steps_done) % self._selection_period == 0:
                for network in (self.network, self.target_network):
                    network.copy_from(self.best)
                self._scores[:] = 0

    def state(self) -> dict[str, np.ndarray]:
        return {'scores': self._scores, 'games': np.array(self._games_started)}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        self._scores = arrays['scores']
        self._games_started = int(arrays['games'])
