"""The composition root: builds the parts of a run from their factories."""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf import acting, networks, posteriors, seeds, updates
from ob2i_tf.agent import Agent
from ob2i_tf.environments.checked_env import CheckedVectorEnv
from ob2i_tf.errors import ConfigError
from ob2i_tf.learner import QLearner
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.tracing import check_traced
from ob2i_tf.training import logs, system


class EnvironmentSpec(NamedTuple):
    """Facts about an environment that the parts of a run depend on.

    Attributes:
      observation_shape: Shape of a stack.
      observation_dtype: NumPy dtype.
      num_actions: Number of actions, A.
      history: Frames per stack.
      frames_per_step: Emulator frames per agent step.
      max_episode_steps: Agent steps of the longest game; 0 if it is unlimited or unknown.
      shortest_path: Agent steps of the shortest solution, in mazes; else None.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    num_actions: int
    history: int
    frames_per_step: int
    max_episode_steps: int
    shortest_path: int | None


class Parts(NamedTuple):
    """The parts of a run; each is built by the parameter of Runner of the same name."""

    environment: EnvironmentSpec
    replay: EpisodeReplay
    learner: QLearner
    posterior: posteriors.Posterior
    update: updates.Update
    agent: Agent
    evaluation_policy: acting.Policy
    timers: logs.Timers

    @property
    def frames(self) -> int:
        """Frames that the run has taken."""
        return self.agent.agent_steps * self.environment.frames_per_step

    @property
    def variables(self) -> dict[str, tf.Module]:
        """{name: part whose variables a checkpoint keeps}."""
        return {
            'learner': self.learner,
            'posterior': self.posterior,
            **self.update.trackables,
        }

    @property
    def stateful(self) -> dict[str, Any]:
        """{name: part whose `state` a checkpoint keeps as arrays}."""
        return {'replay': self.replay, 'update': self.update, 'posterior': self.posterior}

    @property
    def modules(self) -> dict[str, tf.Module]:
        """{name: part whose variables must be finite}; networks first, so that errors name them."""
        return {
            'online network': self.learner.network,
            'target network': self.learner.target_network,
            **{n: part for n, part in self.variables.items() if isinstance(part, tf.Module)},
        }


def environment_spec(make_environment: Callable) -> EnvironmentSpec:
    """Makes one copy of an environment, inspects it and closes it.

    Args:
      make_environment: Factory, see `build`.
    """
    with contextlib.closing(make_environment(num_envs=1, seed=0)) as env:
        return EnvironmentSpec(
            observation_shape=env.single_observation_space.shape,
            observation_dtype=env.single_observation_space.dtype,
            num_actions=int(env.single_action_space.n),
            history=env.metadata.get('history', 1),
            frames_per_step=env.metadata.get('frames_per_step', 1),
            max_episode_steps=env.metadata.get('max_episode_steps', 0),
            shortest_path=env.metadata.get('shortest_path'),
        )


def open_environments(
    make_environment: Callable, num_envs: int, stream: np.random.SeedSequence
) -> contextlib.closing[CheckedVectorEnv]:
    """Makes environments whose outputs are checked; a context closes them.

    Args:
      make_environment: Factory, see `build`.
      num_envs: Number of environments that step together.
      stream: Random stream of their seed.
    """
    return contextlib.closing(
        CheckedVectorEnv(make_environment(num_envs=num_envs, seed=seeds.integer(stream)))
    )


def build_networks(
    make_network: Callable, spec: EnvironmentSpec, seed: int
) -> tuple[networks.QNetwork, networks.QNetwork]:
    """Makes the online and the target network and creates their variables.

    Args:
      make_network: Factory, see `build`.
      spec: Facts about the environment.
      seed: Seed of the run.

    Raises:
      ConfigError: `make_network` cannot be a factory of networks.
      ValueError: See `networks.build`.
      MemoryError: The networks do not fit into memory.
    """
    _check_factory('Runner.network', make_network, networks.QNetwork)
    prior_seed = _seed_of(seed, 'prior')
    try:
        online, target = (
            networks.build(
                make_network(spec.num_actions, seed=_seed_of(seed, name), prior_seed=prior_seed),
                spec.observation_shape,
                spec.observation_dtype,
            )
            for name in ('network', 'target_network')
        )
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(f'Runner.network: {error.message}') from error
    return online, target


def build_posterior(
    make_posterior: Callable,
    spec: EnvironmentSpec,
    pair: Sequence[networks.QNetwork],
    replay: EpisodeReplay | None,
    num_envs: int,
    seed: int,
) -> posteriors.Posterior:
    """Makes the posterior.

    Args:
      make_posterior: Factory, see `build`.
      spec: Facts about the environment.
      pair: Online and target network.
      replay: The replay; None where a trained agent is restored.
      num_envs: Number of environments that train in lockstep.
      seed: Seed of the run.

    Raises:
      ConfigError: `make_posterior` cannot be a factory of posteriors, or its posterior does not map
        observations to values [B, K, A].
    """
    _check_factory('Runner.posterior', make_posterior, posteriors.Posterior)
    posterior = make_posterior(*pair, replay, num_envs, _seed_of(seed, 'posterior'))
    observations = tf.TensorSpec((None, *spec.observation_shape), spec.observation_dtype)
    seed_spec = tf.TensorSpec([2], tf.int32)
    for values, arguments, of in (
        (posterior.sample, (observations, seed_spec), 'and a seed [2] to samples'),
        (posterior.mean, (observations,), 'to means'),
    ):
        check_traced(
            'Runner.posterior',
            values,
            arguments,
            (None, pair[0].num_heads, spec.num_actions),
            f'observations [B, ...] {of} [B, K, A]',
        )
    return posterior


def _seed_of(seed, name):
    return seeds.small_integer(seeds.stream(seed, name))


def build(
    *,
    seed: int,
    num_envs: int,
    make_environment: Callable,
    make_network: Callable,
    make_replay: Callable,
    make_learner: Callable,
    make_posterior: Callable,
    make_update: Callable,
    make_agent: Callable,
    evaluation_preferences: Callable,
    evaluation_tie_break: str,
    evaluation_belief: str,
    xla: Sequence[str] = (),
) -> Parts:
    """Builds all parts of a run.

    Every argument that is a part is a factory, usually a class:

      make_environment(num_envs=, seed=) -> VectorEnv, see the package environments;
      make_network(num_actions, seed=, prior_seed=) -> QNetwork, see networks.py;
      make_replay(observation_shape, history=, seed=, observation_dtype=), see replay.py;
      make_learner(network, target_network, seed, xla=), see learner.py;
      make_posterior(network, target_network, replay, num_envs, seed), see posteriors/;
      make_update(replay, network, target_network, double_q_values, seed, xla=), see updates.py;
      make_agent(learner, posterior, update, replay, num_envs, rng, timers, xla=), see agent.py.

    To restore a trained agent, `restore` makes only the environment, the networks and the
    posterior, in the same way except that the posterior's replay is None.

    Args:
      seed: Seed of the run.
      num_envs: Number of environments that train in lockstep.
      evaluation_preferences, evaluation_tie_break, evaluation_belief: See `acting.Policy`.
      xla: Parts that XLA compiles: 'acting', 'targets', 'gradient_step'.

    Raises:
      ConfigError: An argument cannot be a factory of its part.
      ValueError: A full replay would exceed the machine's memory.
    """
    _check_factory('Runner.replay', make_replay, EpisodeReplay)
    _check_factory('Runner.learner', make_learner, QLearner)
    _check_factory('Runner.update', make_update, updates.Update)
    _check_factory('Runner.agent', make_agent, Agent)

    spec = environment_spec(make_environment)
    shape = spec.observation_shape
    pair = build_networks(make_network, spec, seed)
    replay = make_replay(
        shape[:-1] if spec.history > 1 else shape,
        history=spec.history,
        seed=seeds.integer(seeds.stream(seed, 'replay')),
        observation_dtype=spec.observation_dtype,
    )
    check_memory(replay)
    learner = make_learner(*pair, _seed_of(seed, 'learner'), xla='gradient_step' in xla)
    posterior = build_posterior(make_posterior, spec, pair, replay, num_envs, seed)
    update = make_update(
        replay,
        *pair,
        posterior.double_q_values,
        _seed_of(seed, 'update'),
        xla='targets' in xla,
    )
    timers = logs.Timers()
    agent = make_agent(
        learner,
        posterior,
        update,
        replay,
        num_envs,
        np.random.default_rng(seeds.stream(seed, 'acting')),
        timers,
        xla='acting' in xla,
    )
    evaluation_policy = acting.Policy(
        posterior,
        evaluation_preferences,
        evaluation_tie_break,
        evaluation_belief,
        xla='acting' in xla,
        name='Runner.evaluation_preferences',
    )
    return Parts(spec, replay, learner, posterior, update, agent, evaluation_policy, timers)


def check_memory(replay: EpisodeReplay) -> None:
    """Logs the memory of a full replay; raises a ValueError if the machine has less."""
    machine = system.memory_bytes()
    size = (
        f'{replay.capacity_transitions:,} transitions of '
        f'{"x".join(map(str, replay.observation_shape)) or "scalar"} {replay.observation_dtype} = '
        f'{replay.capacity_bytes / 1e9:,.1f} GB'
    )
    if replay.capacity_bytes > machine:
        raise ValueError(
            f'EpisodeReplay.capacity_transitions = {replay.capacity_transitions}: {size}, but '
            f'the machine has {machine / 1e9:,.1f} GB'
        )
    logging.info('replay: %s (machine: %.1f GB)', size, machine / 1e9)


def report_long_games(parts: Parts, training_steps: int, evaluation_steps: int) -> None:
    """Logs limits that the longest games exceed; warns of the one that would end the run.

    Args:
      parts: Parts of the run.
      training_steps, evaluation_steps: Agent steps per environment and iteration.
    """
    longest, capacity = parts.environment.max_episode_steps, parts.replay.capacity_transitions
    if training_steps < longest:
        logging.info(
            'Training cuts games off after %s agent steps (Runner.training_steps / num_envs); '
            'they can reach %s.',
            f'{training_steps:,}',
            f'{longest:,}',
        )
    if 0 < evaluation_steps < longest:
        logging.info(
            'Evaluations count only games of up to %s agent steps (Runner.evaluation_steps / '
            'evaluation_envs); they can reach %s.',
            f'{evaluation_steps:,}',
            f'{longest:,}',
        )
    if 0 < capacity < longest:
        logging.warning(
            'The run will stop at an episode of more than %s agent steps, '
            'EpisodeReplay.capacity_transitions; games can reach %s.',
            f'{capacity:,}',
            f'{longest:,}',
        )


def _check_factory(name: str, part, kind: type) -> None:
    """Raises a ConfigError unless `part` makes a `kind`: its subclass, or any other callable."""
    if not callable(part) or (inspect.isclass(part) and not issubclass(part, kind)):
        raise ConfigError(f'{name} must be a factory of {kind.__name__}, got {part!r}')
