import functools
import re

import gin
import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks, optimizers, types
from ob2i_tf.linear.agents import LinearQNetwork
from ob2i_tf.seeds import split_draws
from tests import atari

legacy = tf.keras.optimizers.legacy


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
    q_values, where = network.followed_head(observations, heads)
    assert q_values.shape[1] == (1 if count == 1 else 3)
    rows = np.arange(count)
    np.testing.assert_allclose(
        q_values.numpy()[rows, where], network(observations).numpy()[rows, heads], atol=1e-5
    )


def test_convolutions_take_single_frames_without_channels():
    frames = stacks(2)[..., :1]
    with_channel, without = (
        networks.build(networks.MultiHeadQNetwork(5, 3, 16), shape, tf.uint8)
        for shape in ((84, 84, 1), (84, 84))
    )
    networks.copy_variables(with_channel, without)
    np.testing.assert_array_equal(without(frames[..., 0]), with_channel(frames))


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
    for name in ('num_heads', 'hidden_units'):
        with pytest.raises(ValueError, match=f'MultiHeadQNetwork.{name} must be at least 1, got 0'):
            networks.MultiHeadQNetwork(4, **{name: 0})


# Noisy layers.

NOISES = pytest.mark.parametrize('noise', ['factorised', 'independent'])


def flat(noise=None, seed=0, num_heads=3, **keywords):
    """Without a trunk: the 5 numbers of an observation are the features. 4 actions."""
    return networks.build(
        networks.MultiHeadQNetwork(
            4,
            num_heads,
            hidden_units=6,
            conv_layers=(),
            trunk_gradient_scale=1.0,
            noise=noise,
            seed=seed,
            **keywords,
        ),
        (5,),
        tf.float32,
    )


def points(count=7, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)


def test_factorised_noise_is_an_outer_product():
    kernel, bias = networks.factorised_noise((3, 40, 50), [1, 2])
    assert kernel.shape == (3, 40, 50) and bias.shape == (3, 40, 1)
    kernel, bias = kernel.numpy(), bias.numpy()
    for k in range(3):
        assert np.linalg.matrix_rank(kernel[k], tol=1e-4) == 1
        of_inputs = kernel[k] / bias[k]  # f(e_in), the same for every unit.
        np.testing.assert_allclose(of_inputs, np.tile(of_inputs[:1], (40, 1)), rtol=1e-4)
    assert np.abs(np.corrcoef(kernel.reshape(3, -1)) - np.eye(3)).max() < 0.2


def test_moments_of_factorised_noise():
    kernel, bias = (x.numpy() for x in networks.factorised_noise((4, 4000, 500), [5, 0]))
    # x = f(n) = sign(n) sqrt|n| has E x = 0, E x^2 = E|n| = sqrt(2 / pi), E x^4 = E n^2 = 1.
    for draws in (bias, kernel[:, 0] / bias[:, 0]):
        draws = draws.astype(np.float64)
        np.testing.assert_allclose(draws.mean(), 0, atol=0.08)
        np.testing.assert_allclose((draws**2).mean(), np.sqrt(2 / np.pi), atol=0.06)
        np.testing.assert_allclose((draws**4).mean(), 1, atol=0.15)
    squared = np.sign(bias) * bias**2  # Normal again.
    np.testing.assert_allclose(np.mean(np.abs(squared) < 1.96), 0.95, atol=0.01)
    np.testing.assert_allclose((kernel.astype(np.float64) ** 2).mean(), 2 / np.pi, atol=0.05)


def test_independent_noise_is_normal():
    kernel, bias = (x.numpy() for x in networks.independent_noise((3, 50, 200), [1, 2]))
    assert kernel.shape == (3, 50, 200) and bias.shape == (3, 50, 1)
    assert np.linalg.matrix_rank(kernel[0]) == 50
    for draws in (kernel, bias):
        tolerance = 5 / np.sqrt(draws.size)
        np.testing.assert_allclose(draws.mean(), 0, atol=tolerance)
        np.testing.assert_allclose((draws**2).mean(), 1, atol=1.5 * tolerance)
    assert np.abs(np.corrcoef(kernel.reshape(3, -1)) - np.eye(3)).max() < 0.05
    assert np.unique(np.concatenate([kernel, bias], -1)).size > 0.999 * 3 * 50 * 201


