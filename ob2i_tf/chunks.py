"""Helpers on tensors: types, and many rows a few at a time."""

import tensorflow as tf


def floating(x):
    """x as a tensor, integers as float32."""
    x = tf.convert_to_tensor(x)
    return x if x.dtype.is_floating else tf.cast(x, tf.float32)


def in_passes(function, count, size, result):
    """Concatenates function(start, end) over slices of at most `size` of `count` rows.

    Args:
      function: maps two scalar tensors to rows start .. end - 1 of the result.
      count: scalar tensor, or an int, which leaves no loop for XLA.
      size: of a slice.
      result: TensorSpec of the whole, its number of rows None.
    """
    if isinstance(count, int):
        starts = range(0, count, size)
        return tf.concat([function(start, min(start + size, count)) for start in starts], axis=0)
    passes = (count + size - 1) // size
    parts = tf.TensorArray(result.dtype, size=passes, infer_shape=False, element_shape=result.shape)

    def one_pass(index, parts):
        start = index * size
        return index + 1, parts.write(index, function(start, tf.minimum(start + size, count)))

    return tf.while_loop(lambda index, _: index < passes, one_pass, (0, parts))[1].concat()


def for_slices(function, count, size):
    """Calls function(start, end) for its effects, over slices of at most `size` of `count` rows."""

    def one_slice(start):
        function(start, tf.minimum(start + size, count))
        return (start + size,)

    tf.while_loop(lambda start: start < count, one_slice, (0,), parallel_iterations=1)


def mean_of_rows(values, counted):
    """The mean of values [n, m] over the rows where counted [n] is True; NaN if there are none."""
    counted = tf.cast(counted, values.dtype)
    total = tf.reduce_sum(values * counted[:, None])
    return total / (tf.reduce_sum(counted) * values.shape[1])


def num_rows(x):
    """The length of the first axis: an int where it is known while tracing, else a tensor."""
    return tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
