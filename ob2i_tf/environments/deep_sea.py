"""Deep Sea, the standard test of deep exploration, from bsuite (Osband et al. 2020)."""

from typing import Annotated, Any

import gin
import gymnasium
import numpy as np
from gymnasium import spaces

from ob2i_tf.environments.vector import DenseVectorEnv
from ob2i_tf.errors import missing_extra
from ob2i_tf.parameters import Within, checked

_Size = Annotated[int, Within(1, 1000)]  # An observation then takes 1 MB.


class DeepSea(gymnasium.Env):
    """A diver sinks one row per step; only N correct actions in a row reach the treasure.

    Observations are uint8 [N, N], 255 at the diver. Moving right costs 0.01 / N, and the treasure
    in the lower right corner pays 1; which action moves right is drawn for each cell.
    """

    metadata = {'render_modes': []}

    def __init__(self, size: int, mapping_seed: int, deterministic: bool):
        try:
            from bsuite.environments import deep_sea
        except ModuleNotFoundError as error:
            raise ValueError(missing_extra(error, 'deepsea')) from None
        self._make = lambda seed: deep_sea.DeepSea(
            size, deterministic=deterministic, seed=seed, mapping_seed=mapping_seed
        )
        self._env = self._make(None)
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._env = self._make(int(self.np_random.integers(2**31)))
        return self._frame(self._env.reset()), {}

    def step(self, action: int) -> tuple:
        step = self._env.step(int(action))
        return self._frame(step), float(step.reward), step.last(), False, {}

    def _frame(self, step):
        return (255 * step.observation).astype(np.uint8)


@gin.configurable(denylist=['name', 'num_envs', 'seed'])
@checked
def make_deep_sea(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    size: _Size = 10,
    mapping_seed: Annotated[int, Within(0, 2**32 - 1)] = 0,
    deterministic: bool = True,
) -> gymnasium.vector.VectorEnv:
    """Makes copies of one Deep Sea.

    Args:
      name: 'DeepSea'.
      num_envs, seed: See `environments.make`.
      size: N, the number of rows and of columns, at most 1000; an episode has N steps.
      mapping_seed: Seed of the action mapping, by which one of the two actions moves right in each
        cell.
      deterministic: If False, moves to the right can fail and rewards are noisy (bsuite's
        stochastic variant).
    """
    del name
    return DenseVectorEnv(
        lambda: DeepSea(size, mapping_seed, deterministic), num_envs, seed, max_episode_steps=size
    )
