"""From replay to regression batches: whole episodes backwards, or single transitions.

An update is built once for a run and hands out one `Batch` for each learner step. Its targets are
those of the moment in which they were computed: for episodes, when the episode was drawn.
"""

from typing import Callable, Literal, NamedTuple, Optional

import numpy as np
import tensorflow as tf

import gin
from ob2i_tf import targets, types
from ob2i_tf.replay import stack

TAILS = ('pad', 'other_episode')


class _Pending(NamedTuple):
    """An episode with its targets, of which the rows [0, end) are still to be learnt from."""

    frames: np.ndarray  # [history + T, *frame], context included.
    actions: np.ndarray  # [T]
    targets: np.ndarray  # [T, K]
    end: int


@gin.configurable
class EpisodicUpdate:
    """Backward induction over whole episodes (paper, Algorithm 2), consumed from their end.

    The targets of a sampled episode are computed once; then each batch takes the next `batch_size`
    transitions from its end towards its start, until it is used up and the next one is drawn.

    Args:
      replay: EpisodeReplay.
      network: online network, gives the bonus of the reward, B.
      target_network: gives Q~ and the bonus of the next value, B~, in one pass.
      batch_size: transitions a learner step ("mini-batch size", paper, table 4).
      beta: diffusion factor.
      alpha_1: weight of the reward's bonus.
      alpha_2: weight of the next value's bonus.
      greedy: how a' is read, see `targets.backward_induction`.
      bonus: a `bonuses.UcbBonus`; None: no bonus, and no pass of the online network.
      tail: what fills the last, short batch of an episode: 'pad', rows of weight 0, or
        'other_episode', the last rows of another one with their own targets (the released code).
      whole_episode: one step on the whole episode, as Algorithm 2 writes it.
      states_per_pass: states that go through a network at once when targets are computed.
    """

    def __init__(
        self,
        replay,
        network,
        target_network,
        batch_size: int = 32,
        beta: float = 0.5,
        alpha_1: float = 0.0,
        alpha_2: float = 0.0,
        greedy: Literal[targets.GREEDY_READINGS] = 'initial',
        bonus: Optional[Callable] = None,
        tail: Literal[TAILS] = 'pad',
        whole_episode: bool = False,
        states_per_pass: int = 256,
    ):
        if tail not in TAILS:
            raise ValueError(f'EpisodicUpdate.tail must be one of {TAILS}, got {tail!r}')
        if greedy not in targets.GREEDY_READINGS:
            raise ValueError(
                f'EpisodicUpdate.greedy must be one of {targets.GREEDY_READINGS}, got {greedy!r}'
            )
        if batch_size < 1 or states_per_pass < 1:
            raise ValueError(
                'EpisodicUpdate needs batch_size >= 1 and states_per_pass >= 1, got '
                f'{batch_size} and {states_per_pass}'
            )
        if not 0 <= beta <= 1:
            raise ValueError(f'EpisodicUpdate.beta must be in 0..1, got {beta}')
        _check_bonus(bonus)
        self.replay = replay
        self.network = network
        self.target_network = target_network
        self.batch_size = batch_size
        self.beta, self.alpha_1, self.alpha_2 = beta, alpha_1, alpha_2
        self.greedy = greedy
        self.bonus = bonus
        self.tail = tail
        self.whole_episode = whole_episode
        self.states_per_pass = states_per_pass
        self._pending = None
        self._compiled_targets = tf.function(
            self._episode_targets,
            input_signature=[
                tf.TensorSpec((None, *replay.observation_shape), replay.observation_dtype),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([None], tf.float32),
            ],
        )

    @property
    def ready(self):
        """Whether a batch can be made: an episode is pending, or replay has one to draw."""
        return self._pending is not None or self.replay.can_sample

    def next_batch(self):
        """The batch of the next learner step, and the bonus means of an episode drawn for it.

        Returns:
          Batch of `batch_size` rows, or T with `whole_episode`; and a dict, empty unless an episode
          was drawn: 'bonus_mean' and 'next_bonus_mean', unweighted and before normalisation.
        """
        report = {}
        if self._pending is None:
            self._pending, report = self._draw()
        pending = self._pending
        size = len(pending.actions) if self.whole_episode else self.batch_size
        start = max(0, pending.end - size)
        rows = self._rows(pending, start, pending.end)
        self._pending = pending._replace(end=start) if start else None
        missing = size - len(rows.actions)
        if missing and self.tail == 'other_episode':
            other, _ = self._draw()
            rows = _concatenate(rows, self._rows(other, max(0, other.end - missing), other.end))
        return _pad(rows, size), report

    def _draw(self):
        episode = self.replay.sample_episode()
        frames = np.concatenate([episode.context, episode.observations])
        y, *means = self._compiled_targets(
            frames, episode.actions, episode.rewards, episode.discounts
        )
        return _Pending(frames, episode.actions, y.numpy(), len(episode.actions)), _report(means)

    def _rows(self, pending, start, end):
        history = self.replay.history
        return types.Batch(
            observations=stack(pending.frames[start : end + history - 1], history),
            actions=pending.actions[start:end],
            targets=pending.targets[start:end],
            weights=np.ones(end - start, np.float32),
        )

    def _episode_targets(self, frames, actions, rewards, discounts):
        """[history + T, *frame], [T], [T], [T] -> targets [T, K], mean B, mean B~."""
        length = tf.shape(actions)[0]
        next_q = self._q_values(self.target_network, frames[1:], length)  # Q~, [T, K, A]
        if self.bonus is None:
            reward_bonus, next_bonus, means = _no_bonus(next_q)
        else:
            q_values = self._q_values(self.network, frames[:-1], length)
            reward_bonus, next_bonus, means = self.bonus(q_values, next_q, actions)
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
        )
        return (y, *means)

    def _q_values(self, network, frames, length):
        """The values of all states of an episode: frames [history - 1 + T, *frame] -> [T, K, A]."""
        history = self.replay.history
        passes = (length + self.states_per_pass - 1) // self.states_per_pass
        values = tf.TensorArray(
            tf.float32,
            size=passes,
            infer_shape=False,
            element_shape=(None, network.num_heads, network.num_actions),
        )
        for index in tf.range(passes):
            start = index * self.states_per_pass
            end = tf.minimum(start + self.states_per_pass, length)
            values = values.write(
                index, network(_stack(frames[start : end + history - 1], history))
            )
        return values.concat()

    @property
    def trackables(self):
        """What a checkpoint keeps as variables, by name."""
        return _trackables(self.bonus)

    def state(self):
        """What a checkpoint keeps as arrays, by name."""
        if self._pending is None:
            return {}
        return {name: np.asarray(value) for name, value in self._pending._asdict().items()}

    def set_state(self, arrays):
        """Takes over what `state` returned."""
        self._pending = None
        if arrays:
            self._pending = _Pending(**{**arrays, 'end': int(arrays['end'])})

    def compiled_functions(self):
        return [self._compiled_targets]


