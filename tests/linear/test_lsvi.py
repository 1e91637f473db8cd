"""Least-squares value iteration against a literal loop, and its agents."""

import numpy as np
import pytest

from experiments.figure_1 import __main__ as regression
from experiments.theorem_1 import __main__ as theorem
from ob2i_tf.environments import linear_mdp
from ob2i_tf.linear import lsvi


def episodes(mdp, count, rng):
    """Features [H, n, d], rewards [H, n] and next features [H - 1, n, A, d] of random play."""
    num_actions = mdp.features.shape[1]
    states = np.zeros((mdp.horizon, count), int)
    actions = rng.integers(num_actions, size=(mdp.horizon, count))
    rewards = np.zeros((mdp.horizon, count))
    for n in range(count):
        state = 0
        for h in range(mdp.horizon):
            states[h, n] = state
            rewards[h, n] = mdp.rewards[state, actions[h, n]]
            state = rng.choice(len(mdp.transitions), p=mdp.transitions[state, actions[h, n]])
    return mdp.features[states, actions], rewards, mdp.features[states[1:]]


def literal_lsvi_ucb(features, rewards, next_features, bonus_scale, regularisation):
    """Q of every step as (weights, inverse), one transition at a time."""
    horizon, count, size = features.shape
    functions = [None] * horizon
    for h in range(horizon - 1, -1, -1):
        gram, target = regularisation * np.eye(size), np.zeros(size)
        for n in range(count):
            value = 0.0
            if h + 1 < horizon:
                weights, inverse = functions[h + 1]
                value = max(
                    min(phi @ weights + bonus_scale * np.sqrt(phi @ inverse @ phi), horizon)
                    for phi in next_features[h, n]
                )
            gram += np.outer(features[h, n], features[h, n])
            target += features[h, n] * (rewards[h, n] + value)
        functions[h] = np.linalg.solve(gram, target), np.linalg.inv(gram)
    return functions


def test_lsvi_ucb_against_a_literal_loop():
    mdp = linear_mdp.draw_mdp('linear', 5, 3, horizon=4, num_features=5, mdp_seed=0)
    rng = np.random.default_rng(0)
    data = episodes(mdp, 30, rng)
    functions = lsvi.value_iteration(*data, lsvi.ucb(4, 0.7), regularisation=2.0)
    for made, (weights, inverse) in zip(functions, literal_lsvi_ucb(*data, 0.7, 2.0)):
        for phi in mdp.features.reshape(-1, 5):
            expected = min(phi @ weights + 0.7 * np.sqrt(phi @ inverse @ phi), 4)
            np.testing.assert_allclose(made(phi), expected, rtol=1e-8)


def test_much_data_gives_the_optimal_values():
    mdp = linear_mdp.draw_mdp('linear', 4, 2, horizon=3, num_features=3, mdp_seed=0)
    data = episodes(mdp, 6000, np.random.default_rng(1))
    functions = lsvi.value_iteration(*data, lsvi.greedy(), regularisation=1e-6)
    values = np.array([function(mdp.features) for function in functions])
    np.testing.assert_allclose(values[1:], mdp.optimal_values()[1:], atol=0.05)


def test_without_data_ucb_is_the_bonus_and_randomised_is_optimistic():
    phi = np.array([[0.6, 0.8], [0.3, 0.4]])
    data = np.zeros((3, 0, 2)), np.zeros((3, 0)), np.zeros((2, 0, 1, 2))
    for made in lsvi.value_iteration(*data, lsvi.ucb(3, 2.0), regularisation=4.0):
        np.testing.assert_allclose(made(phi), [1.0, 0.5])
        np.testing.assert_allclose(made(10 * phi), [3, 3])  # Never more than H.
    rng = np.random.default_rng(0)
    made = lsvi.value_iteration(*data, lsvi.randomised(3, 0.0, 0.2, 0.4, rng), regularisation=4.0)
    for h, function in enumerate(made):  # Norms 0.5 and 0.25: beyond upper, and a quarter of it.
        np.testing.assert_allclose(function(phi), [3 - h, 0.25 * (3 - h)])


def test_randomised_weights_have_the_covariance_of_the_posterior():
    rng = np.random.default_rng(0)
    inverse, phi = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -2.0])
    q_function = lsvi.randomised(3, 0.3, 1e6, 2e6, rng)
    draws = [float(q_function(0, np.array([1.0, 1.0]), inverse)(phi)) for _ in range(4000)]
    np.testing.assert_allclose(np.mean(draws), -1, atol=0.03)
    np.testing.assert_allclose(np.std(draws), 0.3 * np.sqrt(phi @ inverse @ phi), rtol=0.05)


@pytest.mark.parametrize('kind', ['river_swim', 'tabular', 'linear'])
def test_mdps_are_linear_and_their_optimum_is_right(kind):
    mdp = linear_mdp.draw_mdp(kind, 3, 2, horizon=3, num_features=5, mdp_seed=4)
    np.testing.assert_allclose(mdp.transitions.sum(-1), 1)
    assert (mdp.transitions >= 0).all() and mdp.rewards.min() >= 0 and mdp.rewards.max() <= 1
    phi = mdp.features.reshape(6, -1)
    for target in (mdp.transitions.reshape(6, -1), mdp.rewards.ravel()):
        solution = np.linalg.lstsq(phi, target, rcond=None)[0]
        np.testing.assert_allclose(phi @ solution, target, atol=1e-9)

    def best(state, h):  # By trying everything.
        if h == 3:
            return 0.0
        return max(
            mdp.rewards[state, a]
            + sum(p * best(s, h + 1) for s, p in enumerate(mdp.transitions[state, a]))
            for a in range(2)
        )

    np.testing.assert_allclose(mdp.optimal_values()[0, 0].max(), best(0, 0))


def test_theorem_1_the_error_falls_like_the_root_of_heads():
    heads = [30, 300, 3000]
    errors = [np.mean([theorem.relative_error(k, seed=s) for s in range(3)]) for k in heads]
    np.testing.assert_allclose(errors, 1 / np.sqrt(2 * np.array(heads)), rtol=0.25)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="'grid'"):
        linear_mdp.draw_mdp('grid', 3, 2, 4, 5, 0)


def test_networks_that_fit_the_same_points_differ_where_there_are_none():
    """Figure 1, with a tenth of its steps."""
    x, y = regression.draw_points(np.random.default_rng(0))
    assert len(x) == 60 and ((x >= 0) & (x < 0.6) | (x >= 0.8) & (x < 1)).all()
    before, after = (regression.fit(x, y, steps) for steps in (0, 300))
    errors = [np.mean((fitted(x) - y[:, None]) ** 2) for fitted in (before, after)]
    assert errors[1] < 0.3 * errors[0] and errors[1] < np.var(y) / 2
    among, beyond = (after(at).std(axis=1).mean() for at in (x, np.array([-0.3, 1.3])))
    assert beyond > 2 * among
