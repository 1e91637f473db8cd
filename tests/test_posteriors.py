"""Posteriors against NumPy: expected values never come from the code under test."""

import functools

import gin
import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks, optimizers, posteriors, types
from ob2i_tf.replay import EpisodeReplay
from tests import atari

SIZE, PHI, ACTIONS = 3, 4, 2  # Sizes of an observation and of phi; A.
GAMMA = 0.9


def build_network(seed, **keywords):
    keywords = {'num_heads': 1, 'hidden_units': PHI, 'conv_layers': (), **keywords}
    network = networks.MultiHeadQNetwork(ACTIONS, seed=seed, **keywords)
    return networks.build(network, (SIZE,), tf.float32)


def hidden(network, observations):
    """phi [B, PHI] of the first head."""
    layer = network.heads.hidden_layer
    kernel, bias = layer.kernel.numpy()[0], layer.bias.numpy()[0, :, 0]
    return np.maximum(np.asarray(observations, np.float64) @ kernel.T + bias, 0)


def with_biases(network):
    """Units that are mostly on, so that phi is not a multiple of anything simple."""
    bias = network.heads.hidden_layer.bias
    values = np.linspace(0.2, 1, PHI, dtype=np.float32)[:, None]
    bias.assign(np.broadcast_to(values, bias.shape))
    return network


def step_of(
    observations,
    actions,
    discounts=GAMMA,
    episode_over=False,
    rewards=0.0,
    heads=0,
    next_observations=None,
    agent_steps=0,
    warmup=False,
):
    count = len(actions)

    def column(x, dtype):
        return np.broadcast_to(np.asarray(x, dtype), (count,)).copy()

    over = column(episode_over, bool)
    return types.Step(
        np.asarray(observations, np.float32),
        np.asarray(actions, np.int32),
        column(heads, np.int32),
        column(rewards, np.float32),
        column(discounts, np.float32),
        np.asarray(observations if next_observations is None else next_observations, np.float32),
        over,
        over,
        agent_steps,
        warmup,
    )


# UBE.


def build_ube(num_envs=1, network=None, **keywords):
    keywords = {
        'optimizer': functools.partial(tf.keras.optimizers.legacy.SGD, 0.01),
        'hidden_units': 5,
        **keywords,
    }
    network = network or with_biases(build_network(1))
    return posteriors.UncertaintyBellmanPosterior(
        network, build_network(2), None, num_envs, 7, **keywords
    )


def random_steps(num_envs, count, seed=0):
    """Steps with terminals and truncations at random; other observations continue."""
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(num_envs, SIZE)).astype(np.float32)
    steps = []
    for _ in range(count):
        final = rng.normal(size=(num_envs, SIZE)).astype(np.float32)
        kinds = rng.choice(3, p=[0.7, 0.15, 0.15], size=num_envs)  # 1: terminal, 2: truncated.
        actions = rng.integers(ACTIONS, size=num_envs)
        discounts = np.where(kinds == 1, 0, GAMMA)
        steps.append(step_of(observations, actions, discounts, kinds > 0, next_observations=final))
        reset = rng.normal(size=(num_envs, SIZE))
        observations = np.where(kinds[:, None] > 0, reset, final).astype(np.float32)
    return steps


