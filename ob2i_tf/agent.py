"""The agent: acts, records complete episodes, and runs learner steps on schedule.

The path of a transition: `act` chooses an action by a preference over the heads' Q-values
(acting.py). `observe` appends the outcome to the episode in progress, and adds a finished Episode
to replay (replay.py). `learn` takes a learner step (learner_step.py): the update draws transitions
from replay and computes their bonuses and targets, as a Batch (updates.py, bonuses.py, targets.py);
the learner takes one gradient step on that Batch (learner.py).
"""

import contextlib
import numbers
from collections.abc import Callable
from typing import Annotated, Any, Literal

import gin
import numpy as np
from absl import logging

from ob2i_tf import acting, frames, types
from ob2i_tf.errors import ConfigError
from ob2i_tf.learner_step import LearnerStep
from ob2i_tf.parameters import AtLeast, Within, checked

_Period = Annotated[int, AtLeast(1)]  # Agent steps.
_SCHEDULE_POINTS = 10_001


@gin.configurable(denylist=['timers', 'xla'])
@checked
class Agent:
    """Acts in `num_envs` environments in lockstep and learns from replay.

    A step consists of three calls: `act`, `learn` and `observe`. A learner step that is due does
    not depend on the outcome of the agent step, so the environments may play that step during
    `learn`; an episode that ends in it can be drawn from the next learner step on.

    All periods count agent steps. In a step of several environments each takes one agent step, and
    one learner step runs per completed period, so the ratio of learner steps to agent steps does
    not depend on `num_envs`. Parameters that differ between tasks have no default; gin/base/ binds
    them for each task.

    Args:
      learner: QLearner that takes the gradient steps.
      posterior: Posterior of the learner's network.
      update: Update that makes a Batch for each learner step.
      replay: EpisodeReplay of the finished episodes.
      num_envs: Number of environments.
      rng: Random generator of heads, exploration and ties.
      timers: Makes the context in which 'act' or a part of a LearnerStep runs.
      xla: Whether XLA compiles acting.
      preferences: Preference function by which the agent acts, see acting.py.
      tie_break: See `acting.greedy_actions`.
      epsilon: Maps the number of agent steps taken to epsilon, see schedules.py.
      discount: Discount factor gamma.
      learning_starts: Agent steps before the first learner step.
      warmup: Actions until then: 'random' (the paper), or 'epsilon_greedy' by the network (the
        released code).
      train_period: Agent steps per learner step.
      target_period: Agent steps per copy into the target network.
      head_lifetime: Span for which a drawn head is followed: a 'game' (the paper), or a stored
        'episode', which also ends with a life loss (the released code).
      timeout_is_terminal: Whether a truncated episode does not bootstrap (the released code).

    Attributes:
      agent_steps: Number of agent steps observed.

    Raises:
      ValueError: An argument is out of range; the message names the binding.
      ConfigError: See `acting.Policy`.
    """

    def __init__(
        self,
        learner: Any,
        posterior: Any,
        update: Any,
        replay: Any,
        num_envs: int,
        rng: np.random.Generator,
        timers: Callable = contextlib.nullcontext,
        xla: bool = False,
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
        self.learner_step = LearnerStep(update, learner, timers)
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
        self._recorders: list[_Recorder] = []
        self._postponed = False
        self._scheduled_epsilon()

    @property
    def epsilon(self) -> float:
        """Epsilon of the next action."""
        return 1.0 if self._acts_randomly(self.agent_steps) else self._scheduled_epsilon()

    def _acts_randomly(self, agent_steps):
        return self._warmup == 'random' and agent_steps < self._learning_starts

    def _scheduled_epsilon(self):
        return _evaluate_schedule(self._epsilon, self.agent_steps)

    def check_schedule(self, agent_steps: int) -> None:
        """Evaluates epsilon at evenly spaced points of a run of `agent_steps`.

        A run without a learner step is reported in a warning.

        Raises:
          ConfigError: The schedule fails, or a value is not a number in 0..1.
        """
        last = _SCHEDULE_POINTS - 1
        for step in sorted({agent_steps * point // last for point in range(_SCHEDULE_POINTS)}):
            _evaluate_schedule(self._epsilon, step)
        last_due = agent_steps - agent_steps % self._train_period
        if self.posterior.needs_learner and 0 < last_due <= self._learning_starts:
            logging.warning(
                'Nothing will be learned within %s agent steps: Agent.learning_starts = %s.',
                f'{agent_steps:,}',
                f'{self._learning_starts:,}',
            )

    @property
    def heads(self) -> np.ndarray:
        """[num_envs] int32, the head that each environment follows."""
        return self._heads

    def begin(self, observations: np.ndarray, heads: np.ndarray | None = None) -> None:
        """Starts empty episodes in environments that were just reset.

        Args:
          observations: First observations, [num_envs, *stack].
          heads: Head that each environment follows, [num_envs] int32; None: drawn.
        """
        self._heads = self._draw_heads(self._num_envs) if heads is None else heads
        self._recorders = [_Recorder(stack, self.replay.history) for stack in observations]

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions [num_envs] int32 for stacks [num_envs, *stack]."""
        with self._timers('act'):
            return self.policy.actions(observations, self._heads, self.epsilon, self._rng)

    def observe(self, step: types.EnvStep) -> None:
        """Records and counts a step of the environments; draws heads where games ended."""
        for episode in self.record(step):
            self.replay.add_episode(episode)
        info, terminated, truncated = step.info, step.terminated, step.truncated
        over = info['game_over']
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
                self.agent_steps,
                self._acts_randomly(self.agent_steps),
            )
        )
        self.agent_steps += self._num_envs
        if self._head_per_episode:
            over = over | terminated | truncated
        if over.any():
            self._heads[over] = self._draw_heads(int(over.sum()))

    def record(self, step: types.EnvStep) -> list[types.Episode]:
        """Adds a step to the episodes in progress; returns those that ended with it."""
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

    def end(self) -> None:
        """Stores the episodes in progress as truncated ones, which bootstrap from their end."""
        self.posterior.end()
        for recorder in self._recorders:
            if recorder.length:
                self.replay.add_episode(recorder.episode(self._discount, terminal=False))
        self._recorders = []

    def learn(self) -> list[dict[str, float]]:
        """Runs the learner steps and target copies due at the agent steps to be observed next.

        Returns:
          A dict per learner step: 'loss', 'q_mean', and the means of the bonuses if targets were
          computed for it.
        """
        first, last = self.agent_steps + 1, self.agent_steps + self._num_envs
        return [report for step in range(first, last + 1) for report in self.learn_at(step)]

    def learn_at(self, agent_step):
        """Runs what is due at this agent step, counted from 1; returns reports like `learn`."""
        reports = []
        if agent_step > self._learning_starts:
            if agent_step % self._train_period == 0:
                reports = self._learner_step(agent_step)
            if agent_step % self._target_period == 0:
                self.learner.update_target()
                self.posterior.target_updated()
        return reports

    def _learner_step(self, agent_step):
        if not self.update.ready:
            if not self._postponed:
                logging.warning(
                    'Learning is postponed at %s agent steps: replay holds %s complete episodes.',
                    f'{agent_step:,}',
                    self.replay.num_episodes,
                )
            self._postponed = True
            return []
        self._postponed = False
        report, ids, errors = self.learner_step()
        if ids is not None:
            self.replay.learned(ids, errors)
        return [report]

    def _draw_heads(self, count):
        return self.posterior.draw_heads(count, self._rng)

    def state(self) -> dict[str, Any]:
        """Counts, heads and random state, for JSON; without the episodes in progress."""
        return {
            'agent_steps': self.agent_steps,
            'heads': self._heads.tolist(),
            'rng': self._rng.bit_generator.state,
            'postponed': self._postponed,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.agent_steps = state['agent_steps']
        self._heads = np.array(state['heads'], np.int32)
        self._rng.bit_generator.state = state['rng']
        self._postponed = state['postponed']


def _evaluate_schedule(epsilon, agent_steps):
    """The value of a schedule, checked to be a number in 0..1."""
    try:
        value = epsilon(agent_steps)
    except Exception as error:  # A schedule may be user code.
        kind = '' if isinstance(error, ValueError) else f'{type(error).__name__}: '
        raise ConfigError(
            f'Agent.epsilon fails at {agent_steps} agent steps: {kind}{error}'
        ) from error
    if not (isinstance(value, numbers.Real) and 0 <= float(value) <= 1):
        raise ConfigError(
            f'Agent.epsilon must map agent steps to a number in 0..1, got {value!r} at '
            f'{agent_steps}'
        )
    return value


class _Recorder:
    """An episode in progress; `first_stack` is the stack that its first action is chosen by.

    It copies all frames, since environments may reuse their buffers.
    """

    def __init__(self, first_stack, history):
        self._history = history
        self._context = frames.older(first_stack, history).copy()
        self._frames = [frames.newest(first_stack, history).copy()]
        self._actions: list[int] = []
        self._rewards: list[float] = []

    @property
    def length(self):
        return len(self._actions)

    def add(self, action, reward, next_stack):
        self._actions.append(action)
        self._rewards.append(reward)
        self._frames.append(frames.newest(next_stack, self._history).copy())

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
