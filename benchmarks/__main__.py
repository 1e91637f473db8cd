"""Prints the cost of each part of a method on this machine, on Breakout, next to lower bounds.

  python -m benchmarks                                # OB2I; about six minutes on 2 CPU cores
  python -m benchmarks --gin_file=bebu_ucb_atari.gin  # another method with a MultiHeadQNetwork
  python -m benchmarks --gin_bindings='Runner.xla = ("acting", "targets", "gradient_step")'
  python -m benchmarks --quick                        # fewer repetitions

Sizes are those of the gin file. A floor is the time for the operations at the speed of a large
matrix product, plus the time for moving the necessary bytes at the speed of memory, both measured
in the same run. Times are medians. Run it on an idle machine; on shared machines single figures
vary by 10 to 25 % from run to run, so compare only within a table.
"""

import contextlib
import functools
import itertools
import tempfile

from ob2i_tf import cli
from ob2i_tf.training import system

system.keep_freed_memory()
cli.import_tensorflow()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks.timing import Machine, flops_per_state, median_ms, parameter_bytes, random_episode  # noqa: E402
from ob2i_tf import (  # noqa: E402
    acting,
    bonuses,
    config,
    environments,
    posteriors,
    replay,
    targets,
    updates,
)
from ob2i_tf.training.runner import Runner  # noqa: E402
from tests import oracle  # noqa: E402

STACK = (84, 84, 4)
ADAM_BYTES = 7  # Per byte of parameters: reads the gradient, reads and writes 3 other arrays.


def rows_of_method(parts, machine):
    """(name, call, milliseconds of its floor or None) of acting, learning and targets.

    Args:
      parts: Parts of a run.
      machine: timing.Machine.
    """
    rng, network = np.random.default_rng(0), parts.learner.network
    size, flops = parameter_bytes(network), flops_per_state(network, STACK)
    yield from acting_rows(parts.learner, machine, rng)

    for _ in range(5):
        parts.agent.replay.add_episode(random_episode(200, rng))
    batch, _ = parts.update.next_batch()
    for rows in (len(batch.actions), 8):
        part = type(batch)(*(x[:rows] for x in batch))
        floor = machine.floor_ms(3 * rows * flops, (ADAM_BYTES + 1) * size)
        yield f'gradient step, {rows} rows', lambda: parts.learner.step(part), floor
    copy = parts.learner.update_target
    yield 'copy into the target network', copy, machine.floor_ms(0, 2 * size)

    if isinstance(parts.update, updates.EpisodicUpdate):
        passes = 1 + isinstance(parts.update.bonus, bonuses.UcbBonus)  # B needs the online network.
        for length in (40, 500, 2000):
            memory = replay.EpisodeReplay(STACK[:2], 10_000, history=4)
            memory.add_episode(random_episode(length, rng))
            update = updates.EpisodicUpdate(
                *(memory, network, parts.learner.target_network),
                xla=parts.update.xla,
                batch_size=32,
                beta=0.5,
                batching='episode',
            )
            floor = machine.floor_ms(passes * length * flops, 0)
            yield f'target of an episode, T = {length:,}', update.next_batch, floor
        yield from induction_rows(rng)


def acting_rows(learner, machine, rng):
    preferences = {
        'one head per episode (OB2I, BEBU)': acting.head_preferences,
        'all heads, UCB (BEBU-UCB)': acting.ucb_preferences,
        'all heads, IDS (BEBU-IDS)': acting.ids_preferences,
        'all heads, vote (evaluation)': acting.vote_preferences,
    }
    network, size = learner.network, parameter_bytes(learner.network)
    for count in (1, 8):
        stacks = rng.integers(0, 256, (count, *STACK), dtype=np.uint8)
        heads = np.zeros(count, np.int32)
        for name, function in preferences.items():
            one = 'one head' in name and count == 1
            used = size / network.num_heads if one else size
            flops = count * flops_per_state(network, STACK, 1 if one else None)
            for xla in (False, True) if count > 1 else (False,):
                posterior = posteriors.EnsemblePosterior(
                    network, learner.target_network, None, count, 0
                )
                policy = acting.Policy(posterior, function, xla=xla)
                yield (
                    f'act, {plural(count)}: {name}{", XLA" * xla}',
                    lambda: policy.actions(stacks, heads, 0.0, rng),
                    machine.floor_ms(flops, used),
                )


