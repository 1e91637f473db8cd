"""Registers bsuite's Deep Sea, its stochastic Deep Sea and its swing-up with Gymnasium, by id.

After `import experiments.bsuite.environments`, as in a gin file, the ids are names of environments:
make_environment.name = 'cartpole_swingup/10'.
"""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from experiments.bsuite import recorded


class BsuiteEnv(gymnasium.Env):
    """An environment of bsuite with the interface of Gymnasium.

    All ends are terminal states, as bsuite's discount of 0 says; the swing-up observes the time.

    Args:
      make: Maps a seed, or None, to an environment of bsuite; every reset with a seed calls it.
    """

    metadata = {'render_modes': []}

    def __init__(self, make: Callable[[int | None], Any]):
        self._make, self._env = make, make(None)
        shape = self._env.observation_spec().shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(self._env.action_spec().num_values)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._env = self._make(int(self.np_random.integers(2**31)))
        return self._env.reset().observation, {}

    def step(self, action: int) -> tuple:
        step = self._env.step(int(action))
        return step.observation, float(step.reward), step.last(), False, {}


for _id in recorded.IDS:
    gymnasium.register(
        _id, entry_point=BsuiteEnv, kwargs={'make': functools.partial(recorded.make, _id)}
    )