@pytest.mark.parametrize('draw', [networks.factorised_noise, networks.independent_noise])
def test_the_seed_decides_the_noise(draw):
    one, same, other = (draw((2, 3, 4), seed) for seed in ([1, 2], [1, 2], [1, 3]))
    for mine, its, theirs in zip(one, same, other):
        np.testing.assert_array_equal(mine, its)
        assert np.abs(mine - theirs).min() > 0


@pytest.mark.parametrize(
    'noise, bound, sigma',
    [
        ('factorised', lambda p: 1 / np.sqrt(p), lambda p: 0.5 / np.sqrt(p)),
        ('independent', lambda p: np.sqrt(3 / p), lambda p: 0.017),
    ],
)
def test_initial_values_of_noisy_layers(noise, bound, sigma):
    network = networks.build(
        networks.MultiHeadQNetwork(50, 4, hidden_units=300, conv_layers=(), noise=noise),
        (20,),
        tf.float32,
    )
    layers = (network.heads.hidden_layer, 20), (network.heads.output_layer, 300)
    for layer, fan_in in layers:
        for mean in (layer.kernel.numpy(), layer.bias.numpy()):
            assert np.abs(mean).max() <= bound(fan_in)
            assert np.abs(mean).max() > 0.97 * bound(fan_in)
            np.testing.assert_allclose(mean.std(), bound(fan_in) / np.sqrt(3), rtol=0.1)
        for deviation in (layer.kernel_sigma, layer.bias_sigma):
            expected = np.full(deviation.shape, sigma(fan_in))
            np.testing.assert_allclose(deviation, expected, rtol=1e-6)
        assert layer.kernel_sigma.shape == layer.kernel.shape == (4, layer.bias.shape[1], fan_in)
        assert layer.bias_sigma.shape == layer.bias.shape


@NOISES
def test_noise_by_seed_and_means_without(noise):
    network, x = flat(noise), points()
    np.testing.assert_array_equal(network(x, [3, 4]), network(x, [3, 4]))
    for other in ([3, 5], [2, 4], None):
        assert np.abs(network(x, [3, 4]) - network(x, other)).min() > 0
    plain = flat()
    for layer, source in (
        (plain.heads.hidden_layer, network.heads.hidden_layer),
        (plain.heads.output_layer, network.heads.output_layer),
    ):
        layer.kernel.assign(source.kernel)
        layer.bias.assign(source.bias)
    np.testing.assert_allclose(network(x), plain(x), atol=1e-6)
    np.testing.assert_array_equal(plain(x, [3, 4]), plain(x))


@NOISES
@pytest.mark.parametrize('dueling', [False, True])
def test_one_draw_serves_the_whole_batch(noise, dueling):
    network, x = flat(noise, dueling=dueling), points()
    together = network(x, [3, 4]).numpy()
    for row in range(len(x)):
        alone = network(x[row : row + 1], [3, 4])
        np.testing.assert_allclose(together[row : row + 1], alone, atol=1e-5)


def noise_of(layer, seed):
    """The noise itself: the weights when mu is 0 and sigma 1."""
    variables = layer.kernel, layer.bias, layer.kernel_sigma, layer.bias_sigma
    kept = [v.numpy() for v in variables]
    for variable, value in zip(variables, (0, 0, 1, 1)):
        variable.assign(tf.fill(variable.shape, float(value)))
    drawn = [x.numpy() for x in layer.head_weights(None, seed)]
    for variable, value in zip(variables, kept):
        variable.assign(value)
    return drawn


def randomise(network, seed=0):
    """Every weight gets a different value."""
    rng = np.random.default_rng(seed)
    for variable in network.variables:
        variable.assign(rng.normal(size=variable.shape).astype(np.float32))


@NOISES
def test_a_noisy_network_by_hand(noise):
    network, x, seed = flat(noise, num_heads=1), points(), [8, 9]
    randomise(network)
    seeds = split_draws(split_draws(seed)[0])
    assert np.any(seeds[0] != seeds[1])
    y = x
    for layer, layer_seed, rectify in (
        (network.heads.hidden_layer, seeds[0], True),
        (network.heads.output_layer, seeds[1], False),
    ):
        kernel_noise, bias_noise = noise_of(layer, layer_seed)
        kernel = layer.kernel.numpy()[0] + layer.kernel_sigma.numpy()[0] * kernel_noise[0]
        bias = layer.bias.numpy()[0] + layer.bias_sigma.numpy()[0] * bias_noise[0]
        y = y @ kernel.T + bias[:, 0]
        y = np.maximum(y, 0) if rectify else y
    np.testing.assert_allclose(network(x, seed)[:, 0], y, rtol=1e-4, atol=1e-4)
    assert np.abs(network(x) - network(x, seed)).max() > 0.1


