"""A run: iterations of training and evaluation, logged, checkpointed, resumed exactly."""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import gin
import tensorflow as tf
from absl import logging

from ob2i_tf import (
    acting,
    config,
    environments,
    networks,
    posteriors,
    schedules,  # noqa: F401, which gin files name
    seeds,
    updates,
)
from ob2i_tf.agent import Agent
from ob2i_tf.errors import ConfigError
from ob2i_tf.learner import QLearner
from ob2i_tf.parameters import AtLeast, Within, checked
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training import (
    build,
    disk,
    estimates,
    evaluation,
    logs,
    loop,
    progress,
    system,
)
from ob2i_tf.training.failures import disk_errors, memory_errors
from ob2i_tf.training.observers import Observers
from ob2i_tf.training.run_folder import RunFolder
from ob2i_tf.training.run_state import RunState
from ob2i_tf.training.signals import StopRequest

_Steps = Annotated[int, AtLeast(0)]
# ALE takes 0.1 s per environment, in one call that no signal interrupts.
_NumEnvs = Annotated[int, Within(1, 256)]


@gin.configurable(denylist=['dry_run'])
@checked
class Runner:
    """Trains for `num_iterations` iterations, each followed by an evaluation and a checkpoint.

    Every iteration resets its environments with a seed derived from (seed, iteration); episodes cut
    off by the end of an iteration are stored as truncated. Within an iteration, a checkpoint holds
    the actions taken since the iteration started, and resuming replays them. So a run can be saved
    and resumed at any agent step without saving an emulator.

    Args:
      base_dir: Run folder; if it holds an interrupted run, that run is resumed.
      seed: Seed of every random choice of the run.
      num_iterations: Total number of iterations; raise it later to extend a finished run.
      training_steps: Agent steps per iteration (paper, table 4, "evaluation frequency").
      evaluation_steps: Agent steps per evaluation (paper, table 4, "evaluation length"); 0: none.
      num_envs: Number of environments that train in lockstep, at most 256; 1 is the paper's
        protocol. Each plays training_steps / num_envs agent steps per iteration, which cuts longer
        games off.
      evaluation_envs: Number of environments that evaluate in lockstep, at most 256. They share
        `evaluation_steps`, and games longer than their share are not counted.
      evaluation_epsilon: Epsilon of the evaluation (paper, table 4).
      evaluation_preferences: Preferences of the evaluated agent, see acting.py.
      evaluation_tie_break: See `acting.greedy_actions`.
      evaluation_belief: Whether the evaluated agent acts on a 'sample' of the posterior or on its
        'mean'.
      environment, network, replay, learner, posterior, update, agent: Factories of the parts, see
        `build.build`.
      checkpoint_steps: Agent steps between checkpoints within an iteration; 0: only at its end.
      checkpoints_kept: Number of the newest checkpoints that stay on disk.
      require_gpu: Whether to refuse to run if TensorFlow sees no GPU.
      xla: Parts that XLA compiles; which of them gain depends on the device, see
        docs/performance.md.
      tf32: Whether a GPU may round the inputs of float32 products to TensorFloat-32.
      deterministic: Whether a GPU computes by deterministic kernels only; see docs/running.md.
      profile: First and last agent step of a recording by TensorFlow's profiler; None: never.
      method: Name of the method in reports; gin files bind it.
      observers: Factories of your own loggers, see observers.py.
      dry_run: Whether only to check everything and build the parts: nothing is written, and the run
        cannot be started.

    Attributes:
      folder: RunFolder.
      parts: build.Parts.
    """

    def __init__(
        self,
        base_dir: str | Path,
        seed: _Steps = 0,
        num_iterations: _Steps = gin.REQUIRED,
        training_steps: Annotated[int, AtLeast(1)] = gin.REQUIRED,
        evaluation_steps: _Steps = gin.REQUIRED,
        num_envs: _NumEnvs = 1,
        evaluation_envs: _NumEnvs = 1,
        evaluation_epsilon: Annotated[float, Within(0, 1)] = gin.REQUIRED,
        evaluation_preferences: Callable = acting.vote_preferences,
        evaluation_tie_break: acting.TieBreak = 'random',
        evaluation_belief: acting.Belief = 'mean',
        environment: Callable = environments.make,
        network: Callable = networks.MultiHeadQNetwork,
        replay: Callable = EpisodeReplay,
        learner: Callable = QLearner,
        posterior: Callable = posteriors.EnsemblePosterior,
        update: Callable = updates.EpisodicUpdate,
        agent: Callable = Agent,
        checkpoint_steps: _Steps = 0,
        checkpoints_kept: Annotated[int, AtLeast(1)] = 2,
        require_gpu: bool = False,
        xla: Sequence[Literal['acting', 'targets', 'gradient_step']] = (),
        tf32: bool = False,
        deterministic: bool = False,
        profile: tuple[int, int] | None = None,
        method: str = '',
        observers: Sequence[Callable] = (),
        dry_run: bool = False,
    ):
        del method  # Only reports read it, from config.gin.
        if training_steps % num_envs:
            raise ConfigError(
                f'Runner.training_steps = {training_steps} is not a multiple of '
                f'Runner.num_envs = {num_envs}'
            )
        self.folder = RunFolder(base_dir)
        self._observers = Observers(observers)
        self._profile = logs.Profile(profile, self.folder.tensorboard)
        self.folder.check_config(*_resolved())
        self.folder.check_unlinked()
        self.folder.check_replay()
        system.report(require_gpu)
        system.set_up(tf32, deterministic)
        self.parts = build.build(
            seed=seed,
            num_envs=num_envs,
            make_environment=environment,
            make_network=network,
            make_replay=replay,
            make_learner=learner,
            make_posterior=posterior,
            make_update=update,
            make_agent=agent,
            evaluation_preferences=evaluation_preferences,
            evaluation_tie_break=evaluation_tie_break,
            evaluation_belief=evaluation_belief,
            xla=xla,
        )
        self._total_steps = num_iterations * training_steps
        self.parts.agent.check_schedule(self._total_steps)
        self._evaluation = evaluation.Evaluation(
            self.parts, environment, evaluation_envs, evaluation_steps, evaluation_epsilon, seed
        )
        build.report_long_games(self.parts, training_steps // num_envs, self._evaluation.steps)
        self._seed, self._num_iterations = seed, num_iterations
        self._training_steps = training_steps
        self._num_envs, self._make_environment = num_envs, environment
        self._checkpoint_steps, self._checkpoints_kept = checkpoint_steps, checkpoints_kept
        self._stop = StopRequest()
        self._steps_per_second = math.nan  # Of this iteration, measured in this process.
        if dry_run:
            return
        with disk_errors(self.folder):
            disk.make_folder(self.folder.path)
            self._lock = disk.Lock(self.folder.path)
        try:
            self._open()
        except BaseException:
            self._observers.close()
            self._lock.close()  # In a notebook the traceback keeps this object alive.
            raise

    def needs(self) -> list[str]:
        """Lines on what the run needs, see `estimates.needs`."""
        return estimates.needs(self.folder, self.parts, self._total_steps, self._checkpoints_kept)

    def _open(self):
        """Resumes from the folder's newest intact checkpoint, and opens its logs."""
        folder = self.folder
        with disk_errors(folder):
            resolved, bound = _resolved()
            folder.check_config(resolved, bound)
            self._state = RunState(folder, self.parts, self._training_steps, self._checkpoints_kept)
        resumed = self._state.restore()
        self._state.check_started(self._num_iterations)
        self._observers.start(folder.path, resolved, self.parts.frames)
        with disk_errors(folder):
            self._logs = logs.RunLogs(
                folder, self._state.iteration, self._state.tables, self._observers.log
            )
            # Only now: a configuration that some part rejects must not become the folder's.
            disk.replace_text(folder.config, resolved)
            self._logs.write_configuration(resolved, bound)
            folder.write_environment([d.name for d in tf.config.list_physical_devices()])
            disk.sync(folder.path)  # Before the first checkpoint, which needs these files.
        verb = 'Resuming' if resumed else 'Starting'
        logging.info('%s in %s: %s', verb, folder, self._state.position(self._num_iterations))

    def run(self) -> None:
        """Trains and evaluates until `num_iterations` are done.

        On SIGTERM, SIGINT and SIGHUP (unless ignored, as under nohup) it saves, then ends the
        program with status 128 + signal; a second SIGINT ends it at once. The folder is unlocked
        afterwards.

        Raises:
          NotFiniteError: The loss becomes NaN or infinite; the last checkpoint stays.
        """
        with (
            contextlib.closing(self._lock),
            contextlib.closing(self._profile),
            memory_errors(self.folder, self.parts.replay),
            contextlib.closing(self._observers),
            self._stop,
            progress.run_progress_bar(self.parts, self._total_steps) as self._progress,
        ):
            while self._state.iteration < self._num_iterations:
                self._train()
                evaluated = self._evaluation.play(self._state.iteration, self._save_if_asked)
                self._log_iteration(*evaluated)
                self._state.next_iteration()
                self._save()
            self._observers.complete = True
        logging.info('%s', progress.last_lines(self.folder))

    def _train(self):
        """Plays the remaining agent steps of this iteration."""
        agent, state = self.parts.agent, self._state
        last_step = (state.iteration + 1) * self._training_steps
        if agent.agent_steps == last_step:  # The checkpoint was saved during the evaluation.
            return
        stream = seeds.stream(self._seed, 'environment', state.iteration)
        with build.open_environments(self._make_environment, self._num_envs, stream) as env:
            tracker = loop.GameTracker(self._num_envs)
            observations = self._reset_and_fast_forward(env, tracker)
            self.parts.timers.seconds.clear()
            start, start_steps = time.monotonic(), agent.agent_steps
            waiting = functools.partial(self.parts.timers, 'wait for environments')
            steps = loop.play(env, observations, agent.act, tracker, self._learn, waiting)
            for step, games in steps:
                state.actions.append(step.actions)
                agent.observe(step)
                self._log_step(games)
                self._progress.update(self.parts.frames, agent.epsilon)
                self._profile.update(agent.agent_steps)
                if agent.agent_steps == last_step:
                    break
                if self._stop or self._checkpoint_is_due():
                    self._save()
            self._steps_per_second = (last_step - start_steps) / (time.monotonic() - start)
        agent.end()
        state.actions = []
        self._save_if_asked()

    def _learn(self):
        for report in self.parts.agent.learn():
            self._state.means.add(report)
            self._progress.learned(report)
            self._logs.learned(report)

    def _reset_and_fast_forward(self, env, tracker):
        """Replays the actions that a checkpoint holds; returns the observations after them."""
        agent, played = self.parts.agent, self._state.actions
        observations, _ = env.reset()
        agent.begin(observations, agent.heads if played else None)
        if played:
            logging.info('Playing %s agent steps again', f'{len(played) * self._num_envs:,}')
        ahead = iter(played)
        steps = loop.play(env, observations, lambda _: next(ahead), tracker)
        steps = itertools.islice(steps, len(played))
        for step, _ in progress.progress_bar(steps, len(played), 'playing again'):
            agent.record(step)
            observations = step.observations
            self._exit_if_asked()  # Without saving: the checkpoint has all of this.
        return observations

    def _log_step(self, games):
        if not games and not self._logs.recent_is_due():
            return
        self._progress.played(games)
        with disk_errors(self.folder):
            for game in games:
                self._state.means.add(game.named())
                self._logs.write_game(self.parts.frames, game)
            self._logs.write_recent(
                self._state.iteration, self.parts.frames, self.parts.agent.epsilon
            )
            self._state.files.flush()  # So that a save after SIGTERM has little to write.

    def _log_iteration(self, games, recording):
        state = self._state
        with disk_errors(self.folder):
            self._logs.write_iteration(
                state.iteration, self.parts, state.means, self._steps_per_second, games, recording
            )
        score = state.means.mean('score')
        ending = '' if math.isnan(score) else f', training score {score:.4g}'
        logging.info('%s%s', state.position(self._num_iterations), ending)

    def _checkpoint_is_due(self):
        """Whether the last step of the environments completed `checkpoint_steps` agent steps."""
        steps, period = self.parts.agent.agent_steps, self._checkpoint_steps
        return period > 0 and steps // period > (steps - self._num_envs) // period

    def _save(self):
        self._state.check_finite()  # Not within `disk_errors`: it may run out of memory.
        with disk_errors(self.folder):
            self._state.save(self._logs.fingerprints())
        self._exit_if_asked()

    def _save_if_asked(self):
        if self._stop:
            self._save()

    def _exit_if_asked(self):
        self._stop.exit_if_asked(lambda: self._state.position(self._num_iterations))


def _resolved():
    """The configuration with and without defaults."""
    return config.resolved_config(), config.resolved_config(defaults=False)
