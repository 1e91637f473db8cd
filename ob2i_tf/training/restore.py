"""Restores a trained agent from a run folder."""

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from ob2i_tf import acting, bonuses, config, posteriors
from ob2i_tf.config import resources
from ob2i_tf.errors import CheckpointError, UserError
from ob2i_tf.training import build, checkpoints, disk, system
from ob2i_tf.training.run_folder import RunFolder, task_name
from ob2i_tf.training.runner import Runner


class TrainedAgent:
    """A trained agent, which acts as its run evaluates it; `restore` makes it.

    A batch holds the observations of B games that are played side by side. If the evaluation
    follows a head, each game follows a separate one, and a batch of another size draws them anew.

    gin has the configuration of the run during each call, and its earlier one afterwards. So agents
    of several runs can be used in turn, but not in several threads.

    Attributes:
      task: Name of the environment.
      agent_steps: Agent steps that the run had taken.
      epsilon: Probability of a random action in the evaluation.
      environment: build.EnvironmentSpec, facts such as `observation_shape` and `num_actions`.
      posterior: Posterior, with its network but without the target network.
      policy: Policy of the evaluation.
      rng: Random generator of heads, random actions and ties.
      heads: Head that each game of the last batch follows, [B] int32.
    """

    def __init__(
        self,
        bound: dict[str, Any],
        environment: build.EnvironmentSpec,
        posterior: posteriors.Posterior,
        gin_state: config.GinState,
    ):
        self.task = task_name(config.value)
        self.agent_steps = 0
        self.epsilon: float = bound['evaluation_epsilon']
        self.environment = environment
        self.posterior = posterior
        self.policy = acting.Policy(
            posterior,
            bound['evaluation_preferences'],
            bound['evaluation_tie_break'],
            bound['evaluation_belief'],
            name='Runner.evaluation_preferences',
        )
        self.rng = np.random.default_rng()
        self.heads = np.zeros(1, np.int32)
        self._make_environment = bound['environment']
        self._tf32 = bound['tf32']
        self._gin_state = gin_state

    def act(self, observation: Any, epsilon: float | None = None) -> Any:
        """Chooses actions.

        Args:
          observation: Observation [*stack], or a batch [B, *stack].
          epsilon: Probability of a random action; None: that of the evaluation.

        Returns:
          The action, an int; for a batch [B] int32.

        Raises:
          ValueError, TypeError: The observation has another shape or dtype than those of the
            environment.
          NotFiniteError: A preference is NaN.
        """
        batch, is_batch = self._batch(observation)
        epsilon = self.epsilon if epsilon is None else epsilon
        if len(self.heads) != len(batch):
            self.heads = self._draw_heads(len(batch))
        with self._configured():
            actions = self.policy.actions(batch, self.heads, epsilon, self.rng)
        return actions if is_batch else int(actions[0])

    def reset(self, over: Any = None, seed: int | None = None) -> None:
        """Draws the followed heads anew, at the start of games.

        Args:
          over: Which games of the last batch are over, [B] bool, such as `info['game_over']`; None:
            a single new game starts.
          seed: Seed of all random choices from now on; None: they continue.
        """
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        if over is None:
            self.heads = self._draw_heads(1)
        else:
            self.heads[over] = self._draw_heads(int(np.sum(over)))

    def _draw_heads(self, count):
        with self._configured():
            return self.posterior.evaluation_heads(count, self.rng)

    def q_values(self, observation: Any) -> np.ndarray:
        """The heads' Q-values, the mean of the posterior.

        Args:
          observation: Observation [*stack], or a batch [B, *stack].

        Returns:
          [K, A], for a batch [B, K, A]; float32.

        Raises:
          ValueError: The observation has another shape than those of the environment.
        """
        batch, is_batch = self._batch(observation)
        with self._configured():
            q_values = self.posterior.mean(batch).numpy()
        return q_values if is_batch else q_values[0]

    def bonus(self, observation: Any) -> np.ndarray:
        """The UCB-bonus of each action: the standard deviation over the heads (paper, eq. 2).

        Args:
          observation: Observation [*stack], or a batch [B, *stack].

        Returns:
          [A], for a batch [B, A]; float32.

        Raises:
          UserError: The run has a single head.
          ValueError: The observation has another shape than those of the environment.
        """
        q_values = self.q_values(observation)
        if q_values.shape[-2] == 1:
            raise UserError('the bonus is the disagreement of heads, and this agent has one head')
        with self._configured():
            return bonuses.ensemble_std(q_values).numpy()

    def make_environment(self, num_envs: int = 1, seed: int = 0) -> gymnasium.vector.VectorEnv:
        """Makes the environment of the run.

        Args:
          num_envs: Number of copies that step together.
          seed: Seed of all copies.

        Returns:
          A vector environment that follows the contract of `environments.make`.
        """
        with self._configured():
            env = self._make_environment(num_envs=num_envs, seed=seed)
        return _ConfiguredEnv(env, self._configured)

    def with_preferences(self, preferences: Callable) -> 'TrainedAgent':
        """This agent with another preference function (see acting.py).

        Raises:
          ConfigError: The agent cannot act by it.
        """
        other = copy.copy(self)
        with self._configured(), config.construction_errors():
            other.policy = self.policy.with_preferences(preferences)
        other.rng, other.heads = copy.deepcopy(self.rng), self.heads.copy()
        return other

    def save(self, directory: str | Path) -> None:
        """Writes a run folder that holds the agent alone: config.gin and one checkpoint.

        A loaded copy acts identically. Its checkpoint has only the posterior, without target
        network, optimizer and replay, so that no run can be continued from it.

        Args:
          directory: Folder that is missing or empty.

        Raises:
          UserError: The folder is not empty.
          OSError: The folder cannot be written to.
        """
        folder = RunFolder(os.path.expanduser(directory))
        disk.make_folder(folder.path)
        if any(folder.path.iterdir()):
            raise UserError(f'{folder} is not empty')
        state = {'agent': {'agent_steps': self.agent_steps}}
        arrays = {'posterior': self.posterior.state()}
        variables = tf.train.Checkpoint(posterior=self.posterior)
        disk.make_folder(folder.replay)
        disk.write_text(folder.freed, 'An agent was saved here, without replay.\n')
        checkpoints.Checkpoints(folder.checkpoints).save(
            self.agent_steps,
            lambda path: checkpoints.write_content(path, state, arrays, variables),
        )
        with self._configured():
            disk.write_text(folder.config, config.resolved_config())

    @contextlib.contextmanager
    def _configured(self) -> Iterator[None]:
        with self._gin_state.entered(), system.tensor_float_32(self._tf32):
            yield

    def _read(self, checkpoint: Path) -> None:
        """Reads a checkpoint of the run."""
        state = checkpoints.read_state(checkpoint)
        variables = tf.train.Checkpoint(posterior=self.posterior)
        status = checkpoints.read_variables(checkpoint, variables)
        status.assert_existing_objects_matched().expect_partial()
        arrays = checkpoints.read_arrays(checkpoint)
        self.posterior.set_state(checkpoints.arrays_of('posterior', arrays))
        self.agent_steps = state['agent']['agent_steps']

    def _batch(self, observation):
        """The observation as a batch, and whether it is one."""
        shape, dtype = self.environment.observation_shape, self.environment.observation_dtype
        array = np.asarray(observation)
        is_batch = array.ndim > len(shape)
        if array.shape[is_batch:] != shape:
            raise ValueError(f'an observation must have shape {shape}, got {array.shape}')
        if not np.can_cast(array.dtype, dtype, 'same_kind'):
            raise TypeError(f'an observation must be {dtype}, got {array.dtype}')
        array = array.astype(dtype, copy=False)
        return (array if is_batch else array[None]), is_batch