@NOISES
def test_gradient_of_sigma_is_that_of_mu_times_the_noise(noise):
    network, x, seed = flat(noise), points(), [8, 9]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(x, seed) ** 2)
    seeds = split_draws(split_draws(seed)[0])
    layers = network.heads.hidden_layer, network.heads.output_layer
    sources = [[v.kernel, v.bias, v.kernel_sigma, v.bias_sigma] for v in layers]
    for layer, gradients, layer_seed in zip(layers, tape.gradient(loss, sources), seeds):
        kernel_noise, bias_noise = noise_of(layer, layer_seed)
        kernel, bias, kernel_sigma, bias_sigma = (g.numpy() for g in gradients)
        np.testing.assert_allclose(kernel_sigma, kernel * kernel_noise, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(bias_sigma, bias * bias_noise, rtol=1e-3, atol=1e-5)
        assert np.abs(kernel_sigma).max() > 0 and np.abs(bias_sigma).max() > 0


# Dueling.


def by_hand(layers, x):
    hidden_layer, output_layer = layers.hidden_layer, layers.output_layer
    kernel, bias = hidden_layer.kernel.numpy(), hidden_layer.bias.numpy()
    hidden = np.maximum(np.einsum('bd,khd->bkh', x, kernel) + bias[..., 0], 0)
    kernel, bias = output_layer.kernel.numpy(), output_layer.bias.numpy()
    return np.einsum('bkh,kah->bka', hidden, kernel) + bias[..., 0]


def test_dueling_is_value_plus_advantages_without_their_mean():
    network, x = flat(dueling=True), points()
    randomise(network)
    advantages, values = by_hand(network.heads, x), by_hand(network.value_heads, x)
    assert values.shape == (7, 3, 1)
    expected = values + advantages - advantages.mean(axis=2, keepdims=True)
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-4)
    assert network.hidden(x).shape == (7, 3, 6)
    network.heads.output_layer.bias.assign_add(
        tf.fill((3, 4, 1), 5.0)
    )  # Added to all actions, it changes nothing.
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-4)
    network.value_heads.output_layer.bias.assign_add(tf.fill((3, 1, 1), 5.0))
    np.testing.assert_allclose(network(x), expected + 5, rtol=1e-4, atol=1e-4)


def test_the_streams_of_a_dueling_network_have_separate_weights():
    network, x = flat('independent', dueling=True), points()
    kernels = network.heads.hidden_layer.kernel, network.value_heads.hidden_layer.kernel
    assert np.abs(kernels[0] - kernels[1]).min() > 0
    before = network(x).numpy()
    for variable in network.value_heads.variables:
        variable.assign(tf.zeros_like(variable))
    np.testing.assert_allclose(network(x).numpy().mean(-1), np.zeros((7, 3)), atol=1e-6)
    assert np.abs(network(x) - before).max() > 0.01


@NOISES
def test_the_streams_of_a_dueling_network_draw_noise_apart(noise):
    """Streams of equal weights, each giving the sum of its hidden units: V, and A at action 0."""
    network, x = flat(noise, dueling=True), points()
    for stream in (network.heads, network.value_heads):
        hidden, output = stream.hidden_layer, stream.output_layer
        for variable in (hidden.kernel_sigma, hidden.bias_sigma):
            variable.assign(tf.ones_like(variable))
        for variable in (hidden.kernel, hidden.bias, *output.variables):
            variable.assign(tf.zeros_like(variable))
        output.kernel[:, 0].assign(tf.ones_like(output.kernel[:, 0]))
    q_values = network(x, [3, 4]).numpy()
    advantage = q_values[..., 0] - q_values[..., 1]
    value = q_values.mean(-1)
    assert (advantage > 0).mean() > 0.9 and (value > 0).mean() > 0.9
    assert np.abs(value - advantage).mean() > 0.5


