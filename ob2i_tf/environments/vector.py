"""Wraps single Gymnasium environments into vector environments with the contract of `make`."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class DenseVectorEnv(gymnasium.vector.VectorWrapper):
    """Copies of an environment that step together, with dense arrays in `info`.

    Args:
      make_one: Makes one copy.
      num_envs: Number of copies.
      seed: Seed of all copies, each of which has an independent random stream.
      **metadata: Metadata of the environment, such as max_episode_steps.
    """

    def __init__(
        self, make_one: Callable[[], gymnasium.Env], num_envs: int, seed: int, **metadata: Any
    ):
        self._copies: Any = SyncVectorEnv(
            [make_one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
        )
        super().__init__(self._copies)
        self.metadata = {**self.env.metadata, 'history': 1, 'frames_per_step': 1, **metadata}
        self._seeds = self._spawn(seed)

    def _spawn(self, seed):
        """A seed per copy; neighbouring seeds and copies share no random stream."""
        words = np.random.SeedSequence(seed).generate_state(self.num_envs, np.uint64)
        return [int(word >> np.uint64(1)) for word in words]

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts all copies; the first call, and every call with `seed`, seeds each separately."""
        seeds = self._seeds if seed is None else self._spawn(seed)
        observations, info = self._copies.reset(seed=seeds, options=options)
        self._seeds = None
        return observations, info

    def step_async(self, actions: np.ndarray) -> None:
        """First half of `step`; Python environments do all work in the second half."""
        self._actions = actions

    def step_wait(self) -> tuple:
        observations, rewards, terminated, truncated, infos = self._copies.step(self._actions)
        over = terminated | truncated
        final_observations = observations.copy()
        for index in np.flatnonzero(over):
            final_observations[index] = infos['final_obs'][index]
        rewards = rewards.astype(np.float32)
        info = {'raw_rewards': rewards, 'game_over': over, 'final_obs': final_observations}
        return observations, rewards, terminated, truncated, info

    def step(self, actions) -> tuple:
        self.step_async(actions)
        return self.step_wait()
