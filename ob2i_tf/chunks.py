"""Helpers on tensors: floating types, and computing many rows in chunks."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def floating(x: Any) -> tf.Tensor:
    """x as a tensor, integers as float32."""
    x = tf.convert_to_tensor(x)
    return x if x.dtype.is_floating else tf.cast(x, tf.float32)


def map_chunks(
    function: Callable, count: int | tf.Tensor, size: int, result: tf.TensorSpec
) -> tf.Tensor:
    """Concatenates function(start, end) over chunks of at most `size` of `count` rows.

    Args:
      function: Maps two scalar tensors to rows start .. end - 1 of the result.
      count: Scalar tensor; or an int, which unrolls the loop (for XLA).
      size: Rows per chunk.
      result: TensorSpec of the complete result, with None for its number of rows.
    """
    if isinstance(count, int):
        starts = range(0, count, size)
        return tf.concat([function(start, min(start + size, count)) for start in starts], axis=0)
    num_chunks = (count + size - 1) // size
    parts = tf.TensorArray(
        result.dtype, size=num_chunks, infer_shape=False, element_shape=result.shape
    )

    def one_chunk(index, parts):
        start = index * size
        return index + 1, parts.write(index, function(start, tf.minimum(start + size, count)))

    return tf.while_loop(lambda index, _: index < num_chunks, one_chunk, (0, parts))[1].concat()


def for_each_chunk(function: Callable, count: int | tf.Tensor, size: int) -> None:
    """Calls function(start, end) for its effects, over chunks of at most `size` of `count` rows.

    Args:
      function: See map_chunks.
      count: See map_chunks.
      size: Rows per chunk.
    """
    if isinstance(count, int):
        for start in range(0, count, size):
            function(start, min(start + size, count))
        return

    def one_chunk(start):
        function(start, tf.minimum(start + size, count))
        return (start + size,)

    tf.while_loop(lambda start: start < count, one_chunk, (0,), parallel_iterations=1)


def mean_of_rows(values: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """The mean of values [n, m] over the rows where counted [n] is True; NaN if none is."""
    counted = tf.cast(counted, values.dtype)
    total = tf.reduce_sum(values * counted[:, None])
    return total / (tf.reduce_sum(counted) * values.shape[1])


def num_rows(x: tf.Tensor) -> int | tf.Tensor:
    """The length of the first axis: an int where it is known while tracing, else a tensor."""
    return tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