class _ConfiguredEnv(gymnasium.vector.VectorWrapper):
    """An environment within the configuration of its run, whatever gin's is.

    Args:
      env: Environment that follows the contract of `environments.make`.
      configured: Makes the context.
    """

    def __init__(self, env: Any, configured: Callable):
        super().__init__(env)
        self._env: Any = env  # The type VectorEnv lacks the halves of `step`.
        self._configured = configured

    def reset(self, **keywords: Any) -> tuple:
        with self._configured():
            return self._env.reset(**keywords)

    def step_async(self, actions: np.ndarray) -> None:
        with self._configured():
            self._env.step_async(actions)

    def step_wait(self) -> tuple:
        with self._configured():
            return self._env.step_wait()

    def step(self, actions) -> tuple:
        self.step_async(actions)
        return self.step_wait()


def restore(
    directory: str | Path, allow_imports: Iterable[str] = (), seed: int = 0
) -> TrainedAgent:
    """Restores the networks and the posterior of a run from its newest intact checkpoint.

    The run folder is neither locked nor written to, so that the run may continue meanwhile.

    Args:
      directory: Run folder, possibly of another person, or the name of an agent in agents/.
      allow_imports: Modules and packages that its config.gin may import besides those of installed
        distributions.
      seed: Seed of the agent's random choices.

    Raises:
      UserError: It is not a run folder.
      CheckpointError: The folder has no intact checkpoint of this version.
      ConfigError: The configuration does not fit this version, or has a forbidden import.
    """
    folder = _find(directory)
    gin_state = config.GinState()
    with gin_state.entered():
        config.load([str(folder.config)], allow_imports=allow_imports)
        bound = config.bound(Runner)
        with system.tensor_float_32(bound['tf32']), config.construction_errors():
            spec = build.environment_spec(bound['environment'])
            pair = build.build_networks(bound['network'], spec, bound['seed'])
            posterior = build.build_posterior(
                bound['posterior'], spec, pair, None, bound['num_envs'], bound['seed']
            )
            del posterior.target_network  # It serves only learning.
            agent = TrainedAgent(bound, spec, posterior, gin_state)
            restored: list[Path] = []

            def read(checkpoint: Path) -> None:
                agent._read(checkpoint)
                restored.append(checkpoint)

            checkpoints.read_newest(folder.checkpoints, read)
    if not restored:
        raise CheckpointError(checkpoints.none_in(folder.checkpoints))
    agent.reset(seed=seed)
    return agent


def _find(directory):
    """The run folder at this path, or else the one of this name in agents/."""
    for path in (directory, os.path.join(resources.folder('agents'), directory)):
        if RunFolder(path).config.is_file():
            return RunFolder(path)
    raise UserError(f'{directory} is not a run folder: it has no config.gin')
