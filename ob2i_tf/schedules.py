"""Schedules of epsilon, each a function of the agent steps taken so far.

They are called at every step, so only the gin layer checks the ranges of their parameters; the
agent checks that epsilon is in 0..1.
"""

from typing import Annotated

import gin

from ob2i_tf.parameters import AtLeast, Within


@gin.configurable
def linear(
    agent_steps: int,
    start: Annotated[float, Within(0, 1)] = gin.REQUIRED,
    final: Annotated[float, Within(0, 1)] = gin.REQUIRED,
    steps: Annotated[int, AtLeast(0)] = gin.REQUIRED,
) -> float:
    """From `start` to `final` in a straight line over `steps` agent steps, then constant."""
    return final if agent_steps >= steps else start + (final - start) * agent_steps / steps


@gin.configurable
def quadratic(
    agent_steps: int,
    start: Annotated[float, Within(0, 1)] = gin.REQUIRED,
    steps: Annotated[int, AtLeast(0)] = gin.REQUIRED,
) -> float:
    """start * (1 - agent_steps / steps)^2, then 0 (paper, table 3, the MNIST maze)."""
    return 0.0 if agent_steps >= steps else start * (1.0 - agent_steps / steps) ** 2
