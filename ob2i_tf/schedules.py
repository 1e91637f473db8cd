"""Schedules of epsilon, each a function of the agent steps taken so far."""

import gin


@gin.configurable
def linear(
    agent_steps: int,
    start: float = gin.REQUIRED,
    final: float = gin.REQUIRED,
    steps: int = gin.REQUIRED,
) -> float:
    """From `start` to `final` in a straight line over `steps` agent steps, then constant.

    Raises:
      ValueError: `start` or `final` is outside 0..1, or `steps` is negative.
    """
    _check('linear', steps, start=start, final=final)
    return final if agent_steps >= steps else start + (final - start) * agent_steps / steps


@gin.configurable
def quadratic(agent_steps: int, start: float = gin.REQUIRED, steps: int = gin.REQUIRED) -> float:
    """start * (1 - agent_steps / steps)^2, then 0 (paper, table 3, the MNIST maze).

    Raises:
      ValueError: `start` is outside 0..1, or `steps` is negative.
    """
    _check('quadratic', steps, start=start)
    return 0.0 if agent_steps >= steps else start * (1.0 - agent_steps / steps) ** 2


def _check(schedule, steps, **epsilons):
    for name, value in epsilons.items():
        if not 0 <= value <= 1:
            raise ValueError(f'{schedule}.{name} must be in 0..1, got {value}')
    if steps < 0:
        raise ValueError(f'{schedule}.steps must not be negative, got {steps}')
