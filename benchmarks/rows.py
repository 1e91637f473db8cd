"""The cost of each Atari method on this machine, complete runs side by side.

  python -m benchmarks.rows                      # every Atari method, twice; about half an hour
  python -m benchmarks.rows ob2i_atari.gin ...   # some of them
  python -m benchmarks.rows --rounds=1           # once

Each run is the program on Breakout, at the sizes of its gin file, with 1 environment. It has four
iterations: the first and the third, in which TensorFlow traces, do not count; the second only acts,
the fourth acts and learns. Methods run in turn, and each round reverses the order. The fastest run
of each is reported, since other work on the machine can only slow runs down.
"""

import argparse
import subprocess
import sys
import tempfile

from ob2i_tf import config
from ob2i_tf.training.run_folder import RunFolder

STEPS = 240  # Agent steps per iteration.
SETTINGS = {
    'Runner.num_iterations': 4,
    'Runner.training_steps': STEPS,
    'Runner.evaluation_steps': 0,
    'Agent.warmup': "'epsilon_greedy'",
    'Agent.learning_starts': 2 * STEPS,
    'linear.start': 0.1,  # So that games start, and end.
    'linear.final': 0.1,
    'EpisodeReplay.capacity_transitions': 10_000,
}


def speeds(file):
    """Agent steps per second of acting alone, and of acting and learning."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, '-m', 'ob2i_tf.training.main', f'--gin_files={file}'),
            *(f'--gin_bindings={name} = {value}' for name, value in SETTINGS.items()),
            f'--base_dir={folder}',
        ]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        rows = RunFolder(folder).rows('train')
    rates = [float(row['agent_steps_per_second']) for row in rows]
    return rates[1], rates[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('files', nargs='*', help='gin files; default: all Atari methods')
    parser.add_argument('--rounds', type=int, default=2)
    arguments = parser.parse_args()
    rows = [file for file in config.available() if file.endswith('_atari.gin')]
    files = arguments.files or rows
    rounds = {file: [] for file in files}
    for index in range(arguments.rounds):
        for file in files[:: 1 - 2 * (index % 2)]:
            rounds[file].append(speeds(file))
            print(file, *(f'{rate:.2f}' for rate in rounds[file][-1]), file=sys.stderr, flush=True)
    acting, learning = (
        {file: max(rates[i] for rates in rounds[file]) for file in files} for i in range(2)
    )
    print(
        '| gin file | acting: ms per agent step | learning: agent steps/s | of OB2I |\n'
        '|---|---:|---:|---:|'
    )
    reference = learning.get('ob2i_atari.gin', float('nan'))
    for file in sorted(files, key=lambda file: -learning[file]):
        print(
            f'| `{file}` | {1e3 / acting[file]:.1f} | {learning[file]:.1f} '
            f'| {learning[file] / reference:.2f} |'
        )


if __name__ == '__main__':
    main()
