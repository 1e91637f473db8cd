"""Exploration bonuses for the targets: B for the reward and B~ for the next value.

An update (updates.py) draws transitions from replay, passes them to a Bonus as an Experience, and
adds alpha_1 B and alpha_2 B~ to the targets (targets.py). A bonus is never stored in replay: it is
recomputed with the current networks whenever targets are computed.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf import chunks, networks, types
from ob2i_tf.chunks import floating
from ob2i_tf.moments import RunningStd
from ob2i_tf.parameters import AtLeast, Within, checked
from ob2i_tf.seeds import split_seed
from ob2i_tf.tracing import check_traced

_FRAMES_PER_CHUNK = 256


@gin.configurable
def ensemble_std(q_values: Any) -> tf.Tensor:
    """The UCB-bonus of OB2I, the disagreement of the heads (paper, eq. 2).

    The gradient is finite where all heads agree: 0, not NaN.

    Args:
      q_values: [..., K, A], the values of K heads.

    Returns:
      [..., A], the population standard deviation over the heads.
    """
    q_values = floating(q_values)
    # Subtracting the first head makes equal heads exactly 0, however their mean would round.
    shifted = q_values - tf.stop_gradient(q_values[..., :1, :])
    deviations = shifted - tf.reduce_mean(shifted, axis=-2, keepdims=True)
    variance = tf.reduce_mean(tf.square(deviations), axis=-2)
    positive = variance > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, variance, 1)), 0)


class Bonus(tf.Module):
    """Interface of a bonus.

    `__call__` is compiled once, without AutoGraph: Python `if` and `for` over tensors do not work.
    Create variables in `build`; checkpoints keep them. A bonus is computed whenever targets are: it
    sees transitions as they are drawn from replay, possibly many times, not each visit once.

    Attributes:
      needs_whole_episodes: Whether the rows of an Experience must be complete episodes, in order.
    """

    needs_whole_episodes = False

    def __str__(self) -> str:
        """The binding, for errors."""
        return f'@{type(self).__name__}()'

    def build(
        self, frame_shape: tuple[int, ...], num_heads: int, num_actions: int, seed: int
    ) -> None:
        """Called once, before anything else.

        Args:
          frame_shape: Shape of a single frame.
          num_heads: K.
          num_actions: A.
          seed: Seed of the bonus.
        """

    def __call__(self, experience: types.Experience) -> tuple[tf.Tensor, tf.Tensor, tuple]:
        """The bonuses of n transitions.

        Returns:
          (B, B~, (mean of B, mean of B~)). B [n] belongs to the pairs (s, a), B~ [n, A] to the
          actions at s', both ready for the target, before their weights alpha. The means are
          scalars, taken before normalisation; the mean of B~ leaves out rows whose discount is 0,
          and is NaN if no row remains.
        """
        raise NotImplementedError


@gin.configurable
@checked
class UcbBonus(Bonus):
    """The bonuses B and B~ of a target, from the heads' values (paper, section 3.2).

    B is the bonus of the pairs (s, a) by the online network. B~ is the bonus of the actions at s'
    by the target network, divided by its running standard deviation "to have a stable performance"
    (appendix D).

    Args:
      statistic: Maps values [..., K, A] to bonuses [..., A].
      normalize_next_bonus: Whether B~ is divided by its running standard deviation (the paper).
    """

    def __init__(self, statistic: Callable = ensemble_std, normalize_next_bonus: bool = True):
        super().__init__(name='ucb_bonus')
        self._statistic = statistic
        self.normalize_next_bonus = normalize_next_bonus
        self.next_bonus_std = RunningStd()

    def __str__(self) -> str:
        statistic = getattr(self._statistic, '__name__', self._statistic)
        return f'{super().__str__()}, UcbBonus.statistic = @{statistic}'

    def build(
        self, frame_shape: tuple[int, ...], num_heads: int, num_actions: int, seed: int
    ) -> None:
        """See Bonus. Raises a ConfigError if `statistic` cannot be traced."""
        del frame_shape, seed
        if num_heads == 1:
            logging.warning('UcbBonus has no effect: the standard deviation of one head is 0.')
        check_traced(
            'UcbBonus.statistic',
            self._statistic,
            [tf.TensorSpec([None, num_heads, num_actions])],
            (None, num_actions),
            'values [..., heads, actions] to bonuses [..., actions]',
        )

    def __call__(self, experience: types.Experience) -> tuple[tf.Tensor, tf.Tensor, tuple]:
        q_values, next_q = experience.q_values(), experience.next_q
        reward_bonus = tf.gather(self._statistic(q_values), experience.actions, batch_dims=1)
        next_bonus = self._statistic(next_q)
        next_mean = chunks.mean_of_rows(next_bonus, experience.discounts > 0)
        means = tf.reduce_mean(reward_bonus), next_mean
        return *self.normalize(experience, reward_bonus, next_bonus), means

    def normalize(
        self, experience: types.Experience, reward_bonus: tf.Tensor, next_bonus: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """B [n] and B~ [n, A], as they enter the targets.

        The moments are taken over the paper's B~ in R^{K x T}, the bonus at each head's a'. Rows
        whose discount is 0 do not count, since no target reads their B~.
        """
        if not self.normalize_next_bonus:
            return reward_bonus, next_bonus
        seen = tf.gather(next_bonus, experience.next_actions, batch_dims=1)
        counted = tf.cast(experience.discounts > 0, seen.dtype)
        self.next_bonus_std.update(seen, tf.zeros_like(seen) + counted[:, None])
        return reward_bonus, self.next_bonus_std.normalize(next_bonus)


@gin.configurable
@checked
class RndBonus(Bonus):
    """Random network distillation, the error in predicting a random network (Burda et al. 2019).

    The bonus of a state is the predictor's mean squared error on its newest frame, divided by a
    running standard deviation. B is the bonus of s. B~ is the bonus of s', the same for every
    action; at a terminal, where s' is unspecified, it is the bonus of s. In the paper's words, "an
    independent RND network to generate RND-bonus for each state", "added to both the immediate
    reward and next-Q" (section 5.4, which leaves the rest open). Frames are whitened by the moments
    of all frames for which targets were computed, and clipped to +-5.

    After each computation the predictor learns from the frames that it was computed for.

    Args:
      conv_layers: (filters, kernel size, stride) of both networks, leaky ReLU.
      features: D, the number of outputs of both networks.
      predictor_layers: ReLU units of the dense layers that only the predictor has.
      learning_rate: Learning rate of the predictor's Adam.
      batch_size: Frames per step of the predictor.
      update_proportion: Share of the frames, drawn anew, that the predictor learns from.
      scale_by: 'returns', the standard deviation of the discounted sums of bonuses from an
        episode's start (Burda et al.), or 'bonuses', that of the bonuses themselves.
      discount: Discount of these sums.
      reward_state: State whose bonus is B, 'state' or 'next_state'.
    """

    def __init__(
        self,
        conv_layers: networks.ConvLayers = ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        features: Annotated[int, Within(1, 2**16)] = 512,
        predictor_layers: Sequence[Annotated[int, AtLeast(1)]] = (512, 512),
        learning_rate: Annotated[float, AtLeast(0)] = 1e-4,
        batch_size: Annotated[int, Within(1, 2**16)] = 32,
        update_proportion: Annotated[float, Within(0, 1)] = 1.0,
        scale_by: Literal['returns', 'bonuses'] = 'returns',
        discount: Annotated[float, Within(0, 1)] = 0.99,  # Above 1 the sums overflow late in a run.
        reward_state: Literal['state', 'next_state'] = 'state',
    ):
        super().__init__(name='rnd_bonus')
        self.needs_whole_episodes = scale_by == 'returns'
        self._conv_layers = conv_layers
        self._features = features
        self._predictor_layers = predictor_layers
        self.optimizer = tf.keras.optimizers.legacy.Adam(learning_rate)
        self._batch_size = batch_size
        self._update_proportion = update_proportion
        self._discount = discount
        self._reward_state = reward_state
        self.bonus_std = RunningStd()

    def build(
        self, frame_shape: tuple[int, ...], num_heads: int, num_actions: int, seed: int
    ) -> None:
        del num_heads, num_actions
        self.frame_moments = RunningStd(shape=frame_shape)
        *seeds, generator_seed = split_seed(seed, 3)
        self._generator = tf.random.Generator.from_seed(generator_seed)
        self.target, self.predictor = (
            _rnd_network(frame_shape, self._conv_layers, (*dense, self._features), seed)
            for dense, seed in zip(((), self._predictor_layers), seeds)
        )
        self.target.trainable = False
        self.optimizer._create_all_weights(self.predictor.trainable_variables)  # For checkpoints.

    def __call__(self, experience: types.Experience) -> tuple[tf.Tensor, tf.Tensor, tuple]:
        frames = experience.frames
        chunks.for_each_chunk(
            lambda start, end: self.frame_moments.update(frames[start:end]),
            chunks.num_rows(frames),
            _FRAMES_PER_CHUNK,
        )
        errors = self.errors(frames)
        state, next_state = (
            tf.gather(errors, experience.obs_rows),
            tf.gather(errors, experience.next_obs_rows),
        )
        reward_bonus = state if self._reward_state == 'state' else next_state
        next_mean = chunks.mean_of_rows(next_state[:, None], experience.discounts > 0)
        means = tf.reduce_mean(reward_bonus), next_mean
        discounted_sums = reward_bonus
        if self.needs_whole_episodes:
            same_episode = experience.obs_rows[1:] == experience.next_obs_rows[:-1]
            same_episode = tf.concat([[False], same_episode], axis=0)
            decays = self._discount * tf.cast(same_episode, tf.float32)
            discounted_sums = tf.scan(
                lambda total, row: row[0] * total + row[1], (decays, reward_bonus), initializer=0.0
            )
        self.bonus_std.update(discounted_sums)
        next_bonus = tf.zeros_like(experience.next_q[:, 0]) + next_state[:, None]
        with tf.control_dependencies([errors]):
            chunks.for_each_chunk(
                lambda start, end: self.learn(frames[start:end]),
                chunks.num_rows(frames),
                self._batch_size,
            )
        return self.bonus_std.normalize(reward_bonus), self.bonus_std.normalize(next_bonus), means

    def errors(self, frames: tf.Tensor) -> tf.Tensor:
        """The predictor's mean squared error: [n, *frame] -> [n]."""
        return chunks.map_chunks(
            lambda start, end: self._errors(frames[start:end]),
            chunks.num_rows(frames),
            _FRAMES_PER_CHUNK,
            tf.TensorSpec([None], tf.float32),
        )

    def learn(self, frames: tf.Tensor) -> None:
        """One step of the predictor on a share of the frames [n, *frame]."""
        variables = self.predictor.trainable_variables
        chosen = self._generator.uniform(tf.shape(frames)[:1]) < self._update_proportion
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            errors = tf.where(chosen, self._errors(frames), 0)
            count = tf.reduce_sum(tf.cast(chosen, tf.float32))
            loss = tf.reduce_sum(errors) / tf.maximum(count, 1)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def _errors(self, frames):
        frames = tf.cast(frames, tf.float32) - tf.cast(self.frame_moments.mean, tf.float32)
        frames = tf.clip_by_value(self.frame_moments.normalize(frames), -5.0, 5.0)
        return tf.reduce_mean(
            tf.math.squared_difference(self.predictor(frames), self.target(frames)), axis=-1
        )


