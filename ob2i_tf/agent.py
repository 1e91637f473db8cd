"""The agent: acts, records whole episodes, and calls the learner on schedule."""

import contextlib
import numbers
from collections.abc import Callable
from typing import Annotated, Literal

import gin
import numpy as np
from absl import logging

from ob2i_tf import acting, types
from ob2i_tf.errors import ConfigError
from ob2i_tf.parameters import AtLeast, Within, checked

_Period = Annotated[int, AtLeast(1)]  # Agent steps.
_SCHEDULE_POINTS = 10_001


@gin.configurable(denylist=['timers', 'xla'])
@checked
class Agent:
    """Acts in `num_envs` environments in step, and learns from what it stored.

    Each step is three calls, `act`, `learn` and `observe`. The learning that is due with an agent
    step needs nothing of what that step leads to, so the environments may play it meanwhile; an
    episode that ends with it can be drawn from the next learner step on.

    All periods count agent steps; with several environments each of them takes one at a time, and
    as many learner steps follow as periods went by, so that their ratio does not depend on
    `num_envs`. What differs between tasks has no default; gin/base/ binds it for each task.

    Args:
      learner: QLearner.
      posterior: posteriors.Posterior of the learner's network.
      update: updates.Update, hands out a Batch for each learner step.
      replay: EpisodeReplay.
      num_envs: number of environments.
      rng: numpy Generator for heads, exploration and ties.
      timers: Makes the context in which 'act', 'targets' or 'gradient step' runs.
      xla: whether XLA compiles acting.
      preferences: how the agent acts, see acting.py.
      tie_break: see `acting.greedy_actions`.
      epsilon: maps agent steps taken to epsilon, see schedules.py.
      discount: gamma.
      learning_starts: agent steps before the first learner step.
      warmup: what acts before: 'random' actions (the paper), or the network by 'epsilon_greedy'
        (the released code).
      train_period: agent steps between learner steps.
      target_period: agent steps between copies into the target network.
      head_lifetime: a new head is drawn at the start of a 'game' (the paper), or of each stored
        'episode', so after a life loss too (the released code).
      timeout_is_terminal: a truncated episode does not bootstrap (the released code).

    Raises:
      ValueError: a value that cannot be, with its binding.
      ConfigError: as `acting.Policy`.
    """

    def __init__(
        self,
        learner,
        posterior,
        update,
        replay,
        num_envs: int,
        rng,
        timers=contextlib.nullcontext,
        xla=False,
        preferences: Callable = gin.REQUIRED,
        tie_break: acting.TieBreak = 'random',
        epsilon: Callable = gin.REQUIRED,
        discount: Annotated[float, Within(0, 1)] = gin.REQUIRED,
        learning_starts: Annotated[int, AtLeast(0)] = gin.REQUIRED,
        warmup: Literal['random', 'epsilon_greedy'] = gin.REQUIRED,
        train_period: _Period = gin.REQUIRED,
        target_period: _Period = gin.REQUIRED,
        head_lifetime: Literal['game', 'episode'] = 'game',
        timeout_is_terminal: bool = False,
    ):
        self.learner = learner
        self.posterior = posterior
        self.update = update
        self.replay = replay
        self.agent_steps = 0
        self.policy = acting.Policy(
            posterior, preferences, tie_break, xla=xla, name='Agent.preferences'
        )
        self._timers = timers
        self._num_envs = num_envs
        self._rng = rng
        self._epsilon = epsilon
        self._discount = discount
        self._learning_starts = learning_starts
        self._warmup = warmup
        self._train_period = train_period
        self._target_period = target_period
        self._head_per_episode = head_lifetime == 'episode'
        self._timeout_is_terminal = timeout_is_terminal
        self._heads = np.zeros(num_envs, np.int32)
        self._recorders = []
        self._postponed = False
        self._scheduled_epsilon()

    @property
    def epsilon(self):
        """Of the next action."""
        return 1.0 if self._random_at(self.agent_steps) else self._scheduled_epsilon()

    def _random_at(self, agent_steps):
        return self._warmup == 'random' and agent_steps < self._learning_starts

    def _scheduled_epsilon(self):
        return _scheduled(self._epsilon, self.agent_steps)

    @property
    def heads(self):
        """[num_envs] int32, what each environment follows."""
        return self._heads

    def begin(self, observations, heads=None):
        """Starts in environments that were just reset, with empty episodes.

        Args:
          observations: [num_envs, *stack].
          heads: what each environment follows; None: drawn.
        """
        self._heads = self._draw_heads(self._num_envs) if heads is None else heads
        self._recorders = [_Recorder(stack, self.replay.history) for stack in observations]

    def act(self, observations):
        """Actions [num_envs] int32 for stacks [num_envs, *stack]."""
        with self._timers('act'):
            return self.policy.actions(observations, self._heads, self.epsilon, self._rng)

    def observe(self, step: types.EnvStep):
        """Takes in a step of the environments."""
        for episode in self.record(step):
            self.replay.add_episode(episode)
        info, terminated, truncated = step.info, step.terminated, step.truncated
        over, taken = info['game_over'], self.agent_steps - self._num_envs
        self.posterior.observe(
            types.Step(
                step.acted_on,
                step.actions,
                self._heads,
                step.rewards,
                np.where(self._is_terminal(terminated, truncated), 0, self._discount),
                info['final_obs'],
                terminated | truncated,
                over,
                taken,
                self._random_at(taken),
            )
        )
        if self._head_per_episode:
            over = over | terminated | truncated
        if over.any():
            self._heads[over] = self._draw_heads(int(over.sum()))

    def record(self, step: types.EnvStep):
        """Adds one step to the episodes in progress; returns those that ended with it."""
        episodes, final_observations = [], step.info['final_obs']
        for index, recorder in enumerate(self._recorders):
            terminated, truncated = step.terminated[index], step.truncated[index]
            recorder.add(step.actions[index], step.rewards[index], final_observations[index])
            if terminated or truncated:
                terminal = self._is_terminal(terminated, truncated)
                episodes.append(recorder.episode(self._discount, terminal))
                self._recorders[index] = _Recorder(step.observations[index], self.replay.history)
        return episodes

    def _is_terminal(self, terminated, truncated):
        return terminated | (truncated & self._timeout_is_terminal)

    def end(self):
        """Stores the episodes in progress as truncated ones: they bootstrap from their end."""
        self.posterior.end()
        for recorder in self._recorders:
            if recorder.length:
                self.replay.add_episode(recorder.episode(self._discount, terminal=False))
        self._recorders = []

    def learn(self):
        """Counts the agent steps that were acted on, and learns as far as it is due with them.

        Returns:
          A list of dicts, one a learner step: 'loss', 'q_mean', and the bonus means where an
          episode was drawn.
        """
        reports = []
        for _ in range(self._num_envs):
            self.agent_steps += 1
            if self.agent_steps > self._learning_starts:
                if self.agent_steps % self._train_period == 0:
                    reports += self._learner_step()
                if self.agent_steps % self._target_period == 0:
                    self.learner.update_target()
                    self.posterior.target_updated()
        return reports

    def _learner_step(self):
        if not self.update.ready:
            if not self._postponed:
                logging.warning(
                    'Learning is postponed at %s agent steps: replay holds %s complete episodes.',
                    f'{self.agent_steps:,}',
                    self.replay.num_episodes,
                )
            self._postponed = True
            return []
        self._postponed = False
        with self._timers('targets'):
            batch, report = self.update.next_batch()
        with self._timers('gradient step'):
            learned, errors = self.learner.step(batch)
        if batch.ids is not None:
            real = batch.weights > 0
            self.replay.learned(batch.ids[real], errors[real])
        return [{**learned, **report}]

    def _draw_heads(self, count):
        return self.posterior.draw_heads(count, self._rng)

    def state(self):
        """JSON-able: counts, heads, random state. Episodes in progress are not part of it."""
        return {
            'agent_steps': self.agent_steps,
            'heads': self._heads.tolist(),
            'rng': self._rng.bit_generator.state,
            'postponed': self._postponed,
        }

    def set_state(self, state):
        self.agent_steps = state['agent_steps']
        self._heads = np.array(state['heads'], np.int32)
        self._rng.bit_generator.state = state['rng']
        self._postponed = state['postponed']