@pytest.mark.parametrize('count', [1, 5])
@pytest.mark.parametrize(
    'keywords',
    [
        {'dueling': True},
        {'noise': 'factorised'},
        {'noise': 'independent', 'dueling': True},
        {'prior_scale': 3.0, 'prior_seed': 4},
        {'noise': 'factorised', 'dueling': True, 'prior_scale': 3.0},
    ],
)
def test_following_equals_the_full_pass(keywords, count):
    network, x, seed = flat(**keywords), points(count), [6, 1]
    full = network(x, seed).numpy()
    functions = [network.followed_head]
    if count == 1:
        functions.append(tf.function(network.followed_head))
    for start in range(3):
        heads = np.arange(start, start + count, dtype=np.int32) % 3
        expected = full[np.arange(count), heads]
        for function in functions:
            q_values, where = function(x, tf.constant(heads), seed)
            assert q_values.shape[1] == (1 if count == 1 else 3)
            found = q_values.numpy()[np.arange(count), where]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# Priors.


def test_a_prior_is_added_and_is_another_network():
    x = points()
    for dueling in (False, True):
        network = flat(seed=1, dueling=dueling, prior_scale=3.0, prior_seed=7)
        f, p = flat(seed=1, dueling=dueling), flat(seed=7, dueling=dueling)
        np.testing.assert_allclose(network(x), f(x) + 3 * p(x), rtol=1e-4, atol=1e-5)
        assert len(network.trainable_variables) == len(f.trainable_variables)
        assert len(network.variables) == 2 * len(f.variables)


def test_a_prior_has_no_part_in_the_scale_of_the_values():
    x = points()
    network = flat(seed=1, value_scale=100.0, prior_scale=3.0, prior_seed=7)
    expected = 100 * flat(seed=1)(x) + 3 * flat(seed=7)(x)
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-4)


def test_a_prior_sees_the_bytes_and_its_own_trunk():
    network = small(seed=1, prior_scale=2.0, prior_seed=7, trunk_gradient_scale=1.0)
    x = stacks(2)
    expected = small(seed=1)(x) + 2 * small(seed=7)(x)
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(x))
    assert tape.gradient(loss, network.prior.variables) == [None] * 10


def learner_of(build, seeds=(1, 2), **keywords):
    keywords = {'optimizer': functools.partial(optimizers.adam, 0.01), **keywords}
    return atari.QLearner(*(build(seed) for seed in seeds), **keywords)


def batch_of(x, targets, masks=None, num_actions=4):
    actions = np.arange(len(x), dtype=np.int32) % num_actions
    targets = np.asarray(targets, np.float32)
    masks = np.ones_like(targets) if masks is None else masks
    return types.Batch(x, actions, targets, np.ones(len(x), np.float32), masks)


def arrays(variables):
    return [v.numpy() for v in variables]


@pytest.mark.parametrize('dueling', [False, True])
def test_learning_values_on_a_scale_is_learning_scaled_targets(dueling):
    x = points(8)
    y = np.random.default_rng(0).normal(size=(8, flat(seed=1).num_heads)) * 100
    scaled = learner_of(
        lambda seed: flat(seed=seed, dueling=dueling, value_scale=100.0), loss_scale=1e-4
    )
    plain = learner_of(lambda seed: flat(seed=seed, dueling=dueling))
    np.testing.assert_allclose(scaled.network(x), 100 * plain.network(x), rtol=1e-5)
    for _ in range(20):
        scaled.step(batch_of(x, y))
        plain.step(batch_of(x, y / 100))
    np.testing.assert_allclose(scaled.network(x), 100 * plain.network(x), rtol=1e-3, atol=1e-2)


def test_learning_with_a_prior_is_learning_the_rest():
    x = points(8)
    learner = learner_of(lambda seed: flat(seed=seed, prior_scale=3.0, prior_seed=7))
    plain = learner_of(lambda seed: flat(seed=seed))
    prior = 3 * flat(seed=7)(x).numpy()[np.arange(8), :, np.arange(8) % 4]
    before, start = arrays(learner.network.prior.variables), arrays(plain.network.variables)
    for seed in range(5):
        y = np.random.default_rng(seed).normal(size=(8, 3))
        (losses, _), (other, _) = learner.step(batch_of(x, y)), plain.step(batch_of(x, y - prior))
        np.testing.assert_allclose(losses['loss'], other['loss'], rtol=1e-4)
    for variable, value in zip(learner.network.prior.variables, before):
        np.testing.assert_array_equal(variable, value)
    for one, other, first in zip(
        learner.network.trainable_variables, plain.network.trainable_variables, start
    ):
        np.testing.assert_allclose(one, other, atol=1e-4)
        assert np.abs(one - first).max() > 0.01


