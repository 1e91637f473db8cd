"""A run: iterations of training and evaluation, logged, checkpointed, resumed exactly.

The composition root: this is where the parts of a run are built and meet.
"""

import contextlib
import csv
import inspect
import io
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import gin
import numpy as np
import psutil
import tensorflow as tf
import tqdm
from absl import logging

from ob2i_tf import acting, config, environments, networks, posteriors, replay, updates
from ob2i_tf.agent import Agent, check_schedule
from ob2i_tf.environments.watched import Watched
from ob2i_tf.errors import CheckpointError, ConfigError, UserError
from ob2i_tf.learner import QLearner, check_finite
from ob2i_tf.training import csv_columns, disk, logs, run_folder, system
from ob2i_tf.training.checkpoints import Checkpoints, newest_first
from ob2i_tf.training.episode_files import EpisodeFiles

# The independent random streams of a run: the keys under which its one seed is split.
STREAMS = (
    'network',
    'target_network',
    'replay',
    'acting',
    'environment',
    'evaluation',
    'evaluation_environment',
    'prior',
    'posterior',
    'learner',
    'update',
)
XLA_PARTS = ('acting', 'targets', 'gradient_step')
_MOST_ENVS = 256  # ALE takes 0.1 s for each, in one call that no signal interrupts.
_TABLES = {
    'train': csv_columns.TRAIN,
    'eval': csv_columns.EVAL,
    'episodes': csv_columns.EPISODES,
    'eval_episodes': csv_columns.EVAL_EPISODES,
}
_PARTS_WITH_ARRAYS = ('update', 'posterior')

config.uses('Runner', 'make_environment', 'EpisodeReplay', 'QLearner', 'Agent')
config.uses('IndependentQNetworks', 'MultiHeadQNetwork')


def stream(seed, name, *key):
    """The np.random.SeedSequence of one stream of the run with this seed.

    Args:
      seed: of the run.
      name: one of STREAMS.
      *key: further integers, such as the iteration.
    """
    return np.random.SeedSequence(seed, spawn_key=(STREAMS.index(name), *key))


