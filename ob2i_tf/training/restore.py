"""Restores a trained agent from a run folder."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from ob2i_tf import acting, config, posteriors
from ob2i_tf.errors import CheckpointError
from ob2i_tf.training import build, checkpoints, system
from ob2i_tf.training.run_folder import RunFolder
from ob2i_tf.training.runner import Runner


class TrainedAgent(NamedTuple):
    """A trained agent and the settings that its run evaluates it with.

    Attributes:
      posterior: Posterior, with its networks.
      policy: Policy of the evaluation.
      epsilon: Epsilon of the evaluation.
      agent_steps: Agent steps that the run had taken.
      environment: Factory of the environment, see `build.build`.
    """

    posterior: posteriors.Posterior
    policy: acting.Policy
    epsilon: float
    agent_steps: int
    environment: Callable


def restore(directory: str | Path, allow_imports: Iterable[str] = ()) -> TrainedAgent:
    """Restores the networks and the posterior of a run from its newest intact checkpoint.

    The run folder is neither locked nor written to, so that the run may continue meanwhile. The
    configuration of the run becomes gin's.

    Args:
      directory: Run folder, possibly of another person.
      allow_imports: Modules and packages that its config.gin may import besides those of installed
        distributions.

    Raises:
      CheckpointError: The folder has no intact checkpoint of this version.
      ConfigError: The configuration does not fit this version, or has a forbidden import.
    """
    folder = RunFolder(directory)
    config.load([str(folder.config)], allow_imports=allow_imports)
    bound = config.bound(Runner)
    system.set_up(bound['tf32'])
    with config.construction_errors():
        facts = build.inspect_environment(bound['environment'])
        pair = build.build_networks(bound['network'], facts, bound['seed'])
        posterior = build.build_posterior(
            bound['posterior'], facts, pair, None, bound['num_envs'], bound['seed']
        )
        policy = acting.Policy(
            posterior,
            bound['evaluation_preferences'],
            bound['evaluation_tie_break'],
            bound['evaluation_belief'],
            name='Runner.evaluation_preferences',
        )
        agent_steps: list[int] = []

        def read(checkpoint: Path) -> None:
            state = checkpoints.read_state(checkpoint)
            variables = tf.train.Checkpoint(posterior=posterior)
            status = checkpoints.read_variables(checkpoint, variables)
            status.assert_existing_objects_matched().expect_partial()
            arrays = checkpoints.read_arrays(checkpoint)
            posterior.set_state(checkpoints.arrays_of('posterior', arrays))
            agent_steps.append(state['agent']['agent_steps'])

        checkpoints.read_newest(folder.checkpoints, read)
    if not agent_steps:
        raise CheckpointError(checkpoints.none_in(folder.checkpoints))
    return TrainedAgent(
        posterior, policy, bound['evaluation_epsilon'], agent_steps[-1], bound['environment']
    )
