"""Compiled functions: those called at every step of a run, and those that a binding chose."""

import tensorflow as tf

from ob2i_tf.errors import ConfigError, UserError


class Compiled:
    """A tf.function of arrays and tensors, called without what a tf.function does at each call.

    To find its trace for NumPy arrays a tf.function takes Python 1 ms for the three arguments of
    acting and 3 ms for the five of a learner step, which is more than small networks compute (2 CPU
    cores, TensorFlow 2.21); found once and given tensors, the trace is called in 0.5 ms.

    Args:
      function: of positional tensors.
      signature: a TensorSpec for each argument: one trace for all. None: one for all arguments of
        the same shapes and types.
      xla: whether XLA compiles it.

    Attributes:
      function: the tf.function.
    """

    def __init__(self, function, signature=None, xla=False):
        self.function = tf.function(
            function, input_signature=signature, jit_compile=xla or None, autograph=False
        )
        self._has_signature = signature is not None
        self._traces = {}

    def __call__(self, *arguments):
        if tf.config.functions_run_eagerly():  # To debug.
            return self.function(*arguments)
        tensors = [tf.convert_to_tensor(x) for x in arguments]
        key = None if self._has_signature else tuple((x.dtype, *x.shape) for x in tensors)
        if key not in self._traces:
            self._traces[key] = self.function.get_concrete_function(
                *(() if self._has_signature else tensors)
            )
        return self._traces[key](*tensors)


def check_traced(name, function, arguments, shapes, what):
    """Traces a function that a binding chose, before anything runs.

    Args:
      name: the binding.
      function: takes tensors.
      arguments: their TensorSpecs.
      shapes: that its results have to have, nested as they are.
      what: it maps to what, in words.

    Raises:
      ConfigError: if it cannot be traced, or gives something else.
    """
    try:
        traced = tf.function(function, autograph=False).get_concrete_function(*arguments)
    except UserError:
        raise
    except Exception as error:
        reason = f'{type(error).__name__}: {error}'
        raise ConfigError(f'{name} has to map {what}, but ends in {reason}') from error
    if not _fits(traced.structured_outputs, shapes):
        given = ', '.join(str(argument.shape) for argument in arguments)
        raise ConfigError(
            f'{name} has to map {what}, but {given} gives {traced.structured_outputs}'
        )


def _fits(results, shapes):
    """Whether nested tensors have nested shapes; a shape holds numbers and Nones only."""
    if not shapes or not isinstance(shapes[0], tuple):
        return hasattr(results, 'shape') and results.shape.is_compatible_with(shapes)
    return (
        isinstance(results, (tuple, list))
        and len(results) == len(shapes)
        and all(map(_fits, results, shapes))
    )