class UbeByHand:
    """The method in literal loops: inverses from scratch, a network and its gradient in numpy."""

    def __init__(self, posterior, n_steps, mu, rate=0.01):
        self.network, self.n, self.mu, self.rate = posterior.network, n_steps, mu, rate
        self.weights = [v.numpy().astype(np.float64) for v in posterior.variance_head.variables]
        self.phis = [[] for _ in range(ACTIONS)]
        self.learned_steps = 0

    def covariance(self, action):
        total = np.eye(PHI) / self.mu
        for phi in self.phis[action]:
            total += np.outer(phi, phi)
        return np.linalg.inv(total)

    def u(self, x, action):
        kernel, bias, last_kernel, last_bias = self.weights
        return (np.maximum(x @ kernel + bias, 0) @ last_kernel + last_bias)[action]

    def learn(self, x, action, y):
        kernel, bias, last_kernel, last_bias = self.weights
        units = np.maximum(x @ kernel + bias, 0)
        slope = -2 * (y - self.u(x, action))
        of_units = slope * last_kernel[:, action] * (units > 0)
        last_kernel[:, action] -= self.rate * slope * units
        last_bias[action] -= self.rate * slope
        kernel -= self.rate * np.outer(x, of_units)
        bias -= self.rate * of_units
        self.learned_steps += 1

    def play(self, steps):
        """Observes all steps, and the end of the episodes then in progress."""
        num_envs = len(steps[0].actions)
        episodes = [[] for _ in range(num_envs)]
        for step in steps:
            for env in range(num_envs):
                x, action = step.observations[env].astype(np.float64), step.actions[env]
                phi = hidden(self.network, x)
                nu = phi @ self.covariance(action) @ phi
                self.phis[action].append(phi)
                episode = episodes[env]
                episode.append((x, action, nu))
                t = len(episode) - 1 - self.n
                if t >= 0:
                    self.learn_at(episode, t, bootstrap=self.u(x, action))
                if step.episode_over[env]:
                    self.finish(episode, step.next_observations[env], step.discounts[env] == 0)
                    episodes[env] = []
        for env, episode in enumerate(episodes):
            self.finish(episode, steps[-1].next_observations[env], terminal=False)

    def finish(self, episode, last, terminal):
        greedy = self.network(last[None]).numpy()[0, 0].argmax()
        for t in range(max(0, len(episode) - self.n), len(episode)):
            self.learn_at(episode, t, 0 if terminal else self.u(last.astype(np.float64), greedy))

    def learn_at(self, episode, t, bootstrap):
        nus = [nu for _, _, nu in episode[t : t + self.n]]
        y = sum(GAMMA ** (2 * i) * nu for i, nu in enumerate(nus))
        y += GAMMA ** (2 * len(nus)) * bootstrap
        self.learn(*episode[t][:2], y)


