"""The loop that plays environments, in training, evaluation and recordings alike.

Actions come from its argument `act`: `Agent.act` in training, `acting.Policy.actions` otherwise.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from ob2i_tf.acting import Policy
from ob2i_tf.posteriors import Posterior
from ob2i_tf.types import EnvStep


class Game(NamedTuple):
    """A finished game.

    Attributes:
      score: Sum of raw rewards.
      clipped_return: Sum of the rewards that the learner sees, undiscounted.
      length: Agent steps.
    """

    score: float
    clipped_return: float
    length: int

    def named(self) -> dict[str, float]:
        """{name: number}, named like the columns of train.csv but without `_mean`."""
        return {
            'score': self.score,
            'return': self.clipped_return,
            'episode_length': self.length,
        }


class GameTracker:
    """Scores of the games in progress, one per environment."""

    def __init__(self, num_envs: int):
        self._sums = np.zeros((3, num_envs))  # Raw reward, reward, agent steps.

    def add(self, rewards: np.ndarray, info: dict[str, Any]) -> list[Game]:
        """Adds one step of all environments; returns the games that finished with it."""
        self._sums += [info['raw_rewards'], rewards, np.ones(len(rewards))]
        finished = []
        for index in np.flatnonzero(info['game_over']):
            score, clipped_return, length = self._sums[:, index]
            finished.append(Game(float(score), float(clipped_return), int(length)))
            self._sums[:, index] = 0
        return finished


def play(
    env: Any,
    observations: np.ndarray,
    act: Callable[[np.ndarray], np.ndarray],
    tracker: GameTracker | None = None,
    meanwhile: Callable[[], Any] = lambda: None,
    waiting: Callable[[], AbstractContextManager] = contextlib.nullcontext,
) -> Iterator[tuple[EnvStep, list[Game]]]:
    """Plays for as long as the caller iterates.

    Args:
      env: Environment that follows the contract of `environments.make`, already reset.
      observations: Current observations, [num_envs, *stack].
      act: Maps observations to actions [num_envs].
      tracker: Scores of the games in progress; None: all games start now.
      meanwhile: Called while the environments play each step.
      waiting: Makes the context in which each step is waited for.

    Yields:
      Each step of the environments, and the games that ended with it.
    """
    tracker = GameTracker(env.num_envs) if tracker is None else tracker
    while True:
        actions = act(observations)
        env.step_async(actions)
        meanwhile()
        with waiting():
            results = env.step_wait()
        step = EnvStep(observations, actions, *results)
        yield step, tracker.add(step.rewards, step.info)
        observations = step.observations


def play_policy(
    env: Any,
    observations: np.ndarray,
    policy: Policy,
    posterior: Posterior,
    epsilon: float,
    rng: np.random.Generator,
) -> Iterator[tuple[EnvStep, list[Game]]]:
    """Like `play` with the actions of a policy; each game follows a newly drawn head.

    Args:
      env, observations: See `play`.
      policy: Chooses the actions.
      posterior: Draws the heads.
      epsilon: Probability of a random action.
      rng: Random generator of heads, random actions and ties.

    Yields:
      See `play`.
    """
    heads = posterior.evaluation_heads(env.num_envs, rng)
    steps = play(env, observations, lambda x: policy.actions(x, heads, epsilon, rng))
    for step, games in steps:
        yield step, games
        over = step.info['game_over']
        heads[over] = posterior.evaluation_heads(int(over.sum()), rng)
