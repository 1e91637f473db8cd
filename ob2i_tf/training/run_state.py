"""Everything that the future of a run depends on, and its checkpoints."""

import contextlib

import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf.errors import CheckpointError, UserError
from ob2i_tf.learner import check_finite
from ob2i_tf.training import checkpoints
from ob2i_tf.training.episode_files import EpisodeFiles
from ob2i_tf.training.logs import Means
from ob2i_tf.training.run_folder import COLUMNS


class RunState:
    """Position and parts of a run, which checkpoints hold.

    Args:
      folder: RunFolder, locked.
      parts: build.Parts.
      training_steps: Agent steps per iteration.
      keep: Number of the newest checkpoints that stay.

    Attributes:
      iteration: Number of the iteration in progress.
      actions: Actions [num_envs] of this iteration so far.
      means: Means of this iteration so far.
      files: EpisodeFiles of the replay.
      tables: `RunLogs.fingerprints` from the restored checkpoint; None if nothing was restored.
    """

    def __init__(self, folder, parts, training_steps, keep):
        self.iteration = 0
        self.actions = []
        self.means = Means()
        self.tables = None
        self.files = EpisodeFiles(folder.replay, parts.replay)
        self._parts = parts
        self._training_steps = training_steps
        self._variables = tf.train.Checkpoint(**parts.variables)
        self._checkpoints = checkpoints.Checkpoints(folder.checkpoints, keep)

    def next_iteration(self):
        self.iteration += 1
        self.means = Means()

    def save(self, logs):
        """Saves a checkpoint; `logs` are the RunLogs of this run.

        Raises:
          NotFiniteError: A variable holds NaN or infinity.
          OSError, tf.errors.OpError: The disk is full or cannot be written to.
        """
        parts = self._parts
        check_finite(f'after learner step {parts.learner.learner_steps}', **parts.modules)
        state = {
            'iteration': self.iteration,
            'means': self.means.state(),
            'tables': logs.fingerprints(),
            'agent': parts.agent.state(),
            'replay': self.files.save(),
        }
        arrays = {name: part.state() for name, part in parts.with_arrays.items()}
        actions = np.array(self.actions, np.int32).reshape(-1, len(parts.agent.heads))
        arrays['run'] = {'actions': actions}
        self._checkpoints.save(
            parts.agent.agent_steps,
            lambda path: checkpoints.write_content(path, state, arrays, self._variables),
        )
        self.files.prune(list(_saved_replays(self._checkpoints.prune())))

    def restore(self):
        """Restores the newest intact checkpoint; returns whether there is one.

        Raises:
          CheckpointError: There are checkpoints, but none can be restored.
        """
        return self._checkpoints.restore(self._read)

    def _read(self, path):
        parts, state = self._parts, checkpoints.read_state(path)
        since = state['agent']['agent_steps'] - state['iteration'] * self._training_steps
        if not 0 <= since <= self._training_steps:
            raise CheckpointError(f'{path} belongs to no iteration')
        arrays = checkpoints.read_arrays(path)
        self.files.load(state['replay'])
        status = checkpoints.read_variables(path, self._variables)
        status.assert_consumed()
        status.assert_existing_objects_matched()
        parts.agent.set_state(state['agent'])
        for name, part in parts.with_arrays.items():
            part.set_state(checkpoints.arrays_of(name, arrays))
        self.iteration = state['iteration']
        self.means = Means(state['means'])
        self.tables = {name: state['tables'][name] for name in COLUMNS}
        self.actions = list(arrays['run_actions'])


@contextlib.contextmanager
def disk_errors(folder):
    """Turns an error of the disk into a UserError that says what it means for the run."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise UserError(
            f'cannot write to the run folder {folder}: {first_line(error)}'
            f'{earlier_checkpoints(folder)}'
        ) from error


def earlier_checkpoints(folder):
    """Clause of an error message; empty if there are no checkpoints."""
    with contextlib.suppress(OSError):  # The folder may be unreadable.
        if checkpoints.newest_first(folder.checkpoints):
            return '; its earlier checkpoints are unchanged'
    return ''


def first_line(error):
    return str(error).partition('\n')[0]


def _saved_replays(paths):
    """The manifests of replay in those checkpoints that can be read."""
    for path in paths:
        try:
            yield checkpoints.read_state(path)['replay']
        except Exception as error:  # A damaged file may hold anything.
            logging.warning('The checkpoint %s is damaged: %s', path, error)
