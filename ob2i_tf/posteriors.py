"""What an agent believes about Q: from a network to Q-values that are acted on.

A posterior wraps the online network. `sample` is what the training agent acts on, `mean` what the
evaluated agent may act on; both give [B, K, A], so every preference function of acting.py takes
either. A posterior that learns while the agent acts does so in `observe`.
"""

import collections
from collections.abc import Callable
from typing import Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import networks, optimizers, types
from ob2i_tf.compiled import Compiled

COVARIANCES = ('posterior', 'released')
_STATES_PER_PASS = 256


class Posterior(tf.Module):
    """The interface, with what most posteriors have in common.

    Attributes:
      sets_last_layer: whether it, and not gradients, decides the network's last layer.
      needs_heads: whether it has to be acted on by a preference that follows a head.
      compiles: whether XLA can compile it.

    Args:
      network: the online network, built.
      target_network: its twin, built.
      replay: EpisodeReplay.
      num_envs: environments that the agent acts in.
      seed: of all random choices that are not the caller's.
    """

    sets_last_layer = False
    needs_heads = False
    compiles = True

    def __init__(self, network, target_network, replay, num_envs, seed):
        super().__init__(name='posterior')
        if network.trains_output == self.sets_last_layer:
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork.train_output = '
                f'{not self.sets_last_layer}'
            )
        self.network = network
        self.target_network = target_network
        self._replay = replay
        self._num_envs = num_envs
        self._generator = tf.random.Generator.from_seed(seed)

    def mean(self, observations):
        """[B, *stack] -> [B, K, A]."""
        return self.network(observations)

    def sample(self, observations, seed):
        """[B, *stack], and a [2] int seed of stateless draws -> [B, K, A]."""
        return self.network(observations, seed)

    def selector(self, observations, seed):
        """As `sample`: what double Q-learning chooses the next action by."""
        return self.sample(observations, seed)

    def following(self, observations, heads, seed):
        """Q-values [B, K, A], the mean for seed None, and where in them [B] the heads are."""
        q_values = self.mean(observations) if seed is None else self.sample(observations, seed)
        return q_values, heads

    def draw_heads(self, count, rng):
        """The heads [count] int32 that environments follow from now on."""
        return rng.integers(self.network.num_heads, size=count, dtype=np.int32)

    def evaluation_heads(self, count, rng):
        """As `draw_heads`, for evaluation; it changes nothing."""
        return self.draw_heads(count, rng)

    def observe(self, step: types.Step):
        """Called after each step of the environments in training."""

    def end(self):
        """Called when the environments are about to be left."""

    def target_updated(self):
        """Called after each copy into the target network."""

    def state(self):
        """What a checkpoint keeps as arrays, by name; variables it keeps by itself."""
        return {}

    def set_state(self, arrays):
        del arrays

    def compiled_functions(self):
        """The tf.functions of its own whose traces a run counts."""
        return []


@gin.configurable(denylist=['seed'])
class EnsemblePosterior(Posterior):
    """The heads as they are (Osband et al. 2016), or the noise of a noisy network.

    A noisy network draws its noise anew for each call of `sample` and `selector`, one draw for all
    observations of the call (Fortunato et al. 2018, section 3.1); `mean` goes without.
    """

    def following(self, observations, heads, seed):
        return self.network.following(observations, heads, seed)


