"""Shared by benchmarks: timing, the speed of the machine, and lower bounds on times."""

import functools
import os
import platform
import statistics
import time

import numpy as np
import psutil

from ob2i_tf import cli

cli.import_tensorflow()

import tensorflow as tf  # noqa: E402

from ob2i_tf import types  # noqa: E402


def median_ms(call, seconds, least=3, clock=time.perf_counter):
    """Median milliseconds until devices have computed `call`, after two uncounted calls."""
    call()
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        tf.test.experimental.sync_devices()
        start = clock()
        call()
        tf.test.experimental.sync_devices()
        times.append(clock() - start)
    return 1e3 * statistics.median(times)


def random_episode(length, rng, num_actions=4):
    """An episode of 84 x 84 frames of noise."""
    discounts = np.full(length, 0.99, np.float32)
    discounts[-1] = 0
    return types.Episode(
        rng.integers(0, 256, (length + 1, 84, 84), dtype=np.uint8),
        rng.integers(num_actions, size=length, dtype=np.int32),
        rng.normal(size=length).astype(np.float32),
        discounts,
        rng.integers(0, 256, (3, 84, 84), dtype=np.uint8),
    )


def hardware():
    """'x86_64, 2 cores, 24 GiB'."""
    gigabytes = psutil.virtual_memory().total / 2**30
    return f'{platform.machine()}, {os.cpu_count()} cores, {gigabytes:.0f} GiB'


class Machine:
    """Speeds of the machine, from which floors follow.

    Attributes:
      gflops: GFLOP/s of a product of 2048 x 2048 float32 matrices.
      gigabytes: GB/s of adding an array of 256 MB to another in place.
    """

    def __init__(self, seconds=2.0):
        matrix = tf.random.normal([2048, 2048])
        product = tf.function(lambda: tf.matmul(matrix, matrix))
        array, other = tf.Variable(tf.zeros([1 << 26])), tf.ones([1 << 26])
        add = functools.partial(array.assign_add, other, read_value=False)
        self.gflops = 2 * 2048**3 / median_ms(product, seconds) / 1e6
        self.gigabytes = 3 * 4 * (1 << 26) / median_ms(add, seconds) / 1e6  # 2 reads, 1 write.

    def floor_ms(self, flops, size):
        """Milliseconds for `flops` operations and then moving `size` bytes."""
        return 1e3 * (flops / (1e9 * self.gflops) + size / (1e9 * self.gigabytes))

    def __str__(self):
        devices = ', '.join(device.name for device in tf.config.list_physical_devices())
        return (
            f'{hardware()}, TensorFlow {tf.__version__}, {devices}; matrix product '
            f'{self.gflops:.0f} GFLOP/s, memory {self.gigabytes:.0f} GB/s'
        )


def flops_per_state(network, observation_shape, num_heads=None):
    """Operations of the forward pass of one state through a MultiHeadQNetwork, without biases.

    Args:
      network: Built network.
      observation_shape: Shape of a stack.
      num_heads: Number of heads that are computed; None: all.
    """
    x, flops = tf.zeros((1, *observation_shape)), 0
    for layer in network.trunk:
        x = layer(x)
        flops += 2 * np.prod(x.shape[1:3]) * np.prod(layer.kernel.shape)
    share = 1 if num_heads is None else num_heads / network.num_heads
    layers = network.heads.hidden_layer, network.heads.output_layer
    kernels = sum(np.prod(layer.kernel.shape) for layer in layers)
    return float(flops + 2 * share * kernels)


def parameter_bytes(network):
    return 4.0 * sum(np.prod(variable.shape) for variable in network.trainable_variables)