@gin.configurable
class Runner:
    """Trains for `num_iterations` iterations, each followed by an evaluation and a checkpoint.

    Every iteration starts its environments afresh, from a seed that follows from (seed,
    iteration); the episodes that its end cuts off are stored as truncated. In between, a
    checkpoint holds the actions taken since the iteration began, and resuming plays them again:
    so a run can be saved and resumed at any agent step without saving an emulator.

    Args:
      base_dir: run folder; what an earlier, interrupted run left there is resumed.
      seed: decides every random choice of the run.
      num_iterations: iterations in all; may be raised later to go on with a finished run.
      training_steps: agent steps an iteration (paper, table 4, "evaluation frequency").
      evaluation_steps: agent steps of an evaluation (paper, table 4, "evaluation length"); 0: none.
      num_envs: environments that train in step, at most 256; 1 is the paper's protocol. Each plays
        training_steps / num_envs agent steps an iteration, which cuts longer games off.
      evaluation_envs: environments that evaluate in step, at most 256; they share
        `evaluation_steps`, and no game longer than their share counts.
      evaluation_epsilon: of the evaluation (paper, table 4).
      evaluation_preferences: how the evaluated agent acts, see acting.py.
      evaluation_tie_break: see `acting.greedy_actions`.
      evaluation_belief: what of the posterior it acts on, see `acting.Policy`.
      network: the class of the network, see networks.py.
      posterior: the class of the posterior, see posteriors.py.
      update: the class of the update, see updates.py.
      checkpoint_steps: agent steps between checkpoints within an iteration; 0: only at its end.
      checkpoints_kept: how many of the newest stay on disk.
      require_gpu: stop at once where TensorFlow sees no GPU.
      xla: which of XLA_PARTS XLA compiles; what wins depends on the device, see README.
      tf32: whether a GPU may round the inputs of float32 products to TensorFloat-32.
      profile: (first, last) agent steps between which TensorFlow's profiler records into
        tensorboard/, to be read with the plugin tensorboard-plugin-profile; None: never.
    """

    def __init__(
        self,
        base_dir,
        seed: int = 0,
        num_iterations: int = 50,
        training_steps: int = 100_000,
        evaluation_steps: int = 108_000,
        num_envs: int = 1,
        evaluation_envs: int = 1,
        evaluation_epsilon: float = 0.05,
        evaluation_preferences: Callable = acting.vote_preferences,
        evaluation_tie_break: Literal[acting.TIE_BREAKS] = 'random',
        evaluation_belief: Literal[acting.BELIEFS] = 'mean',
        network: Callable = networks.MultiHeadQNetwork,
        posterior: Callable = posteriors.EnsemblePosterior,
        update: Callable = updates.EpisodicUpdate,
        checkpoint_steps: int = 0,
        checkpoints_kept: int = 2,
        require_gpu: bool = False,
        xla: Sequence[Literal[XLA_PARTS]] = (),
        tf32: bool = False,
        profile: tuple[int, int] | None = None,
    ):
        _check_counts(
            0,
            seed=seed,
            num_iterations=num_iterations,
            evaluation_steps=evaluation_steps,
            checkpoint_steps=checkpoint_steps,
        )
        _check_counts(1, training_steps=training_steps, checkpoints_kept=checkpoints_kept)
        _check_counts(1, _MOST_ENVS, num_envs=num_envs, evaluation_envs=evaluation_envs)
        if training_steps % num_envs:
            raise ConfigError(
                f'Runner.training_steps = {training_steps} is not a multiple of '
                f'Runner.num_envs = {num_envs}'
            )
        if not 0 <= evaluation_epsilon <= 1:
            raise ConfigError(
                f'Runner.evaluation_epsilon must be in 0..1, got {evaluation_epsilon}'
            )
        if not set(xla) <= set(XLA_PARTS):
            raise ConfigError(f'Runner.xla must name some of {XLA_PARTS}, got {xla!r}')
        if profile is not None and not (len(profile) == 2 and 0 <= profile[0] < profile[1]):
            raise ConfigError(
                f'Runner.profile must be (first, last) agent steps or None, got {profile!r}'
            )
        system.report(require_gpu)
        system.set_up(tf32)
        for name, part, kind in (
            ('network', network, tf.keras.Model),
            ('posterior', posterior, posteriors.Posterior),
            ('update', update, updates.Update),
        ):
            if not callable(part) or (inspect.isclass(part) and not issubclass(part, kind)):
                raise ConfigError(f'Runner.{name} must be what makes one, got {part!r}')
        self._directory = Path(base_dir)
        self._seed = seed
        self._num_iterations = num_iterations
        self._training_steps = training_steps
        self._evaluation_steps = evaluation_steps
        self._num_envs = num_envs
        self._evaluation_envs = evaluation_envs
        self._evaluation_epsilon = evaluation_epsilon
        self._checkpoint_steps = checkpoint_steps
        self._profile = profile
        self._profiling = None  # ExitStack that ends the profile in progress.
        self._stop_signal = None
        self._steps_per_second = math.nan  # Of this iteration, measured in this process.

        run_folder.check_config(self._directory)
        run_folder.check_unlinked(self._directory)
        check_schedule(config.bound(Agent)['epsilon'], num_iterations * training_steps)
        with contextlib.closing(environments.make(num_envs=1)) as env:
            observation_space = env.single_observation_space
            num_actions = int(env.single_action_space.n)
            history = env.metadata['history']
            self._frames_per_step = env.metadata['frames_per_step']
            self._shortest_path = env.metadata.get('shortest_path')  # Agent steps, in mazes.
            longest = env.metadata.get('max_episode_steps', 0)
            data = env.metadata.get('data')
        shape = observation_space.shape
        online_network, target_network = (
            networks.build(
                network(
                    num_actions,
                    seed=_small_integer(stream(seed, name)),
                    prior_seed=_small_integer(stream(seed, 'prior')),
                ),
                shape,
                observation_space.dtype,
            )
            for name in ('network', 'target_network')
        )
        self._replay = replay.EpisodeReplay(
            shape[:-1] if history > 1 else shape,
            history=history,
            seed=_integer(stream(seed, 'replay')),
            observation_dtype=observation_space.dtype,
        )
        self._episode_files = EpisodeFiles(self._directory / 'replay', self._replay)
        self._warn_of_long_games(longest)
        self._learner = QLearner(
            online_network,
            target_network,
            _small_integer(stream(seed, 'learner')),
            xla='gradient_step' in xla,
        )
        self._posterior = posterior(
            online_network,
            target_network,
            self._replay,
            num_envs,
            _small_integer(stream(seed, 'posterior')),
        )
        self._update = update(
            self._replay,
            online_network,
            target_network,
            self._posterior.selector,
            _small_integer(stream(seed, 'update')),
            xla='targets' in xla,
        )
        self.phases = logs.Phases()
        self._agent = Agent(
            self._learner,
            self._posterior,
            self._update,
            self._replay,
            num_envs,
            np.random.default_rng(stream(seed, 'acting')),
            self.phases,
            xla='acting' in xla,
        )
        self._evaluation_policy = acting.Policy(
            self._posterior,
            evaluation_preferences,
            evaluation_tie_break,
            evaluation_belief,
            xla='acting' in xla,
            name='Runner.evaluation_preferences',
        )
        parts = {'learner': self._learner, 'posterior': self._posterior, **self._update.trackables}
        self._variables = tf.train.Checkpoint(**parts)
        self._modules = {
            'online network': online_network,
            'target network': target_network,
            **{name: part for name, part in parts.items() if isinstance(part, tf.Module)},
        }

        self._iteration = 0
        self._actions = []  # Taken in this iteration, [num_envs] each.
        self._means = logs.Means()
        self._csv_seen = {}
        with self._writing():
            disk.make_folder(self._directory)
            self._lock = disk.Lock(self._directory)
            run_folder.check_config(self._directory)
            self._checkpoints = Checkpoints(self._directory / 'checkpoints', checkpoints_kept)
        resumed = self._checkpoints.restore(self._read_checkpoint)
        begun = math.ceil(self._agent.agent_steps / training_steps)
        if begun > num_iterations:
            raise UserError(
                f'{self._directory} has begun {begun} iterations, more than '
                f'Runner.num_iterations = {num_iterations}'
            )
        with self._writing():
            if resumed:
                run_folder.check_data(self._directory, data)
            self._open_logs(resumed)
            # Not before: one that some part refuses must not be the configuration of the folder.
            disk.replace_text(self._directory / 'config.gin', config.resolved_config())
            run_folder.write_environment(self._directory, data)
            disk.sync(self._directory)  # Before the first checkpoint, which needs these files.
        logging.info(
            '%s in %s: %s', 'Resuming' if resumed else 'Starting', self._directory, self._position()
        )

    def run(self):
        """Trains and evaluates until `num_iterations` are done.

        On SIGTERM, SIGINT and SIGHUP (unless ignored, as under nohup) it saves, then ends the
        program with status 128 + signal; a second SIGINT ends it at once.

        Raises:
          NotFiniteError: if the loss becomes NaN or infinite; the last checkpoint stays.
        """
        previous = {
            number: signal.signal(number, self._request_stop)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # nohup
        }
        try:
            with tqdm.tqdm(
                total=self._num_iterations * self._training_steps * self._frames_per_step,
                initial=self._agent.agent_steps * self._frames_per_step,
                unit='frames',
                unit_scale=True,
                dynamic_ncols=True,
                mininterval=1 if sys.stderr.isatty() else 60,  # Seconds; a log is not a screen.
            ) as self._progress:
                while self._iteration < self._num_iterations:
                    self._train()
                    self._log_iteration(self._evaluate())
                    self._iteration += 1
                    self._means = logs.Means()
                    self._save()
            self._report_scores()
        except (MemoryError, tf.errors.ResourceExhaustedError) as error:
            raise UserError(
                f'out of memory with {self._replay.num_transitions:,} transitions in replay '
                f'({_first_line(error)}); a smaller EpisodeReplay.capacity_transitions needs less'
                f'{self._earlier_checkpoints()}'
            ) from error
        finally:
            self._stop_profile()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _warn_of_long_games(self, longest):
        """Says which games, of at most `longest` agent steps, this run cannot see whole."""
        played = self._training_steps // self._num_envs
        if played < longest:
            logging.warning(
                'Training cuts games off after %s agent steps, Runner.training_steps / num_envs; '
                'they may have %s.',
                f'{played:,}',
                f'{longest:,}',
            )
        evaluated = self._evaluation_steps // self._evaluation_envs
        if 0 < evaluated < longest:
            logging.warning(
                'Evaluations count no game of more than %s agent steps, Runner.evaluation_steps / '
                'evaluation_envs; they may have %s.',
                f'{evaluated:,}',
                f'{longest:,}',
            )
        if self._replay.capacity_transitions < longest:
            logging.warning(
                'An episode of more than EpisodeReplay.capacity_transitions = %s ends the run; '
                'games may have %s.',
                f'{self._replay.capacity_transitions:,}',
                f'{longest:,}',
            )

    # Training.

    def _train(self):
        """Plays what is left of this iteration's agent steps."""
        agent = self._agent
        last_step = (self._iteration + 1) * self._training_steps
        if agent.agent_steps == last_step:  # A checkpoint was made during the evaluation.
            return
        with self._environments('environment', self._num_envs) as env:
            observations, games = self._enter(env)
            self.phases.seconds.clear()
            start, start_steps = time.monotonic(), agent.agent_steps
            while agent.agent_steps < last_step:
                actions = agent.act(observations)
                env.step_async(actions)
                for report in agent.learn():
                    self._means.add(report)
                with self.phases('wait for environments'):
                    observations, rewards, terminated, truncated, info = env.step_wait()
                self._actions.append(actions)
                agent.observe(actions, observations, rewards, terminated, truncated, info)
                for game in games.add(rewards, info):
                    self._means.add(game)
                    self._log_game(game)
                if info['game_over'].any():
                    with self._writing():  # So that little is left to write when SIGTERM comes.
                        self._episode_files.flush()
                self._show_progress()
                self._start_or_stop_profile()
                if agent.agent_steps < last_step and (
                    self._stop_signal or self._went_by(self._checkpoint_steps)
                ):
                    self._save()
            self._steps_per_second = (last_step - start_steps) / (time.monotonic() - start)
        agent.end()
        self._actions = []
        self._save_if_asked()

    def _environments(self, name, count):
        seed = _integer(stream(self._seed, name, self._iteration))
        return contextlib.closing(Watched(environments.make(num_envs=count, seed=seed)))

    def _start_or_stop_profile(self):
        if self._profile is None:
            return
        first, last = self._profile
        if not self._profiling and first <= self._agent.agent_steps < last:
            self._profiling = contextlib.ExitStack()
            folder = run_folder.named_for_tensorflow(self._directory / 'tensorboard')
            tf.profiler.experimental.start(self._profiling.enter_context(folder))
            self._profiling.callback(tf.profiler.experimental.stop)
        if self._agent.agent_steps >= last:
            self._stop_profile()

    def _stop_profile(self):
        if self._profiling:
            self._profiling.close()
            self._profiling = None

    def _enter(self, env):
        """Resets the environments, and plays again what a checkpoint says was played in them."""
        agent, games = self._agent, _Games(self._num_envs)
        observations, _ = env.reset()
        agent.begin(observations, agent.heads if self._actions else None)
        if self._actions:
            logging.info('Playing %s agent steps again', f'{len(self._actions) * self._num_envs:,}')
        for actions in self._actions:
            self._end_if_asked()  # The checkpoint has all of this.
            observations, rewards, terminated, truncated, info = env.step(actions)
            agent.record(actions, observations, rewards, terminated, truncated, info['final_obs'])
            games.add(rewards, info)
        return observations, games

    def _went_by(self, period):
        """Whether the last step of the environments completed `period` agent steps; 0: never."""
        steps = self._agent.agent_steps
        return bool(period) and steps // period > (steps - self._num_envs) // period

    # Evaluation.

    def _evaluate(self):
        """The games that `evaluation_steps` agent steps finish, as of `_Games.add`.

        It touches nothing that training depends on.
        """
        finished = []
        if not self._evaluation_steps:
            return finished
        count, policy = self._evaluation_envs, self._evaluation_policy
        rng = np.random.default_rng(stream(self._seed, 'evaluation', self._iteration))
        with self._environments('evaluation_environment', count) as env:
            games = _Games(count)
            self._save_if_asked()
            observations, _ = env.reset()
            self._save_if_asked()
            heads = self._posterior.evaluation_heads(count, rng)
            for _ in range(math.ceil(self._evaluation_steps / count)):
                actions = policy.actions(observations, heads, self._evaluation_epsilon, rng)
                observations, rewards, _, _, info = env.step(actions)
                finished += games.add(rewards, info)
                over = info['game_over']
                heads[over] = self._posterior.evaluation_heads(int(over.sum()), rng)
                self._save_if_asked()
        if not finished:
            logging.warning(
                'No game ended within the %s agent steps of the evaluation: no score.',
                f'{self._evaluation_steps:,}',
            )
        return finished

    # Logs.

    @property
    def _frames(self):
        return self._agent.agent_steps * self._frames_per_step

    def _open_logs(self, resumed):
        rows = 0 if resumed else _num_lines(self._directory / 'train.csv') - 1
        if rows > 1:
            raise CheckpointError(
                f'{self._directory} holds the rows of several iterations, but no checkpoint; move '
                'it away to start over'
            )
        if rows == 1:  # A kill between an iteration's row and its checkpoint leaves as much.
            logging.warning(
                '%s holds the row of the first iteration, but no checkpoint: it starts over.',
                self._directory,
            )
        self._csv = {}
        for name, header in _TABLES.items():
            path = self._directory / f'{name}.csv'
            self._csv[name] = logs.CsvLog(path, header, self._csv_seen.get(name))
        self._tensorboard = logs.TensorBoard(self._directory / 'tensorboard', self._iteration)

    def _log_game(self, game):
        with self._writing():
            self._csv['episodes'].write(self._game_row(game))

    def _game_row(self, game):
        return {'frames': self._frames, 'score': game['score'], 'length': game['episode_length']}

    def _log_iteration(self, evaluated):
        means = self._means
        train = {
            'iteration': self._iteration,
            'frames': self._frames,
            'agent_steps': self._agent.agent_steps,
            'learner_steps': self._learner.learner_steps,
            'episodes': means.count('score'),
            **{f'{name}_mean': means.mean(name) for name in ('score', 'return', 'episode_length')},
            **{
                name: means.mean(name)
                for name in ('loss', 'bonus_mean', 'next_bonus_mean', 'q_mean')
            },
            'epsilon': self._agent.epsilon,
            'agent_steps_per_second': self._steps_per_second,
        }
        scalars = {f'train/{name}': train[name] for name in csv_columns.TRAIN[3:]}
        for name, seconds in self.phases.seconds.items():
            scalars[f'process/seconds_{name}'.replace(' ', '_')] = seconds
        scalars['process/resident_gigabytes'] = psutil.Process().memory_info().rss / 1e9
        scalars['process/traces'] = self._traces()
        scalars['replay/transitions'] = self._replay.num_transitions
        if self._shortest_path:
            played = [game['episode_length'] for game in evaluated] or [math.nan]
            lengths = {'train': train['episode_length_mean'], 'eval': np.mean(played)}
            for name, length in lengths.items():
                scalars[f'{name}/relative_length'] = length / self._shortest_path
        with self._writing():
            self._csv['train'].write(train)
            if self._evaluation_steps:
                for game in evaluated:
                    self._csv['eval_episodes'].write(
                        {'iteration': self._iteration, **self._game_row(game)}
                    )
                values = np.array([game['score'] for game in evaluated] or [math.nan])
                evaluation = {
                    'iteration': self._iteration,
                    'frames': self._frames,
                    'episodes': len(evaluated),
                    **{
                        f'score_{name}': float(getattr(values, name)())
                        for name in ('mean', 'std', 'min', 'max')
                    },
                }
                self._csv['eval'].write(evaluation)
                scalars.update({f'eval/{name}': evaluation[name] for name in csv_columns.EVAL[2:]})
            self._tensorboard.write(self._iteration, self._frames, scalars)
        logging.info('%s', self._position())

    def _position(self):
        return (
            f'iteration {self._iteration} of {self._num_iterations}, {self._frames:,} frames, '
            f'{self._learner.learner_steps:,} learner steps'
        )

    def _show_progress(self):
        self._progress.update(self._num_envs * self._frames_per_step)
        if self._went_by(100):
            self._progress.set_postfix(
                score=f'{self._means.mean("score"):.6g}',
                epsilon=f'{self._agent.epsilon:.2f}',
                refresh=False,
            )

    def _traces(self):
        """How often TensorFlow traced the compiled functions of this run."""
        return sum(
            function.experimental_get_tracing_count()
            for part in (
                self._learner,
                self._posterior,
                self._update,
                self._agent.policy,
                self._evaluation_policy,
            )
            for function in part.compiled_functions()
        )

    # Checkpoints.

    def _save(self):
        """Saves everything that the run's future depends on; ends the program if it must stop."""
        check_finite(f'after learner step {self._learner.learner_steps}', **self._modules)
        with self._writing():
            tables = {name: log.describe() for name, log in self._csv.items()}
            manifest = self._episode_files.save()
            state = {
                'format': run_folder.CHECKPOINT_FORMAT,
                'iteration': self._iteration,
                'agent': self._agent.state(),
                'means': self._means.state(),
                'csv': tables,
                'replay': manifest,
            }
            arrays = {
                f'{part}_{name}': array
                for part in _PARTS_WITH_ARRAYS
                for name, array in getattr(self, f'_{part}').state().items()
            }

            def write(folder):
                (folder / 'state.json').write_text(json.dumps(state))
                actions = np.array(self._actions, np.int32).reshape(-1, self._num_envs)
                content = io.BytesIO()  # On a full disk NumPy would leave an open archive.
                np.savez_compressed(content, actions=actions, **arrays)
                (folder / 'arrays.npz').write_bytes(content.getvalue())
                with run_folder.named_for_tensorflow(folder) as name:
                    self._variables.write(f'{name}/variables')

            self._checkpoints.save(self._agent.agent_steps, write)
            kept = self._checkpoints.prune()
            self._episode_files.prune(list(_replays_of(kept)))
        self._end_if_asked()

    def _save_if_asked(self):
        if self._stop_signal:
            self._save()

    def _end_if_asked(self):
        if self._stop_signal:
            name = signal.Signals(self._stop_signal).name
            logging.warning(
                'Stopped by %s, saved at %s; start it again to go on.', name, self._position()
            )
            sys.exit(128 + self._stop_signal)

    def _read_checkpoint(self, folder):
        state = run_folder.read_state(folder)
        arrays = run_folder.read_arrays(folder)
        since = state['agent']['agent_steps'] - state['iteration'] * self._training_steps
        if not 0 <= since <= self._training_steps:
            raise CheckpointError(f'{folder} belongs to no iteration')
        self._episode_files.load(state['replay'])
        with run_folder.named_for_tensorflow(folder) as name:
            status = self._variables.read(f'{name}/variables')
            status.assert_consumed()
            status.assert_existing_objects_matched()
        self._iteration = state['iteration']
        self._agent.set_state(state['agent'])
        self._means = logs.Means(state['means'])
        self._csv_seen = {name: state['csv'][name] for name in _TABLES}
        self._actions = list(arrays.pop('actions'))
        for part in _PARTS_WITH_ARRAYS:
            getattr(self, f'_{part}').set_state(run_folder.arrays_of(part, arrays))

    def _request_stop(self, number, frame):
        del frame
        self._stop_signal = number
        if number == signal.SIGINT:  # Schedulers repeat SIGTERM, people repeat Ctrl-C.
            signal.signal(number, signal.SIG_DFL)
        logging.warning('%s: saving, then stopping.', signal.Signals(number).name)

    @contextlib.contextmanager
    def _writing(self):
        """Turns an error of the disk into one that says what it means for the run."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            raise UserError(
                f'cannot write to the run folder {self._directory}: {_first_line(error)}'
                f'{self._earlier_checkpoints()}'
            ) from error

    def _earlier_checkpoints(self):
        """Clause of an error message; empty if there are no checkpoints."""
        with contextlib.suppress(OSError):  # The folder may be unreadable.
            if newest_first(self._directory / 'checkpoints'):
                return '; its earlier checkpoints are unchanged'
        return ''

    def _report_scores(self):
        """Logs the best and the last evaluation of the run."""
        with open(self._directory / 'eval.csv', newline='') as file:
            rows = [row for row in csv.DictReader(file) if row['score_mean'] != 'nan']
        if rows:
            best = max(rows, key=lambda row: float(row['score_mean']))
            logging.info(
                'Evaluation score: best %.6g at %s frames, last %.6g at %s frames.',
                float(best['score_mean']),
                f'{int(best["frames"]):,}',
                float(rows[-1]['score_mean']),
                f'{int(rows[-1]["frames"]):,}',
            )


class _Games:
    """Scores of the games in progress, one in each environment."""

    def __init__(self, num_envs):
        self._sums = np.zeros((3, num_envs))  # Raw reward, reward, agent steps.

    def add(self, rewards, info):
        """Takes in a step; returns {'score', 'return', 'episode_length'} of finished games."""
        self._sums += [info['raw_rewards'], rewards, np.ones(len(rewards))]
        finished = []
        for index in np.flatnonzero(info['game_over']):
            score, clipped_return, length = self._sums[:, index]
            finished.append(
                {
                    'score': float(score),
                    'return': float(clipped_return),
                    'episode_length': int(length),
                }
            )
            self._sums[:, index] = 0
        return finished


def _check_counts(least, most=math.inf, /, **counts):
    for name, count in counts.items():
        if count < least:
            raise ConfigError(f'Runner.{name} = {count} must be at least {least}')
        if count > most:
            raise ConfigError(f'Runner.{name} = {count} must be at most {most}')


def _integer(sequence):
    """A seed for what takes a single integer."""
    return int(sequence.generate_state(1, np.uint64)[0])


def _small_integer(sequence):
    """A seed for TensorFlow, a non-negative int32."""
    return _integer(sequence) >> 33


def _num_lines(path):
    return disk.read_text(path, errors='replace').count('\n') if path.exists() else 0


def _first_line(error):
    return str(error).partition('\n')[0]


def _replays_of(checkpoints):
    """The manifests of replay of those checkpoints that can be read."""
    for folder in checkpoints:
        try:
            yield run_folder.read_state(folder)['replay']
        except Exception as error:  # A damaged file may hold anything.
            logging.warning('The checkpoint %s is damaged: %s', folder, error)
