"""One table of what OB2I costs on this machine, at the paper's sizes on Breakout.

  python -m benchmarks            # everything, about five minutes on 2 CPU cores
  python -m benchmarks --quick    # fewer repetitions

Times are medians. Run it with nothing else running; single figures move by 10 to 25 % from run to
run on shared machines, so compare only what stands in one table.
"""

import argparse
import contextlib
import csv
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from ob2i_tf import allocator

allocator.keep_freed_memory()

import numpy as np  # noqa: E402
import psutil  # noqa: E402
import tensorflow as tf  # noqa: E402

from ob2i_tf import (  # noqa: E402
    acting,
    bonuses,
    config,
    environments,
    networks,
    posteriors,
    replay,
    targets,
    types,
    updates,
)  # fmt: skip
from ob2i_tf.learner import QLearner  # noqa: E402
from ob2i_tf.runner import Runner  # noqa: E402
from tests import oracle  # noqa: E402

ALPHA = 0.5e-4


def median_ms(call, seconds, least=5):
    """Median milliseconds of `call`, after two calls that are not counted."""
    call()
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def random_episode(length, rng):
    discounts = np.full(length, 0.99, np.float32)
    discounts[-1] = 0
    return types.Episode(
        rng.integers(0, 256, (length + 1, 84, 84), dtype=np.uint8),
        rng.integers(4, size=length, dtype=np.int32), rng.normal(size=length).astype(np.float32),
        discounts, rng.integers(0, 256, (3, 84, 84), dtype=np.uint8),
    )  # fmt: skip


def build_networks(count=2):
    return [
        networks.build(networks.MultiHeadQNetwork(4, seed=seed), (84, 84, 4), tf.uint8)
        for seed in range(count)
    ]


def acting_rows(seconds):
    (network,), rng = build_networks(1), np.random.default_rng(0)
    for count in (1, 8):
        stacks = rng.integers(0, 256, (count, 84, 84, 4), dtype=np.uint8)
        heads = np.zeros(count, np.int32)
        for name, preferences in (
            ('one head an episode (OB2I, BEBU)', acting.head_preferences),
            ('all heads, UCB (BEBU-UCB)', acting.ucb_preferences),
            ('all heads, IDS (BEBU-IDS)', acting.ids_preferences),
            ('all heads, vote (evaluation)', acting.vote_preferences),
        ):
            posterior = posteriors.EnsemblePosterior(network, network, None, count, 0)
            policy = acting.Policy(posterior, preferences)
            yield (
                f'act, {count} environment{"s" * (count > 1)}: {name}',
                median_ms(lambda: policy.actions(stacks, heads, 0.0, rng), seconds), 'ms',
            )  # fmt: skip


def learner_rows(seconds):
    learner, rng = QLearner(*build_networks()), np.random.default_rng(0)
    batch = types.Batch(
        rng.integers(0, 256, (32, 84, 84, 4), dtype=np.uint8),
        rng.integers(4, size=32, dtype=np.int32), rng.normal(size=(32, 10)).astype(np.float32),
        np.ones(32, np.float32), np.ones((32, 10), np.float32),
    )  # fmt: skip
    yield 'gradient step, batch 32', median_ms(lambda: learner.step(batch), seconds), 'ms'
    yield 'copy into the target network', median_ms(learner.update_target, seconds), 'ms'


