"""Turns full disks and lack of memory into errors that state the consequence for the run."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ob2i_tf.errors import UserError
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training import checkpoints
from ob2i_tf.training.run_folder import RunFolder


@contextlib.contextmanager
def disk_errors(folder: RunFolder) -> Iterator[None]:
    """Turns an error of the disk into a UserError."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise UserError(
            f'cannot write to the run folder {folder}: {_first_line(error)}'
            f'{_earlier_checkpoints(folder)}'
        ) from error


@contextlib.contextmanager
def memory_errors(folder: RunFolder, replay: EpisodeReplay) -> Iterator[None]:
    """Turns a lack of memory into a UserError."""
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        if 'device:GPU' in _first_line(error):  # Replay is in the main memory.
            raise UserError(
                f'out of GPU memory ({_first_line(error)}); other programs may use the GPU, and a '
                'smaller network or EpisodicUpdate.chunk_size needs less'
                f'{_earlier_checkpoints(folder)}'
            ) from error
        raise UserError(
            f'out of memory with {replay.num_transitions:,} transitions in replay '
            f'({_first_line(error)}); a smaller EpisodeReplay.capacity_transitions needs less'
            f'{_earlier_checkpoints(folder)}'
        ) from error


def _earlier_checkpoints(folder):
    with contextlib.suppress(OSError):  # The folder may be unreadable.
        if checkpoints.newest_first(folder.checkpoints):
            return '; its earlier checkpoints are unchanged'
    return ''


def _first_line(error):
    return str(error).partition('\n')[0]