@gin.configurable(denylist=['seed'])
class AdaptivePosterior(EnsemblePosterior):
    """Learners that take turns, and the best replaces the others (adaptive EBU, Lee et al. 2019).

    Learner i plays every K-th game. Every `selection_period` agent steps the learner with the
    largest sum of rewards since the last time is copied onto the others, online and target network
    (not the optimizer's moments), and all sums start at 0. Rewards of random actions before
    learning starts count for no learner.

    Args:
      selection_period: agent steps.
    """

    needs_heads = True

    def __init__(
        self, network, target_network, replay, num_envs, seed, selection_period: int = 250_000
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if not isinstance(network, networks.IndependentQNetworks):
            raise ValueError('AdaptivePosterior needs Runner.network = @IndependentQNetworks')
        if selection_period < 1:
            raise ValueError(
                f'AdaptivePosterior.selection_period must be at least 1, got {selection_period}'
            )
        self._selection_period = selection_period
        self._games = 0  # Started.
        self._scores = np.zeros(network.num_heads)

    def draw_heads(self, count, rng):
        heads = (self._games + np.arange(count)) % self.network.num_heads
        self._games += count
        return heads.astype(np.int32)

    def evaluation_heads(self, count, rng):
        return np.full(count, self.best, np.int32)

    @property
    def best(self):
        """The learner with the largest sum of rewards so far; the first of equals."""
        return int(self._scores.argmax())

    def observe(self, step):
        for done, (head, reward) in enumerate(zip(step.heads, step.rewards), start=1):
            self._scores[head] += 0 if step.warmup else reward
            if (step.agent_steps + done) % self._selection_period == 0:
                for network in (self.network, self.target_network):
                    network.copy_from(self.best)
                self._scores[:] = 0

    def state(self):
        return {'scores': self._scores, 'games': np.array(self._games)}

    def set_state(self, arrays):
        self._scores = arrays['scores']
        self._games = int(arrays['games'])


class SingleHeadPosterior(Posterior):
    """One for networks with a single head whose last layer sees the features phi [B, D]."""

    def __init__(self, network, *arguments):
        super().__init__(network, *arguments)
        if not isinstance(network, networks.MultiHeadQNetwork):
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork, got {type(network).__name__}'
            )
        if network.num_heads != 1:
            raise ValueError(
                f'{type(self).__name__} needs MultiHeadQNetwork.num_heads = 1, got '
                f'{network.num_heads}'
            )

    def phi(self, observations):
        return self.network.hidden(observations)[:, 0]