def test_online_and_target_network_share_the_prior():
    x = points()
    learner = learner_of(
        lambda seed: flat(seed=seed, prior_scale=3.0, prior_seed=7), target_init='random'
    )
    prior = flat(seed=7)(x).numpy()
    for network in (learner.network, learner.target_network):
        np.testing.assert_allclose(network.prior(x), prior, atol=1e-6)
    assert np.abs(learner.network(x) - learner.target_network(x)).min() > 0
    learner.step(batch_of(x, np.ones((7, 3))))
    learner.update_target()
    np.testing.assert_array_equal(learner.network(x), learner.target_network(x))
    np.testing.assert_allclose(learner.target_network.prior(x), prior, atol=1e-6)
    np.testing.assert_allclose(
        learner.target_network(x) - 3 * prior, learner.network(x) - 3 * prior, atol=1e-6
    )


# An output layer that is set, not trained.


@pytest.mark.parametrize('keywords', [{}, {'noise': 'factorised', 'dueling': True}])
def test_without_train_output_the_last_layer_stays(keywords):
    learner = learner_of(lambda seed: flat(seed=seed, train_output=False, **keywords))
    network, x = learner.network, points(8)
    heads = [network.heads] if network.value_heads is None else [network.heads, network.value_heads]
    last = [v for each in heads for v in each.output_layer.variables]
    first = [v for each in heads for v in each.hidden_layer.variables]
    assert len(last) == len(first) == (8 if keywords else 2)
    before, first_before = arrays(last), arrays(first)
    y = np.random.default_rng(0).normal(size=(8, 3))
    losses = [learner.step(batch_of(x, y))[0]['loss'] for _ in range(60)]
    for variable, value in zip(last, before):
        np.testing.assert_array_equal(variable, value)
    for variable, value in zip(first, first_before):
        assert np.abs(variable - value).max() > 0
    assert keywords or losses[-1] < 0.7 * losses[0]
    output = network.heads.output_layer.kernel
    output.assign(2 * output)  # As a posterior sets it.
    learner.update_target()
    np.testing.assert_array_equal(network(x), learner.target_network(x))


# Networks side by side.


@pytest.fixture
def each_small():
    gin.clear_config()
    gin.parse_config(
        """
        MultiHeadQNetwork.num_heads = 2
        MultiHeadQNetwork.hidden_units = 6
        MultiHeadQNetwork.conv_layers = ()
        MultiHeadQNetwork.trunk_gradient_scale = 1.0
        """
    )
    yield
    gin.clear_config()


def side_by_side(seed=0, prior_seed=0, count=3):
    return networks.build(
        networks.IndependentQNetworks(4, count, seed=seed, prior_seed=prior_seed), (5,), tf.float32
    )


def assert_changed(network, before, changed):
    for variable, value in zip(network.variables, before):
        assert (np.abs(variable - value).max() > 0) == changed, variable.name


def test_heads_side_by_side_are_those_of_the_networks(each_small):
    network, x = side_by_side(), points()
    assert network.num_heads == 6 and network.num_actions == 4 and len(network.variable_groups) == 3
    q_values = network(x).numpy()
    assert q_values.shape == (7, 6, 4)
    for index, each in enumerate(network.networks):
        np.testing.assert_allclose(
            q_values[:, 2 * index : 2 * index + 2], by_hand(each.heads, x), atol=1e-5
        )
    assert np.ptp(q_values, axis=1).min() > 0
    np.testing.assert_array_equal(q_values, side_by_side()(x))
    assert np.abs(q_values - side_by_side(seed=1)(x)).min() > 0


def test_networks_side_by_side_have_priors_of_their_own(each_small):
    gin.parse_config('MultiHeadQNetwork.prior_scale = 2.0')
    x, pair = points(), [side_by_side(seed, prior_seed=5) for seed in (1, 2)]
    priors = [each.prior(x).numpy() for each in pair[0].networks]
    for other, prior in zip(pair[1].networks, priors):
        np.testing.assert_array_equal(other.prior(x), prior)
    assert np.abs(priors[0] - priors[1]).min() > 0
    assert np.abs(pair[0].networks[0](x) - pair[0].networks[1](x)).min() > 0


