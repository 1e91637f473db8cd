"""From the heads' Q-values to a preference for each action; the agent takes the largest.

A preference function maps q_values [B, K, A] to [B, A]. One that follows the head drawn for the
episode takes a further argument, `heads` [B]. If it reads only q_values[b, heads[b]], the decorator
`followed_head_only` declares this, and with a single environment no other head is computed. One
that draws random numbers takes `seed`, [2] int32, for TensorFlow's stateless functions. Preference
functions are traced without AutoGraph. B is the number of environments, K of heads, A of actions.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import bonuses
from ob2i_tf.chunks import floating
from ob2i_tf.errors import NotFiniteError
from ob2i_tf.parameters import Above, checked
from ob2i_tf.seeds import split_draws
from ob2i_tf.tracing import Compiled, check_traced, errors_of

TieBreak = Literal['random', 'lowest']
Belief = Literal['sample', 'mean']


def followed_head_only(preferences: Callable) -> Callable:
    """Decorator: marks a preference function that reads only the followed head."""
    preferences.followed_head_only = True  # type: ignore[attr-defined]
    return preferences


@gin.configurable
@followed_head_only
def head_preferences(q_values: Any, heads: Any) -> tf.Tensor:
    """One head per episode: Thompson sampling of value functions (paper, Algorithm 2, line 4).

    Args:
      q_values: Values of the heads, [B, K, A].
      heads: Head that each environment follows, [B] int.

    Returns:
      [B, A].
    """
    return tf.gather(tf.convert_to_tensor(q_values), heads, axis=1, batch_dims=1)


@gin.configurable
def mean_preferences(q_values: Any) -> tf.Tensor:
    """The mean of the heads, [B, K, A] -> [B, A]; with one head, plain greedy Q-learning."""
    return tf.reduce_mean(floating(q_values), axis=1)


@gin.configurable
def ucb_preferences(q_values: Any, scale: float = 0.1) -> tf.Tensor:
    """Mean plus `scale` standard deviations (Chen et al. 2017; paper, Algorithm 3, BEBU-UCB)."""
    return mean_preferences(q_values) + scale * bonuses.ensemble_std(q_values)


@gin.configurable
@checked
def ids_preferences(
    q_values: Any,
    scale: float = 0.1,
    rho: Annotated[float, Above(0)] = 1.0,
    epsilon: Annotated[float, Above(0)] = 1e-5,
) -> tf.Tensor:
    """Minus the regret-information ratio (Nikolov et al. 2019; paper, Algorithm 3, BEBU-IDS).

        regret(a) = max_a' (mean + scale std)(a') - (mean - scale std)(a)
        information(a) = log(1 + std(a)^2 / rho^2) + epsilon

    Args:
      q_values: Values of the heads, [B, K, A].
      scale: Half-width of the confidence interval in standard deviations, lambda_ids.
      rho: Standard deviation of the return, a constant here.
      epsilon: Constant that keeps the ratio finite where the heads agree.

    Returns:
      [B, A], -regret^2 / information.

    Raises:
      ValueError: `rho` or `epsilon` is not a number above 0; otherwise all actions would tie, or
        the ratio would be undefined.
    """
    mean = mean_preferences(q_values)
    std = bonuses.ensemble_std(q_values)
    regret = tf.reduce_max(mean + scale * std, axis=-1, keepdims=True) - (mean - scale * std)
    information = tf.math.log1p(tf.square(std / rho)) + epsilon
    return -tf.square(regret) / information


@gin.configurable
def vote_preferences(q_values: Any) -> tf.Tensor:
    """The number of heads for which each action is greedy, [B, K, A] -> [B, A] float.

    Evaluation acts by this vote (paper, section 5.2); `greedy_actions` breaks ties.
    """
    q_values = tf.convert_to_tensor(q_values)
    return tf.reduce_sum(tf.one_hot(tf.argmax(q_values, axis=-1), tf.shape(q_values)[-1]), axis=1)


def greedy_actions(
    preferences: np.ndarray, rng: np.random.Generator, tie_break: TieBreak = 'random'
) -> np.ndarray:
    """The action with the largest preference.

    Args:
      preferences: Preference for each action, [B, A].
      rng: Random generator, used only for ties.
      tie_break: Rule for ties: 'random' draws uniformly among the tied actions; 'lowest' takes the
        lowest index, which on Atari is NOOP (the released code).

    Returns:
      [B] int32.
    """
    actions = preferences.argmax(axis=-1).astype(np.int32)
    if tie_break == 'random':
        tied = preferences == preferences.max(axis=-1, keepdims=True)
        for row in np.flatnonzero(tied.sum(axis=-1) > 1):
            actions[row] = rng.choice(np.flatnonzero(tied[row]))
    return actions


class Policy:
    """Epsilon-greedy on a preference function, in one compiled call.

    Args:
      posterior: Posterior that the policy acts on.
      preferences: Preference function.
      tie_break: See `greedy_actions`.
      belief: Whether to act on a 'sample' of the posterior or on its 'mean'.
      xla: Whether XLA compiles the call.
      name: Binding of `preferences`, for errors.

    Raises:
      ConfigError: `preferences` does not map [B, K, A] to [B, A].
      ValueError: The posterior does not support `preferences` or `xla`.
    """

    @checked
    def __init__(
        self,
        posterior: Any,
        preferences: Callable,
        tie_break: TieBreak = 'random',
        belief: Belief = 'sample',
        xla: bool = False,
        name: str = 'preferences',
    ):
        self._posterior = posterior
        self._num_actions = posterior.network.num_actions
        self._preference_function = preferences
        self._parameters = set(inspect.signature(preferences).parameters)
        self._name = name
        self._check()
        if posterior.requires_head_preference and 'heads' not in self._parameters:
            raise ValueError(
                f'{_class_name(posterior)} requires a preference that follows a head, such as '
                f'@head_preferences, got {preferences.__name__}'
            )
        if xla and not posterior.supports_xla:
            raise ValueError(
                f"Runner.xla: 'acting' cannot be compiled with {_class_name(posterior)}"
            )
        self._followed_head_only = getattr(preferences, 'followed_head_only', False)
        self._tie_break = tie_break
        self._belief = belief
        self._xla = xla
        self._compiled = Compiled(self._preferences, xla=xla)

    def __str__(self) -> str:
        """The bindings, for errors."""
        preferences = f'{self._name} = @{self._preference_function.__name__}'
        return f'{preferences} with Runner.posterior = @{_class_name(self._posterior)}'

    def actions(
        self,
        observations: np.ndarray,
        heads: np.ndarray,
        epsilon: float,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Actions for B environments.

        Args:
          observations: Observations, [B, *stack].
          heads: Head that each environment follows, [B] int32.
          epsilon: Probability of an action drawn uniformly.
          rng: Random generator; the network is not run if all actions are random.

        Returns:
          [B] int32.

        Raises:
          NotFiniteError: A preference is NaN.
        """
        count = len(observations)
        explore = rng.random(count) < epsilon
        actions = rng.integers(self._num_actions, size=count, dtype=np.int32)
        if not explore.all():
            seed = rng.integers(2**31, size=2, dtype=np.int32)
            with errors_of(self, 'actions'):
                preferences = self._compiled(observations, heads, seed).numpy()
            if np.isnan(preferences).any():
                raise NotFiniteError(f'{self} gives NaN: {preferences.tolist()}')
            greedy = greedy_actions(preferences, rng, self._tie_break)
            actions = np.where(explore, actions, greedy)
        return actions

    def with_preferences(self, preferences: Callable) -> 'Policy':
        """This policy with another preference function."""
        return Policy(self._posterior, preferences, self._tie_break, self._belief, self._xla)

    def _check(self):
        """Traces the preference function, to reject a wrong one before anything runs."""
        options = {'seed': tf.constant([0, 0]), 'heads': tf.constant([0])}
        options = {key: value for key, value in options.items() if key in self._parameters}
        q_values = tf.TensorSpec([1, self._posterior.network.num_heads, self._num_actions])
        check_traced(
            self._name,
            lambda q_values: self._preference_function(q_values, **options),
            [q_values],
            (1, self._num_actions),
            'values [B, heads, actions] to preferences [B, actions]',
        )

    def _preferences(self, observations, heads, seed):
        belief_seed, preference_seed = split_draws(seed)
        options = {'seed': preference_seed} if 'seed' in self._parameters else {}
        if self._belief == 'mean':
            belief_seed = None
        if self._followed_head_only:
            q_values, heads = self._posterior.followed_head(observations, heads, belief_seed)
        elif belief_seed is None:
            q_values = self._posterior.mean(observations)
        else:
            q_values = self._posterior.sample(observations, belief_seed)
        if 'heads' in self._parameters:
            options['heads'] = heads
        return self._preference_function(q_values, **options)


def _class_name(posterior):
    return type(posterior).__name__
