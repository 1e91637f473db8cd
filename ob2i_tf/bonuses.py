"""Exploration bonuses: what an agent is paid for visiting the unknown."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import gin
import numpy as np
import tensorflow as tf

from ob2i_tf import chunks, networks, types
from ob2i_tf.chunks import floating
from ob2i_tf.moments import RunningStd
from ob2i_tf.parameters import AtLeast, Within, checked
from ob2i_tf.seeds import split_seed
from ob2i_tf.tracing import check_traced

_FRAMES_PER_PASS = 256


@gin.configurable
def ensemble_std(q_values):
    """The UCB-bonus of OB2I: how much the heads disagree (paper, eq. 2).

    The gradient is finite where all heads agree: 0, not NaN.

    Args:
      q_values: [..., K, A], the values of K heads.

    Returns:
      [..., A], the population standard deviation over the heads.
    """
    q_values = floating(q_values)
    # Equal heads shifted by one of them are exactly 0, whatever their mean would round to.
    shifted = q_values - tf.stop_gradient(q_values[..., :1, :])
    deviations = shifted - tf.reduce_mean(shifted, axis=-2, keepdims=True)
    variance = tf.reduce_mean(tf.square(deviations), axis=-2)
    positive = variance > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, variance, 1)), 0)


class Bonus(tf.Module):
    """What a bonus is to an update. It is traced without AutoGraph.

    Attributes:
      needs_order: whether the rows of an Experience have to be whole episodes, each in order.
    """

    needs_order = False

    def build(self, frame_shape, seed):
        """Called once, before anything else: the shape of a frame, and an int."""

    def __call__(self, experience: types.Experience):
        """The bonuses of n transitions.

        Returns:
          (B, B~, (mean of B, mean of B~)): B [n], of the pairs (s, a); B~ [n, A], of the actions at
          s', ready for the target; their means before normalisation, scalars. Rows whose discount
          is 0 do not count in the mean of B~, which is NaN if there are no others.
        """
        raise NotImplementedError


@gin.configurable
@checked
class UcbBonus(Bonus):
    """The bonuses B and B~ of a target, from the heads' values (paper, section 3.2).

    B is the bonus of the pairs (s, a) by the online network, B~ of the actions at s' by the target
    network, divided by its running standard deviation "to have a stable performance" (appendix D).
    Rows whose discount is 0, the terminals, do not count in it: no target reads their B~.

    Args:
      statistic: Maps values [..., K, A] to bonuses [..., A].
      normalize_reward_bonus: Whether B is divided by its running standard deviation, too (the
        released code).
      normalize_next_bonus: Whether B~ is divided by its running standard deviation (the paper).
      prior_count: See `RunningStd`; the released code has 1e-4.
      normalizer_batch: Rows by which the moments are updated before these rows are divided, from
        the end; 0: all of them at once (the released code: 32).
      terminal_next_bonus: Whether terminals count in the moments of B~ (the released code).
    """

    def __init__(
        self,
        statistic: Callable = ensemble_std,
        normalize_reward_bonus: bool = False,
        normalize_next_bonus: bool = True,
        prior_count: Annotated[float, AtLeast(0)] = 0.0,
        normalizer_batch: Annotated[int, AtLeast(0)] = 0,
        terminal_next_bonus: bool = False,
    ):
        super().__init__(name='ucb_bonus')
        check_traced(
            'UcbBonus.statistic',
            statistic,
            [tf.TensorSpec([1, 2, 3])],
            (1, 3),
            'values [..., heads, actions] to bonuses [..., actions]',
        )
        self._statistic = statistic
        self._normalize_reward_bonus = normalize_reward_bonus
        self._normalize_next_bonus = normalize_next_bonus
        self._rows_at_a_time = normalizer_batch
        self._terminal_next_bonus = terminal_next_bonus
        self.reward_bonus_std = RunningStd(prior_count)
        self.next_bonus_std = RunningStd(prior_count)

    def __call__(self, experience):
        """See Bonus."""
        q_values, next_q = experience.q_values(), experience.next_q
        reward_bonus = tf.gather(self._statistic(q_values), experience.actions, batch_dims=1)
        next_bonus = self._statistic(next_q)
        counted = experience.discounts > 0
        means = tf.reduce_mean(reward_bonus), chunks.mean_of_rows(next_bonus, counted)
        if self._terminal_next_bonus:
            counted = tf.ones_like(counted)
        if self._normalize_reward_bonus:
            reward_bonus = self._normalize(
                self.reward_bonus_std, reward_bonus, reward_bonus, tf.ones_like(reward_bonus)
            )
        if self._normalize_next_bonus:
            # The moments are those of the paper's B~ in R^{K x T}: the bonus at each head's a'.
            # (With double Q a' would be another; no row of the paper has both.)
            greedy = tf.argmax(next_q, axis=-1, output_type=tf.int32)
            seen = tf.gather(next_bonus, greedy, batch_dims=1)
            weights = tf.zeros_like(seen) + tf.cast(counted, seen.dtype)[:, None]
            next_bonus = self._normalize(self.next_bonus_std, next_bonus, seen, weights)
        return reward_bonus, next_bonus, means

    def _normalize(self, running_std, bonus, seen, weights):
        """Takes `seen` [n, ...] into the moments and divides `bonus` [n, ...] by what results."""
        if not self._rows_at_a_time:
            running_std.update(seen, weights)
            return running_std.normalize(bonus)

        def normalized(start, end):
            running_std.update(seen[start:end], weights[start:end])
            return running_std.normalize(bonus[start:end])

        if bonus.shape[0] is not None:  # As XLA wants it.
            ends = range(bonus.shape[0], 0, -self._rows_at_a_time)
            parts = [normalized(max(0, end - self._rows_at_a_time), end) for end in ends]
            return tf.concat(parts[::-1], axis=0)

        def normalize_rows(end, later):
            start = tf.maximum(0, end - self._rows_at_a_time)
            return start, tf.concat([normalized(start, end), later], axis=0)

        shape = tf.TensorShape([None, *bonus.shape[1:]])
        return tf.while_loop(
            lambda end, _: end > 0,
            normalize_rows,
            (tf.shape(bonus)[0], bonus[:0]),
            shape_invariants=(tf.TensorShape([]), shape),
            parallel_iterations=1,
        )[1]


@gin.configurable
@checked
class RndBonus(Bonus):
    """Random network distillation: how badly a random network is predicted (Burda et al. 2019).

    The bonus of a state is the predictor's mean squared error on its newest frame, divided by a
    running standard deviation. B is that of s, B~ that of s' whatever the action (of s where s' is
    what a terminal leads to): "an independent
    RND network to generate RND-bonus for each state", "added to both the immediate reward and
    next-Q" (paper, section 5.4, which leaves the rest open). Frames are whitened by the moments of
    all frames that targets were computed for, and clipped to +-5.

    The predictor learns from the frames that a bonus was computed for, right after.

    Args:
      conv_layers: (filters, kernel size, stride) of both networks, leaky ReLU.
      features: D, outputs of both networks.
      predictor_layers: ReLU units of the dense layers that the predictor has in addition.
      learning_rate: of the predictor's Adam.
      batch_size: frames of one step of the predictor.
      update_proportion: share of the frames, drawn anew, that the predictor learns from.
      scale_by: 'returns', the standard deviation of the discounted sums of bonuses from an
        episode's start (Burda et al.), or 'bonuses', that of the bonuses themselves.
      discount: of those sums.
      reward_state: whose bonus B is, that of the 'state' or of the 'next_state'.
    """

    def __init__(
        self,
        conv_layers: networks.ConvLayers = ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        features: Annotated[int, AtLeast(1)] = 512,
        predictor_layers: Sequence[Annotated[int, AtLeast(1)]] = (512, 512),
        learning_rate: Annotated[float, AtLeast(0)] = 1e-4,
        batch_size: Annotated[int, AtLeast(1)] = 32,
        update_proportion: Annotated[float, Within(0, 1)] = 1.0,
        scale_by: Literal['returns', 'bonuses'] = 'returns',
        discount: Annotated[float, Within(0, 1)] = 0.99,  # Above 1 the sums overflow late in a run.
        reward_state: Literal['state', 'next_state'] = 'state',
    ):
        super().__init__(name='rnd_bonus')
        self.needs_order = scale_by == 'returns'
        self._conv_layers = conv_layers
        self._features = features
        self._predictor_layers = predictor_layers
        self._optimizer = tf.keras.optimizers.legacy.Adam(learning_rate)
        self._batch_size = batch_size
        self._update_proportion = update_proportion
        self._discount = discount
        self._reward_state = reward_state
        self.bonus_std = RunningStd()

    def build(self, frame_shape, seed):
        """See Bonus."""
        self.frame_moments = RunningStd(shape=frame_shape)
        *seeds, generator_seed = split_seed(seed, 3)
        self._generator = tf.random.Generator.from_seed(generator_seed)
        self.target, self.predictor = (
            _rnd_network(frame_shape, self._conv_layers, (*dense, self._features), seed)
            for dense, seed in zip(((), self._predictor_layers), seeds)
        )
        self.target.trainable = False
        self._optimizer._create_all_weights(self.predictor.trainable_variables)  # For checkpoints.

    def __call__(self, experience):
        """See Bonus."""
        frames = experience.frames
        chunks.for_slices(
            lambda start, end: self.frame_moments.update(frames[start:end]),
            tf.shape(frames)[0],
            _FRAMES_PER_PASS,
        )
        errors = self.errors(frames)
        state, next_state = tf.gather(errors, experience.here), tf.gather(errors, experience.next)
        reward_bonus = state if self._reward_state == 'state' else next_state
        next_mean = chunks.mean_of_rows(next_state[:, None], experience.discounts > 0)
        means = tf.reduce_mean(reward_bonus), next_mean
        sums = reward_bonus
        if self.needs_order:
            goes_on = tf.concat([[False], experience.here[1:] == experience.next[:-1]], axis=0)
            kept = self._discount * tf.cast(goes_on, tf.float32)
            sums = tf.scan(
                lambda sum_, row: row[0] * sum_ + row[1], (kept, reward_bonus), initializer=0.0
            )
        self.bonus_std.update(sums)
        next_bonus = tf.zeros_like(experience.next_q[:, 0]) + next_state[:, None]
        with tf.control_dependencies([errors]):
            chunks.for_slices(
                lambda start, end: self._learn(frames[start:end]),
                tf.shape(frames)[0],
                self._batch_size,
            )
        return self.bonus_std.normalize(reward_bonus), self.bonus_std.normalize(next_bonus), means

    def errors(self, frames):
        """[n, *frame] -> [n]: how far the predictor is from the random network."""
        return chunks.in_passes(
            lambda start, end: self._errors(frames[start:end]),
            tf.shape(frames)[0],
            _FRAMES_PER_PASS,
            tf.TensorSpec([None], tf.float32),
        )

    def _learn(self, frames):
        variables = self.predictor.trainable_variables
        chosen = self._generator.uniform(tf.shape(frames)[:1]) < self._update_proportion
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            errors = tf.where(chosen, self._errors(frames), 0)
            count = tf.reduce_sum(tf.cast(chosen, tf.float32))
            loss = tf.reduce_sum(errors) / tf.maximum(count, 1)
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def _errors(self, frames):
        frames = tf.cast(frames, tf.float32) - tf.cast(self.frame_moments.mean, tf.float32)
        frames = tf.clip_by_value(self.frame_moments.normalize(frames), -5.0, 5.0)
        return tf.reduce_mean(
            tf.math.squared_difference(self.predictor(frames), self.target(frames)), axis=-1
        )


def _rnd_network(frame_shape, conv_layers, dense_layers, seed):
    """Convolutions with leaky ReLU, then dense layers with ReLU but for the last, linear one."""
    seeds = iter(split_seed(seed, len(conv_layers) + len(dense_layers)))

    def options(activation):
        initializer = tf.keras.initializers.Orthogonal(np.sqrt(2), next(seeds))
        return {'activation': activation, 'kernel_initializer': initializer}

    layers = [tf.keras.layers.Input(frame_shape)]
    if conv_layers and len(frame_shape) not in (2, 3):
        raise ValueError(
            f'RndBonus.conv_layers are for images, not for frames of shape {tuple(frame_shape)}: '
            'bind () to have dense layers only'
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
        raise networks.does_not_fit(
            'RndBonus', frame_shape, error, 'RndBonus.conv_layers'
        ) from error
