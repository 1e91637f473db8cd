"""The gradient step beside JAX and PyTorch versions of it, each in a separate process, in turn.

  python -m venv /somewhere/peers && /somewhere/peers/bin/pip install jax torch
  python -m benchmarks.peers --python=/somewhere/peers/bin/python

jax and torch are not dependencies of the project, so they have a separate environment. In all
processes glibc keeps freed memory, from which each of the three benefits.
"""

import argparse
import collections
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOCATOR = {
    'MALLOC_MMAP_MAX_': '0',
    'MALLOC_TRIM_THRESHOLD_': '8000000000',
    'MALLOC_TOP_PAD_': '268435456',
    'MALLOC_ARENA_MAX': '1',
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--python', required=True, help='Python of an environment with jax and torch'
    )
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=10, help='seconds per framework and round')
    arguments = parser.parse_args()
    scripts = (('own', sys.executable), ('jax', arguments.python), ('torch', arguments.python))
    medians = collections.defaultdict(list)
    for index in range(arguments.rounds):
        for name, python in scripts[:: 1 - 2 * (index % 2)]:
            done = subprocess.run(
                [python, '-m', f'benchmarks.peers.{name}_step', str(arguments.seconds)],
                cwd=ROOT,
                env={**os.environ, **ALLOCATOR},
                check=True,
                capture_output=True,
                text=True,
            )
            *what, median = done.stdout.splitlines()[-1].split()
            medians[' '.join(what)].append(float(median))
            print(*what, median, file=sys.stderr, flush=True)
    own = statistics.median(next(iter(medians.values())))
    print('| gradient step, batch 32 | median of rounds, ms | each round | relative to ob2i_tf |')
    print('|---|---:|---|---:|')
    for what, each in medians.items():
        rounds = ', '.join(f'{median:.0f}' for median in each)
        median = statistics.median(each)
        print(f'| {what} | {median:.1f} | {rounds} | {median / own:.2f} |')


if __name__ == '__main__':
    main()
