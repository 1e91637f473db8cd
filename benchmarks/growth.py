"""Prints how the cost of each part grows with T, K, A, the number of games and the replay.

  python -m benchmarks.growth                   # about ten minutes on 2 CPU cores, 8 GB of memory
  python -m benchmarks.growth --variables T K   # some of the tables
  python -m benchmarks.growth --processor_time  # on a machine with other work

Times are median milliseconds of OB2I with the network of base/atari_small.gin, on random frames of
Atari's size. Each row is a separate process; its peak memory is that of all parts and of
TensorFlow. The fitted exponent is the slope of log(time) over log(size) in the larger half of the
sizes. Fixed costs lower it, so it should not exceed the exponent of the expected growth.
"""

import contextlib
import functools
import multiprocessing
import re
import time
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.training import system

system.keep_freed_memory()
cli.import_tensorflow()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks.timing import hardware, median_ms, random_episode  # noqa: E402
from ob2i_tf import (  # noqa: E402
    acting,
    config,
    environments,
    learner,
    networks,
    posteriors,
    replay,
    targets,
    updates,
)
from ob2i_tf.training import runner  # noqa: E402, F401  # Registers the names in gin files.

STACK = (84, 84, 4)
USUAL = {'T': 200, 'K': 10, 'A': 4, 'games': 1, 'replay': 20_000}
SIZES = {
    'T': (10, 30, 100, 300, 1000, 3000, 10_000),
    'K': (1, 2, 5, 10, 20, 50),
    'A': (2, 4, 6, 9, 18),
    'games': (1, 2, 4, 8, 16, 32, 64),
    'replay': (10_000, 30_000, 100_000, 300_000, 1_000_000),
}
TITLES = {
    'T': 'transitions of an episode',
    'K': 'heads',
    'A': 'actions',
    'games': 'games played in parallel',
    'replay': 'capacity of the full replay, transitions',
}
INDUCTION = tuple(f'induction, {greedy!r}' for greedy in targets.GREEDY_READINGS)
TARGETS = 'target of an episode', *INDUCTION
ACTING = 'act, one head', 'act, all heads'
REPLAY = 'replay: sample an episode', 'replay: sample 32 transitions', 'replay: add an episode'
MEMORY = 'peak memory, MB'
# The growth of each part's work. A scan of T rows takes O(log T) steps of O(T) operations each.
EXPECTED = {
    'T': dict.fromkeys((*TARGETS, *REPLAY, MEMORY), 'O(T)')
    | dict.fromkeys(("induction, 'initial'", "induction, 'released'"), 'O(T log T)')
    | dict.fromkeys(('replay: sample an episode', 'replay: sample 32 transitions'), 'O(1)'),
    'K': dict.fromkeys((*TARGETS, 'gradient step', *ACTING, MEMORY), 'O(K)')
    | {'act, one head': 'O(1)'},
    'A': dict.fromkeys((*TARGETS, 'gradient step', *ACTING, MEMORY), 'O(A)'),
    'games': dict.fromkeys((*ACTING, 'step of the environments', MEMORY), 'O(games)'),
    'replay': dict.fromkeys(REPLAY, 'O(1)') | {MEMORY: 'O(size)'},
}


