"""The speed of a run beside the sum of its operations, each timed alone.

  python -m benchmarks.operations                           # OB2I
  python -m benchmarks.operations --gin_file=dqn_atari.gin  # or another without noise and dueling

The sum is over everything that a run computes per learner step: the gradient step, the targets of
as many states, the actions of the agent steps in between, and the steps of the emulator that no
learner step overlaps. Operations are TensorFlow's, on arrays of the sizes that they have in a run;
the time of an empty call is subtracted.
"""

import contextlib
import itertools
import tempfile

from ob2i_tf import cli
from ob2i_tf.training import system

system.keep_freed_memory()
cli.import_tensorflow()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks.__main__ import whole_run  # noqa: E402
from benchmarks.timing import hardware, median_ms  # noqa: E402
from ob2i_tf import config, environments, frames, updates  # noqa: E402
from ob2i_tf.training.runner import Runner  # noqa: E402

STATES_PER_PASS = 256  # When targets of episodes are computed.


def operations(parts, env):
    """(purpose, operation, calls per learner step, call) of everything that a run computes."""
    network, rows = parts.learner.network, parts.update.batch_size
    target_rows = rows
    passes = 1
    if isinstance(parts.update, updates.EpisodicUpdate):
        target_rows = STATES_PER_PASS
        passes += parts.update.bonus is not None
        stacking = compiled(frames.stack_all, tf.zeros((target_rows + 3, 84, 84), tf.uint8), 4)
        yield 'targets', 'stacks', passes * rows / target_rows, stacking
    for name, call in forward(network, target_rows):
        yield 'targets', name, passes * rows / target_rows, call
    for name, call in itertools.chain(forward(network, rows), backward(network, rows)):
        yield 'gradient step', name, 1, call
    variables = network.trainable_variables
    gradients = [tf.random.normal(variable.shape) for variable in variables]
    optimizer = parts.learner._optimizer

    def apply():
        optimizer.apply_gradients(zip(gradients, variables))

    yield 'gradient step', 'optimizer', 1, compiled(apply)
    if config.value('QLearner.max_gradient_norm'):
        norm = compiled(lambda: tf.add_n([tf.nn.l2_loss(gradient) for gradient in gradients]))
        yield 'gradient step', 'norm', 1, norm
    period = config.value('Agent.train_period')
    heads = 1 if parts.agent.policy._followed_head_only else network.num_heads
    for name, call in forward(network, 1, heads):
        yield 'acting', name, period, call
    # A learner step overlaps with one step of the emulators.
    yield 'emulator', 'step', period - 1, lambda: env.step(np.zeros(1, np.int32))


def forward(network, rows, heads=None):
    """(name, call) of each operation of a pass of `rows` stacks."""
    stacks = tf.zeros((rows, 84, 84, 4), tf.uint8)
    yield 'bytes to numbers', compiled(lambda: tf.cast(stacks, tf.float32) * (1 / 255))
    for name, layer, x, _ in convolutions(network, rows):
        yield name, compiled(tf.nn.conv2d, x, layer.kernel, layer.strides, 'VALID')
    kernel, features, _ = product(network, rows, heads)
    yield 'product of the heads', compiled(tf.matmul, kernel, features, transpose_b=True)


def backward(network, rows):
    """(name, call) of each operation of the gradients of a pass."""
    ops = tf.raw_ops
    for name, layer, x, gradient in convolutions(network, rows):
        options = {'out_backprop': gradient, 'strides': [1, *layer.strides, 1], 'padding': 'VALID'}
        kernel = tf.identity(layer.kernel)
        call = compiled(ops.Conv2DBackpropFilter, input=x, filter_sizes=kernel.shape, **options)
        yield f'{name}, gradient of its kernel', call
        if layer is not network.trunk[0]:
            sizes = {'input_sizes': x.shape, 'filter': kernel}
            call = compiled(ops.Conv2DBackpropInput, **sizes, **options)
            yield f'{name}, gradient of its input', call
    kernel, features, gradient = product(network, rows)
    name = 'product of the heads, gradient of its'
    yield f'{name} kernel', compiled(tf.matmul, gradient, features)
    yield f'{name} input', compiled(tf.matmul, gradient, kernel, transpose_a=True)


def convolutions(network, rows):
    """(name, layer, input, gradient of its output) of each convolution."""
    x = tf.random.normal((rows, 84, 84, 4))
    for index, layer in enumerate(network.trunk, 1):
        output = layer(x)
        yield f'convolution {index}', layer, x, tf.random.normal(output.shape)
        x = output


def product(network, rows, heads=None):
    """Kernels [heads H, D], features [rows, D] and the gradient [heads H, rows] of a product."""
    kernel = network.heads.hidden_layer.kernel[:heads]
    kernel = tf.reshape(kernel, (-1, kernel.shape[-1]))
    gradient = tf.random.normal((kernel.shape[0], rows))
    return kernel, tf.random.normal((rows, kernel.shape[1])), gradient


def compiled(function, *arguments, **keywords):
    return tf.function(lambda: function(*arguments, **keywords), autograph=False)


def main():
    parser = cli.parser('benchmarks.operations', __doc__)
    parser.add_argument('--gin_file', default='ob2i_atari.gin')
    parser.add_argument('--seconds', type=float, default=1.0, help='seconds per operation')
    parser.add_argument('--steps', type=int, default=1000, help='agent steps of the run')
    arguments = parser.parse_args()
    config.load([arguments.gin_file], ['EpisodeReplay.capacity_transitions = 20_000'])
    with tempfile.TemporaryDirectory() as folder:
        parts = Runner(base_dir=folder, dry_run=True).parts
    total, zero = 0.0, tf.constant(0)
    empty = median_ms(compiled(tf.identity, zero), arguments.seconds)
    print(f'{arguments.gin_file}, {hardware()}, TensorFlow {tf.__version__}\n')
    print('| for | operation | ms alone | per learner step | ms |\n|---|---|---:|---:|---:|')
    with contextlib.closing(environments.make('Breakout', num_envs=1)) as env:
        env.reset()
        for purpose, name, count, call in operations(parts, env):
            time = median_ms(call, arguments.seconds) - empty * (purpose != 'emulator')
            total += count * time
            print(
                f'| {purpose} | {name} | {time:.2f} | {count:g} | {count * time:.2f} |', flush=True
            )
        period = config.value('Agent.train_period')
    rate, _ = whole_run(arguments.gin_file, [], 1, arguments.steps)
    steps_per_second = 1e3 * period / total
    print(f'\nSum: {total:.1f} ms per learner step, {steps_per_second:.1f} agent steps/s.')
    print(f'Run: {rate:.1f} agent steps/s, {rate / steps_per_second:.0%} of the sum.')


if __name__ == '__main__':
    main()
