"""Complete runs of DQN beside those of Stable-Baselines3 and CleanRL, in turn.

  python -m venv /somewhere/peers
  /somewhere/peers/bin/pip install stable-baselines3 ale-py opencv-python-headless tyro tensorboard
  git clone https://github.com/vwxyzjn/cleanrl /somewhere/cleanrl
  python -m benchmarks.peers.runs --python=/somewhere/peers/bin/python --cleanrl=/somewhere/cleanrl

All play Breakout in one environment, with the same network, batch (32), replay (10,000 transitions)
and schedule (a learner step per 4 agent steps, a target copy per 10,000, epsilon 0.1), on all
cores. Each program runs with few and with many agent steps. The difference of the two times
excludes start and end of the process, and gives agent steps per second while learning. glibc keeps
freed memory in all of them.
"""

import argparse
import collections
import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.peers.__main__ import ALLOCATOR, ROOT

WARMUP = 1000  # Agent steps.
OWN = {
    'Runner.num_iterations': 1,
    'Runner.evaluation_steps': 0,
    'Agent.learning_starts': WARMUP,
    'EpisodeReplay.capacity_transitions': 10_000,
    'linear.start': 0.1,
    'linear.final': 0.1,
}


def commands(arguments, agent_steps, folder):
    """{name: (command, working folder)} of runs of `agent_steps`."""
    own = {**OWN, 'Runner.training_steps': agent_steps}
    return {
        'ob2i_tf': (
            [
                *(sys.executable, '-m', 'ob2i_tf.training.main', '--gin_files=dqn_atari.gin'),
                *(f'--gin_bindings={name} = {value}' for name, value in own.items()),
                f'--base_dir={folder}/run',
            ],
            ROOT,
        ),
        'Stable-Baselines3': (
            [arguments.python, '-m', 'benchmarks.peers.sb3_run', str(WARMUP), str(agent_steps)],
            ROOT,
        ),
        'CleanRL': (
            [
                *(arguments.python, f'{ROOT}/benchmarks/peers/cleanrl_run.py', arguments.cleanrl),
                *('--total-timesteps', str(agent_steps), '--learning-starts', str(WARMUP)),
                *('--buffer-size', '10000', '--target-network-frequency', '10000'),
                *('--start-e', '0.1', '--end-e', '0.1', '--no-cuda'),
            ],
            folder,
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--python', required=True, help='Python of an environment with the peers')
    parser.add_argument('--cleanrl', required=True, help="folder of CleanRL's repository")
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--agent_steps', type=int, nargs=2, default=(2000, 6000))
    arguments = parser.parse_args()
    few, many = arguments.agent_steps
    rates = collections.defaultdict(list)
    for index in range(arguments.rounds):
        for name in ('ob2i_tf', 'Stable-Baselines3', 'CleanRL')[:: 1 - 2 * (index % 2)]:
            seconds = [run(arguments, name, steps) for steps in (few, many)]
            rates[name].append((many - few) / (seconds[1] - seconds[0]))
            print(f'{name} {rates[name][-1]:.1f}', file=sys.stderr, flush=True)
    print('| DQN, agent steps/s | median of rounds | each round | ob2i_tf is faster by |')
    print('|---|---:|---|---:|')
    own = statistics.median(rates['ob2i_tf'])
    for name, each in rates.items():
        rounds = ', '.join(f'{rate:.0f}' for rate in each)
        median = statistics.median(each)
        print(f'| {name} | {median:.1f} | {rounds} | {own / median:.2f} |')


def run(arguments, name, agent_steps):
    """Seconds of a complete process."""
    with tempfile.TemporaryDirectory() as folder:
        command, where = commands(arguments, agent_steps, folder)[name]
        start = time.monotonic()
        done = subprocess.run(
            command, cwd=where, env={**os.environ, **ALLOCATOR}, capture_output=True, text=True
        )
        seconds = time.monotonic() - start
    if done.returncode:
        raise SystemExit(f'{name} failed:\n{done.stderr[-2000:]}')
    return seconds


if __name__ == '__main__':
    main()
