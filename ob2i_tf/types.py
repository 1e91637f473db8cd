"""The data that flows through the system: emulator -> Episode -> replay -> Batch -> gradient.

A *frame* is a single observation (84x84 on Atari). A *stack* is the input of the network: the
`history` newest frames on a new last axis, newest last; with `history=1` it is the frame itself.
T is the number of transitions of an episode, K the number of heads, A the number of actions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Episode(NamedTuple):
    """One stored episode: T transitions between T + 1 frames, each frame stored once.

    Attributes:
      observations: [T + 1, *frame]. The last one is the real final observation, except after a
        terminal: there it is unspecified, and nothing is computed from it.
      actions: [T] int; actions[t] was taken at observations[t].
      rewards: [T] float, as the learner sees them (clipped on Atari).
      discounts: [T] float, gamma, or 0 after a terminal; a truncated episode ends with gamma.
      context: [history - 1, *frame], the frames that the agent saw before observations[0], oldest
        first; None stands for observations[0] repeated.
      first_id: Number of the first transition, in order of arrival in replay; set by replay.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    context: np.ndarray | None = None
    first_id: int = 0


class Transitions(NamedTuple):
    """n transitions from any episodes, each over one step or several.

    Attributes:
      observations: [n, *stack].
      actions: [n] int32.
      rewards: [n] float32, the discounted sum over the steps.
      discounts: [n] float32, the product over the steps.
      next_observations: [n, *stack], after the last step; unspecified where a discount is 0.
      ids: [n] int64, number of each transition in order of arrival in replay.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    next_observations: np.ndarray
    ids: np.ndarray


class Experience(NamedTuple):
    """The inputs of a bonus for n transitions, as tensors.

    Attributes:
      frames: [m, *frame], the newest frames of observations and next observations, except the
        unspecified one after a terminal. A frame of a complete episode occurs once.
      obs_rows, next_obs_rows: [n] int32, rows of `frames` for the observations and for the next
        observations; at a terminal both are the same.
      actions: [n] int32.
      discounts: [n] float32; where one is 0, the target does not read B~.
      next_q: [n, K, A], the target network at the next observations.
      next_actions: [n, K] int32, a' as the update chose it, before any backward induction.
      q_values: () -> [n, K, A], the online network at the observations; a call costs a separate
        pass.
    """

    frames: Any
    obs_rows: Any
    next_obs_rows: Any
    actions: Any
    discounts: Any
    next_q: Any
    next_actions: Any
    q_values: Callable


class Batch(NamedTuple):
    """One regression problem for the learner: Q^k(observations[b], actions[b]) -> targets[b, k].

    Attributes:
      observations: [B, *stack].
      actions: [B] int32.
      targets: [B, K] float32.
      weights: [B] float32, 0 for padding rows.
      masks: [B, K] float32, 0 where a head does not learn from a row (bootstrap masks).
      ids: [B] int64, numbers of the transitions in order of arrival in replay; None: their errors
        are not reported to replay.
    """

    observations: np.ndarray
    actions: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    masks: np.ndarray
    ids: np.ndarray | None = None


class EnvStep(NamedTuple):
    """One step of B parallel environments.

    Attributes:
      acted_on: [B, *stack], the observations that the actions were chosen by.
      actions: [B] int32.
      observations: [B, *stack], after the step; where a game ended, the first one of the next.
      rewards, terminated, truncated, info: See the package environments.
    """

    acted_on: np.ndarray
    actions: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[str, Any]


class Step(NamedTuple):
    """One step of B parallel environments, as passed to `Posterior.observe`.

    Attributes:
      observations: [B, *stack], the observations that the actions were chosen by.
      actions: [B] int32.
      heads: [B] int32, the head that each environment follows.
      rewards: [B] float32.
      discounts: [B] float64, gamma, or 0 after a terminal.
      next_observations: [B, *stack], the real ones, at the end of an episode too; unspecified after
        a terminal.
      episode_over: [B] bool, whether a stored episode ends here.
      game_over: [B] bool, whether the environment was reset.
      agent_steps: Number of agent steps before this step.
      warmup: Whether the actions were the random ones before learning starts.
    """

    observations: np.ndarray
    actions: np.ndarray
    heads: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    next_observations: np.ndarray
    episode_over: np.ndarray
    game_over: np.ndarray
    agent_steps: int
    warmup: bool = False