def parts(sizes, stack):
    """{part: function that runs it once}.

    Args:
      sizes: {variable: size}, see USUAL.
      stack: ExitStack that closes the environments.
    """
    length, heads, actions, games, capacity = (sizes[name] for name in USUAL)
    rng = np.random.default_rng(0)
    network, target = (
        networks.build(networks.MultiHeadQNetwork(actions, num_heads=heads), STACK, tf.uint8)
        for _ in range(2)
    )
    memory = replay.EpisodeReplay(STACK[:2], capacity, history=4)
    episode = random_episode(length, rng, actions)
    for _ in range(capacity // length):  # Then it is full: each further episode replaces one.
        memory.add_episode(episode)
    for index in range(memory.num_episodes):
        memory.episode(index)  # The first read takes longer.
    update = updates.EpisodicUpdate(memory, network, target)
    batch, _ = update.next_batch()
    arrays = (
        episode.rewards,
        episode.discounts,
        episode.actions,
        rng.standard_normal((length, heads, actions), np.float32),
        rng.random(length, np.float32),
        rng.random((length, actions), np.float32),
    )
    inductions = [
        tf.function(
            functools.partial(
                targets.backward_induction, beta=0.5, alpha_1=1e-4, alpha_2=1e-4, greedy=greedy
            )
        )
        for greedy in targets.GREEDY_READINGS
    ]
    posterior = posteriors.EnsemblePosterior(network, target, None, games, 0)
    stacks = rng.integers(0, 256, (games, *STACK), dtype=np.uint8)
    policies = [
        acting.Policy(posterior, preferences)
        for preferences in (acting.head_preferences, acting.ucb_preferences)
    ]
    env = stack.enter_context(contextlib.closing(environments.make('Breakout', num_envs=games)))
    env.reset()
    return {
        TARGETS[0]: lambda: update.with_targets(update.draw_episodes()),
        **{name: functools.partial(call, *arrays) for name, call in zip(INDUCTION, inductions)},
        'gradient step': functools.partial(learner.QLearner(network, target).step, batch),
        **{
            name: functools.partial(policy.actions, stacks, np.zeros(games, np.int32), 0.0, rng)
            for name, policy in zip(ACTING, policies)
        },
        REPLAY[0]: memory.sample_episode,
        REPLAY[1]: functools.partial(memory.sample_transitions, 32),
        REPLAY[2]: functools.partial(memory.add_episode, episode),
        'step of the environments': lambda: env.step(rng.integers(4, size=games)),
    }


def measure(variable, size, seconds, clock):
    """{part: milliseconds} for the parts in EXPECTED[variable], and the peak memory in MB."""
    with contextlib.ExitStack() as stack:
        config.load(['ob2i_atari.gin', 'base/atari_small.gin'], [])
        calls = parts(USUAL | {variable: size}, stack)
        row = {
            name: median_ms(calls[name], seconds, clock=clock)
            for name in EXPECTED[variable]
            if name != MEMORY
        }
    # Not ru_maxrss, which starts at the peak of the parent process.
    peak = re.search(r'VmHWM:\s+(\d+)', Path('/proc/self/status').read_text())
    return row | {MEMORY: int(peak[1]) / 1e3}


def exponent(sizes, values):
    """Slope of log(value) over log(size) in the larger half of the sizes."""
    half = slice(len(sizes) // 2, None)
    return np.polyfit(np.log(sizes[half]), np.log(values[half]), 1)[0]


def table(variable, rows):
    """Markdown.

    Args:
      variable: A key of EXPECTED.
      rows: {size: see `measure`}.
    """
    names = list(EXPECTED[variable])
    exponents = [exponent([*rows], [row[name] for row in rows.values()]) for name in names]
    lines = [
        [f'{variable}: {TITLES[variable]}', *names],
        ['---:'] * (1 + len(names)),
        *([f'{size:,}', *(_number(row[name]) for name in names)] for size, row in rows.items()),
        ['fitted exponent', *(f'{value:.2f}' for value in exponents)],
        ['expected', *EXPECTED[variable].values()],
    ]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _number(value):
    return f'{value:,.3f}' if value < 10 else f'{value:,.0f}'


def main():
    parser = cli.parser('benchmarks.growth', __doc__)
    parser.add_argument('--variables', nargs='+', choices=SIZES, default=SIZES)
    parser.add_argument('--seconds', type=float, default=1.0, help='per part and size')
    parser.add_argument('--processor_time', action='store_true', help='of all threads')
    arguments = parser.parse_args()
    clock = time.process_time if arguments.processor_time else time.perf_counter
    kind = 'processor time of all threads' if arguments.processor_time else 'wall-clock time'
    print(f'{hardware()}, TensorFlow {tf.__version__}; medians, ms of {kind}')
    with multiprocessing.get_context('spawn').Pool(1, maxtasksperchild=1) as pool:
        for variable in arguments.variables:
            rows = {
                size: pool.apply(measure, (variable, size, arguments.seconds, clock))
                for size in SIZES[variable]
            }
            print(f'\n{table(variable, rows)}', flush=True)


if __name__ == '__main__':
    main()