def check_schedule(epsilon, agent_steps):
    """Evaluates a schedule over a whole run, at up to _SCHEDULE_POINTS points.

    Args:
      epsilon: Maps agent steps to epsilon.
      agent_steps: Length of the run.

    Raises:
      ConfigError: It fails somewhere, or its value is not a number in 0..1.
    """
    last = _SCHEDULE_POINTS - 1
    for step in sorted({agent_steps * point // last for point in range(_SCHEDULE_POINTS)}):
        _scheduled(epsilon, step)


def _scheduled(epsilon, agent_steps):
    """Value of a schedule, checked to be a number in 0..1."""
    try:
        value = epsilon(agent_steps)
    except Exception as error:  # It may be the user's code.
        kind = '' if isinstance(error, ValueError) else f'{type(error).__name__}: '
        raise ConfigError(
            f'Agent.epsilon fails at {agent_steps} agent steps: {kind}{error}'
        ) from error
    if not (isinstance(value, numbers.Real) and 0 <= value <= 1):
        raise ConfigError(
            f'Agent.epsilon must map agent steps to a number in 0..1, got {value!r} at '
            f'{agent_steps}'
        )
    return value


class _Recorder:
    """An episode in progress, from the stack that its first action was chosen by."""

    def __init__(self, first_stack, history):
        self._history = history
        self._context = np.moveaxis(first_stack[..., :-1], -1, 0).copy() if history > 1 else None
        self._frames = [self._newest(first_stack)]
        self._actions = []
        self._rewards = []

    @property
    def length(self):
        return len(self._actions)

    def add(self, action, reward, next_stack):
        self._actions.append(action)
        self._rewards.append(reward)
        self._frames.append(self._newest(next_stack))

    def episode(self, discount, terminal):
        discounts = np.full(self.length, discount, np.float32)
        if terminal:
            discounts[-1] = 0
        return types.Episode(
            observations=np.stack(self._frames),
            actions=np.array(self._actions, np.int32),
            rewards=np.array(self._rewards, np.float32),
            discounts=discounts,
            context=self._context,
        )

    def _newest(self, stack):
        return (stack[..., -1] if self._history > 1 else stack).copy()
