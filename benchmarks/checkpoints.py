"""Times of checkpoints and of a resume of ob2i_atari.gin, and sizes on disk.

  python -m benchmarks.checkpoints                  # 100,000 and 1,000,000; needs 9 GB of memory
  python -m benchmarks.checkpoints --transitions 100000

Frames are from random play of three games, 8,000 transitions each, repeated at distances beyond the
window of the compressor. The run is held up by `flush`, which writes complete segments after each
game, and by `save`. The resume restores everything: two networks of 10 heads, Adam's two moments,
and replay. CPU times are those of all threads; where they are shorter than the time that passed,
the program waited for the disk or for another program.
"""

import concurrent.futures
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
from ob2i_tf import cli, config, environments, types
from ob2i_tf.training.run_folder import COLUMNS, RunFolder
from ob2i_tf.training.run_state import RunState
from ob2i_tf.training.runner import Runner

GAMES = 'Breakout', 'Freeway', 'SpaceInvaders'
UNIQUE = 8_000  # Transitions per game.
GIN_FILE = 'ob2i_atari.gin'


def episodes(game, count):
    """Episodes of random play, with `count` transitions in all."""
    rng, env = np.random.default_rng(0), environments.make(game)
    num_actions = env.single_action_space.n
    stack, made = env.reset()[0][0], []
    frames, context = [stack[..., -1]], np.moveaxis(stack[..., :-1], -1, 0).copy()
    for step in range(count):
        _, _, terminated, truncated, info = env.step(rng.integers(num_actions, size=1))
        frames.append(info['final_obs'][0, ..., -1].copy())
        if terminated[0] or truncated[0] or step == count - 1:
            length = len(frames) - 1
            made.append(
                types.Episode(
                    np.stack(frames),
                    rng.integers(num_actions, size=length, dtype=np.int32),
                    np.zeros(length, np.float32),
                    np.full(length, 0.99, np.float32),
                    context,
                )
            )
            frames = frames[-1:]
    env.close()
    return made


def run_state(folder, transitions):
    """(RunState of a run in `folder` with a replay of this capacity, its replay)."""
    capacity = f'EpisodeReplay.capacity_transitions = {transitions}'
    config.apply(config.read([GIN_FILE], [capacity]))
    parts = Runner(folder, dry_run=True).parts
    state = RunState(RunFolder(folder), parts, config.value('Runner.training_steps'), keep=2)
    return state, parts.replay


def size(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob('*') if path.is_file())


def seconds(call):
    """(seconds that pass, seconds of the CPU)."""
    started, cpu_started = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - started, time.process_time() - cpu_started


def save_rows(folder, transitions):
    state, memory = run_state(folder, transitions)
    made = [episode for game in GAMES for episode in episodes(game, UNIQUE)]
    flushes, number = [], 0
    while memory.num_transitions + len(made[number % len(made)].actions) <= transitions:
        memory.add_episode(made[number % len(made)])
        flushes.append(seconds(state.files.flush))
        number += 1
    saves, rng = [], np.random.default_rng(0)
    steps = config.value('Runner.training_steps')
    state.actions = list(rng.integers(4, size=(steps, 1)))  # At most those of an iteration.
    for _ in range(5):
        memory.add_episode(made[0])
        saves.append(seconds(lambda: (state.check_finite(), state.save(dict.fromkeys(COLUMNS)))))
    yield 'longest flush', *max(flushes)
    yield 'longest of 5 saves', *max(saves)
    yield (f'replay on disk: {size(state.files.directory) / 1e6:,.1f} MB',)
    yield (f'everything else in a checkpoint: {size(Path(folder) / "checkpoints") / 2e6:,.1f} MB',)


def resume_rows(folder, transitions):
    state, _ = run_state(folder, transitions)
    yield 'resume', *seconds(state.restore)


def preemption_rows(folder, transitions):
    """The program, acting at random, stopped after `transitions` agent steps."""
    command = [
        *(sys.executable, '-m', 'ob2i_tf.training.main', f'--gin_files={GIN_FILE}'),
        '--gin_bindings=Runner.training_steps = 10_000_000',
        '--gin_bindings=Agent.learning_starts = 10_000_000',
        f'--base_dir={folder}',
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while sum(int(row['length']) for row in RunFolder(folder).rows('episodes')) < transitions:
        time.sleep(1)
        if process.poll() is not None:
            raise SystemExit(f'the run ended by itself, status {process.returncode}')
    process.terminate()
    passed, _ = seconds(process.wait)
    assert process.returncode == 128 + signal.SIGTERM, process.returncode
    yield 'SIGTERM: until the process has ended', passed


def main():
    parser = cli.parser('benchmarks.checkpoints', __doc__)
    parser.add_argument('--transitions', type=int, nargs='*', default=[100_000, 1_000_000])
    parser.add_argument(
        '--preempt', type=int, default=50_000, help='agent steps before SIGTERM; 0: skip'
    )
    arguments = parser.parse_args()
    print(f'{timing.hardware()}, load {os.getloadavg()[0]:.1f} at the start\n')
    print('| transitions | measurement | seconds | of the CPU |\n|---:|---|---:|---:|')
    cases = [(count, (save_rows, resume_rows)) for count in arguments.transitions]
    cases += [(arguments.preempt, (preemption_rows,))] * bool(arguments.preempt)
    for count, generators in cases:
        with tempfile.TemporaryDirectory() as folder:
            for generator in generators:
                # Separate processes, since a process frees a large replay only when it ends.
                context = multiprocessing.get_context('spawn')
                with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                    for name, *times in pool.submit(_listed, generator, folder, count).result():
                        cells = [f'{time:.2f}' for time in times] + [''] * (2 - len(times))
                        print(f'| {count:,} | {name} | {" | ".join(cells)} |', flush=True)


def _listed(generator, *arguments):
    return list(generator(*arguments))


if __name__ == '__main__':
    main()
