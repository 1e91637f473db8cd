"""An environment with a chosen fault; gin files import it as campaigns.unsound."""

import sys
import time

import gin
import gymnasium
import numpy as np
from gymnasium import spaces

from ob2i_tf import environments
from ob2i_tf.environments.vector import DenseVectorEnv

FAULTS = (
    'none',
    'raises',
    'raises_in_reset',
    'hangs',
    'shape',
    'dtype',
    'nan_reward',
    'nan_observation',
    'wrong_flag',
    'no_final_obs',
)


class _Corridor(gymnasium.Env):
    """Eight cells; the last one pays 1 and ends the episode."""

    def __init__(self, floats):
        self.observation_space = spaces.Box(0, 255, (8,), np.float32 if floats else np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at = 0
        return self._frame(), {}

    def step(self, action):
        self._at += 1 + int(action)
        over = self._at >= 7
        return self._frame(), float(over), over, False, {}

    def _frame(self):
        return (np.arange(8) == self._at).astype(self.observation_space.dtype)


class _Unsound(DenseVectorEnv):
    def __init__(self, fault, at, num_envs, seed):
        floats = fault == 'nan_observation'
        super().__init__(lambda: _Corridor(floats), num_envs, seed)
        self._fault, self._at, self._steps = fault, at, 0

    def reset(self, **keywords):
        if self._fault == 'raises_in_reset' and self._at == 0:
            raise RuntimeError('the simulator is gone')
        return super().reset(**keywords)

    def step_wait(self):
        observations, rewards, terminated, truncated, info = super().step_wait()
        self._steps += 1
        if self._steps == self._at:
            if self._fault == 'raises':
                raise RuntimeError('the simulator is gone')
            if self._fault == 'hangs':
                print('hanging', file=sys.stderr, flush=True)
                time.sleep(3600)
            if self._fault == 'shape':
                observations = observations[:, :-1]
            if self._fault == 'dtype':
                observations = observations.astype(np.float64)
            if self._fault == 'nan_reward':
                rewards = np.full_like(rewards, np.nan)
            if self._fault == 'nan_observation':
                observations = np.full_like(observations, np.nan)
            if self._fault == 'wrong_flag':
                terminated = terminated.astype(np.int64)
            if self._fault == 'no_final_obs':
                del info['final_obs']
        return observations, rewards, terminated, truncated, info


@gin.configurable
def make_unsound(name: str, num_envs: int = 1, seed: int = 0, fault: str = 'none', at: int = 0):
    """A corridor whose `fault` (one of FAULTS) occurs at its step `at`."""
    del name
    if fault not in FAULTS:
        raise ValueError(f'make_unsound.fault must be one of {FAULTS}, got {fault!r}')
    return _Unsound(fault, at, num_envs, seed)


environments.BUILDERS['Unsound'] = make_unsound