@pytest.mark.parametrize('noise', [None, 'factorised', 'independent'])
def test_noise_side_by_side_differs_from_network_to_network(each_small, noise):
    gin.bind_parameter('MultiHeadQNetwork.noise', noise)
    network, x = side_by_side(), points()
    network.copy_from(0)
    q_values = network(x, [1, 2]).numpy()
    difference = np.abs(q_values[:, :2] - q_values[:, 2:4])
    assert difference.max() == 0 if noise is None else difference.min() > 0


def test_learning_one_leaves_the_others_alone(each_small):
    x = points(8)
    learner = learner_of(side_by_side, optimizer=functools.partial(optimizers.adam, 0.01))
    each = learner.network.networks
    before = [arrays(one.variables) for one in each]
    masks = np.zeros((8, 6), np.float32)
    masks[:, 2:4] = 1  # The second network.
    learner.step(batch_of(x, np.full((8, 6), 9.0), masks))
    for index in range(3):
        assert_changed(each[index], before[index], changed=index == 1)


def test_what_is_right_already_stays(each_small):
    x = points(8)
    learner = learner_of(side_by_side, optimizer=functools.partial(legacy.SGD, 0.1))
    network = learner.network
    before = network(x).numpy()
    y = before[np.arange(8), :, np.arange(8) % 4]
    y[:, 4:] += 1
    for _ in range(3):
        learner.step(batch_of(x, y))
    np.testing.assert_allclose(network(x).numpy()[:, :4], before[:, :4], atol=1e-5)
    assert np.abs(network(x).numpy()[:, 4:] - before[:, 4:]).max() > 0.01


def test_side_by_side_learns_like_networks_apart(each_small):
    """A step is that of each network alone on a third of the loss, clipped by its own norm."""
    x = points(8)
    y = np.random.default_rng(1).normal(size=(8, 6)) * np.repeat([100.0, 1.0, 0.01], 2)
    learner = learner_of(
        side_by_side, optimizer=functools.partial(legacy.SGD, 1.0), max_gradient_norm=1.5
    )
    each = learner.network.networks
    before = [arrays(one.trainable_variables) for one in each]
    norms, steps = [], []
    for index, one in enumerate(each):
        with tf.GradientTape() as tape:
            q_values = tf.gather(one(x), np.arange(8) % 4, axis=2, batch_dims=1)
            loss = tf.reduce_sum((y[:, 2 * index : 2 * index + 2] - q_values) ** 2) / (8 * 6)
        gradients = arrays(tape.gradient(loss, one.trainable_variables))
        norms.append(np.sqrt(sum((g**2).sum() for g in gradients)))
        steps.append([g * min(1, 1.5 / norms[-1]) for g in gradients])
    assert norms[0] > 1.5 > max(norms[1:])  # Of all together, every step would be far smaller.
    learner.step(batch_of(x, y))
    for one, values, step in zip(each, before, steps):
        for variable, value, change in zip(one.trainable_variables, values, step):
            np.testing.assert_allclose(variable, value - change, rtol=1e-3, atol=1e-5)


def test_copy_from_a_head_copies_its_network(each_small):
    x = points()
    network = side_by_side()
    before = network(x).numpy()
    network.copy_from(3)  # A head of the second network.
    expected = np.tile(before[:, 2:4], (1, 3, 1))
    np.testing.assert_array_equal(network(x), expected)
    learner = atari.QLearner(
        network, side_by_side(9), optimizer=functools.partial(optimizers.adam, 0.01)
    )
    learner.step(batch_of(x, np.repeat([[0.0, 0, 5, 5, 0, 0]], 7, 0)))
    after = network(x).numpy()
    assert np.abs(after[:, 2:4] - after[:, :2]).max() > 0  # They are equal, not the same.


@pytest.mark.parametrize('noise', [None, 'factorised', 'independent'])
def test_following_one_of_networks_side_by_side(each_small, noise):
    gin.bind_parameter('MultiHeadQNetwork.noise', noise)
    network, seed = side_by_side(), [6, 1]
    compiled = tf.function(network.followed_head)
    x = points(1)
    full = network(x, seed).numpy()
    for head in range(6):
        for function in (network.followed_head, compiled):
            q_values, where = function(x, tf.constant([head]), seed)
            assert q_values.shape == (1, 1, 4) and where.numpy().tolist() == [0]
            np.testing.assert_allclose(q_values[:, 0], full[:, head], rtol=1e-4, atol=1e-5)
    x, heads = points(4), np.array([5, 0, 3, 3], np.int32)
    q_values, where = network.followed_head(x, heads, seed)
    np.testing.assert_allclose(
        q_values.numpy()[np.arange(4), where],
        network(x, seed).numpy()[np.arange(4), heads],
        atol=1e-5,
    )