def _rnd_network(frame_shape, conv_layers, dense_layers, seed):
    """Convolutions with leaky ReLU, then dense ReLU layers and a linear last one."""
    seeds = iter(split_seed(seed, len(conv_layers) + len(dense_layers)))

    def options(activation):
        initializer = tf.keras.initializers.Orthogonal(np.sqrt(2), next(seeds))
        return {'activation': activation, 'kernel_initializer': initializer}

    layers = [tf.keras.layers.Input(frame_shape)]
    if conv_layers and len(frame_shape) not in (2, 3):
        raise ValueError(
            f'RndBonus.conv_layers need images, got frames of shape {tuple(frame_shape)}; bind () '
            'for dense layers only'
        )
    if conv_layers and len(frame_shape) == 2:
        layers.append(tf.keras.layers.Reshape((*frame_shape, 1)))
    for filters, kernel_size, stride in conv_layers:
        layers.append(
            tf.keras.layers.Conv2D(filters, kernel_size, stride, **options(tf.nn.leaky_relu))
        )
    layers.append(tf.keras.layers.Flatten())
    for index, units in enumerate(dense_layers):
        last = index == len(dense_layers) - 1
        layers.append(tf.keras.layers.Dense(units, **options(None if last else 'relu')))
    try:
        return tf.keras.Sequential(layers)
    except ValueError as error:
        raise networks.shape_error(
            'RndBonus', frame_shape, error, 'RndBonus.conv_layers'
        ) from error
