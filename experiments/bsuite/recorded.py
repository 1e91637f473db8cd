"""bsuite's environments by id, and a record of their episodes that ends a run.

It imports only bsuite, so that the environment of bsuite's baselines can use it too.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import dm_env
from bsuite.environments import deep_sea
from bsuite.experiments.cartpole_swingup import cartpole_swingup
from bsuite.experiments.cartpole_swingup import sweep as cartpole_swingup_sweep
from bsuite.experiments.deep_sea import sweep as deep_sea_sweep
from bsuite.experiments.deep_sea_stochastic import sweep as deep_sea_stochastic_sweep

# bsuite.load_from_id leaves the noise of the seas and the starts of the pole unseeded.
_FAMILIES: dict[str, tuple] = {
    'deep_sea': (deep_sea.DeepSea, deep_sea_sweep.SETTINGS, {}),
    'deep_sea_stochastic': (
        deep_sea.DeepSea,
        deep_sea_stochastic_sweep.SETTINGS,
        {'deterministic': False},
    ),
    'cartpole_swingup': (cartpole_swingup.CartpoleSwingup, cartpole_swingup_sweep.SETTINGS, {}),
}
IDS = [
    f'{family}/{number}'
    for family, (_, settings, _) in _FAMILIES.items()
    for number in range(len(settings))
]


class Episode(NamedTuple):
    """An episode of a run.

    Attributes:
      score: Sum of rewards, with their noise.
      found: Seas: 1 if it reached the treasure, else 0. Swing-up: agent steps that paid for an
        upright pole.
      agent_steps: Length of the episode.
      processor_seconds: Processor time of the process from its start to the end of the episode.
    """

    score: float
    found: int
    agent_steps: int
    processor_seconds: float


class Over(BaseException):
    """The run has all its episodes; not an Exception, since nothing failed."""


def make(bsuite_id: str, seed: int | None = None) -> dm_env.Environment:
    """Makes the environment of an id in IDS, with bsuite's settings and seeded noise."""
    family, _, number = bsuite_id.partition('/')
    build, settings, keywords = _FAMILIES[family]
    return build(seed=seed, **settings[int(number)], **keywords)


def solved(episodes: list[Episode]) -> bool:
    """Whether more than a tenth of the episodes so far found the treasure, see deep_sea."""
    return 10 * sum(episode.found for episode in episodes) > len(episodes)


class Recorded:
    """An environment of bsuite that appends its episodes to a list.

    Args:
      env: Environment of bsuite.
      episodes: The list.
      over: Maps the list to whether the run is over; `reset` then raises Over.
    """

    def __init__(
        self,
        env: dm_env.Environment,
        episodes: list[Episode],
        over: Callable[[list[Episode]], bool],
    ):
        self._env, self._episodes, self._over = env, episodes, over
        self.action_spec, self.observation_spec = env.action_spec, env.observation_spec

    def _found(self):
        info = self._env.bsuite_info()
        return int(info['total_upright' if 'total_upright' in info else 'denoised_return'])

    def reset(self) -> dm_env.TimeStep:
        if self._over(self._episodes):
            raise Over
        self._score, self._steps, self._found_before = 0.0, 0, self._found()
        return self._env.reset()

    def step(self, action: int) -> dm_env.TimeStep:
        step = self._env.step(action)
        self._score += step.reward
        self._steps += 1
        if step.last():
            found = self._found() - self._found_before
            self._episodes.append(Episode(self._score, found, self._steps, time.process_time()))
        return step
