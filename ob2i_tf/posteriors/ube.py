"""The uncertainty Bellman equation."""

import collections
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import optimizers, types
from ob2i_tf.parameters import Above, AtLeast, checked
from ob2i_tf.posteriors.base import SingleHeadPosterior
from ob2i_tf.seeds import split_seed
from ob2i_tf.tracing import Compiled


class _Visit(NamedTuple):
    observation: np.ndarray  # [1, *stack]
    action: np.ndarray  # [1]
    nu: float
    discount: float


@gin.configurable(denylist=['seed'])
@checked
class UncertaintyBellmanPosterior(SingleHeadPosterior):
    """UBE: a head learns the variance of Q by a Bellman equation (O'Donoghue et al. 2018).

    The local variance is nu = phi^T Sigma_a phi, where Sherman-Morrison updates maintain Sigma_a =
    (I / mu + sum of phi phi^T over the visits of a)^-1. The variance u(s, a) is regressed on

        y_t = nu_t + gamma^2 nu_{t+1} + .. + gamma^2(n-1) nu_{t+n-1} + gamma^2n u(s_{t+n}, a_{t+n})

    on-policy, with one gradient step per transition, which does not reach the Q-network. The sum
    stops at the episode's end, with u = 0 at a terminal; a truncated episode bootstraps with the
    greedy action by `mean`. The agent acts greedily by Q + scale z sqrt(max(u, 0)), with z normal,
    drawn for each action and step.

    Args:
      scale: Factor on the standard deviation, beta in their paper.
      n_steps: Number of transitions that y_t sums, n; 1, or 150 for their better variant.
      initial_variance: Variance of phi in directions never visited, mu.
      hidden_units: ReLU units of u, on the trunk's features.
      initial_output: Initial bias of u's last layer; a positive one is optimistic.
      optimizer: Builds the optimizer of u, see optimizers.py.
    """

    def __init__(
        self,
        network: Any,
        target_network: Any,
        replay: Any,
        num_envs: int,
        seed: int,
        scale: float = 0.01,
        n_steps: Annotated[int, AtLeast(1)] = 1,
        initial_variance: Annotated[float, Above(0)] = 1.0,
        hidden_units: Annotated[int, AtLeast(1)] = 512,
        initial_output: float = 0.0,
        optimizer: Callable = optimizers.rmsprop,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if network.noise is not None:
            raise ValueError(
                'UncertaintyBellmanPosterior does not support MultiHeadQNetwork.noise: it explores '
                'by its variance alone'
            )
        self._scale = scale
        self._n_steps = n_steps
        num_features, phi_size = network.trunk_features, network.heads.hidden_units
        seeds = split_seed(seed, 2)
        self.variance_head = tf.keras.Sequential(
            [
                tf.keras.layers.Input((num_features,)),
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
            initial_variance
            * tf.eye(phi_size, batch_shape=[network.num_actions], dtype=tf.float64),
            trainable=False,
            name='covariances',
        )
        self.optimizer = optimizer()
        self.optimizer._create_all_weights(self.variance_head.trainable_variables)
        self._visit = Compiled(self._visit_pair)
        self._learn = Compiled(self._learn_pair)
        self._greedy = Compiled(self._greedy_actions)
        self._pending_visits: list[collections.deque[_Visit]] = [
            collections.deque() for _ in range(num_envs)
        ]
        # The newest observation [1, *stack] of each environment.
        self._newest_observations: list[np.ndarray | None] = [None] * num_envs

    def sample(self, observations: Any, seed: Any) -> tf.Tensor:
        q_values = self.network(observations)
        noise = tf.random.stateless_normal(tf.shape(q_values), seed)
        std = tf.sqrt(tf.maximum(self.variances(observations), 0))
        return q_values + self._scale * noise * std[:, None]

    def double_q_values(self, observations: Any, seed: Any) -> tf.Tensor:
        return self.network(observations, seed)

    def variances(self, observations: Any) -> tf.Tensor:
        """u: [B, *stack] -> [B, A]."""
        return self.variance_head(self.network.features(observations))

    def observe(self, step: types.Step) -> None:
        for env, pending in enumerate(self._pending_visits):
            row = slice(env, env + 1)  # Copied below, since environments may reuse their buffers.
            observation, action = step.observations[row].copy(), step.actions[row].copy()
            nu = float(self._visit(observation, action))
            pending.append(_Visit(observation, action, nu, float(step.discounts[env])))
            if len(pending) > self._n_steps:
                self._learn_oldest(
                    pending, pending[-1].observation, pending[-1].action, num_excluded=1
                )
            self._newest_observations[env] = step.next_observations[row].copy()
            if step.episode_over[env]:
                self._finish(env)

    def end(self) -> None:
        for env in range(self._num_envs):
            self._finish(env)

    def _finish(self, env):
        """Learns from the remaining visits of an episode that ended."""
        pending, end = self._pending_visits[env], self._newest_observations[env]
        if pending:
            action = self._greedy(end)
            while pending:
                self._learn_oldest(pending, end, action, num_excluded=0)

    def _learn_oldest(self, pending, observation, action, num_excluded):
        """Regresses u at the oldest visit on its y, and removes the visit.

        Args:
          pending: Visits, oldest first.
          observation, action: The pair at which y bootstraps from u.
          num_excluded: Number of newest visits whose nu is not in the sum.
        """
        total, factor = 0.0, 1.0
        for visit in list(pending)[: len(pending) - num_excluded]:
            total += factor * visit.nu
            factor *= visit.discount**2
        oldest = pending.popleft()
        self._learn(
            oldest.observation,
            oldest.action,
            np.float32(total),
            np.float32(factor),
            observation,
            action,
        )

    def _visit_pair(self, observation, action):
        """nu of a single pair, and its Sherman-Morrison update of the covariance."""
        # In float64; in float32, rounding errors of the large variances of unseen directions would
        # swamp the small ones of directions seen often.
        phi, action = tf.cast(self.phi(observation)[0], tf.float64), action[0]
        covariance = tf.gather(self.covariances, action)  # Indexing would copy all of them.
        product = tf.linalg.matvec(covariance, phi)
        nu = tf.tensordot(phi, product, 1)
        updated = covariance - tf.tensordot(product, product, 0) / (1 + nu)
        self.covariances.scatter_nd_update([[action]], updated[None])
        return nu

    def _learn_pair(self, observation, action, total, factor, last_observation, last_action):
        variables = self.variance_head.trainable_variables
        end = tf.gather(self.variances(last_observation), last_action, batch_dims=1)
        features = self.network.features(observation)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            u = tf.gather(self.variance_head(features), action, batch_dims=1)
            loss = tf.reduce_mean(tf.square(total + factor * end - u))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def _greedy_actions(self, observation):
        return tf.argmax(self.mean(observation)[:, 0], axis=-1, output_type=tf.int32)

    def state(self) -> dict[str, np.ndarray]:
        visits = [
            (env, visit) for env, pending in enumerate(self._pending_visits) for visit in pending
        ]
        if not visits:
            return {}
        ends = [end for end in self._newest_observations if end is not None]
        return {
            'env': np.array([env for env, _ in visits]),
            'observation': np.concatenate([visit.observation for _, visit in visits]),
            'action': np.concatenate([visit.action for _, visit in visits]),
            'nu': np.array([visit.nu for _, visit in visits]),
            'discount': np.array([visit.discount for _, visit in visits]),
            'ends': np.concatenate(ends),
        }

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        self._pending_visits = [collections.deque() for _ in range(self._num_envs)]
        if not arrays:
            return
        self._newest_observations = [end[None] for end in arrays['ends']]
        for i, env in enumerate(arrays['env']):
            self._pending_visits[env].append(
                _Visit(
                    arrays['observation'][i : i + 1],
                    arrays['action'][i : i + 1],
                    float(arrays['nu'][i]),
                    float(arrays['discount'][i]),
                )
            )
