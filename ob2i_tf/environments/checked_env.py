"""Validates an environment's outputs and aborts with a clear message if a call fails or hangs."""

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
import numpy as np

from ob2i_tf.errors import UserError, check_array

LIMIT_SECONDS = 600.0  # For a step or a reset.
_TICKS = 10  # In LIMIT_SECONDS.


class CheckedVectorEnv(gymnasium.vector.VectorWrapper):
    """Checks everything that an environment returns; ends the process if a call never returns.

    Args:
      env: Environment that follows the contract of `environments.make`.

    Raises:
      UserError: From `reset`, `step` and its halves: the environment raises, or returns a wrong
        shape, a wrong dtype, NaN or infinity.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv):
        super().__init__(env)
        self._env: Any = env  # The type VectorEnv lacks the halves of `step`.
        self._call = ''
        self._steps = 0
        self._calls_started = 0
        self._calls_returned = 0
        self._closed = threading.Event()
        tick_seconds = LIMIT_SECONDS / _TICKS
        threading.Thread(target=self._watch, args=(tick_seconds,), daemon=True).start()

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, info = self._guarded('reset', self._env.reset, seed=seed, options=options)
        self._check('observations', observations, *self._observation)
        return observations, info

    def step(self, actions) -> tuple:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: np.ndarray) -> None:
        self._steps += 1
        self._guarded(f'step {self._steps}', self._env.step_async, actions)

    def step_wait(self) -> tuple:
        observations, rewards, terminated, truncated, info = self._guarded(
            f'step {self._steps}', self._env.step_wait
        )
        per_env = (self.num_envs,)
        self._check('observations', observations, *self._observation)
        self._check("info['final_obs']", info.get('final_obs'), *self._observation)
        self._check('rewards', rewards, per_env, np.floating)
        self._check("info['raw_rewards']", info.get('raw_rewards'), per_env, np.floating)
        self._check('terminated', terminated, per_env, np.bool_)
        self._check('truncated', truncated, per_env, np.bool_)
        self._check("info['game_over']", info.get('game_over'), per_env, np.bool_)
        return observations, rewards, terminated, truncated, info

    def close(self, **keywords: Any) -> None:
        self._closed.set()
        super().close(**keywords)

    @property
    def _observation(self):
        return self.observation_space.shape, self.observation_space.dtype

    def _guarded(self, name: str, call: Callable, *arguments, **keywords):
        self._call = name
        self._calls_started += 1
        try:
            return call(*arguments, **keywords)
        except (UserError, MemoryError):
            raise
        except Exception as error:
            traceback.print_exc()
            raise UserError(
                f'the environment raised {type(error).__name__} in {name}: {error}'
            ) from error
        finally:
            self._calls_returned = self._calls_started

    def _check(self, name, array, shape, dtype):
        check_array('the environment', self._call, name, array, shape, dtype)

    def _watch(self, tick_seconds: float) -> None:
        """Ends the process once `_TICKS` ticks in a row see the same call in progress.

        It counts ticks instead of reading a clock, so that time for which the process was suspended
        does not count.
        """
        ticks, before = 0, None
        while not self._closed.wait(tick_seconds):
            in_call = self._calls_started > self._calls_returned
            call = self._calls_started if in_call else None
            ticks = ticks + 1 if in_call and call == before else 0
            before = call
            if ticks == _TICKS:
                self._abort(_TICKS * tick_seconds)

    def _abort(self, seconds: float) -> NoReturn:
        faulthandler.dump_traceback()
        message = f'the environment has not returned from {self._call} for {seconds:g} s'
        print(f'error: {message}', file=sys.stderr, flush=True)
        os._exit(1)