def induction_rows(rng, length=2000):
    arrays = (
        rng.normal(size=length).astype(np.float32),
        np.full(length, 0.99, np.float32),
        rng.integers(4, size=length, dtype=np.int32),
        rng.normal(size=(length, 10, 4)).astype(np.float32),
        rng.random(length).astype(np.float32),
        rng.random((length, 4)).astype(np.float32),
    )
    for greedy in targets.GREEDY_READINGS:
        settings = {'beta': 0.5, 'alpha_1': 0.5e-4, 'alpha_2': 0.5e-4, 'greedy': greedy}
        compiled = tf.function(functools.partial(targets.backward_induction, **settings))
        name = f'backward induction alone, T = {length:,}, {greedy!r}'
        method = 'compiled loop' if greedy == 'updated' else 'compiled scan'
        yield f'{name}: {method}', lambda: compiled(*arrays), None
        literal = functools.partial(oracle.backward_induction, *arrays, **settings)
        yield f'{name}: literal Python loop', literal, None


def plural(count):
    return f'{count} environment{"s" * (count > 1)}'


def replay_rows():
    rng = np.random.default_rng(0)
    memory = replay.EpisodeReplay(STACK[:2], 50_000, history=4)
    episode = random_episode(500, rng)
    for _ in range(100):  # From then on each further episode replaces another.
        memory.add_episode(episode)
    yield 'replay: add an episode of 500', lambda: memory.add_episode(episode), None
    yield 'replay: sample an episode of 500', memory.sample_episode, None
    yield 'replay: sample 32 transitions', lambda: memory.sample_transitions(32), None


def environment_rows():
    rng = np.random.default_rng(0)
    for count in (1, 8):
        with contextlib.closing(environments.make('Breakout', num_envs=count)) as env:
            env.reset()
            step = lambda: env.step(rng.integers(4, size=count))  # noqa: E731
            yield f'environments alone, {plural(count)}: one step of all', step, None


def whole_run(file, bindings, num_envs, steps):
    """Agent steps per second while learning, and the phases' shares of the time."""
    with tempfile.TemporaryDirectory() as folder:
        config.load(
            [file],
            [
                'Runner.num_iterations = 3',
                f'Runner.training_steps = {steps}',
                'Runner.evaluation_steps = 0',
                f'Runner.num_envs = {num_envs}',
                f'Agent.learning_starts = {steps}',
                'linear.start = 0.1',
                'linear.final = 0.1',
                'EpisodeReplay.capacity_transitions = 20_000',
                *bindings,
            ],
        )
        runner = Runner(base_dir=folder)
        runner.run()
        rate = float(runner.folder.rows('train')[-1]['agent_steps_per_second'])
    total = steps / rate
    shares = {name: seconds / total for name, seconds in runner.parts.timers.seconds.items()}
    shares['all else'] = 1 - sum(shares.values())
    return rate, shares


def main():
    parser = cli.parser('benchmarks', __doc__)
    parser.add_argument('--gin_file', default='ob2i_atari.gin')
    parser.add_argument('--gin_bindings', action='append', default=[])
    parser.add_argument('--quick', action='store_true', help='fewer repetitions')
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else 3.0
    with tempfile.TemporaryDirectory() as folder:
        config.load(
            [arguments.gin_file],
            ['EpisodeReplay.capacity_transitions = 20_000', *arguments.gin_bindings],
        )
        runner = Runner(base_dir=folder)
        machine = Machine(seconds)  # With the TF32 of the run.
        print(f'{arguments.gin_file} {" ".join(arguments.gin_bindings)}\n\n{machine}\n')
        print('| part | median, ms | floor, ms | reached |\n|---|---:|---:|---:|')
        rows = rows_of_method(runner.parts, machine), replay_rows(), environment_rows()
        for name, call, floor in itertools.chain(*rows):
            time = median_ms(call, seconds)
            reached = f'{floor:,.2f} | {floor / time:.0%}' if floor else '| '
            print(f'| {name} | {time:,.2f} | {reached} |', flush=True)
    steps = 240 if arguments.quick else 1200
    print('\n| while learning | agent steps/s | shares of the time |\n|---|---:|---|')
    for count in (1, 8):
        rate, shares = whole_run(arguments.gin_file, arguments.gin_bindings, count, steps)
        phases = ', '.join(f'{name} {share:.0%}' for name, share in shares.items())
        print(f'| {plural(count)} | {rate:.1f} | {phases} |', flush=True)


if __name__ == '__main__':
    main()
