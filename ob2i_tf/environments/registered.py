"""Any environment that is registered with Gymnasium, by its id."""

from typing import Annotated

import gin
import gymnasium
import numpy as np
from gymnasium import spaces

from ob2i_tf.environments.vector import DenseVectorEnv
from ob2i_tf.parameters import AtLeast, checked


def is_registered(name: str) -> bool:
    """Whether `name` is the id of an environment other than an Atari game.

    Raises:
      ValueError: It is an Atari game, whose id in Gymnasium has other settings than DQN's.
    """
    spec = gymnasium.registry.get(name) if isinstance(name, str) else None
    if spec is None:
        return False
    if _is_atari(spec):
        raise ValueError(f'{name!r} is an Atari game: write {spec.kwargs["game"]!r}')
    return True


def names() -> list[str]:
    """The ids of registered environments, without Atari games."""
    return [name for name, spec in gymnasium.registry.items() if not _is_atari(spec)]


def _is_atari(spec):
    return str(spec.entry_point).startswith('ale_py.')


@gin.configurable(denylist=['name', 'num_envs', 'seed'])
@checked
def make_gymnasium(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    max_episode_steps: Annotated[int, AtLeast(1)] | None = None,
) -> gymnasium.vector.VectorEnv:
    """Copies of a registered environment, each seeded by itself.

    Args:
      name: Its id, such as 'CartPole-v1'.
      num_envs, seed: See `environments.make`.
      max_episode_steps: Agent steps after which an episode is truncated; None: as registered.

    Raises:
      ValueError: It cannot be made; its observations are not a Box of floats or integers; or its
        actions are not Discrete, from 0.
    """
    try:
        limit = max_episode_steps or gymnasium.spec(name).max_episode_steps
        env = DenseVectorEnv(
            lambda: gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True),
            num_envs,
            seed,
            max_episode_steps=limit or 0,
        )
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f'make_environment.name = {name!r}: {error}') from error
    problem = ''
    seen, actions = env.single_observation_space, env.single_action_space
    if not (isinstance(seen, spaces.Box) and np.dtype(seen.dtype).kind in 'fiu'):
        problem = f'observations have to be a Box of floats or integers, not {seen}'
    elif not (isinstance(actions, spaces.Discrete) and actions.start == 0):
        problem = f'actions have to be Discrete, from 0, not {actions}'
    if problem:
        env.close()
        raise ValueError(f'make_environment.name = {name!r}: {problem}')
    return env
