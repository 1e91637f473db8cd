"""An environment under watch: what goes wrong in it ends the run in a line that says what."""

import faulthandler
import os
import sys
import threading
import traceback

import gymnasium
import numpy as np

from ob2i_tf.errors import UserError

LIMIT_SECONDS = 600.0  # For a step or a reset.


class Watched(gymnasium.vector.VectorWrapper):
    """Checks all that an environment returns; ends the process if it does not return.

    Args:
      env: as `environments.make` gives it.

    Raises:
      UserError: from `reset`, `step` and its halves, if the environment raises, or returns what it
        should not.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv):
        super().__init__(env)
        self._call = ''
        self._steps = 0
        self._calls = 0  # Begun.
        self._returned = 0
        self._closed = threading.Event()
        threading.Thread(target=self._watch, args=(LIMIT_SECONDS / 10,), daemon=True).start()

    def reset(self, **keywords):
        observations, info = self._guarded('reset', self.env.reset, **keywords)
        self._check('observations', observations, *self._observation)
        return observations, info

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions):
        self._steps += 1
        self._guarded(f'step {self._steps}', self.env.step_async, actions)

    def step_wait(self):
        observations, rewards, terminated, truncated, info = self._guarded(
            f'step {self._steps}', self.env.step_wait
        )
        one_each = (self.num_envs,)
        self._check('observations', observations, *self._observation)
        self._check("info['final_obs']", info.get('final_obs'), *self._observation)
        self._check('rewards', rewards, one_each, np.floating)
        self._check("info['raw_rewards']", info.get('raw_rewards'), one_each, np.floating)
        self._check('terminated', terminated, one_each, np.bool_)
        self._check('truncated', truncated, one_each, np.bool_)
        self._check("info['game_over']", info.get('game_over'), one_each, np.bool_)
        return observations, rewards, terminated, truncated, info

    def close(self, **keywords):
        self._closed.set()
        return super().close(**keywords)

    @property
    def _observation(self):
        return self.observation_space.shape, self.observation_space.dtype

    def _guarded(self, name, call, *arguments, **keywords):
        self._call = name
        self._calls += 1
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
            self._returned = self._calls

    def _check(self, name, array, shape, dtype):
        there = getattr(array, 'shape', None), getattr(array, 'dtype', type(array))
        if there[0] != shape or not np.issubdtype(there[1], dtype):
            expected = f'{getattr(dtype, "__name__", dtype)} {shape}'
            raise UserError(
                f'the environment returned {name} of {there[1]} {there[0]} from {self._call}, '
                f'not {expected}'
            )
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            raise UserError(f'the environment returned NaN or infinite {name} from {self._call}')

    def _watch(self, tick_seconds):
        """Ends the process once ten ticks in a row see the same call under way.

        Ticks, and not a clock: a process that was stopped and goes on is not one that hangs.
        """
        same, before = 0, None
        while not self._closed.wait(tick_seconds):
            call = self._calls if self._calls > self._returned else None
            same = same + 1 if call is not None and call == before else 0
            before = call
            if same == 10:
                faulthandler.dump_traceback()
                message = f'the environment has not returned from {self._call} for '
                print(f'error: {message}{10 * tick_seconds:g} s', file=sys.stderr, flush=True)
                os._exit(1)
