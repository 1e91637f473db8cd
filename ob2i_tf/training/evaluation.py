"""An evaluation: games of the evaluated agent, some steps long."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ob2i_tf import frames
from ob2i_tf.training import build, loop, progress, tensorboard


def play(
    env: Any,
    parts: build.Parts,
    epsilon: float,
    rng: np.random.Generator,
    steps: int,
    meanwhile: Callable[[], None],
) -> tuple[list[loop.Game], tensorboard.Film]:
    """Plays `steps` steps of the environments.

    Args:
      env: New environment, see the package environments.
      parts: Parts of the run.
      epsilon: Probability of a random action.
      rng: Random generator of heads, random actions and ties.
      steps: Number of steps.
      meanwhile: Called between steps.

    Returns:
      The games that ended within these steps, and a film of the first.
    """
    games: list[loop.Game] = []
    film = tensorboard.Film()
    meanwhile()
    observations, _ = env.reset()
    meanwhile()
    played = loop.play_policy(
        env, observations, parts.evaluation_policy, parts.posterior, epsilon, rng
    )
    played = itertools.islice(played, steps)
    for step, finished in progress.bar_of(played, steps, 'evaluating'):
        games += finished
        newest = frames.newest(step.acted_on, parts.environment.history)
        film.add(newest, step.info['game_over'])
        meanwhile()
    return games, film
