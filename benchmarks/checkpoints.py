"""Times to save and load, and sizes on disk, with 100k and 1M transitions of Atari.

  python -m benchmarks.checkpoints                  # 100,000 and 1,000,000; needs 9 GB of memory
  python -m benchmarks.checkpoints --transitions 100000

Frames are from Breakout under random play: 20,000 transitions, repeated at distances beyond the
window of the compressor. "Flushed" means that, as in a run, complete segments are written during
training, and a save, such as the one after SIGTERM, writes only the rest. The variables are those
of ob2i_atari.gin: two networks of 10 heads and Adam's two moments.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# Before TensorFlow, since ob2i_tf selects Keras 2.
from benchmarks import timing
from ob2i_tf import cli, environments, networks, optimizers, replay, types
from ob2i_tf.learner import QLearner
from ob2i_tf.training.episode_files import EpisodeFiles
from ob2i_tf.training.run_folder import RunFolder

import tensorflow as tf  # isort: skip

UNIQUE = 20_000  # Transitions.


def episodes(count):
    """Episodes of random play, with `count` transitions in all."""
    rng, env = np.random.default_rng(0), environments.make('Breakout')
    stack, made = env.reset()[0][0], []
    frames, context = [stack[..., -1]], np.moveaxis(stack[..., :-1], -1, 0).copy()
    for step in range(count):
        _, _, terminated, truncated, info = env.step(rng.integers(4, size=1))
        frames.append(info['final_obs'][0, ..., -1].copy())
        if terminated[0] or truncated[0] or step == count - 1:
            length = len(frames) - 1
            made.append(
                types.Episode(
                    np.stack(frames),
                    rng.integers(4, size=length, dtype=np.int32),
                    np.zeros(length, np.float32),
                    np.full(length, 0.99, np.float32),
                    context,
                )
            )
            frames = frames[-1:]
    env.close()
    return made


def fill(memory, made, transitions, files=None):
    """Adds episodes up to `transitions`, flushing `files` after each; returns the longest flush."""
    longest = 0.0
    while memory.num_transitions < transitions:
        for episode in made:
            if memory.num_transitions + len(episode.actions) > transitions:
                return longest
            memory.add_episode(episode)
            if files:
                began = time.perf_counter()
                files.flush()
                longest = max(longest, time.perf_counter() - began)
    return longest


def size(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob('*') if path.is_file())


def seconds(call):
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def save_and_load_rows(transitions, made):
    name = f'replay, {transitions:,} transitions'
    with tempfile.TemporaryDirectory() as folder:
        memory, other = (replay.EpisodeReplay((84, 84), transitions, history=4) for _ in range(2))
        fill(memory, made, transitions)
        took, manifest = seconds(EpisodeFiles(folder, memory).save)
        yield f'{name}: save all at once', took, 's'
        yield f'{name}: on disk', size(folder) / 1e6, 'MB'
        load = functools.partial(EpisodeFiles(folder, other).load, manifest)
        yield f'{name}: load', seconds(load)[0], 's'


def flush_rows(transitions, made):
    name = f'replay, {transitions:,} transitions, flushed after each game'
    with tempfile.TemporaryDirectory() as folder:
        memory = replay.EpisodeReplay((84, 84), transitions, history=4)
        files = EpisodeFiles(folder, memory)
        yield f'{name}: longest flush', fill(memory, made, transitions, files), 's'
        yield f'{name}: save', seconds(files.save)[0], 's'


def variable_rows():
    learner = QLearner(
        *(
            networks.build(networks.MultiHeadQNetwork(4, seed=seed), (84, 84, 4), tf.uint8)
            for seed in range(2)
        ),
        optimizer=functools.partial(optimizers.adam, 2.5e-4),
    )
    checkpoint = tf.train.Checkpoint(learner=learner)
    with tempfile.TemporaryDirectory() as folder:
        yield 'variables: save', seconds(lambda: checkpoint.write(f'{folder}/v'))[0], 's'
        yield 'variables: on disk', size(folder) / 1e6, 'MB'
        yield 'variables: load', seconds(lambda: checkpoint.read(f'{folder}/v'))[0], 's'


def preemption_rows(transitions):
    """The program on ob2i_atari.gin, acting at random, stopped after `transitions` agent steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, '-m', 'ob2i_tf.training.main', '--gin_files=ob2i_atari.gin'),
            '--gin_bindings=Runner.training_steps = 10_000_000',
            '--gin_bindings=Agent.learning_starts = 10_000_000',
            f'--base_dir={folder}',
        ]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while _agent_steps(folder) < transitions:
            time.sleep(1)
            if process.poll() is not None:
                raise SystemExit(f'the run ended by itself, status {process.returncode}')
        process.terminate()
        took, status = seconds(process.wait)
        assert status == 128 + signal.SIGTERM, status
        yield f'SIGTERM at {transitions:,} agent steps: until the process has ended', took, 's'


def _agent_steps(folder):
    return sum(int(row['length']) for row in RunFolder(folder).rows('episodes'))


def main():
    parser = cli.parser('benchmarks.checkpoints', __doc__)
    parser.add_argument('--transitions', type=int, nargs='*', default=[100_000, 1_000_000])
    parser.add_argument(
        '--preempt', type=int, default=50_000, help='agent steps before SIGTERM; 0: skip'
    )
    arguments = parser.parse_args()
    print(f'{timing.hardware()}, load {os.getloadavg()[0]:.1f} at the start\n')
    print('| measurement | | |\n|---|---:|---|')
    made = episodes(UNIQUE) if arguments.transitions else []
    groups = [(variable_rows,)]
    for count in arguments.transitions:
        groups += [(save_and_load_rows, count, made), (flush_rows, count, made)]
    if arguments.preempt:
        groups.append((preemption_rows, arguments.preempt))
    for group in groups:
        # Separate processes, since a process frees the memory of a large replay only when it ends.
        context = multiprocessing.get_context('spawn')
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            for name, value, unit in pool.submit(_listed, *group).result():
                print(f'| {name} | {value:,.2f} | {unit} |', flush=True)


def _listed(generator, *arguments):
    return list(generator(*arguments))


if __name__ == '__main__':
    main()
