"""How epsilon falls as training goes on. Every schedule maps agent steps to epsilon."""

import gin


@gin.configurable
def linear(agent_steps: int, start: float = 1.0, final: float = 0.1, steps: int = 250_000) -> float:
    """From `start` to `final` in a straight line over `steps` agent steps, then constant.

    The default is the paper's for Atari (table 4): 1 to 0.1 over 1M frames, 250k agent steps.
    """
    return final if agent_steps >= steps else start + (final - start) * agent_steps / steps


@gin.configurable
def quadratic(agent_steps: int, start: float = 1.0, steps: int = 200_000) -> float:
    """start * (1 - agent_steps / steps)^2, then 0: the paper's for the MNIST maze (table 3)."""
    return 0.0 if agent_steps >= steps else start * (1.0 - agent_steps / steps) ** 2
