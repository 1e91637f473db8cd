import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks


def small(seed=0, **keywords):
    keywords = {'num_heads': 3, 'hidden_units': 16, **keywords}
    return networks.build(
        networks.MultiHeadQNetwork(5, seed=seed, **keywords), (84, 84, 4), tf.uint8
    )


def stacks(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 84, 84, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    'padding, features, parameters', [('valid', 3136, 16_159_944), ('same', 7744, 39_752_904)]
)
def test_the_papers_network(padding, features, parameters):
    network = networks.MultiHeadQNetwork(4, conv_padding=padding)
    assert network(stacks(2)).shape == (2, 10, 4)
    assert network.features(stacks(1)).shape == (1, features)
    assert network.count_params() == parameters


def test_heads_equal_separate_dense_layers():
    network = small()
    features = np.random.default_rng(0).normal(size=(6, 3136)).astype(np.float32)
    layers = network.heads.hidden_layer, network.heads.output_layer
    (hidden_kernel, hidden_bias), (kernel, bias) = (
        (layer.kernel.numpy(), layer.bias.numpy()) for layer in layers
    )
    hidden_bias += np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16, 1)
    layers[0].bias.assign(hidden_bias)
    for k in range(3):
        hidden = np.maximum(features @ hidden_kernel[k].T + hidden_bias[k, :, 0], 0)
        expected = hidden @ kernel[k].T + bias[k, :, 0]
        np.testing.assert_allclose(network.heads(features)[:, k], expected, atol=1e-4)
        np.testing.assert_allclose(network.heads(features, k)[:, 0], expected, atol=1e-4)


@pytest.mark.parametrize('count', [1, 4])
def test_following_gives_the_head_asked_for(count):
    network, observations = small(), stacks(count)
    heads = np.array([2, 0, 1, 1], np.int32)[:count]
    q_values, where = network.following(observations, heads)
    assert q_values.shape[1] == (1 if count == 1 else 3)
    rows = np.arange(count)
    np.testing.assert_allclose(
        q_values.numpy()[rows, where], network(observations).numpy()[rows, heads], atol=1e-5
    )


def test_bytes_are_scaled_to_one():
    network, observations = small(), stacks(2)
    as_floats = network(observations.astype(np.float32) / 255)
    np.testing.assert_allclose(network(observations), as_floats, atol=1e-5)


def test_trunk_gradient_is_scaled_and_the_heads_is_not():
    observations = stacks(3)

    def gradients(scale):
        network = small(trunk_gradient_scale=scale)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(network(observations) ** 2)
        return tape.gradient(loss, network.trainable_variables)

    plain, default = gradients(1.0), gradients(None)
    for index, (one, third) in enumerate(zip(plain, default)):
        factor = 1 / 3 if index < 6 else 1  # Three convolutions come first.
        np.testing.assert_allclose(third, factor * one, rtol=1e-4, atol=1e-9)


def test_seeds_decide_the_weights_and_heads_differ():
    observations = stacks(2)
    np.testing.assert_array_equal(small(seed=1)(observations), small(seed=1)(observations))
    assert np.abs(small(seed=1)(observations) - small(seed=2)(observations)).min() > 0
    q_values = small()(observations).numpy()
    assert np.ptp(q_values, axis=1).min() > 0


def test_weights_are_glorot_uniform_of_one_head():
    kernel = small(hidden_units=64).heads.hidden_layer.kernel.numpy()
    limit = np.sqrt(6 / (3136 + 64))
    assert np.abs(kernel).max() <= limit
    np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.01)


def test_without_convolutions_the_observation_is_the_feature():
    network = networks.MultiHeadQNetwork(2, num_heads=4, hidden_units=8, conv_layers=())
    assert network(np.zeros((3, 5), np.float32)).shape == (3, 4, 2)


def test_copy_variables():
    one, other = small(seed=1), small(seed=2)
    networks.copy_variables(one, other)
    np.testing.assert_array_equal(one(stacks(1)), other(stacks(1)))


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match='num_heads >= 1'):
        networks.MultiHeadQNetwork(4, num_heads=0)