@gin.configurable
class TransitionUpdate:
    """One-step targets for transitions drawn uniformly (BootDQN, BootDQN-UCB, DQN).

    Args:
      replay, network, target_network, batch_size, alpha_1, alpha_2, bonus: as for EpisodicUpdate.
      double_q: choose a' by the online network (van Hasselt et al. 2016).
    """

    def __init__(
        self,
        replay,
        network,
        target_network,
        batch_size: int = 32,
        alpha_1: float = 0.0,
        alpha_2: float = 0.0,
        bonus: Optional[Callable] = None,
        double_q: bool = False,
    ):
        _check_bonus(bonus)
        self.replay = replay
        self.network = network
        self.target_network = target_network
        self.batch_size = batch_size
        self.alpha_1, self.alpha_2 = alpha_1, alpha_2
        self.bonus = bonus
        self.double_q = double_q
        self._compiled_targets = tf.function(self._targets, reduce_retracing=True)

    @property
    def ready(self):
        return self.replay.can_sample

    def next_batch(self):
        """See EpisodicUpdate.next_batch."""
        batch = self.replay.sample_transitions(self.batch_size)
        y, *means = self._compiled_targets(*batch)
        weights = np.ones(self.batch_size, np.float32)
        return types.Batch(batch.observations, batch.actions, y.numpy(), weights), _report(means)

    def _targets(self, observations, actions, rewards, discounts, next_observations):
        next_q = self.target_network(next_observations)
        online_next_q = self.network(next_observations) if self.double_q else None
        if self.bonus is None:
            reward_bonus, next_bonus, means = _no_bonus(next_q)
        else:
            reward_bonus, next_bonus, means = self.bonus(
                self.network(observations), next_q, actions
            )
        y = targets.one_step(
            rewards,
            discounts,
            next_q,
            reward_bonus=reward_bonus,
            next_bonus=next_bonus,
            alpha_1=self.alpha_1,
            alpha_2=self.alpha_2,
            online_next_q=online_next_q,
        )
        return (y, *means)

    @property
    def trackables(self):
        """See EpisodicUpdate; there are no arrays to keep."""
        return _trackables(self.bonus)

    def state(self):
        return {}

    def set_state(self, arrays):
        del arrays

    def compiled_functions(self):
        return [self._compiled_targets]


def _check_bonus(bonus):
    if isinstance(bonus, type):
        raise ValueError(f'bonus must be an object, not the class: write @{bonus.__name__}()')


def _trackables(bonus):
    return {} if bonus is None else {'bonus': bonus}


def _no_bonus(next_q):
    """B, B~ and their means of a target without bonus."""
    return tf.zeros_like(next_q[:, 0, 0]), tf.zeros_like(next_q[:, 0]), (0.0, 0.0)


def _report(means):
    return dict(zip(('bonus_mean', 'next_bonus_mean'), map(float, means)))


def _stack(frames, history):
    """The stacks of [history - 1 + n, *frame], on the device: [n, *stack]."""
    if history == 1:
        return frames
    count = tf.shape(frames)[0] - (history - 1)
    return tf.stack([frames[i : i + count] for i in range(history)], axis=-1)


def _concatenate(first, second):
    return types.Batch(*(np.concatenate(pair) for pair in zip(first, second)))


def _pad(batch, size):
    """Appends rows of zeros, weight included, up to `size` rows."""
    missing = size - len(batch.actions)
    if not missing:
        return batch
    return types.Batch(
        *(np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]) for x in batch)
    )
