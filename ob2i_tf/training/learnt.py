"""What a run has learnt, from its folder alone: to evaluate it and to look at it."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from ob2i_tf import acting, config, environments, networks, posteriors
from ob2i_tf.errors import CheckpointError
from ob2i_tf.training import run_folder, system
from ob2i_tf.training.checkpoints import read_newest
from ob2i_tf.training.runner import Runner


class Learnt(NamedTuple):
    """What a run has learnt, to look at.

    Attributes:
      posterior: posteriors.Posterior.
      policy: acting.Policy, as the run evaluates.
      epsilon: of the evaluation.
      agent_steps: that the run had taken.
    """

    posterior: posteriors.Posterior
    policy: acting.Policy
    epsilon: float
    agent_steps: int


def load_learnt(directory, allow_imports=()) -> Learnt:
    """Networks and posterior of a run, from its newest intact checkpoint.

    The run folder is neither locked nor written to, so that a run may continue meanwhile. Its
    configuration becomes gin's.

    Args:
      directory: Run folder, possibly of another person.
      allow_imports: Modules and packages that its config.gin may import besides those of installed
        distributions.

    Raises:
      CheckpointError: if there is no intact checkpoint of this version.
      ConfigError: if its configuration is not one of this version, or a forbidden import.
      UserError: if the environment would show other data than the run was begun with.
    """
    directory = Path(directory)
    config.load([str(directory / 'config.gin')], allow_imports=allow_imports)
    bound = config.bound(Runner)
    system.set_up(bound['tf32'])
    with config.constructing():
        with contextlib.closing(environments.make(num_envs=1)) as env:
            space, num_actions = env.single_observation_space, int(env.single_action_space.n)
            run_folder.check_data(directory, env.metadata.get('data'))
        built = [
            networks.build(bound['network'](num_actions), space.shape, space.dtype)
            for _ in range(2)
        ]
        posterior = bound['posterior'](*built, None, bound['num_envs'], 0)
    agent_steps = []

    def read(checkpoint):
        state = run_folder.read_state(checkpoint)
        arrays = run_folder.read_arrays(checkpoint)
        with run_folder.named_for_tensorflow(checkpoint) as folder:
            status = tf.train.Checkpoint(posterior=posterior).read(f'{folder}/variables')
            status.assert_existing_objects_matched().expect_partial()
        posterior.set_state(run_folder.arrays_of('posterior', arrays))
        agent_steps.append(state['agent']['agent_steps'])

    read_newest(directory / 'checkpoints', read)
    if not agent_steps:
        raise CheckpointError(f'no checkpoint in {directory / "checkpoints"}')
    policy = acting.Policy(
        posterior,
        bound['evaluation_preferences'],
        bound['evaluation_tie_break'],
        bound['evaluation_belief'],
    )
    return Learnt(posterior, policy, bound['evaluation_epsilon'], agent_steps[-1])
