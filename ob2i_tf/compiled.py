"""Compiled functions that are called at every step of a run."""

import tensorflow as tf


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