def test_impossible_choices_are_refused():
    with pytest.raises(ValueError, match='num_networks must be at least 1, got 0'):
        networks.IndependentQNetworks(4, 0)
    for name in ('prior_scale', 'trunk_gradient_scale'):
        with pytest.raises(ValueError, match=f'{name} must be at least 0.*, got -1.0'):
            networks.MultiHeadQNetwork(4, **{name: -1.0})
    with pytest.raises(ValueError, match='value_scale must be above 0, got 0.0'):
        networks.MultiHeadQNetwork(4, value_scale=0.0)
    with pytest.raises(ValueError, match="noise must be one of .* or None, got 'normal'"):
        networks.MultiHeadQNetwork(4, noise='normal')


@pytest.mark.parametrize(
    'layers, what',
    [
        (((32, 8),), r'must be a sequence of \(int at least 1, .* got \(\(32, 8\),\)'),
        (((32, 8, 0),), r'int at least 1\), got \(\(32, 8, 0\),\)'),
        (((32, 8, 4), (64, 8, 2)), r'cannot take observations of shape \(20, 20, 4\) with'),
    ],
)
def test_convolutions_that_are_none_or_do_not_fit_are_named(layers, what):
    with pytest.raises(ValueError, match=f'MultiHeadQNetwork.*{what}') as raised:
        networks.build(networks.MultiHeadQNetwork(2, conv_layers=layers), (20, 20, 4), tf.uint8)
    assert 'MultiHeadQNetwork.conv_layers' in str(raised.value)
    assert 'Exception encountered' not in str(raised.value)  # Keras' reason, not its preface.


@pytest.mark.parametrize(
    'network, named',
    [
        (LinearQNetwork, []),
        (networks.MultiHeadQNetwork, ['MultiHeadQNetwork.conv_layers']),
        (networks.IndependentQNetworks, ['MultiHeadQNetwork.conv_layers']),
    ],
)
def test_a_network_that_does_not_fit_names_only_bindings_that_exist(network, named):
    with pytest.raises(ValueError) as raised:
        networks.build(network(2, 3), (4, 4, 4), tf.uint8)
    assert str(raised.value).startswith(
        f'{network.__name__} cannot take observations of shape (4, 4, 4)'
    )
    assert re.findall(r'\w+\.conv_layers', str(raised.value)) == named


class Plain(networks.QNetwork):
    """The least that a network needs; values [B, K, A] of any observation, all equal to `w`."""

    def __init__(self, num_actions=3, num_heads=2):
        super().__init__()
        self.num_actions, self.num_heads = num_actions, num_heads
        self.w = self.add_weight('w', (num_heads, num_actions), initializer='ones')

    def call(self, observations, seed=None):
        return tf.repeat(self.w[None], tf.shape(observations)[0], axis=0)


class OneHead(Plain):
    def call(self, observations, seed=None):
        return super().call(observations)[:, 0]


class Doubles(Plain):
    def call(self, observations, seed=None):
        return tf.cast(super().call(observations), tf.float64)


class WithoutSeed(Plain):
    def call(self, observations):
        return super().call(observations)


class WithoutSizes(networks.QNetwork):
    def call(self, observations, seed=None):
        return tf.zeros((len(observations), 2, 3))


class NoQNetwork(tf.keras.Model):
    num_heads, num_actions = 2, 3

    def call(self, observations, seed=None):
        return tf.zeros((len(observations), 2, 3))


def test_a_network_needs_only_its_values_and_their_sizes():
    network = networks.build(Plain(), (4,), tf.float32)
    (group,) = network.variable_groups
    assert [variable.shape for variable in group] == [(2, 3)] and network.trains_output
    q_values, heads = network.followed_head(tf.zeros((1, 4)), tf.constant([1]))
    assert q_values.shape == (1, 2, 3) and heads.numpy().tolist() == [1]
    several = networks.build(
        networks.IndependentQNetworks(3, 2, lambda num_actions, **seeds: Plain()), (4,), tf.float32
    )
    several.networks[1].w.assign(2 * several.networks[1].w)
    for head, value in enumerate((1, 1, 2, 2)):
        q_values, where = several.followed_head(tf.zeros((1, 4)), tf.constant([head]))
        np.testing.assert_array_equal(q_values[0, int(where[0])], [value] * 3)


