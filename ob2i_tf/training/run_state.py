"""The state of a run, saved to checkpoints and restored from them."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf.errors import CheckpointError, UserError
from ob2i_tf.learner import check_finite
from ob2i_tf.training import build, checkpoints
from ob2i_tf.training.episode_files import EpisodeFiles
from ob2i_tf.training.logs import Means
from ob2i_tf.training.run_folder import COLUMNS, RunFolder


class RunState:
    """Everything that the future of a run depends on: its position and the state of its parts.

    Args:
      folder: Run folder, locked.
      parts: Parts of the run.
      training_steps: Agent steps per iteration.
      keep: Number of the newest checkpoints that stay on disk.

    Attributes:
      iteration: Number of the iteration in progress.
      actions: Actions [num_envs] of each step of this iteration so far.
      means: Means of this iteration so far.
      files: EpisodeFiles of the replay.
      tables: `RunLogs.fingerprints` from the restored checkpoint; None if nothing was restored.
    """

    def __init__(self, folder: RunFolder, parts: build.Parts, training_steps: int, keep: int):
        self.iteration = 0
        self.actions: list[np.ndarray] = []
        self.means = Means()
        self.tables: dict[str, dict] | None = None
        self.files = EpisodeFiles(folder.replay, parts.replay)
        self._folder = folder
        self._parts = parts
        self._training_steps = training_steps
        self._variables = tf.train.Checkpoint(**parts.variables)
        self._checkpoints = checkpoints.Checkpoints(folder.checkpoints, keep)

    def next_iteration(self) -> None:
        self.iteration += 1
        self.means = Means()

    def position(self, num_iterations: int) -> str:
        """Describes the progress towards `num_iterations`."""
        return (
            f'iteration {self.iteration} of {num_iterations}, {self._parts.frames:,} '
            f'frames, {self._parts.learner.learner_steps:,} learner steps'
        )

    def check_started(self, num_iterations: int) -> None:
        """Raises a UserError if more iterations were started."""
        started = math.ceil(self._parts.agent.agent_steps / self._training_steps)
        if started > num_iterations:
            raise UserError(
                f'{self._folder} has started {started} iterations, more than '
                f'Runner.num_iterations = {num_iterations}'
            )

    def check_finite(self) -> None:
        """Raises a NotFiniteError if a variable holds NaN or infinity."""
        step = self._parts.learner.learner_steps
        check_finite(f'after learner step {step}', **self._parts.modules)

    def save(self, tables: dict[str, dict]) -> None:
        """Saves a checkpoint.

        Args:
          tables: `RunLogs.fingerprints` of this run.

        Raises:
          OSError, tf.errors.OpError: The disk is full or cannot be written to.
        """
        parts = self._parts
        state = {
            'iteration': self.iteration,
            'means': self.means.state(),
            'tables': tables,
            'agent': parts.agent.state(),
            'replay': self.files.save(),
        }
        arrays = {name: part.state() for name, part in parts.stateful.items()}
        actions = np.array(self.actions, np.int32).reshape(-1, len(parts.agent.heads))
        arrays['run'] = {'actions': actions}
        self._checkpoints.save(
            parts.agent.agent_steps,
            lambda path: checkpoints.write_content(path, state, arrays, self._variables),
        )
        self.files.prune(list(_saved_replays(self._checkpoints.prune())))

    def restore(self) -> bool:
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
        for name, part in parts.stateful.items():
            part.set_state(checkpoints.arrays_of(name, arrays))
        self.iteration = state['iteration']
        self.means = Means(state['means'])
        self.tables = {name: state['tables'][name] for name in COLUMNS}
        self.actions = list(arrays['run_actions'])


def _saved_replays(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The replay manifests of all checkpoints that can be read."""
    for path in paths:
        try:
            yield checkpoints.read_state(path)['replay']
        except MemoryError:  # It is then unknown which files of replay must be kept.
            raise
        except Exception as error:  # A damaged file may hold anything.
            logging.warning('The checkpoint %s is damaged: %s', path, error)
