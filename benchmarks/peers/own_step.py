"""OB2I's gradient step in this project: `QLearner.step` on a batch of 32."""

import functools
import sys

from ob2i_tf import cli
from ob2i_tf.training import system

system.keep_freed_memory()
cli.import_tensorflow()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks.timing import median_ms  # noqa: E402
from ob2i_tf import networks, optimizers, types  # noqa: E402
from ob2i_tf.learner import QLearner  # noqa: E402


def main():
    rng = np.random.default_rng(0)
    pair = [
        networks.build(networks.MultiHeadQNetwork(4, seed=seed), (84, 84, 4), tf.uint8)
        for seed in (0, 1)
    ]
    learner = QLearner(*pair, optimizer=functools.partial(optimizers.adam, 2.5e-4))
    batch = types.Batch(
        rng.integers(0, 256, (32, 84, 84, 4), dtype=np.uint8),
        rng.integers(4, size=32, dtype=np.int32),
        rng.normal(size=(32, 10)).astype(np.float32),
        np.ones(32, np.float32),
        np.ones((32, 10), np.float32),
    )
    print(f'ob2i_tf {tf.__version__} {median_ms(lambda: learner.step(batch), float(sys.argv[1]))}')


if __name__ == '__main__':
    main()
