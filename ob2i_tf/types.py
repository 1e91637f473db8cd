"""The data that flows through the system: emulator -> Episode -> replay -> Batch -> gradient.

A *frame* is a single observation (84x84 on Atari). A *stack* is what the network sees: the
`history` newest frames on a new last axis, newest last; with `history=1` it is the frame itself.
T is the number of transitions of an episode, K the number of heads, A the number of actions.
"""

from typing import NamedTuple, Optional

import numpy as np


class Episode(NamedTuple):
    """One stored episode: T transitions between T + 1 frames, each frame stored once.

    Attributes:
      observations: [T + 1, *frame], the last one being the real final observation.
      actions: [T] int, actions[t] was taken at observations[t].
      rewards: [T] float, as the learner sees them (clipped on Atari).
      discounts: [T] float, gamma, or 0 after a terminal; a truncated episode ends with gamma.
      context: [history - 1, *frame], the frames that the agent saw before observations[0], oldest
        first; None stands for observations[0] repeated.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    context: Optional[np.ndarray] = None


class Transitions(NamedTuple):
    """n transitions out of any episodes: observations and next_observations are stacks."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    next_observations: np.ndarray


class Batch(NamedTuple):
    """One regression problem for the learner: Q^k(observations[b], actions[b]) -> targets[b, k].

    Attributes:
      observations: [B, *stack].
      actions: [B] int32.
      targets: [B, K] float32.
      weights: [B] float32, 0 for padding rows.
    """

    observations: np.ndarray
    actions: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
