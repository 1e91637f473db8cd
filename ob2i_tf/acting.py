"""From the heads' Q-values to a preference for each action; the agent takes the largest.

A preference function maps q_values [B, K, A] to [B, A]. One that follows the head drawn for the
episode takes a further argument, `heads` [B]; if it looks at q_values[b, heads[b]] only, it says so
as `of_one_head`, and with a single environment no other head is computed. One that draws random
numbers takes `seed`, [2] int32, for TensorFlow's stateless functions. They are traced without
AutoGraph. B is the number of environments, K of heads, A of actions.
"""

import inspect
import typing
from typing import Annotated, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import bonuses
from ob2i_tf.chunks import floating
from ob2i_tf.errors import ConfigError, NotFiniteError
from ob2i_tf.parameters import Above, checked
from ob2i_tf.seeds import split_draws
from ob2i_tf.tracing import Compiled, check_traced

TieBreak = Literal['random', 'lowest']
Belief = Literal['sample', 'mean']
TIE_BREAKS = typing.get_args(TieBreak)
BELIEFS = typing.get_args(Belief)


def of_one_head(preferences):
    """Marks a preference that looks at the head that is followed, and at no other."""
    preferences.of_one_head = True
    return preferences


@gin.configurable
@of_one_head
def head_preferences(q_values, heads):
    """One head an episode: Thompson sampling of value functions (paper, Algorithm 2, line 4).

    Args:
      q_values: [B, K, A].
      heads: [B] int, the head that each environment follows.

    Returns:
      [B, A].
    """
    return tf.gather(tf.convert_to_tensor(q_values), heads, axis=1, batch_dims=1)


@gin.configurable
def mean_preferences(q_values):
    """The mean of the heads, [B, K, A] -> [B, A]; with one head, plain greedy Q-learning."""
    return tf.reduce_mean(floating(q_values), axis=1)


@gin.configurable
def ucb_preferences(q_values, scale: float = 0.1):
    """Mean plus `scale` standard deviations (Chen et al. 2017; paper, Algorithm 3, BEBU-UCB)."""
    return mean_preferences(q_values) + scale * bonuses.ensemble_std(q_values)


@gin.configurable
def ids_preferences(
    q_values,
    scale: float = 0.1,
    rho: Annotated[float, Above(0)] = 1.0,
    epsilon: Annotated[float, Above(0)] = 1e-5,
):
    """Minus the regret-information ratio (Nikolov et al. 2019; paper, Algorithm 3, BEBU-IDS).

        regret(a) = max_a' (mean + scale std)(a') - (mean - scale std)(a)
        information(a) = log(1 + std(a)^2 / rho^2) + epsilon

    Args:
      q_values: [B, K, A].
      scale: half-width of the confidence interval in standard deviations, lambda_ids.
      rho: standard deviation of the return, a constant here.
      epsilon: keeps the ratio finite where the heads agree.

    Returns:
      [B, A], -regret^2 / information.

    Raises:
      ConfigError: if `rho` or `epsilon` is not above 0; every action would then be as good as any
        other, or the ratio without a value.
    """
    if any(not tf.is_symbolic_tensor(value) and value <= 0 for value in (rho, epsilon)):
        raise ConfigError(
            f'ids_preferences.rho and .epsilon must be above 0, got {rho} and {epsilon}'
        )
    mean = mean_preferences(q_values)
    std = bonuses.ensemble_std(q_values)
    regret = tf.reduce_max(mean + scale * std, axis=-1, keepdims=True) - (mean - scale * std)
    information = tf.math.log1p(tf.square(std / rho)) + epsilon
    return -tf.square(regret) / information


@gin.configurable
def vote_preferences(q_values):
    """How many heads have each action as their greedy one, [B, K, A] -> [B, A] float.

    Evaluation acts by it (paper, section 5.2). Tied votes are drawn by `greedy_actions`.
    """
    q_values = tf.convert_to_tensor(q_values)
    return tf.reduce_sum(tf.one_hot(tf.argmax(q_values, axis=-1), tf.shape(q_values)[-1]), axis=1)


