"""Exports the compiled core as HLO, to be checked and timed by an XLA runtime without TensorFlow.

  python -m benchmarks.export_hlo --out=gpu_check
  python -m benchmarks.time_hlo gpu_check/*.hlo --save    # here, with jax: the reference
  python -m benchmarks.time_hlo gpu_check/*.hlo           # on the GPU machine, with jax

The export needs no GPU; its products are float32, not TF32. Shapes are the paper's on Atari: 10
heads of 512 units, 4 actions, batch 32. Each NAME.hlo comes with NAME.json: the kinds and shapes of
its inputs in order, arguments before variables.
"""

import argparse
import functools
import json
import re
from pathlib import Path

import numpy as np

from ob2i_tf import cli

cli.import_tensorflow()

import tensorflow as tf  # noqa: E402

from ob2i_tf import (  # noqa: E402
    acting,
    bonuses,
    networks,
    optimizers,
    posteriors,
    replay,
    targets,
    types,
    updates,
)
from ob2i_tf.learner import QLearner  # noqa: E402
from ob2i_tf.training import system  # noqa: E402

STACK = (84, 84, 4)
ALPHA = 0.5e-4  # Paper, section 5.2.


def export(path, function, *arguments):
    """Lowers a tf.function with jit_compile=True for these arguments; writes .hlo and .json."""
    lower = function.experimental_get_compiler_ir(*arguments)
    path.with_suffix('.hlo').write_bytes(lower(stage='hlo_serialized'))
    layout = re.search(r'entry_computation_layout=\{\((.*?)\)->', lower(stage='hlo')).group(1)
    inputs = [
        {'kind': kind, 'shape': [int(size) for size in shape.split(',') if size]}
        for kind, shape in re.findall(r'([a-z]+\d*)\[([\d,]*)\]', layout)
    ]
    path.with_suffix('.json').write_text(json.dumps({'inputs': inputs}, indent=1))


def functions(network_settings, lengths, env_counts):
    """(name, compiled function, its arguments) of everything that a training run computes."""
    network, target_network = (
        networks.build(
            networks.MultiHeadQNetwork(4, seed=seed, **network_settings), STACK, tf.uint8
        )
        for seed in (0, 1)
    )
    for count in env_counts:
        posterior = posteriors.EnsemblePosterior(network, target_network, None, count, 0)
        policy = acting.Policy(posterior, acting.head_preferences, xla=True)
        observations, heads = tf.zeros((count, *STACK), tf.uint8), tf.zeros(count, tf.int32)
        seed = tf.zeros(2, tf.int32)
        yield f'acting_{count}', policy._compiled.function, (observations, heads, seed)

    optimizer = functools.partial(optimizers.adam, 2.5e-4)
    learner = QLearner(network, target_network, xla=True, optimizer=optimizer)
    batch = types.Batch(
        tf.zeros((32, *STACK), tf.uint8),
        tf.zeros(32, tf.int32),
        tf.zeros((32, network.num_heads)),
        tf.ones(32),
        tf.ones((32, network.num_heads)),
    )
    yield 'gradient_step', learner.compiled_step(batch).function, batch[:-1]

    memory = replay.EpisodeReplay(STACK[:2], 100, history=STACK[2])
    for length in lengths:
        update = updates.EpisodicUpdate(
            memory,
            network,
            target_network,
            batch_size=32,
            beta=0.5,
            batching='chunks',
            alpha_1=ALPHA,
            alpha_2=ALPHA,
            bonus=bonuses.UcbBonus(),
            xla=True,
        )
        frames = tf.zeros((length + STACK[2], *STACK[:2]), tf.uint8)
        rows = tf.zeros(length, tf.int32), tf.zeros(length), tf.ones(length)
        yield f'targets_{length}', targets_of_one_episode(update), (frames, *rows)

        arguments = (
            tf.zeros(length),
            tf.zeros(length, tf.int32),
            tf.zeros((length, network.num_heads, network.num_actions)),
        )
        for name, greedy in (('scan', 'initial'), ('loop', 'updated')):
            yield f'backward_induction_{name}_{length}', backward_induction(greedy), arguments


def targets_of_one_episode(update):
    """The compiled targets of an update, for rows of a single episode."""

    @tf.function(jit_compile=True)
    def compute(frames, actions, rewards, discounts):
        return update.episode_targets(
            frames, actions, rewards, discounts, tf.zeros(actions.shape, tf.int32)
        )

    return compute


def backward_induction(greedy):
    """The compiled backward induction, with bonuses that cost nothing to compute."""

    @tf.function(jit_compile=True)
    def induction(rewards, actions, next_q):
        return targets.backward_induction(
            rewards,
            tf.ones_like(rewards),
            actions,
            next_q,
            rewards,
            next_q[:, 0],
            beta=0.5,
            alpha_1=ALPHA,
            alpha_2=ALPHA,
            greedy=greedy,
        )

    return induction


def write(folder, lengths=(512, 2048, 8192), env_counts=(1, 8, 64), **network_settings):
    """Exports everything into `folder`; yields the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with system.tensor_float_32(False):
        for name, function, arguments in functions(network_settings, lengths, env_counts):
            export(folder / name, function, *arguments)
            yield folder / f'{name}.hlo'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', required=True)
    for path in write(parser.parse_args().out):
        print(f'{path}: {np.ceil(path.stat().st_size / 1e3):.0f} kB')


if __name__ == '__main__':
    main()
