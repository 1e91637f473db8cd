"""Environments, all of them Gymnasium vector environments made by `make`.

`step_async` and `step_wait` are the halves of `step`, named as in AsyncVectorEnv: what is done in
between runs while emulators play.

Each resets a finished game within the step that ends it (SAME_STEP) and gives dense arrays in
`info`: raw_rewards [N], game_over [N] (the game was reset: obs[i] opens the next one) and final_obs
[N, *stack] (what this step really led to; equal to obs[i] where the game goes on). A truncated game
ends in its real final observation. Of a terminated game the newest frame of final_obs is
unspecified, since no target reads it.
"""

import difflib
import functools
import inspect
from collections.abc import Callable

import gin
import gymnasium

from ob2i_tf.environments import games
from ob2i_tf.environments.atari import make_atari
from ob2i_tf.environments.deep_sea import make_deep_sea
from ob2i_tf.environments.linear_mdp import make_linear_mdp
from ob2i_tf.environments.mnist_maze import make_mnist_maze

# What is not an Atari game, by name; called as builder(name, num_envs=, seed=, **keywords).
BUILDERS: dict[str, Callable[..., gymnasium.vector.VectorEnv]] = {
    'MnistMaze': make_mnist_maze,
    'DeepSea': make_deep_sea,
    'LinearMDP': make_linear_mdp,
}


def known_as(name: str) -> str | None:
    """The name in BUILDERS of which `name` is a spelling, or None."""
    if isinstance(name, str):
        for known in BUILDERS:
            if games.normalise(name) == games.normalise(known):
                return known
    return None


def builder_of(name: str) -> Callable[..., gymnasium.vector.VectorEnv]:
    """The configurable that makes `name`; if none does, a one-line ValueError with near names."""
    known = known_as(name)
    if known is not None:
        return BUILDERS[known]
    games.resolve(name, others=BUILDERS)
    return make_atari


def check_name(name: str) -> None:
    """Raises a ValueError unless `name` is an environment; makes none, so it takes milliseconds."""
    builder_of(name)


@gin.configurable('make_environment', denylist=['num_envs', 'seed'])
def _make_bound(name: str, num_envs: int = 1, seed: int = 0, **kw) -> gymnasium.vector.VectorEnv:
    """Makes `num_envs` copies of an environment that step together.

    Whatever the caller leaves out comes from the gin bindings of `make_environment`.

    Args:
      name: an Atari game in any usual spelling ('Q*Bert', 'MsPacman', 'up_n_down') or a name in
        BUILDERS, in any spelling too.
      num_envs: copies; 1 is the paper's protocol.
      seed: decides every copy's random stream; neighbouring seeds and copies share nothing.
      **kw: keywords of the environment's builder (`make_atari` and so on).

    Raises:
      ValueError: no such environment; one line with the nearest names.
      TypeError: a keyword that the environment's builder lacks.
    """
    builder = builder_of(name)
    accepted = set(inspect.signature(builder).parameters) - {'name', 'num_envs', 'seed'}
    for key in sorted(kw.keys() - accepted):
        near = difflib.get_close_matches(key, accepted, n=1, cutoff=0.0)
        raise TypeError(
            f'environment {name!r} has no keyword {key!r}; the nearest is '
            f'{near[0]!r}, all are {sorted(accepted)}'
        )
    return builder(name, num_envs=num_envs, seed=seed, **kw)


@functools.wraps(_make_bound)
def make(*args, **kw):
    # Before gin sees the call, since it appends lines of its own to whatever is raised inside.
    if args or 'name' in kw:
        check_name(args[0] if args else kw['name'])
    return _make_bound(*args, **kw)


make.__name__ = make.__qualname__ = 'make'
