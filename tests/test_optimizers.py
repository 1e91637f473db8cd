"""Steps of the learner against the recursions of the papers."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks, optimizers, types
from ob2i_tf.learner import QLearner

ROWS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def learner_with(optimizer, **keywords):
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(
                2, 2, 4, conv_layers=(), trunk_gradient_scale=1.0, seed=seed
            ),
            (3,),
            tf.float32,
        )
        for seed in (1, 2)
    ]
    return QLearner(*pair, optimizer=optimizer, **keywords)


def batch_of(targets):
    return types.Batch(
        ROWS,
        np.array([0, 1] * 3, np.int32),
        np.broadcast_to(targets, (6, 2)).astype(np.float32),
        np.ones(6, np.float32),
        np.ones((6, 2), np.float32),
    )


def gradients_on(learner, batch):
    with tf.GradientTape() as tape:
        q_values = tf.gather(
            learner.network(batch.observations), batch.actions, axis=2, batch_dims=1
        )
        loss = tf.reduce_mean((batch.targets - q_values) ** 2)
    gradients = tape.gradient(loss, learner.network.trainable_variables)
    return [g.numpy().astype(np.float64) for g in gradients]


@pytest.mark.parametrize('momentum', [0.0, 0.7])
@pytest.mark.parametrize('centered', [True, False])
def test_rmsprop_against_numpy(centered, momentum):
    """Epsilon is under the root (Mnih et al. 2015; Graves 2013, eq. 38 to 41)."""
    learner = learner_with(
        functools.partial(optimizers.rmsprop, 0.01, 0.9, momentum, 0.01, centered),
        max_gradient_norm=None,
    )
    variables = learner.network.trainable_variables
    weights = [v.numpy().astype(np.float64) for v in variables]
    first, second, velocity = ([np.zeros_like(w) for w in weights] for _ in range(3))
    for step in range(6):
        batch = batch_of(np.sin(step) * np.array([1.0, 3.0]))
        gradients = gradients_on(learner, batch)
        learner.step(batch)
        for i, g in enumerate(gradients):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.9 * second[i] + 0.1 * g**2
            variance = second[i] - centered * first[i] ** 2
            velocity[i] = momentum * velocity[i] + 0.01 * g / np.sqrt(variance + 0.01)
            weights[i] -= velocity[i]
            np.testing.assert_allclose(variables[i], weights[i], rtol=1e-3, atol=2e-5)
    assert learner.learner_steps == 6


def test_rmsprop_has_the_numbers_of_dqn():
    variable = tf.Variable([0.0])
    optimizers.rmsprop(2.5e-4).apply_gradients([([2.0], variable)])
    expected = -2.5e-4 * 2 / np.sqrt(0.05 * 4 - (0.05 * 2) ** 2 + 0.01)
    np.testing.assert_allclose(variable, [expected], rtol=1e-5)


def test_rmsprop_survives_a_gradient_that_does_not_change():
    """E[g^2] - E[g]^2 then goes to 0, and by rounding below."""
    gradients = tf.constant(np.random.default_rng(0).normal(size=200).astype(np.float32))
    variable = tf.Variable(tf.zeros(200))
    optimizer = optimizers.rmsprop(2.5e-4, decay=0.5, epsilon=1e-5)
    for _ in range(60):
        optimizer.apply_gradients([(gradients, variable)])
    assert np.isfinite(variable).all()


@pytest.mark.parametrize('max_norm', [None, 10.0])
def test_gradients_are_clipped_only_by_a_norm(max_norm):
    learner = learner_with(
        functools.partial(tf.keras.optimizers.legacy.SGD, 1.0), max_gradient_norm=max_norm
    )
    variables = learner.network.trainable_variables
    before = [v.numpy() for v in variables]
    batch = batch_of(1e4)
    gradients = gradients_on(learner, batch)
    norm = np.sqrt(sum((g**2).sum() for g in gradients))
    assert norm > 1e4
    learner.step(batch)
    factor = 1 if max_norm is None else max_norm / norm
    for variable, value, gradient in zip(variables, before, gradients):
        np.testing.assert_allclose(
            variable, value - factor * gradient, rtol=1e-4, atol=1e-5 * max(1, factor * norm)
        )


@pytest.mark.parametrize(
    'optimizer, name, value, what',
    [
        (optimizers.adam, 'learning_rate', -0.1, 'at least 0, got -0.1'),
        (optimizers.adam, 'learning_rate', float('inf'), r'within \+-3.4e\+38, got inf'),
        (optimizers.adam, 'learning_rate', float('nan'), 'at least 0, got nan'),
        (optimizers.adam, 'epsilon', -1e-7, 'at least 0, got -1e-07'),
        (optimizers.adam, 'beta_1', 1.0, 'at least 0 and below 1, got 1.0'),
        (optimizers.adam, 'beta_2', -0.1, 'at least 0 and below 1, got -0.1'),
        (optimizers.rmsprop, 'learning_rate', -0.1, 'at least 0, got -0.1'),
        (optimizers.rmsprop, 'decay', 1.5, 'at least 0 and below 1, got 1.5'),
        (optimizers.rmsprop, 'momentum', -0.5, 'at least 0 and below 1, got -0.5'),
    ],
)
def test_numbers_out_of_range_are_refused(optimizer, name, value, what):
    with pytest.raises(ValueError, match=rf'^{optimizer.__name__}\.{name} must be {what}'):
        optimizer(**{'learning_rate': 0.1, name: value})
    optimizer(learning_rate=0.0, epsilon=0)  # The border is inside.
