"""Parts of the authors' released code that differ from the paper, for gin files to bind.

gin/ob2i_atari_released.gin imports this module and describes the remaining differences. Parameters
that a class inherits stay bound as those of its base class.
"""

from typing import Annotated

import gin
import tensorflow as tf

from ob2i_tf import bonuses, replay, types, updates
from ob2i_tf.moments import RunningStd
from ob2i_tf.parameters import AtLeast, checked


@gin.configurable
@checked
class ReleasedUcbBonus(bonuses.UcbBonus):
    """A UcbBonus that also divides B by its running standard deviation.

    The moments are updated once per minibatch, before its rows are divided. Terminals count in the
    moments of B~.

    Args:
      normalize_reward_bonus: Whether B is divided; with --ebu the released code always divides it,
        since a stray comma turns its flag into a tuple.
      prior_count: See RunningStd.
      normalizer_batch: Rows per update of the moments, from the end backwards.
      **keywords: See UcbBonus.
    """

    def __init__(
        self,
        *,
        normalize_reward_bonus: bool = True,
        prior_count: Annotated[float, AtLeast(0)] = 1e-4,
        normalizer_batch: Annotated[int, AtLeast(1)] = 32,
        **keywords,
    ):
        super().__init__(**keywords)
        self._normalize_reward_bonus = normalize_reward_bonus
        self._normalizer_batch = normalizer_batch
        self.reward_bonus_std = RunningStd(prior_count)
        self.next_bonus_std = RunningStd(prior_count)

    def normalize(
        self, experience: types.Experience, reward_bonus: tf.Tensor, next_bonus: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self._normalize_reward_bonus:
            reward_bonus = self._in_batches(self.reward_bonus_std, reward_bonus, reward_bonus)
        if self.normalize_next_bonus:
            seen = tf.gather(next_bonus, tf.cast(experience.next_actions, tf.int64), batch_dims=1)
            next_bonus = self._in_batches(self.next_bonus_std, next_bonus, seen)
        return reward_bonus, next_bonus

    def _in_batches(self, running_std, bonus, seen):
        """Per minibatch: updates the moments with `seen` [n, ...], normalises `bonus` [n, ...]."""

        def normalized(start, end):
            running_std.update(seen[start:end])
            return running_std.normalize(bonus[start:end])

        if bonus.shape[0] is not None:  # XLA needs static shapes.
            ends = range(bonus.shape[0], 0, -self._normalizer_batch)
            parts = [normalized(max(0, end - self._normalizer_batch), end) for end in ends]
            return tf.concat(parts[::-1], axis=0)

        def normalize_rows(end, later_rows):
            start = tf.maximum(0, end - self._normalizer_batch)
            return start, tf.concat([normalized(start, end), later_rows], axis=0)

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
class ReleasedEpisodeReplay(replay.EpisodeReplay):
    """Never draws the oldest and the newest episodes.

    Args:
      observation_shape: See EpisodeReplay.
      exclude_oldest_episodes, exclude_newest_episodes: Numbers of episodes.
      **keywords: See EpisodeReplay.

    Raises:
      ValueError: See EpisodeReplay; or `capacity_episodes` leaves no episode to draw.
    """

    def __init__(
        self,
        observation_shape,
        exclude_oldest_episodes: Annotated[int, AtLeast(0)] = 5,
        exclude_newest_episodes: Annotated[int, AtLeast(0)] = 3,
        **keywords,
    ):
        super().__init__(observation_shape, **keywords)
        self._oldest, self._newest = exclude_oldest_episodes, exclude_newest_episodes
        if self.capacity_episodes <= self._oldest + self._newest:
            raise ValueError(
                f'EpisodeReplay.capacity_episodes = {self.capacity_episodes} leaves no episode to '
                'draw besides ReleasedEpisodeReplay.exclude_oldest_episodes + '
                f'.exclude_newest_episodes = {self._oldest + self._newest}'
            )

    @property
    def candidates(self) -> range:
        return range(self._oldest, self.num_episodes - self._newest)


@gin.configurable
class ReleasedEpisodicUpdate(updates.EpisodicUpdate):
    """Fills up the last minibatch of an episode with the last transitions of another one.

    Both are drawn together, and targets are computed separately within each.

    Args:
      *arguments, **keywords: See EpisodicUpdate.

    Raises:
      ValueError: See EpisodicUpdate; or the batching is not 'chunks'.
    """

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        if self.batching != 'chunks':
            raise ValueError(
                "ReleasedEpisodicUpdate needs EpisodicUpdate.batching = 'chunks', got "
                f'{self.batching!r}'
            )

    def draw_episodes(self) -> list[types.Episode]:
        (episode,) = super().draw_episodes()
        num_missing = -len(episode.actions) % self.batch_size
        if not num_missing:
            return [episode]
        return [updates.tail(self.replay.sample_episode(), num_missing), episode]
