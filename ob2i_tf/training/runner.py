"""A run: iterations of training and evaluation, logged, checkpointed, resumed exactly."""

import contextlib
import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import gin
import numpy as np
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
from ob2i_tf.environments.checked_env import CheckedVectorEnv
from ob2i_tf.errors import ConfigError, UserError
from ob2i_tf.learner import QLearner
from ob2i_tf.parameters import AtLeast, Within, checked
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training import build, disk, logs, loop, system
from ob2i_tf.training.failures import disk_errors, memory_errors
from ob2i_tf.training.run_folder import RunFolder
from ob2i_tf.training.run_state import RunState
from ob2i_tf.training.signals import StopRequest

_Steps = Annotated[int, AtLeast(0)]
# ALE takes 0.1 s per environment, in one call that no signal interrupts.
_NumEnvs = Annotated[int, Within(1, 256)]


@gin.configurable
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
      profile: First and last agent step of a recording by TensorFlow's profiler; None: never.
      method: Name of the method in reports; gin files bind it.

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
        profile: tuple[int, int] | None = None,
        method: str = '',
    ):
        del method  # Only reports read it, from config.gin.
        if training_steps % num_envs:
            raise ConfigError(
                f'Runner.training_steps = {training_steps} is not a multiple of '
                f'Runner.num_envs = {num_envs}'
            )
        self.folder = RunFolder(base_dir)
        self._profile = logs.Profile(profile, self.folder.tensorboard)
        self.folder.check_config(config.resolved_config(), config.resolved_config(defaults=False))
        self.folder.check_unlinked()
        system.report(require_gpu)
        system.set_up(tf32)
        self.parts = build.build(
            seed=seed,
            num_envs=num_envs,
            environment=environment,
            network=network,
            replay=replay,
            learner=learner,
            posterior=posterior,
            update=update,
            agent=agent,
            evaluation_preferences=evaluation_preferences,
            evaluation_tie_break=evaluation_tie_break,
            evaluation_belief=evaluation_belief,
            xla=xla,
        )
        self.parts.agent.check_schedule(num_iterations * training_steps)
        build.warn_of_long_games(
            self.parts, training_steps // num_envs, evaluation_steps // evaluation_envs
        )
        self._seed = seed
        self._num_iterations = num_iterations
        self._training_steps = training_steps
        self._evaluation_steps = evaluation_steps
        self._num_envs = num_envs
        self._evaluation_envs = evaluation_envs
        self._evaluation_epsilon = evaluation_epsilon
        self._make_environment = environment
        self._checkpoint_steps = checkpoint_steps
        self._stop = StopRequest()
        self._steps_per_second = math.nan  # Of this iteration, measured in this process.
        self._open(checkpoints_kept)

    def _open(self, checkpoints_kept):
        """Locks the folder, resumes from its newest intact checkpoint, and opens its logs."""
        folder = self.folder
        with disk_errors(folder):
            disk.make_folder(folder.path)
            self._lock = disk.Lock(folder.path)
            folder.check_config(config.resolved_config(), config.resolved_config(defaults=False))
            self._state = RunState(folder, self.parts, self._training_steps, checkpoints_kept)
        resumed = self._state.restore()
        started = math.ceil(self.parts.agent.agent_steps / self._training_steps)
        if started > self._num_iterations:
            raise UserError(
                f'{folder} has started {started} iterations, more than '
                f'Runner.num_iterations = {self._num_iterations}'
            )
        with disk_errors(folder):
            self._logs = logs.RunLogs(folder, self._state.iteration, self._state.tables)
            # Only now: a configuration that some part rejects must not become the folder's.
            disk.replace_text(folder.config, config.resolved_config())
            folder.write_environment([d.name for d in tf.config.list_physical_devices()])
            disk.sync(folder.path)  # Before the first checkpoint, which needs these files.
        verb = 'Resuming' if resumed else 'Starting'
        logging.info('%s in %s: %s', verb, folder, self._state.position(self._num_iterations))

    def run(self) -> None:
        """Trains and evaluates until `num_iterations` are done.

        On SIGTERM, SIGINT and SIGHUP (unless ignored, as under nohup) it saves, then ends the
        program with status 128 + signal; a second SIGINT ends it at once.

        Raises:
          NotFiniteError: The loss becomes NaN or infinite; the last checkpoint stays.
        """
        total = self._num_iterations * self._training_steps * self.parts.environment.frames_per_step
        with (
            contextlib.closing(self._profile),
            memory_errors(self.folder, self.parts.replay),
            self._stop,
            logs.ProgressBar(total, self.parts.frames) as self._progress,
        ):
            while self._state.iteration < self._num_iterations:
                self._train()
                self._log_iteration(self._evaluate() if self._evaluation_steps else None)
                self._state.next_iteration()
                self._save()
        logs.log_best_and_last(self.folder.rows('eval'))

    def _train(self):
        """Plays the remaining agent steps of this iteration."""
        agent, state = self.parts.agent, self._state
        last_step = (state.iteration + 1) * self._training_steps
        if agent.agent_steps == last_step:  # The checkpoint was saved during the evaluation.
            return
        with self._environments('environment', self._num_envs) as env:
            tracker = loop.GameTracker(self._num_envs)
            observations = self._reset_and_fast_forward(env, tracker)
            self.parts.timers.seconds.clear()
            start, start_steps = time.monotonic(), agent.agent_steps
            waiting = functools.partial(self.parts.timers, 'wait for environments')
            steps = loop.play(env, observations, agent.act, tracker, self._learn, waiting)
            for step, games in steps:
                state.actions.append(step.actions)
                agent.observe(step)
                self._log_games(games)
                self._progress.update(self.parts.frames, state.means, agent.epsilon)
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

    def _reset_and_fast_forward(self, env, tracker):
        """Replays the actions that a checkpoint holds; returns the observations after them."""
        agent, played = self.parts.agent, self._state.actions
        observations, _ = env.reset()
        agent.begin(observations, agent.heads if played else None)
        if played:
            logging.info('Playing %s agent steps again', f'{len(played) * self._num_envs:,}')
        actions = iter(played)
        steps = loop.play(env, observations, lambda _: next(actions), tracker)
        for step, _ in itertools.islice(steps, len(played)):
            agent.record(step)
            observations = step.observations
            self._exit_if_asked()  # Without saving: the checkpoint has all of this.
        return observations

    def _evaluate(self):
        """Plays `evaluation_steps` agent steps; returns the games that ended within them.

        Nothing in training depends on the evaluation.
        """
        count, games = self._evaluation_envs, []
        rng = np.random.default_rng(seeds.stream(self._seed, 'evaluation', self._state.iteration))
        with self._environments('evaluation_environment', count) as env:
            self._save_if_asked()
            observations, _ = env.reset()
            self._save_if_asked()
            steps = loop.play_policy(
                env,
                observations,
                self.parts.evaluation_policy,
                self.parts.posterior,
                self._evaluation_epsilon,
                rng,
            )
            for _, finished in itertools.islice(steps, math.ceil(self._evaluation_steps / count)):
                games += finished
                self._save_if_asked()
        return games

    def _environments(self, name, count):
        seed = seeds.integer(seeds.stream(self._seed, name, self._state.iteration))
        return contextlib.closing(
            CheckedVectorEnv(self._make_environment(num_envs=count, seed=seed))
        )

    def _log_games(self, games):
        if not games:
            return
        with disk_errors(self.folder):
            for game in games:
                self._state.means.add(game.named())
                self._logs.write_game(self.parts.frames, game)
            self._state.files.flush()  # So that a save after SIGTERM has little to write.

    def _log_iteration(self, games):
        state = self._state
        with disk_errors(self.folder):
            self._logs.write_iteration(
                state.iteration, self.parts, state.means, self._steps_per_second, games
            )
        logging.info('%s', state.position(self._num_iterations))

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
        signal = self._stop.signal
        if signal:
            logging.warning(
                'Stopped by %s, saved at %s; run the same command to resume.',
                signal.name,
                self._state.position(self._num_iterations),
            )
            sys.exit(128 + signal)
