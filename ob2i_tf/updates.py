"""From replay to regression batches: whole episodes backwards, or single transitions.

The path of a transition: `next_batch` draws it from replay, as part of an episode (replay.py). A
pass of the target network gives its Q~, and with a pass of the online network its bonuses B and B~
(bonuses.py). From these follow its targets, one per head (targets.py). Together with the stack of
its observation and its bootstrap mask they form a row of a Batch for the learner (learner.py). With
the batching 'chunks', an EpisodicUpdate computes the targets of a drawn episode once, for several
batches.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf import bonuses, chunks, frames, targets, types
from ob2i_tf.errors import ConfigError
from ob2i_tf.parameters import Above, AtLeast, AtMost, Within, checked
from ob2i_tf.tracing import Compiled, check_traced

_Beta = Annotated[float, Within(0, 1)]
_Probability = Annotated[float, Above(0), AtMost(1)]
_Count = Annotated[int, AtLeast(1), AtMost(2**31 - 1)]  # TensorFlow's int32.
_BatchSize = Annotated[int, Within(1, 2**16)]  # Rows are drawn in a loop that no signal ends.
# Batches, and the states of an episode, are padded to multiples: XLA compiles, and a GPU chooses an
# algorithm of a convolution, anew for each shape.
_ROW_MULTIPLE = 8
_STATE_MULTIPLE = 64
_MEANS = ('bonus_mean', 'next_bonus_mean')  # Reported with targets; with a bonus also:
_BONUS_MEANS = (
    'reward_bonus_mean',
    'next_bonus_normalized_mean',
    'q_gap_mean',
    'next_action_changes',
)


class _Pending(NamedTuple):
    """Transitions with their targets; rows [0, end) are still to be learned from."""

    frames: np.ndarray  # Episodes in succession, each [history + T, *frame] with its context.
    stack_starts: np.ndarray  # [n], the first frame of each row's stack.
    actions: np.ndarray  # [n]
    targets: np.ndarray  # [n, K]
    ids: np.ndarray  # [n]
    end: int


class Update:
    """Interface of updates: turns replay into batches, one per learner step.

    Attributes:
      bonus: A `bonuses.Bonus`; None: no bonus.

    Args:
      replay: EpisodeReplay.
      network: Online network.
      target_network: Target network.
      double_q_values: (observations, seed) -> [B, K, A], the values by which double Q-learning
        chooses a'; None: the online network.
      seed: Seed of all random choices.
      xla: Whether XLA compiles the computation of targets.
    """

    bonus: bonuses.Bonus | None = None

    def __init__(
        self,
        replay: Any,
        network: Any,
        target_network: Any,
        double_q_values: Callable | None = None,
        seed: int = 0,
        xla: bool = False,
    ):
        self.replay = replay
        self.network = network
        self.target_network = target_network
        self.double_q_values = network if double_q_values is None else double_q_values
        self.seed = seed
        self.xla = xla

    def __str__(self) -> str:
        """The bindings, for errors."""
        name = type(self).__name__
        bonus = '' if self.bonus is None else f' with {name}.bonus = {self.bonus}'
        return f'Runner.update = @{name}{bonus}'

    @property
    def ready(self) -> bool:
        """Whether `next_batch` can make a batch."""
        return self.replay.can_sample

    def next_batch(self) -> tuple[types.Batch, dict[str, float]]:
        """The batch of the next learner step, and a report.

        Returns:
          A Batch; and {name: number} to log on the rows whose targets were computed in this call,
          empty if there are none: 'bonus_mean' and 'next_bonus_mean', unweighted and before
          normalisation, and with a bonus the means of `bonus_effects`. If all these rows are
          terminals, the means over s' are left out.
        """
        raise NotImplementedError

    @property
    def trackables(self) -> dict[str, Any]:
        """{name: object with variables} that a checkpoint keeps."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """{name: array} that a checkpoint keeps."""
        return {}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores the result of `state`."""
        del arrays


