import functools

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks, optimizers, types
from ob2i_tf.errors import ConfigError, NotFiniteError
from ob2i_tf.learner import check_finite, huber, squared_error
from tests import atari


def adam(*numbers, **named_numbers):
    return functools.partial(optimizers.adam, *numbers, **named_numbers)


def make_learner(num_actions=3, num_heads=4, stack=(84, 84, 4), network=None, **keywords):
    network = {'hidden_units': 16, 'conv_layers': ((8, 8, 8), (8, 4, 2)), **(network or {})}
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(num_actions, num_heads, seed=seed, **network),
            stack,
            tf.uint8 if len(stack) == 3 else tf.float32,
        )
        for seed in (1, 2)
    ]
    return atari.QLearner(*pair, **keywords)


def make_batch(size=32, num_actions=3, num_heads=4, seed=0):
    rng = np.random.default_rng(seed)
    return types.Batch(
        observations=rng.integers(0, 256, (size, 84, 84, 4), dtype=np.uint8),
        actions=rng.integers(num_actions, size=size, dtype=np.int32),
        targets=rng.normal(size=(size, num_heads)).astype(np.float32),
        weights=np.ones(size, np.float32),
        masks=np.ones((size, num_heads), np.float32),
    )


def linear_batch(targets, weights=None, masks=None):
    """Two one-hot observations with action 1, for two heads."""
    return types.Batch(
        np.eye(2, dtype=np.float32),
        np.array([1, 1], np.int32),
        np.array(targets, np.float32),
        np.ones(2, np.float32) if weights is None else np.array(weights, np.float32),
        np.ones((2, 2), np.float32) if masks is None else np.array(masks, np.float32),
    )


def linear_learner(**keywords):
    return make_learner(
        2,
        2,
        (2,),
        network={'conv_layers': (), 'hidden_units': 4, 'trunk_gradient_scale': 1.0},
        **keywords,
    )


def test_overfits_a_fixed_batch():
    learner, batch = make_learner(optimizer=adam(1e-3)), make_batch()
    losses = [learner.step(batch)[0]['loss'] for _ in range(400)]
    assert losses[0] > 0.5 and losses[-1] < 1e-3
    q_values = learner.network(batch.observations).numpy()[np.arange(32), :, batch.actions]
    np.testing.assert_allclose(q_values, batch.targets, atol=0.2)