@gin.configurable(denylist=['seed'])
class UncertaintyBellmanPosterior(SingleHeadPosterior):
    """UBE: a head learns the variance of Q by a Bellman equation (O'Donoghue et al. 2018).

    Its local part is nu = phi^T Sigma_a phi, with Sigma_a = (I / mu + sum of phi phi^T over the
    visits of a)^-1 kept by Sherman-Morrison updates. The variance u(s, a) is regressed on

        y_t = nu_t + gamma^2 nu_{t+1} + .. + gamma^2(n-1) nu_{t+n-1} + gamma^2n u(s_{t+n}, a_{t+n})

    on-policy, one gradient step a transition, which the Q-network does not feel. An episode that
    ends within the n steps ends the sum, at a terminal without u; a truncated one bootstraps with
    the action that is greedy by `mean`. The agent acts greedily by Q + scale z sqrt(max(u, 0)), z
    normal, drawn for each action and step.

    Args:
      scale: their beta.
      n_steps: 1, or 150 for their better variant.
      initial_variance: mu.
      hidden_units: ReLU units of u, on the trunk's features.
      initial_output: bias of u's last layer at the start; a positive one is optimistic.
      optimizer: builds u's.
    """

    def __init__(
        self,
        network,
        target_network,
        replay,
        num_envs,
        seed,
        scale: float = 0.01,
        n_steps: int = 1,
        initial_variance: float = 1.0,
        hidden_units: int = 512,
        initial_output: float = 0.0,
        optimizer: Callable = optimizers.rmsprop,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if n_steps < 1 or hidden_units < 1 or initial_variance <= 0:
            raise ValueError(
                'UncertaintyBellmanPosterior needs n_steps >= 1, hidden_units >= 1 and '
                f'initial_variance > 0, got {n_steps}, {hidden_units} and {initial_variance}'
            )
        if network.noise is not None:
            raise ValueError(
                'UncertaintyBellmanPosterior takes no MultiHeadQNetwork.noise: it explores by its '
                'variance alone'
            )
        self._scale = scale
        self._n_steps = n_steps
        features, phi = network.trunk_features, network.heads.hidden_units
        seeds = networks.split_seed(seed, 2)
        self.variance_head = tf.keras.Sequential(
            [
                tf.keras.layers.Input((features,)),
                tf.keras.layers.Dense(
                    hidden_units,
                    'relu',
                    kernel_initializer=tf.keras.initializers.GlorotUniform(seeds[0]),
                ),
                tf.keras.layers.Dense(
                    network.num_actions,
                    kernel_initializer=tf.keras.initializers.GlorotUniform(seeds[1]),
                    bias_initializer=tf.keras.initializers.Constant(initial_output),
                ),
            ]
        )
        self.covariances = tf.Variable(
            initial_variance * tf.eye(phi, batch_shape=[network.num_actions], dtype=tf.float64),
            trainable=False,
            name='covariances',
        )
        self._optimizer = optimizer()
        self._optimizer._create_all_weights(self.variance_head.trainable_variables)
        self._visit = Compiled(self._visit_pair)
        self._learn = Compiled(self._learn_pair)
        self._greedy = Compiled(self._greedy_actions)
        self._trails = [collections.deque() for _ in range(num_envs)]
        self._ends = [None] * num_envs  # The newest observation of each environment.

    def sample(self, observations, seed):
        q_values = self.network(observations)
        noise = tf.random.stateless_normal(tf.shape(q_values), seed)
        std = tf.sqrt(tf.maximum(self.variances(observations), 0))
        return q_values + self._scale * noise * std[:, None]

    def selector(self, observations, seed):
        return self.network(observations, seed)

    def variances(self, observations):
        """u: [B, *stack] -> [B, A]."""
        return self.variance_head(self.network.features(observations))

    def observe(self, step):
        for env, trail in enumerate(self._trails):
            row = slice(env, env + 1)  # Copies, as environments may use their buffers again.
            observation, action = step.observations[row].copy(), step.actions[row].copy()
            nu = float(self._visit(observation, action))
            trail.append(_Visit(observation, action, nu, float(step.discounts[env])))
            if len(trail) > self._n_steps:
                self._learn_oldest(trail, trail[-1].observation, trail[-1].action, rest=1)
            self._ends[env] = step.next_observations[row].copy()
            if step.episode_over[env]:
                self._finish(env)

    def end(self):
        for env in range(self._num_envs):
            self._finish(env)

    def _finish(self, env):
        """Learns from what is left of an episode that ended."""
        trail, end = self._trails[env], self._ends[env]
        if trail:
            action = self._greedy(end)
            while trail:
                self._learn_oldest(trail, end, action, rest=0)

    def _learn_oldest(self, trail, observation, action, rest):
        """A step on the oldest visit: nu of all but `rest` visits, then u(observation, action)."""
        total, factor = 0.0, 1.0
        for visit in list(trail)[: len(trail) - rest]:
            total += factor * visit.nu
            factor *= visit.discount**2
        oldest = trail.popleft()
        self._learn(
            oldest.observation,
            oldest.action,
            np.float32(total),
            np.float32(factor),
            observation,
            action,
        )

    def _visit_pair(self, observation, action):
        """nu of a single pair, and the Sherman-Morrison update that takes it in."""
        # In float64: rounding in the directions not yet seen would swamp those seen often.
        phi, action = tf.cast(self.phi(observation)[0], tf.float64), action[0]
        covariance = tf.gather(self.covariances, action)  # An index would copy all of them.
        product = tf.linalg.matvec(covariance, phi)
        nu = tf.tensordot(phi, product, 1)
        smaller = covariance - tf.tensordot(product, product, 0) / (1 + nu)
        self.covariances.scatter_nd_update([[action]], smaller[None])
        return nu

    def _learn_pair(self, observation, action, total, factor, last_observation, last_action):
        variables = self.variance_head.trainable_variables
        end = tf.gather(self.variances(last_observation), last_action, batch_dims=1)
        features = self.network.features(observation)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            u = tf.gather(self.variance_head(features), action, batch_dims=1)
            loss = tf.reduce_mean(tf.square(total + factor * end - u))
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def _greedy_actions(self, observation):
        return tf.argmax(self.mean(observation)[:, 0], axis=-1, output_type=tf.int32)

    def state(self):
        visits = [(env, visit) for env, trail in enumerate(self._trails) for visit in trail]
        if not visits:
            return {}
        ends = [end for end in self._ends if end is not None]
        return {
            'env': np.array([env for env, _ in visits]),
            'observation': np.concatenate([visit.observation for _, visit in visits]),
            'action': np.concatenate([visit.action for _, visit in visits]),
            'nu': np.array([visit.nu for _, visit in visits]),
            'discount': np.array([visit.discount for _, visit in visits]),
            'ends': np.concatenate(ends),
        }

    def set_state(self, arrays):
        self._trails = [collections.deque() for _ in range(self._num_envs)]
        if not arrays:
            return
        self._ends = [end[None] for end in arrays['ends']]
        for i, env in enumerate(arrays['env']):
            self._trails[env].append(
                _Visit(
                    arrays['observation'][i : i + 1],
                    arrays['action'][i : i + 1],
                    float(arrays['nu'][i]),
                    float(arrays['discount'][i]),
                )
            )

    def compiled_functions(self):
        return [x.function for x in (self._visit, self._learn, self._greedy)]


_Visit = collections.namedtuple('_Visit', 'observation action nu discount')


@gin.configurable(denylist=['seed'])
class BayesianLinearPosterior(SingleHeadPosterior):
    """Bayesian-DQN: a posterior over the last layer's weights (Azizzadenesheli et al. 2018).

    Every `regression_period` copies into the target network the weights w_a of each action get the
    posterior of a linear regression on transitions out of replay, y = r + gamma max_a' w^T phi(s')
    by the target network:

        w_a ~ N(mean_a, Cov_a),  Cov_a = (sum phi phi^T / noise_variance + I / prior_variance)^-1,
        mean_a = Cov_a (sum phi y) / noise_variance.

    The mean becomes the last layer of the online and the target network; between regressions
    gradients train the features below it only. The agent acts greedily by a draw of all w_a, which
    is kept for `sample_period` agent steps; double Q-learning selects by that draw.

    Args:
      regression_period: copies into the target network.
      regression_transitions: drawn from replay for a regression, fewer while it holds fewer.
      prior_variance, noise_variance: see above.
      covariance: 'posterior', as above; 'released': prior_variance times that, and I before the
        first regression (the released code).
      sample_period: agent steps; 1 is what the released code does, 1000 what it means to do.
      initial_std: of the last layer's weights until the first regression.
    """

    sets_last_layer = True

    def __init__(
        self,
        network,
        target_network,
        replay,
        num_envs,
        seed,
        regression_period: int = 10,
        regression_transitions: int = 100_000,
        prior_variance: float = 1e-3,
        noise_variance: float = 1.0,
        covariance: Literal[COVARIANCES] = 'posterior',
        sample_period: int = 1000,
        initial_std: float = 0.01,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if covariance not in COVARIANCES:
            raise ValueError(
                f'BayesianLinearPosterior.covariance must be one of {COVARIANCES}, got '
                f'{covariance!r}'
            )
        if min(regression_period, regression_transitions, sample_period) < 1:
            raise ValueError(
                'BayesianLinearPosterior.regression_period, .regression_transitions and '
                f'.sample_period must be at least 1, got {regression_period}, '
                f'{regression_transitions} and {sample_period}'
            )
        if prior_variance <= 0 or noise_variance <= 0:
            raise ValueError(
                'BayesianLinearPosterior.prior_variance and .noise_variance must be above 0, got '
                f'{prior_variance} and {noise_variance}'
            )
        if (
            network.value_heads is not None
            or network.noise is not None
            or network.prior_scale
            or network.value_scale != 1
        ):
            raise ValueError(
                'BayesianLinearPosterior takes no MultiHeadQNetwork.dueling, .noise, .prior_scale '
                'or .value_scale: its values are those of a last layer that it sets'
            )
        self._regression_period = regression_period
        self._regression_transitions = regression_transitions
        self._variances = prior_variance, noise_variance
        self._released = covariance == 'released'
        self._sample_period = sample_period
        self._copies = 0  # Into the target network.
        kernel = network.heads.output_layer.kernel  # [1, A, D], without a bias that changes.
        scale = 1.0 if self._released else np.sqrt(prior_variance)
        self._cholesky = tf.Variable(
            scale * tf.eye(kernel.shape[-1], batch_shape=[kernel.shape[1]]),
            trainable=False,
            name='cholesky',
        )
        self.drawn = tf.Variable(tf.zeros(kernel.shape[1:]), trainable=False, name='drawn')
        self._set_mean(initial_std * self._generator.normal(kernel.shape[1:]))
        self._draw()

    def sample(self, observations, seed):
        return tf.matmul(self.phi(observations), self.drawn, transpose_b=True)[:, None]

    def observe(self, step):
        for done in range(1, len(step.actions) + 1):
            if (step.agent_steps + done) % self._sample_period == 0:
                self._draw()

    def target_updated(self):
        self._copies += 1
        if self._copies % self._regression_period == 0 and self._replay.num_transitions:
            self._regress()

    def _regress(self):
        """Refits the posterior and draws from it."""
        size = self._cholesky.shape
        moments = tf.zeros(size, tf.float64), tf.zeros(size[:2], tf.float64)
        left = min(self._regression_transitions, self._replay.num_transitions)
        while left:
            rows = self._replay.sample_transitions(min(left, _STATES_PER_PASS))
            moments = self._add_moments(*moments, *rows[:-1])
            left -= len(rows.actions)
        mean, covariance = regression_posterior(*moments, *self._variances)
        if self._released:
            covariance *= self._variances[0]
        self._cholesky.assign(tf.cast(tf.linalg.cholesky(covariance), tf.float32))
        self._set_mean(tf.cast(mean, tf.float32))
        self._draw()

    @tf.function(reduce_retracing=True, autograph=False)
    def _add_moments(self, squares, products, observations, actions, rewards, discounts, next_):
        """Adds sum phi phi^T [A, D, D] and sum phi y [A, D] of some transitions, in float64."""
        next_q = self.target_network(next_)[:, 0]
        y = tf.cast(rewards + discounts * tf.reduce_max(next_q, axis=-1), tf.float64)
        phi = tf.cast(self.phi(observations), tf.float64)
        taken = tf.one_hot(actions, self.network.num_actions, dtype=tf.float64)
        by_action = taken[:, :, None] * phi[:, None]  # [B, A, D]
        squares += tf.einsum('bad,be->ade', by_action, phi)
        return squares, products + tf.einsum('bad,b->ad', by_action, y)

    def _set_mean(self, mean):
        for network in (self.network, self.target_network):
            network.heads.output_layer.kernel.assign(mean[None])

    @tf.function(autograph=False)
    def _draw(self):
        mean = self.network.heads.output_layer.kernel[0]
        self.drawn.assign(
            mean + tf.linalg.matvec(self._cholesky, self._generator.normal(self.drawn.shape))
        )

    def state(self):
        return {'copies': np.array(self._copies)}

    def set_state(self, arrays):
        self._copies = int(arrays['copies'])

    def compiled_functions(self):
        return [self._add_moments, self._draw]


def regression_posterior(squares, products, prior_variance, noise_variance):
    """Bayesian linear regression without intercept, for A outputs apart.

    Args:
      squares: [A, D, D], sum of x x^T.
      products: [A, D], sum of x y.
      prior_variance: of each weight, around 0.
      noise_variance: of y.

    Returns:
      The posterior's means [A, D] and covariances [A, D, D].
    """
    identity = tf.eye(squares.shape[-1], dtype=squares.dtype)
    covariance = tf.linalg.inv(squares / noise_variance + identity / prior_variance)
    return tf.linalg.matvec(covariance, products) / noise_variance, covariance
