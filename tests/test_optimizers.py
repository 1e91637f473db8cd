import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import optimizers


@pytest.mark.parametrize('centered', [True, False])
@pytest.mark.parametrize('momentum', [0.0, 0.8])
def test_rmsprop_against_numpy(momentum, centered):
    optimizer = optimizers.rmsprop(0.1, 0.9, momentum, 0.01, centered)
    variable = tf.Variable([1.0, -2.0])
    expected = np.array([1.0, -2.0])
    mean, squares, step = np.zeros(2), np.zeros(2), np.zeros(2)
    for gradient in np.random.default_rng(0).normal(0, 0.1, size=(10, 2)):
        optimizer.apply_gradients([(tf.constant(gradient, tf.float32), variable)])
        mean = 0.9 * mean + 0.1 * gradient
        squares = 0.9 * squares + 0.1 * gradient**2
        variance = squares - centered * mean**2
        step = momentum * step + 0.1 * gradient / np.sqrt(variance + 0.01)
        expected = expected - step
        np.testing.assert_allclose(variable, expected, rtol=1e-4)


def test_rmsprop_stays_finite_on_gradients_without_variance():
    optimizer = optimizers.rmsprop(1e-3, epsilon=1e-5)
    variable = tf.Variable(tf.zeros(100))
    gradients = tf.constant(np.random.default_rng(0).normal(size=100), tf.float32)
    for _ in range(400):
        optimizer.apply_gradients([(gradients, variable)])
    assert np.isfinite(variable.numpy()).all()