class EnsembleUpdate(Update):
    """Base class of updates for an ensemble of heads: bonus, choice of a', bootstrap masks.

    Args:
      replay, network, target_network, double_q_values, seed, xla: See Update.
      batch_size: Transitions per learner step ("mini-batch size", paper, table 4).
      alpha_1: Weight of the bonus B of the reward, from the online network.
      alpha_2: Weight of the bonus B~ of the next value, from the target network, like Q~.
      bonus: A `bonuses.Bonus`; None: no bonus, and no pass of the online network.
      mask_probability: Probability that a head learns from a transition, see `bootstrap_masks`.
      next_actions: Chooses a', maps Q-values [n, K, A] to actions [n, K].

    Attributes:
      compiled_batch: The method `batch`, compiled; set by subclasses.

    Raises:
      ValueError: An argument is out of range; the message names the binding.
      ConfigError: The bonus or the choice of a' cannot be traced.
    """

    compiled_batch: Compiled

    def __init__(
        self,
        replay,
        network,
        target_network,
        double_q_values,
        seed,
        *,
        xla,
        batch_size,
        alpha_1,
        alpha_2,
        bonus,
        mask_probability,
        next_actions,
    ):
        super().__init__(replay, network, target_network, double_q_values, seed, xla)
        heads, num_actions = self.network.num_heads, self.network.num_actions
        check_traced(
            f'{type(self).__name__}.next_actions',
            next_actions,
            (tf.TensorSpec([None, heads, num_actions]),),
            (None, heads),
            'Q-values [n, K, A] to actions [n, K]',
        )
        _check_actions(f'{type(self).__name__}.next_actions', next_actions, heads, num_actions)
        self.batch_size = batch_size
        self.alpha_1, self.alpha_2 = alpha_1, alpha_2
        self.bonus = bonus
        self.mask_probability = mask_probability
        self.next_actions = next_actions
        self._generator = tf.random.Generator.from_seed(self.seed)
        self._build_bonus()

    def next_batch(self) -> tuple[types.Batch, dict[str, float]]:
        """See Update; draws, then computes the batch in one compiled call."""
        arrays, ids = self.draw()
        columns, means = self.compiled_batch(*arrays)
        batch = types.Batch(*(column.numpy() for column in columns))
        padding = np.zeros(len(batch.actions) - len(ids), ids.dtype)
        return batch._replace(ids=np.concatenate([ids, padding])), named_means(means.numpy())

    @property
    def draws_each_batch(self) -> bool:
        """Whether each batch is `batch` of what `draw` returns."""
        return True

    def draw(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Draws transitions from replay.

        Returns:
          The arguments of `batch`, and the ids [n] of the transitions, int64.
        """
        raise NotImplementedError

    def batch(self, *arrays: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """The batch of the transitions drawn, to be traced.

        Returns:
          The columns of a Batch except the ids, whose first n rows are the transitions and whose
          others are padding; and the numbers to report, see `named_means`.
        """
        raise NotImplementedError

    @property
    def trackables(self) -> dict[str, Any]:
        parts = {'update_generator': self._generator}
        return parts if self.bonus is None else {**parts, 'bonus': self.bonus}

    def _build_bonus(self):
        """Builds the bonus and traces it; warns of bindings that have no effect."""
        bonus = self.bonus
        if bonus is None:
            if self.alpha_1 or self.alpha_2:
                logging.warning('alpha_1 and alpha_2 have no effect: there is no bonus.')
            return
        if not self.alpha_1 and not self.alpha_2:
            logging.warning('The bonus has no effect: alpha_1 and alpha_2 are 0.')
        frame_shape, frame_dtype = self.replay.observation_shape, self.replay.observation_dtype
        heads, num_actions = self.network.num_heads, self.network.num_actions
        bonus.build(frame_shape, heads, num_actions, self.seed)
        rows, q_values = tf.TensorSpec([None], tf.int32), (None, heads, num_actions)
        check_traced(
            f'{type(self).__name__}.bonus',
            lambda *parts: bonus(types.Experience._make((*parts[:-1], lambda: parts[-1]))),
            (
                tf.TensorSpec((None, *frame_shape), frame_dtype),
                rows,
                rows,
                rows,
                tf.TensorSpec([None]),
                tf.TensorSpec(q_values),
                tf.TensorSpec([None, heads], tf.int32),
                tf.TensorSpec(q_values),
            ),
            ((None,), (None, num_actions), ((), ())),
            'an Experience to B [n], B~ [n, actions] and the pair of their means',
        )

    def _choose_next_actions(self, q_values):
        return tf.cast(self.next_actions(q_values), tf.int32)

    def _bonuses(self, experience, selector_q):
        """B, B~ and the numbers to report, in the order of _MEANS and _BONUS_MEANS.

        Args:
          experience: types.Experience.
          selector_q: [n, K, A], the Q-values that a' was chosen by.
        """
        next_q = experience.next_q
        if self.bonus is None:
            return (
                tf.zeros_like(next_q[:, 0, 0]),
                tf.zeros_like(next_q[:, 0]),
                tf.zeros(len(_MEANS)),
            )
        *both, means = self.bonus(experience)
        reward_bonus, next_bonus = (tf.cast(x, tf.float32) for x in both)
        optimistic_actions = self._choose_next_actions(
            selector_q + self.alpha_2 * next_bonus[:, None]
        )
        effects = bonus_effects(experience, reward_bonus, next_bonus, optimistic_actions)
        report = tf.stack([tf.cast(x, tf.float32) for x in (*means, *effects)])
        return reward_bonus, next_bonus, report

    def _masks(self, ids):
        return bootstrap_masks(ids, self.network.num_heads, self.mask_probability, self.seed)


@gin.configurable(denylist=['double_q_values', 'seed', 'xla'])
@checked
class EpisodicUpdate(EnsembleUpdate):
    """Backward induction over whole episodes (paper, Algorithm 2), consumed from their end.

    With the batching 'chunks', the targets of a sampled episode are computed once; then each batch
    takes the next `batch_size` transitions, from the episode's end towards its start, until they
    are used up and another episode is drawn. The other batchings compute targets for every batch.

    Args:
      replay, network, target_network, double_q_values, seed, xla: See Update; `double_q_values` is
        not used here.
      batch_size, alpha_1, alpha_2, bonus, mask_probability, next_actions: See EnsembleUpdate.
      beta: Diffusion factor, or one per head.
      greedy: Reading of a', see `targets.backward_induction`.
      mask_next_bonus: Whether B~ is multiplied by 1{a' != a_{t+1}}.
      batching: 'chunks', see above; 'episode', one batch per whole episode, as in Algorithm 2; or
        'pooled', `batch_size` transitions from as many episodes as needed, all complete except the
        last, of which only the tail is used.
      chunk_size: States per pass of a network when targets are computed.
    """

    def __init__(
        self,
        replay,
        network,
        target_network,
        double_q_values=None,
        seed=0,
        xla=False,
        batch_size: _BatchSize = gin.REQUIRED,
        beta: _Beta | Sequence[_Beta] = gin.REQUIRED,
        alpha_1: float = 0.0,
        alpha_2: float = 0.0,
        greedy: targets.GreedyReading = 'initial',
        mask_next_bonus: bool = True,
        next_actions: Callable = targets.argmax_actions,
        bonus: bonuses.Bonus | None = None,
        mask_probability: _Probability = 1.0,
        batching: Literal['chunks', 'episode', 'pooled'] = gin.REQUIRED,
        chunk_size: _Count = 256,
    ):
        super().__init__(
            replay,
            network,
            target_network,
            double_q_values,
            seed,
            xla=xla,
            batch_size=batch_size,
            alpha_1=alpha_1,
            alpha_2=alpha_2,
            bonus=bonus,
            mask_probability=mask_probability,
            next_actions=next_actions,
        )
        if np.shape(beta) not in ((), (network.num_heads,)):
            raise ValueError(
                f'EpisodicUpdate.beta must be a number or {network.num_heads} numbers, one per '
                f'head, got {beta}'
            )
        if next_actions is not targets.argmax_actions and greedy != 'initial':
            raise ValueError(
                "EpisodicUpdate.next_actions needs EpisodicUpdate.greedy = 'initial', got "
                f'{greedy!r}'
            )
        self.beta = np.asarray(beta, np.float32)
        self.greedy = greedy
        self.mask_next_bonus = mask_next_bonus
        self.batching = batching
        self.chunk_size = chunk_size
        self._passes = {
            network: tf.function(
                functools.partial(self._pass, network), jit_compile=xla or None, autograph=False
            )
            for network in (network, target_network)
        }
        # An episode has at least one transition, and `history` frames more than transitions.
        most_frames = batch_size * (1 + replay.history) if batching == 'pooled' else np.inf
        self._fits_one_pass = most_frames <= chunk_size
        self._has_gpu = bool(tf.config.list_physical_devices('GPU'))
        self._pads_states = xla or self._has_gpu
        self._pending: _Pending | None = None
        rows = batch_size if self._fits_one_pass else None
        signature = [
            tf.TensorSpec((None, *replay.observation_shape), replay.observation_dtype),
            tf.TensorSpec([rows], tf.int32),
            tf.TensorSpec([rows], tf.float32),
            tf.TensorSpec([rows], tf.float32),
            tf.TensorSpec([rows], tf.int32),
        ]
        self._compiled_targets = Compiled(self.episode_targets, signature)
        masks = tf.TensorSpec([rows, network.num_heads], tf.float32)
        self.compiled_batch = Compiled(self.batch, [*signature, masks])

    @property
    def ready(self) -> bool:
        return self._pending is not None or self.replay.can_sample

    def next_batch(self) -> tuple[types.Batch, dict[str, float]]:
        """See Update: up to `batch_size` rows (T if batching is 'episode'), padded to 8 n rows."""
        if self.draws_each_batch:
            return super().next_batch()
        report: dict[str, float] = {}
        if self._pending is None:
            self._pending, report = self.with_targets(self.draw_episodes())
        end = self._pending.end
        start = max(0, end - self.batch_size)
        rows = self._rows(self._pending, start, end)
        self._pending = self._pending._replace(end=start) if start else None
        return _pad(rows), report

    @property
    def draws_each_batch(self) -> bool:
        """See EnsembleUpdate."""
        return self.batching != 'chunks'

    def draw(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """See EnsembleUpdate; not for the batching 'chunks'."""
        columns, ids = _in_succession(self.draw_episodes())
        return (*columns, self._masks(ids)), ids

    def batch(self, all_frames, actions, rewards, discounts, episode, masks):
        """See EnsembleUpdate; arguments as in `episode_targets`, and the masks [n, K]."""
        y, means = self.episode_targets(all_frames, actions, rewards, discounts, episode)
        stacks = frames.stack_all(all_frames, self.replay.history)
        starts = tf.range(tf.shape(actions)[0]) + self.replay.history * episode
        if self._has_gpu and stacks.dtype == tf.uint8:
            # A GPU has no kernel to gather uint8; float16 represents all its values.
            observations = tf.cast(tf.gather(tf.cast(stacks, tf.float16), starts), tf.uint8)
        else:
            observations = tf.gather(stacks, starts)
        columns = observations, actions, y, tf.ones_like(rewards), masks
        missing = -tf.shape(actions)[0] % _ROW_MULTIPLE
        return tuple(_pad_rows(column, missing) for column in columns), means

    def draw_episodes(self) -> list[types.Episode]:
        """Draws the episodes of the next batches, which are consumed from the end of the list."""
        if self.batching != 'pooled':
            return [self.replay.sample_episode()]
        episodes = self.replay.sample_episodes(self.batch_size)
        before_last = sum(len(episode.actions) for episode in episodes[:-1])
        episodes[-1] = tail(episodes[-1], self.batch_size - before_last)
        return episodes

    def with_targets(self, episodes: list[types.Episode]) -> tuple[_Pending, dict[str, float]]:
        """The transitions of episodes with their targets, and the report."""
        columns, ids = _in_succession(episodes)
        all_frames, actions, *_, episode = columns
        y, means = self._compiled_targets(*columns)
        starts = np.arange(len(actions)) + self.replay.history * episode
        pending = _Pending(all_frames, starts, actions, y.numpy(), ids, len(actions))
        return pending, named_means(means.numpy())

    def _rows(self, pending, start, end):
        starts = pending.stack_starts[start:end]
        return types.Batch(
            observations=frames.stack(pending.frames, starts, self.replay.history),
            actions=pending.actions[start:end],
            targets=pending.targets[start:end],
            weights=np.ones(end - start, np.float32),
            masks=self._masks(pending.ids[start:end]),
            ids=pending.ids[start:end],
        )

    def episode_targets(self, all_frames, actions, rewards, discounts, episode):
        """Targets [n, K] of episodes in succession, and the numbers to report.

        Args:
          all_frames: [sum of history + T, *frame], context and frames of one episode after another.
          actions, rewards, discounts: [n], the sum of T.
          episode: [n] int32, the number of each row's episode: 0, 0, .. 1, 1, ..
        """
        history = self.replay.history
        rows = tf.range(tf.shape(actions)[0])
        stack_starts = rows + history * episode  # The stack of s starts here, that of s' one later.
        next_q = tf.gather(self._q_values(self.target_network, all_frames[1:]), stack_starts)
        newest = stack_starts + history - 1
        is_last = tf.concat([episode[1:] != episode[:-1], [True]], axis=0)
        has_final = is_last & (discounts > 0)  # The frame after a terminal is unspecified.
        frame_indices = tf.sort(tf.concat([newest, 1 + tf.boolean_mask(newest, has_final)], axis=0))
        obs_rows = rows + tf.cumsum(tf.cast(has_final, tf.int32), exclusive=True)
        experience = types.Experience(
            tf.gather(all_frames, frame_indices),
            obs_rows,
            obs_rows + tf.cast(has_final | ~is_last, tf.int32),
            actions,
            discounts,
            next_q,
            self._choose_next_actions(next_q),
            lambda: tf.gather(self._q_values(self.network, all_frames[:-1]), stack_starts),
        )
        reward_bonus, next_bonus, means = self._bonuses(experience, next_q)
        y = targets.backward_induction(
            rewards,
            discounts,
            actions,
            next_q,
            reward_bonus,
            next_bonus,
            beta=self.beta,
            alpha_1=self.alpha_1,
            alpha_2=self.alpha_2,
            greedy=self.greedy,
            mask_next_bonus=self.mask_next_bonus,
            is_last=is_last,
            next_actions=experience.next_actions,
        )
        return y, means

    def _q_values(self, network, all_frames):
        """Values of all stacks of consecutive frames: [history - 1 + n, *frame] -> [n, K, A]."""
        context = self.replay.history - 1
        seed = self._generator.make_seeds()[:, 0]
        count = chunks.num_rows(all_frames) - context
        if self._pads_states:
            all_frames = _pad_rows(all_frames, -count % _STATE_MULTIPLE)
        if self._fits_one_pass:  # A loop would cost small networks a tenth of a learner step.
            return self._passes[network](all_frames, seed)[:count]
        q_values = chunks.map_chunks(
            lambda start, end: self._passes[network](all_frames[start : end + context], seed),
            chunks.num_rows(all_frames) - context,
            self.chunk_size,
            tf.TensorSpec([None, network.num_heads, network.num_actions], tf.float32),
        )
        return q_values[:count]

    def _pass(self, network, some_frames, seed):
        return network(frames.stack_all(some_frames, self.replay.history), seed)

    def state(self) -> dict[str, np.ndarray]:
        if self._pending is None:
            return {}
        return {name: np.asarray(value) for name, value in self._pending._asdict().items()}

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        self._pending = None
        if arrays:
            self._pending = _Pending(**{**arrays, 'end': int(arrays['end'])})  # type: ignore[arg-type]


@gin.configurable(denylist=['double_q_values', 'seed', 'xla'])
@checked
class TransitionUpdate(EnsembleUpdate):
    """One-step or n-step targets for transitions drawn uniformly (BootDQN, DQN and others).

    Args:
      replay, network, target_network, double_q_values, seed, xla: See Update.
      batch_size, alpha_1, alpha_2, bonus, mask_probability, next_actions: See EnsembleUpdate.
      double_q: Whether `double_q_values`, not the target network, choose a' (van Hasselt et al.
        2016).
      n_steps: Steps of a target before it bootstraps.
    """

    def __init__(
        self,
        replay,
        network,
        target_network,
        double_q_values=None,
        seed=0,
        xla=False,
        batch_size: _BatchSize = gin.REQUIRED,
        alpha_1: float = 0.0,
        alpha_2: float = 0.0,
        bonus: bonuses.Bonus | None = None,
        mask_probability: _Probability = 1.0,
        double_q: bool = False,
        n_steps: Annotated[int, AtLeast(1)] = 1,
        next_actions: Callable = targets.argmax_actions,
    ):
        super().__init__(
            replay,
            network,
            target_network,
            double_q_values,
            seed,
            xla=xla,
            batch_size=batch_size,
            alpha_1=alpha_1,
            alpha_2=alpha_2,
            bonus=bonus,
            mask_probability=mask_probability,
            next_actions=next_actions,
        )
        if bonus is not None and bonus.needs_whole_episodes:
            raise ValueError(
                f'TransitionUpdate.bonus: {type(bonus).__name__} as configured needs whole '
                "episodes in order (RndBonus works here with scale_by = 'bonuses')"
            )
        self.n_steps = n_steps
        self.double_q = double_q
        self.compiled_batch = Compiled(self.batch, xla=xla)

    def draw(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """See EnsembleUpdate; `batch_size` transitions, drawn uniformly."""
        *rows, ids = self.replay.sample_transitions(self.batch_size, self.n_steps)
        return (*rows, self._masks(ids)), ids

    def batch(self, observations, actions, rewards, discounts, next_observations, masks):
        """See EnsembleUpdate; arguments as in Transitions, and the masks [n, K]."""
        y, means = self._targets(observations, actions, rewards, discounts, next_observations)
        return (observations, actions, y, tf.ones_like(rewards), masks), means

    def _targets(self, observations, actions, rewards, discounts, next_observations):
        history, seeds = self.replay.history, tf.unstack(self._generator.make_seeds(3), axis=1)
        next_q = self.target_network(next_observations, seeds[0])
        selector_q = next_q
        if self.double_q:
            selector_q = self.double_q_values(next_observations, seeds[1])
        newest, next_newest = (frames.newest(x, history) for x in (observations, next_observations))
        is_nonterminal, rows = discounts > 0, tf.range(tf.shape(actions)[0])
        is_nonterminal_frame = tf.reshape(is_nonterminal, [-1] + [1] * (len(newest.shape) - 1))
        experience = types.Experience(
            tf.concat([newest, tf.where(is_nonterminal_frame, next_newest, newest)], axis=0),
            rows,
            tf.where(is_nonterminal, rows + tf.shape(actions)[0], rows),
            actions,
            discounts,
            next_q,
            self._choose_next_actions(selector_q),
            lambda: self.network(observations, seeds[2]),
        )
        reward_bonus, next_bonus, means = self._bonuses(experience, selector_q)
        y = targets.one_step(
            rewards,
            discounts,
            next_q,
            reward_bonus=reward_bonus,
            next_bonus=next_bonus,
            alpha_1=self.alpha_1,
            alpha_2=self.alpha_2,
            next_actions=experience.next_actions,
        )
        return y, means


def _check_actions(name, next_actions, num_heads, num_actions):
    """Checks that the actions for some random Q-values are integers in range."""
    chosen = next_actions(tf.random.stateless_normal((64, num_heads, num_actions), (0, 0)))
    lowest, highest = tf.reduce_min(chosen).numpy(), tf.reduce_max(chosen).numpy()
    if not (chosen.dtype.is_integer and 0 <= lowest <= highest < num_actions):
        raise ConfigError(
            f'{name} must return integers in 0..{num_actions - 1}, got {chosen.dtype.name} in '
            f'{lowest}..{highest}'
        )


def bootstrap_masks(ids: np.ndarray, num_heads: int, probability: float, seed: int) -> np.ndarray:
    """Selects the heads that learn from each transition (Osband et al. 2016, section 3).

    A mask is a hash of the transition's id, so it stays the same while the transition is stored.

    Args:
      ids: [n] int, ids of transitions.
      num_heads: K.
      probability: Probability of a 1; the paper and its code have 1.
      seed: Seed of the hash.

    Returns:
      [n, K] float32 of 0 and 1.
    """
    if probability == 1:
        return np.ones((len(ids), num_heads), np.float32)
    words = (np.asarray(ids)[:, None] * num_heads + np.arange(num_heads)).astype(np.uint64)
    with np.errstate(over='ignore'):  # SplitMix64 (Steele et al. 2014).
        words = np.uint64(seed) + (words + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words = words ^ (words >> np.uint64(31))
    return (words * 2.0**-64 < probability).astype(np.float32)


def bonus_effects(experience, reward_bonus, next_bonus, optimistic_actions):
    """The size of the bonuses relative to Q~, scalars in the order of _BONUS_MEANS.

    These are means over rows and, except for B, over heads or actions:
      - B and B~ as they enter the target, before their weights;
      - the gap by Q~ between a head's best and second-best action, NaN with a single action;
      - whether a' differs from `optimistic_actions` [n, K], chosen after alpha_2 B~ was added.
    Terminals count only in the mean of B.
    """
    next_q, counted = experience.next_q, experience.discounts > 0
    gap = np.nan * next_q[..., 0]
    if next_q.shape[-1] > 1:
        best = tf.math.top_k(next_q, 2).values
        gap = best[..., 0] - best[..., 1]
    # Compared as int64: TensorFlow compares int32 in the main memory, even on a GPU.
    changes = tf.cast(optimistic_actions, tf.int64) != tf.cast(experience.next_actions, tf.int64)
    return (
        tf.reduce_mean(reward_bonus),
        chunks.mean_of_rows(next_bonus, counted),
        chunks.mean_of_rows(gap, counted),
        chunks.mean_of_rows(tf.cast(changes, tf.float32), counted),
    )


def named_means(means: Iterable[float]) -> dict[str, float]:
    """The report of `Update.next_batch`, without means of no rows, which are NaN."""
    means = dict(zip(_MEANS + _BONUS_MEANS, map(float, means)))
    return {name: mean for name, mean in means.items() if not np.isnan(mean)}


def tail(episode: types.Episode, at_most: int) -> types.Episode:
    """The last `at_most` transitions of an episode; their targets depend on no earlier ones."""
    start = max(0, len(episode.actions) - at_most)
    all_frames = np.concatenate([episode.context, episode.observations])
    context, kept = len(all_frames) - len(episode.observations), all_frames[start:]
    return types.Episode(
        kept[context:],
        episode.actions[start:],
        episode.rewards[start:],
        episode.discounts[start:],
        kept[:context],
        episode.first_id + start,
    )


def _in_succession(episodes):
    """The arguments of `EpisodicUpdate.episode_targets`, and the ids [n] of the transitions."""
    lengths = [len(e.actions) for e in episodes]
    columns = (
        np.concatenate([x for e in episodes for x in (e.context, e.observations)]),
        np.concatenate([e.actions for e in episodes]),
        np.concatenate([e.rewards for e in episodes]),
        np.concatenate([e.discounts for e in episodes]),
        np.repeat(np.arange(len(episodes), dtype=np.int32), lengths),
    )
    return columns, np.concatenate([e.first_id + np.arange(len(e.actions)) for e in episodes])


def _pad_rows(x, count):
    """Appends `count` rows of zeros to a tensor."""
    return tf.pad(x, [[0, count]] + [[0, 0]] * (len(x.shape) - 1))


def _pad(batch):
    """Appends rows of zeros, weights included, up to a multiple of _ROW_MULTIPLE."""
    missing = -len(batch.actions) % _ROW_MULTIPLE
    if not missing:
        return batch
    return types.Batch(
        *(np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]) for x in batch)
    )