def greedy_actions(preferences, rng, tie_break: TieBreak = 'random'):
    """The action with the largest preference.

    Args:
      preferences: [B, A] numpy.
      rng: numpy Generator; used only where there is a tie.
      tie_break: 'random' draws uniformly among the tied actions; 'lowest' takes the lowest index,
        which on Atari is NOOP (the released code).

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
      posterior: posteriors.Posterior.
      preferences: a preference function.
      tie_break: see `greedy_actions`.
      belief: what of the posterior is acted on, its 'sample' or its 'mean'.
      xla: whether XLA compiles the call.
      name: the binding that `preferences` comes from, for errors.

    Raises:
      ConfigError: if `preferences` does not map [B, K, A] to [B, A].
    """

    @checked
    def __init__(
        self,
        posterior,
        preferences,
        tie_break: TieBreak = 'random',
        belief: Belief = 'sample',
        xla=False,
        name='preferences',
    ):
        self._posterior = posterior
        self._num_actions = posterior.network.num_actions
        self._function = preferences
        self._takes = set(inspect.signature(preferences).parameters)
        self._check(name)
        if posterior.needs_heads and 'heads' not in self._takes:
            raise ValueError(
                f'{_name(posterior)} has to be acted on by a preference that follows a '
                f'head, as @head_preferences does, not by {preferences.__name__}'
            )
        if xla and not posterior.compiles:
            raise ValueError(f"Runner.xla: 'acting' cannot be compiled with a {_name(posterior)}")
        self._of_one_head = getattr(preferences, 'of_one_head', False)
        self._tie_break = tie_break
        self._belief = belief
        self._xla = xla
        self._compiled = Compiled(self._preferences, xla=xla)

    def actions(self, observations, heads, epsilon, rng):
        """Actions for B environments.

        Args:
          observations: [B, *stack].
          heads: [B] int32, the head that each environment follows.
          epsilon: probability of an action drawn uniformly.
          rng: numpy Generator; the network is not run where all actions are random.

        Returns:
          [B] int32.

        Raises:
          NotFiniteError: if a preference is NaN.
        """
        count = len(observations)
        explore = rng.random(count) < epsilon
        actions = rng.integers(self._num_actions, size=count, dtype=np.int32)
        if not explore.all():
            seed = rng.integers(2**31, size=2, dtype=np.int32)
            preferences = self._compiled(observations, heads, seed).numpy()
            if np.isnan(preferences).any():
                raise NotFiniteError(f'preferences of actions are NaN: {preferences.tolist()}')
            greedy = greedy_actions(preferences, rng, self._tie_break)
            actions = np.where(explore, actions, greedy)
        return actions

    def by(self, preferences):
        """A policy that acts by other preferences, and is the same otherwise."""
        return Policy(self._posterior, preferences, self._tie_break, self._belief, self._xla)

    def compiled_functions(self):
        return [self._compiled.function]

    def _check(self, name):
        """Traces the preference function, so that a wrong one is refused before anything runs."""
        options = {'seed': [0, 0], 'heads': [0]}
        options = {key: tf.constant(options[key]) for key in options.keys() & self._takes}
        q_values = tf.TensorSpec([1, self._posterior.network.num_heads, self._num_actions])
        check_traced(
            name,
            lambda q_values: self._function(q_values, **options),
            [q_values],
            (1, self._num_actions),
            'values [B, heads, actions] to preferences [B, actions]',
        )

    def _preferences(self, observations, heads, seed):
        belief_seed, own_seed = split_draws(seed)
        options = {'seed': own_seed} if 'seed' in self._takes else {}
        if self._belief == 'mean':
            belief_seed = None
        if self._of_one_head:
            q_values, heads = self._posterior.following(observations, heads, belief_seed)
        elif belief_seed is None:
            q_values = self._posterior.mean(observations)
        else:
            q_values = self._posterior.sample(observations, belief_seed)
        if 'heads' in self._takes:
            options['heads'] = heads
        return self._function(q_values, **options)


def _name(posterior):
    return type(posterior).__name__