@pytest.mark.parametrize(
    'network, reason',
    [
        (OneHead, 'shape=(1, 2, 3), .* but gives .*shape=(1, 3)'),
        (Doubles, 'gives .*float64'),
        (WithoutSeed, 'fails with TypeError: .*call()'),
        (WithoutSizes, "fails with AttributeError: .*'num_heads'"),
        (NoQNetwork, 'is not a QNetwork'),
    ],
)
def test_a_network_with_another_interface_is_named(network, reason):
    reason = reason.replace('(', r'\(').replace(')', r'\)')
    with pytest.raises(ValueError, match=f'^{network.__name__} .*{reason}'):
        networks.build(network(), (4,), tf.float32)


@pytest.fixture
def cpu_with_bfloat16(monkeypatch):
    """Machines without such instructions emulate them."""
    monkeypatch.setattr(networks, '_cpu_has_bfloat16', lambda: True)


def rounded(x):
    return np.asarray(tf.cast(tf.cast(x, tf.bfloat16), tf.float32))


def test_the_hidden_product_of_many_rows_rounds_its_inputs_only(cpu_with_bfloat16):
    network = small(precision='bfloat16')
    rng = np.random.default_rng(0)
    features = tf.constant(rng.normal(size=(40, 3136)), tf.float32)
    weights = tf.constant(rng.normal(size=(40, 3, 16)), tf.float32)
    kernel = network.heads.hidden_layer.kernel
    with tf.GradientTape() as tape:
        tape.watch(features)
        hidden = network.heads.hidden(features)
        total = tf.reduce_sum(weights * hidden)
    flat_kernel, of_features = kernel.numpy().reshape(48, 3136), rounded(features)
    product = of_features @ rounded(flat_kernel).T
    # TensorFlow rounds a product of bfloat16 matrices to bfloat16.
    np.testing.assert_allclose(
        hidden.numpy().reshape(40, 48), np.maximum(rounded(product), 0), rtol=2**-7, atol=1e-4
    )
    active = weights.numpy().reshape(40, 48) * (product > 0)
    kernel_gradient, features_gradient = tape.gradient(total, (kernel, features))
    np.testing.assert_allclose(  # Not rounded.
        kernel_gradient.numpy().reshape(48, 3136), active.T @ features, rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(
        features_gradient, rounded(active) @ rounded(flat_kernel), rtol=2**-6, atol=2**-6
    )


def test_the_hidden_product_of_few_rows_is_not_rounded(cpu_with_bfloat16):
    low, full = (small(precision=precision) for precision in ('bfloat16', 'float32'))
    features = np.random.default_rng(0).normal(size=(40, 3136)).astype(np.float32)
    for rows, equal in ((1, True), (31, True), (32, False)):
        values = [network.heads(features[:rows]).numpy() for network in (low, full)]
        assert np.array_equal(*values) == equal


@pytest.mark.parametrize(
    'flags, precision',
    [
        ('flags : fpu avx512f avx512_bf16 sse', 'bfloat16'),
        ('flags : fpu amx_bf16 amx_tile', 'bfloat16'),
        ('Features : fp asimd bf16 i8mm', 'bfloat16'),
        ('flags : fpu avx512f sse', 'float32'),
    ],
)
def test_a_cpu_without_bfloat16_computes_in_float32(
    tmp_path, monkeypatch, caplog, flags, precision
):
    cpuinfo, supported = tmp_path / 'cpuinfo', networks._cpu_has_bfloat16
    cpuinfo.write_text(f'processor : 0\n{flags}\n')
    assert supported(cpuinfo) == (precision == 'bfloat16') and not supported(tmp_path / 'none')
    monkeypatch.setattr(networks, '_cpu_has_bfloat16', lambda: supported(cpuinfo))
    network = small(precision='bfloat16')
    assert network.trunk[0].compute_dtype == precision
    assert [record.levelname for record in caplog.records] == ['WARNING'] * (precision == 'float32')
