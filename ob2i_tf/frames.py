"""Frames and stacks: a stack is the `history` newest frames on a new last axis, newest last.

With `history=1` a stack is the frame itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def stack(frames: np.ndarray, starts: np.ndarray, history: int) -> np.ndarray:
    """[n, *stack]: row i holds the frames starts[i] .. starts[i] + history - 1."""
    return _newest_last([frames[starts + i] for i in range(history)])


def stack_windows(windows: Sequence[np.ndarray]) -> np.ndarray:
    """n windows [history, *frame] -> [n, *stack]."""
    return _newest_last(np.stack(windows, axis=1))


def stack_all(frames: tf.Tensor, history: int) -> tf.Tensor:
    """All stacks of consecutive frames, as a tensor: [history - 1 + n, *frame] -> [n, *stack]."""
    if history == 1:
        return frames
    count = tf.shape(frames)[0] - (history - 1)
    if history == 4 and frames.dtype == tf.uint8:
        # Four bytes at a time, as an integer whose lowest byte is the first in memory: on a CPU
        # this takes a third of the time.
        oldest, *newer = (tf.cast(frames[i : i + count], tf.uint32) for i in range(history))
        integers = oldest + 2**8 * newer[0] + 2**16 * newer[1] + 2**24 * newer[2]
        return tf.bitcast(integers, tf.uint8)
    # Not tf.stack, which on a GPU has no kernel for uint8.
    return tf.concat([frames[i : i + count, ..., None] for i in range(history)], axis=-1)


def newest(stacks: Any, history: int) -> Any:
    """The newest frame of each stack, of arrays or tensors: [..., *stack] -> [..., *frame]."""
    return stacks[..., -1] if history > 1 else stacks


def older(observation: np.ndarray, history: int) -> np.ndarray:
    """The frames of a stack except the newest, oldest first: [*stack] -> [history - 1, *frame]."""
    return np.moveaxis(observation[..., :-1], -1, 0) if history > 1 else observation[None][:0]


def _newest_last(by_age):
    return by_age[0] if len(by_age) == 1 else np.stack(by_age, axis=-1)