def target_rows(seconds):
    network, target_network = build_networks()
    rng = np.random.default_rng(0)
    for length in (500, 2000):
        memory = replay.EpisodeReplay((84, 84), 10_000, history=4)
        memory.add_episode(random_episode(length, rng))
        for name, bonus in (('OB2I', bonuses.UcbBonus()), ('BEBU', None)):
            update = updates.EpisodicUpdate(
                memory, network, target_network, alpha_1=ALPHA, alpha_2=ALPHA, bonus=bonus,
                consumption='whole',
            )  # fmt: skip
            yield (
                f'target of an episode, T = {length:,}, {name}: passes and backward induction',
                median_ms(update.next_batch, seconds, least=3), 'ms',
            )  # fmt: skip
        arrays = (
            rng.normal(size=length).astype(np.float32), np.full(length, 0.99, np.float32),
            rng.integers(4, size=length, dtype=np.int32),
            rng.normal(size=(length, 10, 4)).astype(np.float32),
            rng.random(length).astype(np.float32), rng.random((length, 4)).astype(np.float32),
        )  # fmt: skip
        weights = {'beta': 0.5, 'alpha_1': ALPHA, 'alpha_2': ALPHA}
        for greedy in targets.GREEDY_READINGS:

            @tf.function
            def compiled(*arrays, greedy=greedy):
                return targets.backward_induction(*arrays, **weights, greedy=greedy)

            name = f'backward induction alone, T = {length:,}, {greedy!r}'
            method = 'compiled loop' if greedy == 'updated' else 'compiled scan'
            yield (f'{name}: {method}', median_ms(lambda: compiled(*arrays), seconds), 'ms')
            yield (
                f'{name}: literal Python loop',
                median_ms(
                    lambda: oracle.backward_induction(*arrays, **weights, greedy=greedy),
                    seconds, least=2,
                ), 'ms',
            )  # fmt: skip


def replay_rows(seconds):
    rng = np.random.default_rng(0)
    memory = replay.EpisodeReplay((84, 84), 50_000, history=4)
    episode = random_episode(500, rng)
    yield 'replay: add an episode of 500', median_ms(
        lambda: memory.add_episode(episode), seconds, least=120), 'ms'  # fmt: skip
    yield 'replay: sample an episode of 500', median_ms(memory.sample_episode, seconds), 'ms'
    yield 'replay: sample 32 transitions', median_ms(
        lambda: memory.sample_transitions(32), seconds), 'ms'  # fmt: skip


def environment_rows(seconds):
    rng = np.random.default_rng(0)
    for count in (1, 8):
        with contextlib.closing(environments.make('Breakout', num_envs=count)) as env:
            env.reset()
            step = median_ms(lambda: env.step(rng.integers(4, size=count)), seconds)
        name = f'environment alone, {count} environment{"s" * (count > 1)}'
        yield name, 1e3 * count / step, 'agent steps/s'


def run_rows(seconds):
    """Whole runs: 3,000 random agent steps, then the rate while learning."""
    steps = int(max(600, 200 * seconds))
    for count in (1, 8):
        with tempfile.TemporaryDirectory() as folder:
            config.load(
                ['ob2i_atari.gin'],
                [
                    'Runner.num_iterations = 2', f'Runner.training_steps = {steps // 8 * 8}',
                    'Runner.evaluation_steps = 0', f'Runner.num_envs = {count}',
                    f'Agent.learning_starts = {steps // 8 * 8}', 'linear.steps = 1',
                ],
            )  # fmt: skip
            Runner(base_dir=folder).run()
            with open(Path(folder) / 'train.csv', newline='') as file:
                row = list(csv.DictReader(file))[-1]
        yield (
            f'OB2I on Breakout while learning, {count} environment{"s" * (count > 1)}',
            float(row['agent_steps_per_second']), 'agent steps/s',
        )  # fmt: skip


def matrix_speed():
    """GFLOP/s of a 2048 x 2048 float32 product, to tell machines apart."""
    matrix = tf.random.normal([2048, 2048])
    product = tf.function(lambda: tf.matmul(matrix, matrix))
    return 2 * 2048**3 / median_ms(product, 2) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='fewer repetitions')
    seconds = 0.5 if parser.parse_args().quick else 4
    devices = [device.name for device in tf.config.list_physical_devices()]
    print(
        f'{platform.machine()}, {os.cpu_count()} cores, '
        f'{psutil.virtual_memory().total / 2**30:.0f} GiB, TensorFlow {tf.__version__}, '
        f'{", ".join(devices)}, matrix product {matrix_speed():.0f} GFLOP/s\n'
    )
    print('| what | median | |\n|---|---:|---|')
    for rows in (acting_rows, learner_rows, target_rows, replay_rows, environment_rows, run_rows):
        for name, value, unit in rows(seconds):
            print(f'| {name} | {value:,.2f} | {unit} |', flush=True)


if __name__ == '__main__':
    main()
