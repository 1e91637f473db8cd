"""One seed of a run, split into independent random streams."""

import numpy as np
import tensorflow as tf

# A stream's position decides the random choices of every run: append, never reorder.
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


def stream(seed: int, name: str, *key: int) -> np.random.SeedSequence:
    """A random stream of a run.

    Args:
      seed: Seed of the run.
      name: One of STREAMS.
      *key: Further integers, such as the iteration.
    """
    return np.random.SeedSequence(seed, spawn_key=(STREAMS.index(name), *key))


def integer(sequence: np.random.SeedSequence) -> int:
    """A seed for code that takes a single integer."""
    return int(sequence.generate_state(1, np.uint64)[0])


def small_integer(sequence: np.random.SeedSequence) -> int:
    """A seed for TensorFlow, a non-negative int32."""
    return integer(sequence) >> 33


def split_seed(seed: int, count: int) -> list[int]:
    """`count` independent integers that fit the int32 seed of an initializer."""
    return [int(word) >> 1 for word in np.random.SeedSequence(seed).generate_state(count)]


def split_draws(seed: tf.Tensor | None, count: int = 2) -> list:
    """`count` independent seeds for stateless random functions; None gives `count` times None."""
    if seed is None:
        return [None] * count
    return [tf.random.experimental.stateless_fold_in(seed, index) for index in range(count)]
