"""Gymnasium vector environments, made by `make`.

An environment has N copies that step together, a `single_action_space` Discrete(A), and a
`single_observation_space` that is a Box of floats or integers; *stack is its shape. It resets a
finished game within the step that ends it (AutoresetMode.SAME_STEP). `step(actions)`, with actions
[N] int, returns

  observations [N, *stack]: After a finished game, the first observation of the next one.
  rewards [N] float: Rewards for learning, possibly clipped.
  terminated, truncated [N] bool: Whether an episode ends here, in a terminal state or by a limit;
    only terminal states have value 0.
  info, a dict of dense arrays:
    final_obs [N, *stack]: The observations that this step led to, before any reset; at a terminal
      the newest frame is unspecified, since no target reads it.
    game_over [N] bool: Whether the game was reset. An episode may end without a reset, for example
      at a life loss.
    raw_rewards [N] float: Rewards before clipping; a score is their sum.

`step_async` and `step_wait` are the halves of `step`, as in AsyncVectorEnv: work done between them
overlaps with the emulators. `reset(seed=None)` starts all copies. The first call, and every call
with a seed, seeds each copy independently; no two copies or neighbouring seeds share a random
stream.

`metadata` may hold
  history (default 1): Frames in an observation, stacked along its last axis if more than one.
  frames_per_step (default 1): Frames per agent step; tables count frames.
  max_episode_steps (default 0, unknown): Agent steps of the longest game.
  shortest_path (default None): Agent steps of the shortest path to the goal, in mazes.
  action_names (default None): The names of the A actions.
  render_fps (default 15): Agent steps per second in a video.
"""

from collections.abc import Callable
from typing import Annotated

import gin
import gymnasium

from ob2i_tf.environments import games, registered
from ob2i_tf.environments.atari import make_atari
from ob2i_tf.environments.deep_sea import make_deep_sea
from ob2i_tf.environments.linear_mdp import make_linear_mdp
from ob2i_tf.environments.mnist_maze import make_mnist_maze
from ob2i_tf.environments.registered import make_gymnasium
from ob2i_tf.parameters import AtLeast, Selects, checked

# The package's own environments; called as builder(name, num_envs=, seed=, **keywords).
BUILDERS: dict[str, Callable[..., gymnasium.vector.VectorEnv]] = {
    'MnistMaze': make_mnist_maze,
    'DeepSea': make_deep_sea,
    'LinearMDP': make_linear_mdp,
}


def known_as(name: str) -> str | None:
    """The name in BUILDERS of which `name` is any usual spelling, or None."""
    if isinstance(name, str):
        for known in BUILDERS:
            if games.normalise(name) == games.normalise(known):
                return known
    return None


def builder_of(name: str) -> Callable[..., gymnasium.vector.VectorEnv]:
    """The configurable that makes the environment `name`; it is not called.

    Raises:
      ValueError: No environment has this name; the one-line message suggests similar names.
    """
    known = known_as(name)
    if known is not None:
        return BUILDERS[known]
    if registered.is_registered(name):
        return make_gymnasium
    games.resolve(name, others=[*BUILDERS, *registered.names()])
    return make_atari


@gin.configurable('make_environment', denylist=['num_envs', 'seed'])
@checked
def make(
    name: Annotated[str, Selects(builder_of)] = gin.REQUIRED,
    num_envs: Annotated[int, AtLeast(1)] = 1,
    seed: int = 0,
    **keywords,
) -> gymnasium.vector.VectorEnv:
    """Makes `num_envs` copies of an environment that step together.

    Args:
      name: An Atari game in any usual spelling ('Q*Bert', 'MsPacman', 'up_n_down'), a name in
        BUILDERS, also in any spelling, or the id of a registered Gymnasium environment
        ('CartPole-v1').
      num_envs: Number of copies; 1 is the paper's protocol.
      seed: Seed of all copies; neighbouring seeds and copies share no random stream.
      **keywords: Keywords of the environment's builder (`make_atari` and so on). All other
        parameters of the builder come from gin.

    Raises:
      ValueError: No environment has this name; the one-line message suggests similar names.
      TypeError: The environment's builder does not accept a keyword.
    """
    return builder_of(name)(name, num_envs=num_envs, seed=seed, **keywords)
