"""Environments that are registered with Gymnasium, by id."""

from typing import Annotated

import gin
import gymnasium
import numpy as np
from gymnasium import spaces

from ob2i_tf.environments.vector import DenseVectorEnv
from ob2i_tf.parameters import AtLeast, checked


def is_registered(name: str) -> bool:
    """Whether `name` is the id of an environment that is not an Atari game.

    Raises:
      ValueError: The id is that of an Atari game, for which Gymnasium's settings are not DQN's.
    """
    spec = gymnasium.registry.get(name) if isinstance(name, str) else None
    if spec is None:
        return False
    if _is_atari(spec):
        raise ValueError(f'{name!r} is an Atari game: write {spec.kwargs["game"]!r}')
    return True


def names() -> list[str]:
    """The ids of all registered environments except Atari games."""
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
    """Makes copies of a registered environment, each with a separate seed.

    Args:
      name: Id, such as 'CartPole-v1'.
      num_envs, seed: See `environments.make`.
      max_episode_steps: Agent steps after which an episode is truncated; None: as registered.

    Raises:
      ValueError: The environment cannot be made, its observations are not a Box of floats or
        integers, or its actions are not a Discrete space from 0.
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
    stack, actions = env.single_observation_space, env.single_action_space
    if not (isinstance(stack, spaces.Box) and np.dtype(stack.dtype).kind in 'fiu'):
        problem = (
            f'observations must be a Box of floats or integers, not {stack} (a wrapper can encode '
            'them)'
        )
    elif not (isinstance(actions, spaces.Discrete) and actions.start == 0):
        problem = f'actions must be a Discrete space from 0, not {actions}'
    if problem:
        env.close()
        raise ValueError(f'make_environment.name = {name!r}: {problem}')
    return env
