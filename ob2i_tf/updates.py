"""From replay to regression batches: whole episodes backwards, or single transitions.

An update is built once for a run and hands out one `Batch` for each learner step. Its targets are
those of the moment in which they were computed: for episodes, when the episode was drawn.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf import bonuses, chunks, targets, types
from ob2i_tf.parameters import Above, AtLeast, AtMost, Within, checked
from ob2i_tf.replay import stack
from ob2i_tf.tracing import Compiled, check_traced

_Beta = Annotated[float, Within(0, 1)]
_Probability = Annotated[float, Above(0), AtMost(1)]
_ROW_MULTIPLE = 8  # Batches are padded to it, so that XLA compiles few shapes.
_XLA_STATE_MULTIPLE = 64  # States of a pass, likewise.
_MEANS = ('bonus_mean', 'next_bonus_mean')  # Reported of targets; with a bonus also:
_BONUS_MEANS = (
    'reward_bonus_mean',
    'next_bonus_normalized_mean',
    'q_gap_mean',
    'next_action_changes',
)


class _Pending(NamedTuple):
    """Transitions with their targets, of which the rows [0, end) are still to be learnt from."""

    frames: np.ndarray  # Of one episode after another, each [history + T, *frame] with its context.
    places: np.ndarray  # [n], where the stack of a row begins in `frames`.
    actions: np.ndarray  # [n]
    targets: np.ndarray  # [n, K]
    ids: np.ndarray  # [n]
    end: int


class Update:
    """Interface of updates: turns replay into batches, one for each learner step.

    Attributes:
      bonus: A `bonuses.Bonus`; None: no bonus.

    Args:
      replay: EpisodeReplay.
      network: Online network.
      target_network: Target network.
      selector: (observations, seed) -> [B, K, A], the values by which double Q-learning chooses a';
        None: the online network.
      seed: Seed of its random choices.
      xla: Whether XLA compiles the computation of targets.
    """

    bonus = None

    def __init__(self, replay, network, target_network, selector=None, seed=0, xla=False):
        self.replay = replay
        self.network = network
        self.target_network = target_network
        self.selector = network if selector is None else selector
        self.seed = seed
        self.xla = xla

    @property
    def ready(self):
        """Whether `next_batch` can make one."""
        return self.replay.can_sample

    def next_batch(self):
        """The batch of the next learner step, and a report.

        Returns:
          types.Batch; and {name: number} to log of the rows whose targets were computed for it,
          empty if there were none: 'bonus_mean' and 'next_bonus_mean', unweighted and before
          normalisation, and with a bonus those of `_effects`. Without those of s' if all these
          rows are terminals.
        """
        raise NotImplementedError

    @property
    def trackables(self):
        """{name: tf.Module or the like} that a checkpoint keeps."""
        return {}

    def state(self):
        """{name: array} that a checkpoint keeps."""
        return {}

    def set_state(self, arrays):
        """Restores the result of `state`."""
        del arrays

    def compiled_functions(self):
        """The tf.functions whose traces a run counts (`process/traces` in TensorBoard)."""
        return []


class BootstrappedUpdate(Update):
    """Targets with a bonus, and bootstrap masks.

    Args:
      parts: Positional arguments of Update.
      xla: See Update.
      batch_size: Transitions per learner step ("mini-batch size", paper, table 4).
      alpha_1: Weight of the reward's bonus, B, which the online network gives.
      alpha_2: Weight of the next value's bonus, B~, which the target network gives with Q~.
      bonus: A `bonuses.Bonus`; None: no bonus, and no pass of the online network.
      mask_probability: Probability that a head learns from a transition, see `bootstrap_masks`.
      next_actions: Chooses a', maps Q-values [n, K, A] to actions [n, K] int32.

    Raises:
      ValueError: An argument is out of range; the message names the binding.
      ConfigError: The bonus or the choice of a' cannot be traced.
    """

    def __init__(
        self, *parts, xla, batch_size, alpha_1, alpha_2, bonus, mask_probability, next_actions
    ):
        super().__init__(*parts, xla=xla)
        name = type(self).__name__
        heads, num_actions = self.network.num_heads, self.network.num_actions
        check_traced(
            f'{name}.next_actions',
            next_actions,
            (tf.TensorSpec([None, heads, num_actions]),),
            (None, heads),
            'Q-values [n, K, A] to actions [n, K]',
        )
        _build_bonus(name, bonus, self.replay, self.network, self.seed, alpha_1, alpha_2)
        self.batch_size = batch_size
        self.alpha_1, self.alpha_2 = alpha_1, alpha_2
        self.bonus = bonus
        self.mask_probability = mask_probability
        self.next_actions = next_actions
        self._generator = tf.random.Generator.from_seed(self.seed)

    @property
    def trackables(self):
        parts = {'update_generator': self._generator}
        return parts if self.bonus is None else {**parts, 'bonus': self.bonus}

    def _masks(self, ids):
        return bootstrap_masks(ids, self.network.num_heads, self.mask_probability, self.seed)


@gin.configurable(denylist=['selector', 'seed', 'xla'])
@checked
class EpisodicUpdate(BootstrappedUpdate):
    """Backward induction over whole episodes (paper, Algorithm 2), consumed from their end.

    The targets of a sampled episode are computed once; then each batch takes the next `batch_size`
    transitions from its end towards its start, until it is used up and the next one is drawn. That
    is the batching 'chunks'; the others use fresh targets for every batch.

    Args:
      replay, network, target_network, selector, seed, xla: See Update; a' never comes from the
        selector here.
      batch_size, alpha_1, alpha_2, bonus, mask_probability, next_actions: See BootstrappedUpdate.
      beta: diffusion factor, or one for each head.
      greedy: how a' is read, see `targets.backward_induction`.
      mask_next_bonus: whether B~ has its factor 1{a' != a_{t+1}}.
      last_batch: How the short last batch of an episode is completed. 'pad' adds rows of weight 0
        up to a multiple of 8; 'other_episode' fills it with the last rows of a second episode,
        drawn together with the first and with their own targets (the released code).
      batching: How batches are made of episodes, besides 'chunks': 'episode', one step on a
        whole episode, as Algorithm 2 writes it; 'pooled', `batch_size` transitions of as many
        episodes as it takes, each whole but for the last one, which gives its end.
      chunk_size: states that go through a network at once when targets are computed.
    """

    def __init__(
        self,
        replay,
        network,
        target_network,
        selector=None,
        seed=0,
        xla=False,
        batch_size: Annotated[int, AtLeast(1)] = gin.REQUIRED,
        beta: _Beta | Sequence[_Beta] = gin.REQUIRED,
        alpha_1: float = 0.0,
        alpha_2: float = 0.0,
        greedy: Literal['initial', 'updated', 'released'] = 'initial',
        mask_next_bonus: bool = True,
        next_actions: Callable = targets.greedy_actions,
        bonus: bonuses.Bonus | None = None,
        mask_probability: _Probability = 1.0,
        last_batch: Literal['pad', 'other_episode'] = 'pad',
        batching: Literal['chunks', 'episode', 'pooled'] = gin.REQUIRED,
        chunk_size: Annotated[int, AtLeast(1)] = 256,
    ):
        super().__init__(
            replay,
            network,
            target_network,
            selector,
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
                f'EpisodicUpdate.beta must be a number or one for each of the {network.num_heads} '
                f'heads, got {beta}'
            )
        if last_batch != 'pad' and batching != 'chunks':
            logging.warning(
                'EpisodicUpdate.last_batch = %r changes nothing: batching is %r.',
                last_batch,
                batching,
            )
        self.beta = np.float32(beta)
        self.greedy = greedy
        self.mask_next_bonus = mask_next_bonus
        self.last_batch = last_batch
        self.batching = batching
        self.chunk_size = chunk_size
        self._passes = {
            network: tf.function(
                functools.partial(self._pass, network), jit_compile=xla or None, autograph=False
            )
            for network in (network, target_network)
        }
        self._pending = None
        self._compiled_targets = Compiled(
            self._episode_targets,
            signature=[
                tf.TensorSpec((None, *replay.observation_shape), replay.observation_dtype),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([None], tf.int32),
            ],
        )

    @property
    def ready(self):
        return self._pending is not None or self.replay.can_sample

    def next_batch(self):
        """See Update: up to `batch_size` rows (T if batching is 'episode'), padded to 8 n rows."""
        report = {}
        if self._pending is None:
            self._pending, report = self._draw()
        end = self._pending.end
        start = max(0, end - self.batch_size) if self.batching == 'chunks' else 0
        rows = self._rows(self._pending, start, end)
        self._pending = self._pending._replace(end=start) if start else None
        return _pad(rows), report

    def _draw(self):
        """What the next batches are made of, and its report."""
        if self.batching == 'pooled':
            episodes = self.replay.sample_episodes(self.batch_size)
            before_last = sum(len(episode.actions) for episode in episodes[:-1])
            episodes[-1] = _last_part(episodes[-1], self.batch_size - before_last)
            return self._with_targets(episodes)
        episodes = [self.replay.sample_episode()]
        missing = -len(episodes[0].actions) % self.batch_size
        if missing and self.last_batch == 'other_episode' and self.batching == 'chunks':
            episodes.insert(0, _last_part(self.replay.sample_episode(), missing))
        return self._with_targets(episodes)

    def _with_targets(self, episodes):
        frames = np.concatenate([x for e in episodes for x in (e.context, e.observations)])
        actions, rewards, discounts = (
            np.concatenate(column)
            for column in zip(*((e.actions, e.rewards, e.discounts) for e in episodes))
        )
        ids = np.concatenate([e.first_id + np.arange(len(e.actions)) for e in episodes])
        episode = np.repeat(
            np.arange(len(episodes), dtype=np.int32), [len(e.actions) for e in episodes]
        )
        y, means = self._compiled_targets(frames, actions, rewards, discounts, episode)
        places = np.arange(len(actions)) + self.replay.history * episode
        return _Pending(frames, places, actions, y.numpy(), ids, len(actions)), _report(means)

    def _rows(self, pending, start, end):
        return types.Batch(
            observations=stack(pending.frames, pending.places[start:end], self.replay.history),
            actions=pending.actions[start:end],
            targets=pending.targets[start:end],
            weights=np.ones(end - start, np.float32),
            masks=self._masks(pending.ids[start:end]),
            ids=pending.ids[start:end],
        )

    def _episode_targets(self, frames, actions, rewards, discounts, episode):
        """Targets [n, K] of episodes one after another, and the numbers that are reported.

        Args:
          frames: [sum of history + T, *frame], each episode's after its context.
          actions, rewards, discounts: [n], the sum of T.
          episode: [n] int32, the number of the episode of each row: 0, 0, .. 1, 1, ..
        """
        history = self.replay.history
        rows = tf.range(tf.shape(actions)[0])
        places = rows + history * episode  # Where the stack of s begins; that of s' is one on.
        next_q = tf.gather(self._q_values(self.target_network, frames[1:]), places)  # Q~, [n, K, A]
        newest = places + history - 1
        last = tf.concat([episode[1:] != episode[:-1], [True]], axis=0)
        ends = last & (discounts > 0)  # What a terminal leads to is unspecified.
        shown = tf.sort(tf.concat([newest, 1 + tf.boolean_mask(newest, ends)], axis=0))
        here = rows + tf.cumsum(tf.cast(ends, tf.int32), exclusive=True)
        experience = types.Experience(
            tf.gather(frames, shown),
            here,
            here + tf.cast(ends | ~last, tf.int32),
            actions,
            discounts,
            next_q,
            lambda: tf.gather(self._q_values(self.network, frames[:-1]), places),
        )
        reward_bonus, next_bonus, means = _bonuses(self.bonus, experience, self.alpha_2)
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
            last=last,
            next_actions=self.next_actions,
        )
        return y, means

    def _q_values(self, network, frames):
        """The values of all stacks in [history - 1 + n, *frame]: -> [n, K, A]."""
        context = self.replay.history - 1
        seed = self._generator.make_seeds()[:, 0]
        count = chunks.num_rows(frames) - context
        if self.xla:  # It compiles anew for each shape.
            missing = -count % _XLA_STATE_MULTIPLE
            frames = tf.pad(frames, [[0, missing]] + [[0, 0]] * (len(frames.shape) - 1))
        q_values = chunks.in_passes(
            lambda start, end: self._passes[network](frames[start : end + context], seed),
            chunks.num_rows(frames) - context,
            self.chunk_size,
            tf.TensorSpec([None, network.num_heads, network.num_actions], tf.float32),
        )
        return q_values[:count]

    def _pass(self, network, frames, seed):
        return network(_stack(frames, self.replay.history), seed)

    def state(self):
        if self._pending is None:
            return {}
        return {name: np.asarray(value) for name, value in self._pending._asdict().items()}

    def set_state(self, arrays):
        self._pending = None
        if arrays:
            self._pending = _Pending(**{**arrays, 'end': int(arrays['end'])})

    def compiled_functions(self):
        return [self._compiled_targets.function]


@gin.configurable(denylist=['selector', 'seed', 'xla'])
@checked
class TransitionUpdate(BootstrappedUpdate):
    """Targets over one step, or a few, for transitions drawn uniformly (BootDQN, DQN and others).

    Args:
      replay, network, target_network, selector, seed, xla: See Update.
      batch_size, alpha_1, alpha_2, bonus, mask_probability, next_actions: See BootstrappedUpdate.
      double_q: choose a' by the selector, not by the target network (van Hasselt et al. 2016).
      n_steps: that a target goes over before it bootstraps.
    """

    def __init__(
        self,
        replay,
        network,
        target_network,
        selector=None,
        seed=0,
        xla=False,
        batch_size: Annotated[int, AtLeast(1)] = gin.REQUIRED,
        alpha_1: float = 0.0,
        alpha_2: float = 0.0,
        bonus: bonuses.Bonus | None = None,
        mask_probability: _Probability = 1.0,
        double_q: bool = False,
        n_steps: Annotated[int, AtLeast(1)] = 1,
        next_actions: Callable = targets.greedy_actions,
    ):
        super().__init__(
            replay,
            network,
            target_network,
            selector,
            seed,
            xla=xla,
            batch_size=batch_size,
            alpha_1=alpha_1,
            alpha_2=alpha_2,
            bonus=bonus,
            mask_probability=mask_probability,
            next_actions=next_actions,
        )
        if bonus is not None and bonus.needs_order:
            raise ValueError(
                f'TransitionUpdate.bonus: {type(bonus).__name__} as configured needs whole '
                "episodes in order (an RndBonus takes scale_by = 'bonuses' here)"
            )
        self.n_steps = n_steps
        self.double_q = double_q
        self._compiled_targets = Compiled(self._targets, xla=xla)

    def next_batch(self):
        """See Update: `batch_size` rows, drawn uniformly."""
        rows = self.replay.sample_transitions(self.batch_size, self.n_steps)
        y, means = self._compiled_targets(*rows[:-1])
        batch = types.Batch(
            rows.observations,
            rows.actions,
            y.numpy(),
            weights=np.ones(self.batch_size, np.float32),
            masks=self._masks(rows.ids),
            ids=rows.ids,
        )
        return batch, _report(means)

    def compiled_functions(self):
        return [self._compiled_targets.function]

    def _targets(self, observations, actions, rewards, discounts, next_observations):
        history, seeds = self.replay.history, tf.unstack(self._generator.make_seeds(3), axis=1)
        next_q = self.target_network(next_observations, seeds[0])
        online_next_q = self.selector(next_observations, seeds[1]) if self.double_q else None
        rows, known = tf.range(tf.shape(actions)[0]), discounts > 0
        after = tf.boolean_mask(_newest(next_observations, history), known)
        places = tf.shape(actions)[0] + tf.cumsum(tf.cast(known, tf.int32), exclusive=True)
        experience = types.Experience(
            tf.concat([_newest(observations, history), after], axis=0),
            rows,
            tf.where(known, places, rows),
            actions,
            discounts,
            next_q,
            lambda: self.network(observations, seeds[2]),
        )
        reward_bonus, next_bonus, means = _bonuses(self.bonus, experience, self.alpha_2)
        y = targets.one_step(
            rewards,
            discounts,
            next_q,
            reward_bonus=reward_bonus,
            next_bonus=next_bonus,
            alpha_1=self.alpha_1,
            alpha_2=self.alpha_2,
            online_next_q=online_next_q,
            next_actions=self.next_actions,
        )
        return y, means


def bootstrap_masks(ids, num_heads, probability, seed):
    """Which heads learn from which transitions (Osband et al. 2016, section 3).

    A mask belongs to a transition for as long as it is stored: it is a hash of its id.

    Args:
      ids: [n] int, of transitions.
      num_heads: K.
      probability: of a 1; 1 is what the paper and its code have.
      seed: int.

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


def _build_bonus(update, bonus, replay, network, seed, alpha_1, alpha_2):
    if bonus is None:
        if alpha_1 or alpha_2:
            logging.warning('alpha_1 and alpha_2 change nothing: there is no bonus.')
        return
    if not alpha_1 and not alpha_2:
        logging.warning('The bonus changes nothing: alpha_1 and alpha_2 are 0.')
    if isinstance(bonus, bonuses.UcbBonus) and network.num_heads == 1:
        logging.warning('UcbBonus sees one head, whose standard deviation is 0.')
    bonus.build(replay.observation_shape, seed)
    rows, q_values = tf.TensorSpec([None], tf.int32), (None, network.num_heads, network.num_actions)
    check_traced(
        f'{update}.bonus',
        lambda *parts: bonus(types.Experience(*parts[:-1], q_values=lambda: parts[-1])),
        (
            tf.TensorSpec((None, *replay.observation_shape), replay.observation_dtype),
            rows,
            rows,
            rows,
            tf.TensorSpec([None]),
            tf.TensorSpec(q_values),
            tf.TensorSpec(q_values),
        ),
        ((None,), (None, network.num_actions), ((), ())),
        'an Experience to B [n], B~ [n, actions] and the pair of their means',
    )


def _bonuses(bonus, experience, alpha_2):
    """B, B~ and the numbers that are reported, in the order of _MEANS and _BONUS_MEANS."""
    next_q = experience.next_q
    if bonus is None:
        return tf.zeros_like(next_q[:, 0, 0]), tf.zeros_like(next_q[:, 0]), tf.zeros(len(_MEANS))
    *both, means = bonus(experience)
    reward_bonus, next_bonus = (tf.cast(x, tf.float32) for x in both)
    numbers = (*means, *_effects(experience, reward_bonus, next_bonus, alpha_2))
    return reward_bonus, next_bonus, tf.stack([tf.cast(x, tf.float32) for x in numbers])


def _effects(experience, reward_bonus, next_bonus, alpha_2):
    """How large the bonuses are beside Q~, in the order of _BONUS_MEANS, scalars.

    They are the means of B and of B~ as they enter the target, before their weights; of the gap
    between the best and the second-best action by Q~ in each head, NaN if there is one action; and
    of whether Q~ + alpha_2 B~ has another best action than Q~. Terminals count in the first only.
    """
    next_q, counted = experience.next_q, experience.discounts > 0
    gap = np.nan * next_q[..., 0]
    if next_q.shape[-1] > 1:
        best = tf.math.top_k(next_q, 2).values
        gap = best[..., 0] - best[..., 1]
    optimistic = next_q + alpha_2 * next_bonus[:, None]
    changes = tf.argmax(optimistic, axis=-1) != tf.argmax(next_q, axis=-1)
    return (
        tf.reduce_mean(reward_bonus),
        chunks.mean_of_rows(next_bonus, counted),
        chunks.mean_of_rows(gap, counted),
        chunks.mean_of_rows(tf.cast(changes, tf.float32), counted),
    )


def _newest(observations, history):
    """[n, *stack] -> [n, *frame]."""
    return observations[..., -1] if history > 1 else observations


def _report(means):
    means = dict(zip(_MEANS + _BONUS_MEANS, map(float, means.numpy())))
    return {name: mean for name, mean in means.items() if not np.isnan(mean)}


def _stack(frames, history):
    """The stacks of [history - 1 + n, *frame], on the device: [n, *stack]."""
    if history == 1:
        return frames
    count = tf.shape(frames)[0] - (history - 1)
    return tf.stack([frames[i : i + count] for i in range(history)], axis=-1)


def _last_part(episode, at_most):
    """Its last `at_most` transitions: no target depends on earlier ones."""
    start = max(0, len(episode.actions) - at_most)
    frames = np.concatenate([episode.context, episode.observations])[start:]
    context = len(episode.context)
    return types.Episode(
        frames[context:],
        *(x[start:] for x in episode[1:4]),
        context=frames[:context],
        first_id=episode.first_id + start,
    )


def _pad(batch):
    """Appends rows of zeros, weight included, up to a multiple of _ROW_MULTIPLE."""
    missing = -len(batch.actions) % _ROW_MULTIPLE
    if not missing:
        return batch
    return types.Batch(
        *(np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]) for x in batch)
    )
