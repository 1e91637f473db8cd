"""The one loop in which environments are played: training, evaluation and recordings use it."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

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
        """{name: number}, as in the names of train.csv's columns without `_mean`."""
        return {
            'score': self.score,
            'return': self.clipped_return,
            'episode_length': self.length,
        }


class GameTracker:
    """Scores of the games in progress, one in each of `num_envs` environments."""

    def __init__(self, num_envs: int):
        self._sums = np.zeros((3, num_envs))  # Raw reward, reward, agent steps.

    def add(self, rewards, info) -> list[Game]:
        """Adds one step of all environments; returns the games that it finished."""
        self._sums += [info['raw_rewards'], rewards, np.ones(len(rewards))]
        finished = []
        for index in np.flatnonzero(info['game_over']):
            score, clipped_return, length = self._sums[:, index]
            finished.append(Game(float(score), float(clipped_return), int(length)))
            self._sums[:, index] = 0
        return finished


def play(
    env,
    observations,
    act: Callable,
    tracker: GameTracker | None = None,
    meanwhile: Callable = lambda: None,
    waiting: Callable = contextlib.nullcontext,
) -> Iterator[tuple[EnvStep, list[Game]]]:
    """Plays without end, until the caller stops.

    Args:
      env: VectorEnv, just reset or in the middle of its games.
      observations: [num_envs, *stack], what it shows.
      act: Maps observations to actions [num_envs].
      tracker: Scores of the games in progress; None: they begin now.
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
    env, observations, policy, posterior, epsilon, rng
) -> Iterator[tuple[EnvStep, list[Game]]]:
    """Plays like `play`, without learning; each game follows a head that is drawn for it.

    Args:
      env, observations: See `play`.
      policy: acting.Policy.
      posterior: posteriors.Posterior, draws the heads.
      epsilon: Probability of a random action.
      rng: NumPy generator of heads, random actions and ties.
    """
    heads = posterior.evaluation_heads(env.num_envs, rng)
    steps = play(env, observations, lambda x: policy.actions(x, heads, epsilon, rng))
    for step, games in steps:
        yield step, games
        over = step.info['game_over']
        heads[over] = posterior.evaluation_heads(int(over.sum()), rng)
