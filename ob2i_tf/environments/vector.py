"""Gymnasium environments as the vector environments that `environments.make` promises."""

from collections.abc import Callable

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class DenseVectorEnv(gymnasium.vector.VectorWrapper):
    """Copies of an environment that step together, with dense arrays in `info`.

    Args:
      make_one: makes one copy.
      num_envs: copies.
      seed: of the copies; each has a stream of its own.
      **metadata: of the environment, such as max_episode_steps.
    """

    def __init__(self, make_one: Callable[[], gymnasium.Env], num_envs: int, seed: int, **metadata):
        super().__init__(
            SyncVectorEnv([make_one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        )
        self.metadata = {**self.env.metadata, 'history': 1, 'frames_per_step': 1, **metadata}
        self._seeds = self._spawn(seed)

    def _spawn(self, seed):
        """A seed for each copy; those of neighbouring seeds and copies share nothing."""
        words = np.random.SeedSequence(seed).generate_state(self.num_envs, np.uint64)
        return [int(word >> np.uint64(1)) for word in words]

    def reset(self, *, seed=None, options=None):
        """Starts all copies; the first time, and with a `seed`, from seeds of their own."""
        seed = self._seeds if seed is None else self._spawn(seed)
        observations, info = self.env.reset(seed=seed, options=options)
        self._seeds = None
        return observations, info

    def step_async(self, actions):
        """The first half of `step`; nothing happens before the second, these are Python."""
        self._actions = actions

    def step_wait(self):
        observations, rewards, terminated, truncated, infos = self.env.step(self._actions)
        over = terminated | truncated
        final_observations = observations.copy()
        for index in np.flatnonzero(over):
            final_observations[index] = infos['final_obs'][index]
        rewards = rewards.astype(np.float32)
        info = {'raw_rewards': rewards, 'game_over': over, 'final_obs': final_observations}
        return observations, rewards, terminated, truncated, info

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()
