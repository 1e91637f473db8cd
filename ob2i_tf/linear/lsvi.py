"""Least-squares value iteration in episodic linear MDPs, as pure functions of arrays.

n is the number of transitions of each of H steps, d of features, A of actions.
"""

from collections.abc import Callable

import numpy as np


def value_iteration(
    features: np.ndarray,
    rewards: np.ndarray,
    next_features: np.ndarray,
    q_function: Callable,
    regularisation: float = 1.0,
) -> list[Callable]:
    """Fits Q at each step, from the last to the first (Jin et al. 2020, Algorithm 1).

        Lambda_h = sum phi phi^T + regularisation I
        w_h = Lambda_h^-1 sum phi (r + max_a Q_{h+1}(s', a)),  Q_{H+1} = 0

    Args:
      features: Features phi of the pairs visited, [H, n, d].
      rewards: Rewards, [H, n].
      next_features: Features phi of all actions at the next state, except after the last step,
        [H - 1, n, A, d].
      q_function: Maps (h, weights [d], inverse [d, d]) to a function from features [..., d] to Q_h
        [...], which makes values optimistic or random.
      regularisation: Ridge penalty lambda.

    Returns:
      The H functions that `q_function` returned, in the order of steps.
    """
    horizon, _, size = features.shape
    functions, next_values = [], np.zeros(rewards.shape[1])
    for h in reversed(range(horizon)):
        phi = features[h]
        inverse = np.linalg.inv(phi.T @ phi + regularisation * np.eye(size))
        weights = inverse @ (phi.T @ (rewards[h] + next_values))
        functions.append(q_function(h, weights, inverse))
        if h:
            next_values = functions[-1](next_features[h - 1]).max(axis=-1)
    return functions[::-1]


def norms(features: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """sqrt(phi^T Lambda^-1 phi): [..., d], [d, d] -> [...]."""
    rows = features.reshape(-1, features.shape[-1])  # One large product, not many small ones.
    squares = np.einsum('ni,ni->n', rows @ inverse, rows).clip(0)
    return np.sqrt(squares).reshape(features.shape[:-1])


def ucb(horizon: int, bonus_scale: float) -> Callable:
    """LSVI-UCB: Q = min(w^T phi + bonus_scale sqrt(phi^T Lambda^-1 phi), H)."""

    def q_function(h, weights, inverse):
        del h
        return lambda phi: np.minimum(phi @ weights + bonus_scale * norms(phi, inverse), horizon)

    return q_function


def randomised(
    horizon: int, noise_scale: float, lower: float, upper: float, rng: np.random.Generator
) -> Callable:
    """Randomised LSVI with optimistic values where little is known (Zanette et al. 2020).

    The weights get noise xi ~ N(0, noise_scale^2 Lambda^-1). With x = sqrt(phi^T Lambda^-1 phi), Q
    is phi^T (w + xi) for x <= lower and H - h, the largest return still possible, for x >= upper;
    in between it is a linear blend of the two.
    """

    def q_function(h, weights, inverse):
        drawn = rng.multivariate_normal(weights, noise_scale**2 * inverse)

        def q_values(phi):
            known = np.clip((upper - norms(phi, inverse)) / (upper - lower), 0, 1)
            return known * (phi @ drawn) + (1 - known) * (horizon - h)

        return q_values

    return q_function


def greedy() -> Callable:
    """Plain regression, without bonus or noise: Q = w^T phi; for an epsilon-greedy agent."""
    return lambda h, weights, inverse: lambda phi: phi @ weights
