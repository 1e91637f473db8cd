"""Prints the cost of each part of a method on this machine, on Breakout, beside lower bounds.

  python -m benchmarks                                # OB2I; about six minutes on 2 CPU cores
  python -m benchmarks --gin_file=bebu_ucb_atari.gin  # another method with a MultiHeadQNetwork
  python -m benchmarks --gin_bindings='Runner.xla = ("acting", "targets", "gradient_step")'
  python -m benchmarks --quick                        # fewer repetitions

Sizes are those of the gin file. A floor is the time of the operations at the speed of a large
matrix product, plus the time to move the necessary bytes at the speed of memory, both measured in
the same run. Times are medians. Run it on an idle machine; on shared machines single figures vary
by 10 to 25 % from run to run, so compare only within a table.
"""

import argparse
import contextlib
import csv
import tempfile
from pathlib import Path

from ob2i_tf.training import system

system.keep_freed_memory()

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


class Parts:
    """The parts of a method, and the machine that they run on."""

    def __init__(self, runner, machine, seconds):
        self.machine, self.seconds = machine, seconds
        self.learner, self.agent = runner.parts.learner, runner.parts.agent
        self.update = runner.parts.update
        self.network = self.learner.network
        self.target_network = self.learner.target_network
        self.rng = np.random.default_rng(0)

    def forward(self, heads=None):
        return flops_per_state(self.network, STACK, heads)

    def rows(self):
        yield from self.acting_rows()
        yield from self.learner_rows()
        if isinstance(self.update, updates.EpisodicUpdate):
            yield from self.target_rows()

    def acting_rows(self):
        preferences = {
            'one head per episode (OB2I, BEBU)': acting.head_preferences,
            'all heads, UCB (BEBU-UCB)': acting.ucb_preferences,
            'all heads, IDS (BEBU-IDS)': acting.ids_preferences,
            'all heads, vote (evaluation)': acting.vote_preferences,
        }
        size = parameter_bytes(self.network)
        for count in (1, 8):
            stacks = self.rng.integers(0, 256, (count, *STACK), dtype=np.uint8)
            heads = np.zeros(count, np.int32)
            for name, function in preferences.items():
                one = 'one head' in name and count == 1
                used = 1 / self.network.num_heads if one else 1.0
                floor = self.machine.floor_ms(count * self.forward(1 if one else None), used * size)
                for xla in (False, True) if count > 1 else (False,):
                    posterior = posteriors.EnsemblePosterior(
                        self.network, self.target_network, None, count, 0
                    )
                    policy = acting.Policy(posterior, function, xla=xla)
                    yield (
                        f'act, {plural(count)}: {name}{", XLA" * xla}',
                        median_ms(
                            lambda: policy.actions(stacks, heads, 0.0, self.rng), self.seconds
                        ),
                        floor,
                    )

    def learner_rows(self):
        self.fill([200] * 5)
        batch, _ = self.update.next_batch()
        size = parameter_bytes(self.network)
        for rows in (len(batch.actions), 8):
            part = type(batch)(*(x[:rows] for x in batch))
            floor = self.machine.floor_ms(3 * rows * self.forward(), (ADAM_BYTES + 1) * size)
            time = median_ms(lambda: self.learner.step(part), self.seconds)
            yield f'gradient step, {rows} rows', time, floor
        copy = median_ms(self.learner.update_target, self.seconds)
        yield 'copy into the target network', copy, self.machine.floor_ms(0, 2 * size)

    def fill(self, lengths):
        for length in lengths:
            self.agent.replay.add_episode(random_episode(length, self.rng))

    def target_rows(self):
        passes = 1 + isinstance(self.update.bonus, bonuses.UcbBonus)  # It needs the Q-values for B.
        for length in (40, 500, 2000):
            memory = replay.EpisodeReplay(STACK[:2], 10_000, history=4)
            memory.add_episode(random_episode(length, self.rng))
            update = updates.EpisodicUpdate(
                memory,
                self.network,
                self.target_network,
                xla=self.update.xla,
                batch_size=32,
                beta=0.5,
                batching='episode',
            )
            time = median_ms(update.next_batch, self.seconds, least=3)
            floor = self.machine.floor_ms(passes * length * self.forward(), 0)
            yield f'target of an episode, T = {length:,}', time, floor
        length = 2000
        arrays = (
            self.rng.normal(size=length).astype(np.float32),
            np.full(length, 0.99, np.float32),
            self.rng.integers(4, size=length, dtype=np.int32),
            self.rng.normal(size=(length, 10, 4)).astype(np.float32),
            self.rng.random(length).astype(np.float32),
            self.rng.random((length, 4)).astype(np.float32),
        )
        weights = {'beta': 0.5, 'alpha_1': 0.5e-4, 'alpha_2': 0.5e-4}
        for greedy in targets.GREEDY_READINGS:

            @tf.function
            def compiled(*arrays, greedy=greedy):
                return targets.backward_induction(*arrays, **weights, greedy=greedy)

            name = f'backward induction alone, T = {length:,}, {greedy!r}'
            method = 'compiled loop' if greedy == 'updated' else 'compiled scan'
            yield f'{name}: {method}', median_ms(lambda: compiled(*arrays), self.seconds), None
            yield (
                f'{name}: literal Python loop',
                median_ms(
                    lambda: oracle.backward_induction(*arrays, **weights, greedy=greedy),
                    self.seconds,
                    least=2,
                ),
                None,
            )


def plural(count):
    return f'{count} environment{"s" * (count > 1)}'


def replay_rows(seconds):
    rng = np.random.default_rng(0)
    memory = replay.EpisodeReplay(STACK[:2], 50_000, history=4)
    episode = random_episode(500, rng)
    yield (
        'replay: add an episode of 500',
        median_ms(lambda: memory.add_episode(episode), seconds, least=120),
        None,
    )
    yield 'replay: sample an episode of 500', median_ms(memory.sample_episode, seconds), None
    yield (
        'replay: sample 32 transitions',
        median_ms(lambda: memory.sample_transitions(32), seconds),
        None,
    )


def environment_rows(seconds):
    rng = np.random.default_rng(0)
    for count in (1, 8):
        with contextlib.closing(environments.make('Breakout', num_envs=count)) as env:
            env.reset()
            step = median_ms(lambda: env.step(rng.integers(4, size=count)), seconds)
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
        with open(Path(folder) / 'train.csv', newline='') as table:
            rate = float(list(csv.DictReader(table))[-1]['agent_steps_per_second'])
    total = steps / rate
    shares = {name: seconds / total for name, seconds in runner.parts.timers.seconds.items()}
    shares['all else'] = 1 - sum(shares.values())
    return rate, shares


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--gin_file', default='ob2i_atari.gin')
    parser.add_argument('--gin_bindings', action='append', default=[])
    parser.add_argument('--quick', action='store_true', help='fewer repetitions')
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else 3.0
    machine = Machine(seconds)
    print(f'{arguments.gin_file} {" ".join(arguments.gin_bindings)}\n\n{machine}\n')
    print('| part | median, ms | floor, ms | reached |\n|---|---:|---:|---:|')
    with tempfile.TemporaryDirectory() as folder:
        config.load(
            [arguments.gin_file],
            ['EpisodeReplay.capacity_transitions = 20_000', *arguments.gin_bindings],
        )
        parts = Parts(Runner(base_dir=folder), machine, seconds)
        for rows in (parts.rows(), replay_rows(seconds), environment_rows(seconds)):
            for name, time, floor in rows:
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
