"""What a run computes on."""

import os

import tensorflow as tf
from absl import logging

from ob2i_tf.errors import UserError


def list_gpus():
    """What TensorFlow sees."""
    return tf.config.list_physical_devices('GPU')


def set_up(tf32):
    """Before anything is computed: the precision of products, memory as it is asked for."""
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    for gpu in list_gpus():
        tf.config.experimental.set_memory_growth(gpu, True)


def say(required):
    """Logs what a run trains on; UserError if it requires a GPU and there is none."""
    gpus = list_gpus()
    if required and not gpus:
        raise UserError('Runner.require_gpu = True, but TensorFlow sees no GPU')
    if gpus:
        logging.info('Training on %s', ', '.join(gpu.name for gpu in gpus))
    else:
        logging.warning('No GPU: training on the CPU (%s cores).', os.cpu_count())
