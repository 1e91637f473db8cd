"""LSVI agents and linear Q-functions as parts of a run; gin files import this module."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import networks, posteriors, types
from ob2i_tf.errors import ConfigError
from ob2i_tf.linear import lsvi
from ob2i_tf.parameters import Above, AtLeast, checked

_COLUMNS = ('phi', 'actions', 'rewards')


@gin.configurable(denylist=['seed', 'prior_seed'])
@checked
class LinearQNetwork(networks.QNetwork):
    """K heads that are linear in the features of state-action pairs: [B, A, D] -> [B, K, A].

    Args:
      num_actions: Number of actions, A.
      num_heads: Number of heads, K.
      initial_std: Standard deviation of the initial weights; 1 / sqrt(lambda) is Theorem 1's prior.
      seed: Seed of the weights.
      prior_seed: Unused; linear heads have no separate prior.
    """

    def __init__(
        self,
        num_actions: int,
        num_heads: Annotated[int, AtLeast(1)] = 10,
        initial_std: Annotated[float, AtLeast(0)] = 1.0,
        seed: int = 0,
        prior_seed: int = 0,
    ):
        super().__init__(name='linear_q_network')
        del prior_seed
        self.num_actions = num_actions
        self.num_heads = num_heads
        self._initializer = tf.keras.initializers.RandomNormal(stddev=initial_std, seed=seed)

    def build(self, input_shape: Any) -> None:
        shape = (self.num_heads, int(input_shape[-1]))
        self.kernel = self.add_weight('kernel', shape, initializer=self._initializer)
        super().build(input_shape)

    def call(self, observations: Any, seed: Any = None) -> tf.Tensor:
        del seed
        values = tf.matmul(tf.cast(observations, tf.float32), self.kernel, transpose_b=True)
        return tf.transpose(values, (0, 2, 1))


@gin.configurable(denylist=['seed'])
@checked
class LsviPosterior(posteriors.Posterior):
    """Acts by least-squares value iteration on all complete episodes so far, refitted after each.

    Observations are those of `make_linear_mdp`, [A, H d]. The network is unused. `mean` is the
    regression without bonus and noise.

    Args:
      method: 'ucb' (Jin et al. 2020), 'randomised' (Zanette et al. 2020), or 'greedy', the same
        regression without exploration.
      horizon: Steps per episode, H.
      regularisation: Ridge penalty lambda.
      bonus_scale: Factor b on the bonus of 'ucb'; c d H sqrt(log(2 d T / p)) in the theory.
      noise_scale: Scale of the noise of 'randomised'.
      lower, upper: Norms between which 'randomised' turns optimistic, alpha_L and alpha_U.
    """

    needs_learner = False
    supports_xla = False  # Its regressions run in NumPy.

    def __init__(
        self,
        network: Any,
        target_network: Any,
        replay: Any,
        num_envs: int,
        seed: int,
        method: Literal['ucb', 'randomised', 'greedy'] = gin.REQUIRED,
        horizon: Annotated[int, AtLeast(1)] = gin.REQUIRED,
        regularisation: Annotated[float, Above(0)] = 1.0,
        bonus_scale: Annotated[float, AtLeast(0)] = 1.0,
        noise_scale: Annotated[float, AtLeast(0)] = 1.0,
        lower: Annotated[float, AtLeast(0)] = 0.5,
        upper: float = 1.0,
    ):
        super().__init__(network, target_network, replay, num_envs, seed)
        if num_envs != 1:
            raise ValueError(f'LsviPosterior needs Runner.num_envs = 1, got {num_envs}')
        if not isinstance(network, LinearQNetwork):
            raise ValueError(
                'LsviPosterior needs Runner.network = @LinearQNetwork, got '
                f'{type(network).__name__}'
            )
        if network.num_heads != 1:
            raise ValueError(
                f'LsviPosterior needs LinearQNetwork.num_heads = 1, got {network.num_heads}'
            )
        num_actions, size = network.num_actions, network.kernel.shape[-1]
        if size % horizon:
            raise ValueError(
                f'LsviPosterior.horizon = {horizon} does not divide the {size} features of an '
                'observation'
            )
        if not lower < upper:
            raise ValueError(
                f'LsviPosterior.lower = {lower} must be below LsviPosterior.upper = {upper}'
            )
        self._q_functions = {
            'ucb': lambda rng: lsvi.ucb(horizon, bonus_scale),
            'randomised': lambda rng: lsvi.randomised(horizon, noise_scale, lower, upper, rng),
            'greedy': lambda rng: lsvi.greedy(),
        }[method]
        self._regularisation = regularisation
        self._seed = seed
        self._shape = (horizon, num_actions, size // horizon)
        # phi, actions and rewards of complete episodes: [H, n, ...].
        self._past: tuple[np.ndarray, ...] = (
            np.zeros((horizon, 0, num_actions, size // horizon)),
            np.zeros((horizon, 0), int),
            np.zeros((horizon, 0)),
        )
        # The same for the episode in progress.
        self._open: tuple[list, ...] = ([], [], [])
        self._functions: dict[str, list[Callable]] = {}  # By belief, fitted when first needed.

    def sample(self, observations: Any, seed: Any) -> tf.Tensor:
        del seed
        return self._q_values(observations, 'sample')

    def mean(self, observations: Any) -> tf.Tensor:
        return self._q_values(observations, 'mean')

    def _q_values(self, observations, belief):
        def compute(observations):
            """[B, A, H d] -> [B, 1, A]."""
            blocks = observations.astype(float).reshape(-1, *self._block_shape).swapaxes(1, 2)
            steps = blocks.any(axis=(2, 3)).argmax(axis=1)
            if belief not in self._functions:
                self._functions[belief] = self._fitted(belief)
            functions = self._functions[belief]
            values = [functions[h](block[h]) for h, block in zip(steps, blocks)]
            return np.stack(values)[:, None].astype(np.float32)

        values = tf.numpy_function(compute, [observations], tf.float32)
        return tf.ensure_shape(values, (None, 1, self.network.num_actions))

    @property
    def _block_shape(self):
        horizon, num_actions, num_features = self._shape
        return num_actions, horizon, num_features

    def observe(self, step: types.Step) -> None:
        phi = step.observations[0].reshape(self._block_shape).sum(axis=1).astype(float)
        for column, value in zip(self._open, (phi, int(step.actions[0]), float(step.rewards[0]))):
            column.append(value)
        if step.episode_over[0]:
            horizon, length = self._shape[0], len(self._open[0])
            if length != horizon:
                raise ConfigError(
                    f'LsviPosterior.horizon = {horizon}, but an episode took {length} agent steps'
                )
            self._past = tuple(
                np.concatenate([past, np.stack(column)[:, None]], axis=1)
                for past, column in zip(self._past, self._open)
            )
            self.end()
            self._functions = {}

    def end(self) -> None:
        """Drops the episode in progress."""
        self._open = ([], [], [])

    def _fitted(self, belief):
        """Q at each step, fitted to all complete episodes."""
        phi, actions, rewards = self._past
        taken = np.take_along_axis(phi, actions[:, :, None, None], axis=2)[:, :, 0]
        rng = np.random.default_rng([self._seed, phi.shape[1]])
        return lsvi.value_iteration(
            taken,
            rewards,
            phi[1:],
            self._q_functions(rng) if belief == 'sample' else lsvi.greedy(),
            self._regularisation,
        )

    def state(self) -> dict[str, np.ndarray]:
        past = {f'past_{n}': column for n, column in zip(_COLUMNS, self._past)}
        if not self._open[0]:
            return past
        return past | {f'open_{n}': np.array(c) for n, c in zip(_COLUMNS, self._open)}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        self._past = tuple(arrays[f'past_{name}'] for name in _COLUMNS)
        self._open = tuple(list(arrays.get(f'open_{name}', ())) for name in _COLUMNS)
        self._functions = {}