def test_xla_computes_the_same_steps():
    plain, compiled = (make_learner(optimizer=adam(1e-3), xla=xla) for xla in (False, True))
    for seed in range(3):
        batch = make_batch(seed=seed)
        (expected, expected_errors), (found, errors) = (x.step(batch) for x in (plain, compiled))
        assert found == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(errors, expected_errors, rtol=1e-4)
    for expected, found in zip(plain.network.variables, compiled.network.variables, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_only_the_actions_taken_are_regressed():
    learner = linear_learner(optimizer=adam(0.05))
    before = learner.network(np.eye(2, dtype=np.float32)).numpy()
    targets = before[:, :, 1] + 1
    for _ in range(300):
        learner.step(linear_batch(targets))
    np.testing.assert_allclose(
        learner.network(np.eye(2, dtype=np.float32)).numpy()[:, :, 1], targets, atol=0.02
    )


@pytest.mark.parametrize(
    'loss, expected',
    [(squared_error, (0.25 + 4 + 9 + 0) / 4), (huber, (0.125 + 1.5 + 2.5 + 0) / 4)],
)
def test_loss_by_hand(loss, expected):
    learner = linear_learner(loss=loss)
    q_values = learner.network(np.eye(2, dtype=np.float32)).numpy()[:, :, 1]
    report, _ = learner.step(linear_batch(q_values + [[0.5, -2.0], [3.0, 0.0]]))
    np.testing.assert_allclose(report['loss'], expected, rtol=1e-5)
    np.testing.assert_allclose(report['q_mean'], q_values.mean(), rtol=1e-5)


def test_rows_of_weight_0_do_not_count():
    padded, alone = linear_learner(), linear_learner()
    batch = linear_batch([[1.0, 2.0], [50.0, 50.0]], weights=[1, 0])
    first_row = types.Batch(*(x[:1] for x in batch[:-1]))
    one, other = padded.step(batch)[0], alone.step(first_row)[0]
    np.testing.assert_allclose(one['loss'], other['loss'], rtol=1e-6)
    for with_padding, without in zip(padded.network.variables, alone.network.variables):
        np.testing.assert_allclose(with_padding, without, atol=1e-7)


def test_adam_and_clipping_against_numpy():
    learner = linear_learner(
        optimizer=adam(0.1, beta_1=0.8, beta_2=0.9, epsilon=1e-3), max_gradient_norm=0.5
    )
    variables = learner.network.trainable_variables
    weights = [v.numpy().astype(np.float64) for v in variables]
    first, second = ([np.zeros_like(w) for w in weights] for _ in range(2))
    clipped = 0
    for step in range(1, 7):
        batch = linear_batch(np.full((2, 2), 10.0 if step < 4 else 0.02 * step))
        with tf.GradientTape() as tape:
            q_values = learner.network(batch.observations)[:, :, 1]
            loss = tf.reduce_mean((batch.targets - q_values) ** 2)
        gradients = [g.numpy().astype(np.float64) for g in tape.gradient(loss, variables)]
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        clipped += norm > 0.5
        learner.step(batch)
        for i, gradient in enumerate(gradients):
            gradient = gradient * min(1, 0.5 / norm)
            first[i] = 0.8 * first[i] + 0.2 * gradient
            second[i] = 0.9 * second[i] + 0.1 * gradient**2
            rate = 0.1 * np.sqrt(1 - 0.9**step) / (1 - 0.8**step)
            weights[i] -= rate * first[i] / (np.sqrt(second[i]) + 1e-3)
            np.testing.assert_allclose(variables[i], weights[i], rtol=2e-4, atol=2e-5)
    assert clipped > 0 and learner.learner_steps == 6


def test_target_network_starts_equal_or_apart_and_is_copied():
    observations = make_batch().observations
    learner = make_learner()
    np.testing.assert_array_equal(
        learner.network(observations), learner.target_network(observations)
    )
    learner.step(make_batch())
    assert np.abs(learner.network(observations) - learner.target_network(observations)).max() > 0
    learner.update_target()
    np.testing.assert_array_equal(
        learner.network(observations), learner.target_network(observations)
    )
    learner = make_learner(target_init='random')
    assert np.abs(learner.network(observations) - learner.target_network(observations)).min() > 0


def test_steps_are_traced_once_for_a_batch_size():
    learner = make_learner()
    for seed in range(3):
        learner.step(make_batch(seed=seed))
    learner.update_target()
    for function in (learner._compiled_step.function, learner.update_target):
        assert function.experimental_get_tracing_count() == 1


def test_nan_stops_with_a_clear_error():
    learner = linear_learner()
    message = '^Runner.learner = @QLearner with QLearner.loss = @squared_error: loss nan.* step 1;'
    with pytest.raises(NotFiniteError, match=message):
        learner.step(linear_batch([[1.0, np.nan], [1.0, 1.0]]))
    with pytest.raises(NotFiniteError, match='learner: .*heads/.*holds NaN or infinity now'):
        check_finite('now', learner=learner)


def test_what_is_not_finite_is_named_by_the_first_that_has_it():
    learner = linear_learner()
    learner.target_network.trainable_variables[0].assign(
        np.nan * learner.target_network.trainable_variables[0]
    )
    parts = {'online network': learner.network, 'target network': learner.target_network}
    with pytest.raises(NotFiniteError, match='^target network: '):
        check_finite('now', **parts, learner=learner)


def test_no_clipping_is_none_and_an_optimizer_is_made():
    with pytest.raises(ValueError, match='max_gradient_norm must be above 0 or None, got 0'):
        linear_learner(max_gradient_norm=0)
    with pytest.raises(ValueError, match='loss_scale must be above 0, got -1'):
        linear_learner(loss_scale=-1.0)
    with pytest.raises(ValueError, match='QLearner.optimizer must be a function or class, got <'):
        linear_learner(optimizer=optimizers.adam(1e-3))


def test_unknown_choices_are_refused():
    with pytest.raises(ValueError, match="QLearner.loss must be a function or class, got 'mse'"):
        linear_learner(loss='mse')
    with pytest.raises(ValueError, match='QLearner.target_init'):
        linear_learner(target_init='zeros')


def test_masks_by_hand():
    learner = linear_learner(
        optimizer=functools.partial(tf.keras.optimizers.legacy.SGD, 1.0), max_gradient_norm=None
    )
    bias = learner.network.heads.output_layer.bias
    before = bias.numpy()
    q_values = learner.network(np.eye(2, dtype=np.float32)).numpy()[:, :, 1]
    errors = np.array([[0.5, -2.0], [3.0, 1.0]])
    report, _ = learner.step(linear_batch(q_values + errors, masks=[[1, 0], [1, 1]]))
    np.testing.assert_allclose(report['loss'], (0.25 + 9 + 1) / 4, rtol=1e-5)
    np.testing.assert_allclose(report['q_mean'], q_values.mean(), rtol=1e-5)
    # d loss / d bias of action 1 = -2 (sum of unmasked errors) / 4.
    change = (bias - before)[..., 0]
    np.testing.assert_allclose(change, [[0, 2 * 3.5 / 4], [0, 2 * 1 / 4]], atol=1e-5)


def test_masks_and_weights_together():
    learner = linear_learner(loss=huber)
    q_values = learner.network(np.eye(2, dtype=np.float32)).numpy()[:, :, 1]
    batch = linear_batch(q_values + [[0.5, -2.0], [30.0, 1.0]], weights=[1, 0], masks=[[0, 1]] * 2)
    np.testing.assert_allclose(learner.step(batch)[0]['loss'], 1.5 / 2, rtol=1e-5)


@pytest.mark.parametrize('network', [{}, {'noise': 'factorised', 'dueling': True}])
def test_a_masked_head_learns_nothing(network):
    network = {'conv_layers': (), 'hidden_units': 4, 'trunk_gradient_scale': 1.0, **network}
    learner = make_learner(2, 2, (2,), network=network, optimizer=adam(0.05))
    variables = learner.network.trainable_variables
    before = [v.numpy() for v in variables]
    for _ in range(3):
        learner.step(linear_batch([[5.0, 5.0], [5.0, 5.0]], masks=[[0, 1], [0, 1]]))
    for variable, value in zip(variables, before):
        np.testing.assert_array_equal(variable[0], value[0])
        assert np.abs(variable[1] - value[1]).max() > 0


@pytest.mark.parametrize('noise', [None, 'factorised'])
def test_noise_is_drawn_anew_each_step(noise):
    network = {'conv_layers': (), 'hidden_units': 4, 'noise': noise}

    def losses(seed):
        learner = make_learner(2, 2, (2,), network=network, optimizer=adam(0.0), seed=seed)
        return [learner.step(linear_batch([[1.0, 1.0]] * 2))[0]['loss'] for _ in range(5)]

    first = losses(3)
    assert len(set(first)) == (1 if noise is None else 5)
    assert first == losses(3)
    assert (first == losses(4)) == (noise is None)


def test_noise_of_a_step_is_one_draw_for_all_rows():
    network = {'conv_layers': (), 'hidden_units': 4, 'noise': 'independent'}
    learner = make_learner(2, 2, (2,), network=network, optimizer=adam(0.0))
    batch = linear_batch([[1.0, 1.0]] * 2)._replace(observations=np.ones((2, 2), np.float32))
    twin = make_learner(2, 2, (2,), network=network, optimizer=adam(0.0))
    for _ in range(3):
        alone = types.Batch(*(x[:1] for x in batch[:-1]))
        np.testing.assert_allclose(
            learner.step(batch)[0]['loss'], twin.step(alone)[0]['loss'], rtol=1e-5
        )


@pytest.mark.parametrize(
    'loss',
    [
        lambda targets, q_values: tf.cast(tf.square(targets - q_values), tf.float64),
        lambda targets, q_values: tf.cast(targets > q_values, tf.float32),  # Without a gradient.
        lambda targets, q_values: tf.reduce_mean(tf.square(targets - q_values)),
        lambda targets, q_values: None,
    ],
)
def test_a_loss_that_cannot_be_learned_from_is_refused_at_once(loss):
    with pytest.raises(ConfigError, match='^QLearner.loss must map targets and Q-values'):
        linear_learner(loss=loss)