def test_ube_covariance_is_the_inverse_and_of_the_action_taken_only():
    posterior = build_ube(initial_variance=2.5)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(30, SIZE)).astype(np.float32)
    for observation in observations:
        posterior.observe(step_of(observation[None], [1]))
    phi = hidden(posterior.network, observations)
    expected = np.linalg.inv(np.eye(PHI) / 2.5 + phi.T @ phi)
    np.testing.assert_allclose(posterior.covariances[1], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(posterior.covariances[0], 2.5 * np.eye(PHI))


def test_ube_learns_nu_of_a_single_terminal_transition_by_hand():
    network = build_network(1)
    network.heads.hidden_layer.kernel.assign(np.eye(PHI, SIZE)[None])
    posterior = build_ube(network=network, initial_variance=0.5, hidden_units=1)
    kernel, bias, last_kernel, last_bias = posterior.variance_head.variables
    kernel.assign(np.zeros(kernel.shape))
    for nu in (0.5 * 5, 5 / (1 / 0.5 + 5)):  # |phi|^2 = 5: mu 5, then 5 / (1 / mu + 5).
        last_bias.assign([0, 0])
        posterior.observe(step_of([[1.0, -3.0, 2.0]], [0], discounts=0, episode_over=True))
        np.testing.assert_allclose(last_bias, [0.01 * 2 * nu, 0], rtol=1e-5)


@pytest.mark.parametrize('num_envs', [1, 2])
@pytest.mark.parametrize('n_steps', [1, 3, 1000])
def test_ube_against_loops(n_steps, num_envs):
    posterior = build_ube(num_envs, n_steps=n_steps, initial_variance=2.0, initial_output=0.7)
    by_hand = UbeByHand(posterior, n_steps, mu=2.0)
    np.testing.assert_allclose(by_hand.weights[-1], [0.7, 0.7], rtol=1e-6)
    start = [weight.copy() for weight in by_hand.weights]
    steps = random_steps(num_envs, 40)
    ends = np.concatenate([step.discounts[step.episode_over] for step in steps])
    assert (ends == 0).sum() > 2 and (ends > 0).sum() > 2 and not steps[-1].episode_over.any()
    before = [v.numpy() for v in posterior.network.variables]
    for step in steps:
        posterior.observe(step)
    posterior.end()
    posterior.end()  # Nothing is left.
    by_hand.play(steps)
    assert by_hand.learned_steps == 40 * num_envs == int(posterior.optimizer.iterations)
    for mine, its, first in zip(by_hand.weights, posterior.variance_head.variables, start):
        np.testing.assert_allclose(its, mine, rtol=1e-3, atol=1e-4)
        assert np.abs(mine - first).max() > 0.01
    for action in range(ACTIONS):
        np.testing.assert_allclose(
            posterior.covariances[action], by_hand.covariance(action), rtol=1e-3, atol=1e-4
        )
    for mine, its in zip(before, posterior.network.variables):
        np.testing.assert_array_equal(mine, its)
    for compiled in (posterior._visit, posterior._learn, posterior._greedy):
        assert compiled.function.experimental_get_tracing_count() == 1


@pytest.mark.parametrize('n_steps', [1, 3])
def test_ube_learns_nothing_from_what_follows_a_terminal(n_steps):
    learned = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        posterior = build_ube(n_steps=n_steps)
        for step in random_steps(1, 40):
            if step.discounts[0] == 0:
                step.next_observations[:] = rng.normal(size=(1, SIZE))
            posterior.observe(step)
        learned.append([v.numpy().tobytes() for v in posterior.variables])
    assert learned[0] == learned[1]


def test_ube_does_not_follow_buffers_that_are_used_again():
    steps, buffers = random_steps(2, 20), random_steps(2, 1)[0]
    posterior, other = build_ube(2, n_steps=3), build_ube(2, n_steps=3)
    for step in steps:
        posterior.observe(step)
        for buffer, values in zip(buffers[:8], step[:8]):  # The arrays.
            buffer[:] = values
        other.observe(buffers)
    for mine, its in zip(posterior.variance_head.variables, other.variance_head.variables):
        np.testing.assert_array_equal(mine, its)


def test_ube_samples_have_the_variance_of_u_for_each_action_apart():
    posterior = build_ube(scale=0.5)
    *_, last_bias = posterior.variance_head.variables
    last_bias.assign([3.0, 6.0])
    observation = np.array([[0.3, -1.0, 0.6]], np.float32)
    u = posterior.variances(observation).numpy()[0]
    q_values = posterior.network(observation).numpy()[0, 0]
    assert (u > 0.5).all()
    draws = np.concatenate(
        [
            posterior.sample(np.repeat(observation, 100, axis=0), tf.constant([seed, 1])).numpy()
            for seed in range(80)
        ]
    )
    assert draws.shape == (8000, 1, ACTIONS)
    z = (draws[:, 0] - q_values) / (0.5 * np.sqrt(u))
    np.testing.assert_allclose(z.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(np.cov(z.T), np.eye(2), atol=0.07)
    assert len(np.unique(draws[:, 0, 0])) > 7900  # Drawn for each row and each seed.
    np.testing.assert_array_equal(posterior.mean(observation), posterior.network(observation))


def test_ube_chooses_the_next_action_without_noise():
    posterior = build_ube(scale=0.5, initial_output=5.0)
    observations = np.random.default_rng(0).normal(size=(20, SIZE)).astype(np.float32)
    seed = tf.constant([1, 2])
    selected = posterior.double_q_values(observations, seed)
    np.testing.assert_array_equal(selected, posterior.network(observations))
    assert np.abs(selected - posterior.sample(observations, seed)).max() > 0.1


def test_ube_takes_negative_variances_for_0():
    posterior = build_ube(initial_output=-50.0)
    observations = np.random.default_rng(0).normal(size=(20, SIZE)).astype(np.float32)
    assert (posterior.variances(observations).numpy() < 0).all()
    samples = posterior.sample(observations, tf.constant([1, 2]))
    np.testing.assert_array_equal(samples, posterior.mean(observations))


def test_ube_goes_on_from_its_state_in_the_middle_of_an_episode(tmp_path):
    steps = random_steps(2, 24, seed=5)
    adam = functools.partial(optimizers.adam, 0.01)
    posterior = build_ube(2, n_steps=4, optimizer=adam)
    stop = 12  # At least one of the environments is in the middle of an episode.
    assert not steps[stop - 1].episode_over.all()
    for step in steps[:stop]:
        posterior.observe(step)
    np.savez(tmp_path / 'arrays.npz', **posterior.state())
    tf.train.Checkpoint(posterior=posterior).write(str(tmp_path / 'variables'))

    other = build_ube(2, n_steps=4, optimizer=adam, network=build_network(9))
    for step in random_steps(2, 3, seed=8):
        other.observe(step)
    status = tf.train.Checkpoint(posterior=other).read(str(tmp_path / 'variables'))
    status.assert_consumed()
    with np.load(tmp_path / 'arrays.npz') as arrays:
        other.set_state(dict(arrays))
    for step in steps[stop:]:
        for each in (posterior, other):
            each.observe(step)
    for each in (posterior, other):
        each.end()
    assert len(posterior.variables) == len(other.variables)
    for mine, its in zip(posterior.variables, other.variables):
        np.testing.assert_array_equal(mine, its)


def test_ube_state_of_finished_episodes_is_empty():
    posterior, other = build_ube(n_steps=3), build_ube(n_steps=3)
    posterior.observe(step_of([[1.0, 2.0, 3.0]], [0], discounts=0, episode_over=True))
    other.observe(step_of([[1.0, 2.0, 3.0]], [0]))
    assert posterior.state() == {}
    other.set_state({})
    other.end()
    assert int(other.optimizer.iterations) == 0


def test_ube_refuses_what_it_cannot_do():
    for keywords, message in (
        ({'network': build_network(1, num_heads=3)}, 'MultiHeadQNetwork.num_heads = 1, got 3'),
        ({'n_steps': 0}, 'n_steps must be at least 1, got 0'),
        ({'hidden_units': 0}, 'hidden_units must be at least 1, got 0'),
        ({'initial_variance': 0.0}, 'initial_variance must be above 0, got 0.0'),
        (
            {'network': build_network(1, noise='factorised')},
            'does not support MultiHeadQNetwork.noise',
        ),
    ):
        with pytest.raises(ValueError, match=message):
            build_ube(**keywords)


# Bayesian-DQN.


def build_bayesian(replay=None, num_envs=1, network=None, **keywords):
    pair = [network or build_network(1, train_output=False), build_network(2, train_output=False)]
    for each in pair:
        with_biases(each)
    return posteriors.BayesianLinearPosterior(*pair, replay, num_envs, 3, **keywords)


def filled_replay(transitions, seed=0):
    """Episodes of 5, every other one truncated; samples are written down."""
    replay = EpisodeReplay((SIZE,), 10_000, seed=seed, observation_dtype=np.float32)
    rng = np.random.default_rng(seed)
    for index in range(transitions // 5):
        discounts = np.full(5, GAMMA, np.float32)
        discounts[-1] *= index % 2
        replay.add_episode(
            types.Episode(
                rng.normal(size=(6, SIZE)).astype(np.float32),
                rng.integers(ACTIONS, size=5),
                rng.normal(size=5),
                discounts,
            )
        )
    recorded, sample = [], replay.sample_transitions

    def record(*arguments):
        recorded.append(sample(*arguments))
        return recorded[-1]

    replay.sample_transitions = record
    return replay, recorded


def regression_by_hand(xs, ys, prior_variance, noise_variance):
    precision = xs.T @ xs / noise_variance + np.eye(xs.shape[1]) / prior_variance
    return np.linalg.solve(precision, xs.T @ ys / noise_variance), np.linalg.inv(precision)


def draws_of(posterior, count):
    """[count, A, PHI] with sample_period = 1."""
    draws = []
    for _ in range(count):
        posterior.observe(step_of(np.zeros((1, SIZE)), [0]))
        draws.append(posterior.drawn.numpy())
    return np.array(draws)


def copy_target(posterior, times=1):
    for _ in range(times):
        posterior.target_updated()


@pytest.mark.parametrize('prior_variance, noise_variance', [(1e-3, 1.0), (2.0, 0.3)])
def test_regression_posterior_is_the_closed_form(prior_variance, noise_variance):
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(3, 9, 4)), rng.normal(size=(3, 9))
    mean, covariance = posteriors.regression_posterior(
        np.einsum('and,ane->ade', xs, xs),
        np.einsum('and,an->ad', xs, ys),
        prior_variance,
        noise_variance,
    )
    for action in range(3):
        expected = regression_by_hand(xs[action], ys[action], prior_variance, noise_variance)
        np.testing.assert_allclose(mean[action], expected[0], rtol=1e-8)
        np.testing.assert_allclose(covariance[action], expected[1], rtol=1e-8, atol=1e-12)


def test_regression_posterior_finds_the_weights_that_made_the_data():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=4)
    xs = rng.normal(size=(20_000, 4))
    ys = xs @ weights + rng.normal(0, 0.5, size=20_000)
    mean, covariance = posteriors.regression_posterior(
        (xs.T @ xs)[None], (xs.T @ ys)[None], 10.0, 0.25
    )
    np.testing.assert_allclose(mean[0], weights, atol=0.02)
    np.testing.assert_allclose(np.diag(covariance[0]), 0.25 / 20_000, rtol=0.1)


@pytest.mark.parametrize(
    'transitions, asked, drawn', [(20, 12, [12]), (20, 500, [20]), (600, 300, [256, 44])]
)
def test_bayesian_regression_against_numpy(transitions, asked, drawn):
    replay, recorded = filled_replay(transitions, seed=2)
    posterior = build_bayesian(
        replay,
        regression_period=1,
        regression_transitions=asked,
        prior_variance=0.8,
        noise_variance=0.3,
    )
    networks_ = posterior.network, posterior.target_network
    old = networks_[1].heads.output_layer.kernel.numpy()[0]
    copy_target(posterior)
    assert [len(rows.actions) for rows in recorded] == drawn
    rows = types.Transitions(*map(np.concatenate, zip(*recorded)))
    next_q = hidden(networks_[1], rows.next_observations) @ old.T
    y = rows.rewards + rows.discounts * next_q.max(1)
    phi = hidden(networks_[0], rows.observations)
    assert (rows.discounts == 0).any() and (rows.discounts > 0).any()
    for action in range(ACTIONS):
        taken = rows.actions == action
        mean, covariance = regression_by_hand(phi[taken], y[taken], 0.8, 0.3)
        for network in networks_:
            np.testing.assert_allclose(
                network.heads.output_layer.kernel[0, action], mean, rtol=1e-3, atol=1e-4
            )
        cholesky = posterior.cholesky.numpy()[action]
        np.testing.assert_allclose(cholesky @ cholesky.T, covariance, rtol=1e-3, atol=1e-5)
    functions = posterior._add_moments, posterior._draw
    traces = [function.experimental_get_tracing_count() for function in functions]
    assert traces == [len(drawn), 1]  # The second size of a pass makes the trace one of any.


def test_bayesian_regression_learns_nothing_from_what_follows_a_terminal():
    learned = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        replay, _ = filled_replay(20)
        sample = replay.sample_transitions

        def with_noise(count, sample=sample, rng=rng):
            rows = sample(count)
            noise = rng.normal(size=rows.next_observations.shape).astype(np.float32)
            ended = rows.discounts[:, None] == 0
            return rows._replace(next_observations=np.where(ended, noise, rows.next_observations))

        replay.sample_transitions = with_noise
        posterior = build_bayesian(replay, regression_period=1)
        copy_target(posterior)
        learned.append([v.numpy().tobytes() for v in posterior.variables])
    assert learned[0] == learned[1]


def test_bayesian_values_are_those_of_the_mean_and_of_the_draw():
    replay, _ = filled_replay(20)
    posterior = build_bayesian(replay, regression_period=1, prior_variance=1.0)
    observations = np.random.default_rng(1).normal(size=(6, SIZE)).astype(np.float32)
    first = posterior.drawn.numpy()
    for _ in range(2):  # Before and after a regression, which draws.
        phi, mean = (
            hidden(posterior.network, observations),
            posterior.network.heads.output_layer.kernel.numpy()[0],
        )
        np.testing.assert_allclose(
            posterior.mean(observations)[:, 0], phi @ mean.T, rtol=1e-4, atol=1e-5
        )
        drawn = posterior.drawn.numpy()
        for values in (posterior.sample, posterior.double_q_values):
            np.testing.assert_allclose(
                values(observations, tf.constant([1, 2]))[:, 0], phi @ drawn.T, rtol=1e-4, atol=1e-5
            )
        assert np.abs(drawn - mean).min() > 1e-4
        copy_target(posterior)
    assert np.abs(posterior.drawn.numpy() - first).min() > 0


def check_standard_normal(draws):
    size = draws.shape[1]
    np.testing.assert_allclose(draws.mean(0), 0, atol=4 / np.sqrt(len(draws)))
    np.testing.assert_allclose(np.cov(draws.T), np.eye(size), atol=5 / np.sqrt(len(draws)))


@pytest.mark.parametrize('covariance', ['posterior', 'released'])
def test_bayesian_draws_have_the_posteriors_moments(covariance):
    replay, recorded = filled_replay(20)
    posterior = build_bayesian(
        replay,
        regression_period=1,
        prior_variance=0.25,
        noise_variance=0.5,
        covariance=covariance,
        sample_period=1,
        initial_std=2.0,
    )
    start = posterior.network.heads.output_layer.kernel.numpy()[0]
    np.testing.assert_array_equal(start, posterior.target_network.heads.output_layer.kernel[0])
    assert 0.7 < start.std() < 4
    variance = 1.0 if covariance == 'released' else 0.25
    check_standard_normal((draws_of(posterior, 700) - start).reshape(700, -1) / np.sqrt(variance))

    copy_target(posterior)
    (rows,) = recorded
    draws = draws_of(posterior, 700)
    for action in range(ACTIONS):
        phi = hidden(posterior.network, rows.observations[rows.actions == action])
        _, expected = regression_by_hand(phi, np.zeros(len(phi)), 0.25, 0.5)
        if covariance == 'released':
            expected *= 0.25
        mean = posterior.network.heads.output_layer.kernel.numpy()[0, action]
        whitening = np.linalg.inv(np.linalg.cholesky(expected))
        check_standard_normal((draws[:, action] - mean) @ whitening.T)


@pytest.mark.parametrize('num_envs', [1, 2])
def test_bayesian_draws_and_regressions_come_at_their_very_step(num_envs):
    replay, recorded = filled_replay(10)
    posterior = build_bayesian(replay, num_envs, regression_period=4, sample_period=4)
    changes, before = [], posterior.drawn.numpy()
    for step in range(10):
        posterior.observe(
            step_of(np.zeros((num_envs, SIZE)), [0] * num_envs, agent_steps=step * num_envs)
        )
        if (posterior.drawn.numpy() != before).all():
            changes.append((step + 1) * num_envs)
        before = posterior.drawn.numpy()
    assert changes == list(range(4, 10 * num_envs + 1, 4))
    regressions = []
    for copy in range(1, 10):
        count = len(recorded)
        copy_target(posterior)
        regressions += [copy] * (len(recorded) - count)
    assert regressions == [4, 8]


def test_bayesian_state_keeps_the_schedules(tmp_path):
    replay, recorded = filled_replay(10)
    settings = {'regression_period': 5, 'sample_period': 7}
    posterior = build_bayesian(replay, **settings)
    draws_of(posterior, 5)
    copy_target(posterior, 3)
    np.savez(tmp_path / 'arrays.npz', **posterior.state())
    tf.train.Checkpoint(posterior=posterior).write(str(tmp_path / 'variables'))
    other = build_bayesian(replay, **settings)
    draws_of(other, 3)
    status = tf.train.Checkpoint(posterior=other).read(str(tmp_path / 'variables'))
    status.assert_consumed()
    with np.load(tmp_path / 'arrays.npz') as arrays:
        other.set_state(dict(arrays))
    np.testing.assert_array_equal(draws_of(posterior, 4), draws_of(other, 4))
    copy_target(other)
    assert not recorded
    copy_target(other)
    assert len(recorded) == 1


def test_gradients_leave_the_last_layer_of_bayesian_dqn_alone():
    posterior = build_bayesian(initial_std=1.0)
    learner = atari.QLearner(posterior.network, posterior.target_network)
    layers = posterior.network.heads.output_layer, posterior.network.heads.hidden_layer
    before = [layer.kernel.numpy() for layer in layers]
    rng = np.random.default_rng(0)
    for _ in range(3):
        learner.step(
            types.Batch(
                rng.normal(size=(8, SIZE)).astype(np.float32),
                np.arange(8, dtype=np.int32) % 2,
                np.ones((8, 1), np.float32),
                np.ones(8, np.float32),
                np.ones((8, 1), np.float32),
            )
        )
    np.testing.assert_array_equal(layers[0].kernel, before[0])
    np.testing.assert_array_equal(layers[0].bias, np.zeros((1, ACTIONS, 1)))
    assert np.abs(layers[1].kernel - before[1]).max() > 0


@pytest.mark.parametrize(
    'network, message',
    [
        ({'train_output': True}, 'train_output = False'),
        ({'dueling': True}, 'dueling'),
        ({'noise': 'factorised'}, 'noise'),
        ({'prior_scale': 1.0}, 'prior'),
        ({'value_scale': 2.0}, 'value_scale'),
        ({'num_heads': 2}, 'needs MultiHeadQNetwork.num_heads = 1, got 2'),
    ],
)
def test_bayesian_dqn_refuses_other_networks(network, message):
    with pytest.raises(ValueError, match=message):
        build_bayesian(network=build_network(1, **{'train_output': False, **network}))


def test_bayesian_dqn_refuses_settings_out_of_range():
    for keywords, message in (
        ({'covariance': 'prior'}, "covariance must be one of .*'prior'"),
        ({'regression_period': 0}, 'at least 1'),
        ({'sample_period': 0}, 'at least 1'),
        ({'noise_variance': 0.0}, 'above 0'),
        ({'prior_variance': -1.0}, 'above 0'),
    ):
        with pytest.raises(ValueError, match=message):
            build_bayesian(**keywords)


# Adaptive EBU.


@pytest.fixture
def small_networks():
    gin.parse_config(
        [
            'MultiHeadQNetwork.hidden_units = 4',
            'MultiHeadQNetwork.num_heads = 1',
            'MultiHeadQNetwork.conv_layers = ()',
        ]
    )
    yield
    gin.clear_config()


def build_independent(seed, num_networks=3):
    network = networks.IndependentQNetworks(ACTIONS, num_networks=num_networks, seed=seed)
    return networks.build(network, (SIZE,), tf.float32)


def build_adaptive(num_envs=1, **keywords):
    pair = build_independent(1), build_independent(2)
    return posteriors.AdaptivePosterior(*pair, None, num_envs, 0, **keywords)


def play_rewards(posterior, heads, rewards, warmup=False):
    """Steps of environments that are each followed by a head: [steps, B] rewards."""
    for row in np.asarray(rewards, np.float32):
        observations = np.zeros((len(heads), SIZE))
        taken = getattr(posterior, 'steps_so_far', 0)
        posterior.observe(
            step_of(
                observations,
                [0] * len(heads),
                heads=heads,
                rewards=row,
                agent_steps=taken,
                warmup=warmup,
            )
        )
        posterior.steps_so_far = taken + len(heads)


def weights_of(network):
    parts = [[v.numpy().ravel() for v in each.variables] for each in network.networks]
    return [np.concatenate(arrays) for arrays in parts]


def all_equal(arrays):
    return all((array == arrays[0]).all() for array in arrays)


def test_adaptive_learners_take_turns(small_networks):
    posterior, rng = build_adaptive(), np.random.default_rng(0)
    drawn = [posterior.draw_heads(count, rng) for count in (2, 1, 1, 2, 1)]
    np.testing.assert_array_equal(np.concatenate(drawn), [0, 1, 2, 0, 1, 2, 0])
    assert drawn[0].dtype == np.int32


def test_the_best_learner_replaces_the_others_at_the_very_step(small_networks):
    posterior = build_adaptive(selection_period=6)
    both = posterior.network, posterior.target_network
    start = [weights_of(network) for network in both]
    play_rewards(posterior, [0], [[1.0], [0.5]])
    play_rewards(posterior, [2], [[1.0], [1.0]])
    play_rewards(posterior, [1], [[1.5]])
    assert posterior.best == 2
    for network, weights in zip(both, start):
        np.testing.assert_array_equal(weights_of(network), weights)
    play_rewards(posterior, [1], [[1.0]])  # The sixth step counts too: 1.5 and 2 against 2.5.
    for network, weights in zip(both, start):
        np.testing.assert_array_equal(weights_of(network), [weights[1]] * 3)
    assert np.abs(start[0][1] - start[1][1]).max() > 0  # Each network got its own.

    for index, network in enumerate(posterior.network.networks):  # They diverge again.
        network.variables[0].assign_add(tf.fill(network.variables[0].shape, float(index)))
    apart = weights_of(posterior.network)
    play_rewards(posterior, [0], [[-1.0]] * 3)
    play_rewards(posterior, [2], [[0.1]] * 2)
    assert posterior.best == 2
    assert not all_equal(weights_of(posterior.network))
    play_rewards(posterior, [1], [[0.0]])  # Its 2.5 of the first period is forgotten.
    np.testing.assert_array_equal(weights_of(posterior.network), [apart[2]] * 3)


def test_rewards_of_the_warmup_count_for_no_learner(small_networks):
    posterior = build_adaptive(selection_period=4)
    start = weights_of(posterior.network)
    play_rewards(posterior, [1], [[9.0], [9.0]], warmup=True)
    np.testing.assert_array_equal(posterior.state()['scores'], [0, 0, 0])
    play_rewards(posterior, [2], [[1.0], [0.0]])  # These steps are the third and the fourth.
    np.testing.assert_array_equal(weights_of(posterior.network), [start[2]] * 3)


def test_selection_counts_the_steps_of_all_environments(small_networks):
    posterior = build_adaptive(2, selection_period=3)
    start = weights_of(posterior.network)
    play_rewards(posterior, [0, 1], [[0.0, 1.0]])
    np.testing.assert_array_equal(weights_of(posterior.network), start)
    play_rewards(posterior, [0, 2], [[2.0, 5.0]])  # Step 3 is that of the first environment ...
    np.testing.assert_array_equal(weights_of(posterior.network), [start[0]] * 3)
    assert posterior.best == 2  # ... and the other's belongs to the next period.


def test_evaluation_is_of_the_best_learner_and_changes_nothing(small_networks):
    posterior, rng = build_adaptive(), np.random.default_rng(0)
    play_rewards(posterior, [1], [[3.0]])
    posterior.draw_heads(2, rng)
    before = {name: array.copy() for name, array in posterior.state().items()}
    weights = weights_of(posterior.network)
    heads = posterior.evaluation_heads(4, rng)
    np.testing.assert_array_equal(heads, [1, 1, 1, 1])
    assert heads.dtype == np.int32
    for name, array in posterior.state().items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(weights_of(posterior.network), weights)
    np.testing.assert_array_equal(posterior.draw_heads(1, rng), [2])


def test_adaptive_state_goes_on(small_networks):
    posterior, rng = build_adaptive(selection_period=4), np.random.default_rng(0)
    posterior.draw_heads(2, rng)
    play_rewards(posterior, [2], [[1.0], [1.0], [1.0]])
    other = build_adaptive(selection_period=4)
    other.set_state({name: array.copy() for name, array in posterior.state().items()})
    np.testing.assert_array_equal(other.draw_heads(2, rng), [2, 0])
    assert other.best == 2
    other.steps_so_far = 3
    start = weights_of(other.network)
    play_rewards(other, [0], [[0.0]])
    np.testing.assert_array_equal(weights_of(other.network), [start[2]] * 3)


def test_adaptive_ebu_refuses_one_network_and_no_period(small_networks):
    with pytest.raises(ValueError, match='AdaptivePosterior needs .*IndependentQNetworks'):
        posteriors.AdaptivePosterior(build_network(1), build_network(2), None, 1, 0)
    with pytest.raises(ValueError, match='selection_period must be at least 1, got 0'):
        build_adaptive(selection_period=0)
    build_adaptive(selection_period=1)


@pytest.mark.parametrize(
    'posterior', [posteriors.UncertaintyBellmanPosterior, posteriors.BayesianLinearPosterior]
)
def test_single_head_posteriors_refuse_networks_side_by_side(posterior, small_networks):
    with pytest.raises(ValueError, match='needs MultiHeadQNetwork'):
        posterior(build_independent(1, 1), build_independent(2, 1), None, 1, 0)
