"""The cost of a report on as many runs as the paper's: 49 games, 5 seeds, 4 methods.

  python -m benchmarks.report

It generates run folders of complete runs with 50 iterations each, without checkpoints, starts
`python -m ob2i_tf.analysis` on them as a user does, and prints a Markdown table.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.environments.games import ATARI_49
from tests.analysis import folders

SEEDS = 5
ITERATIONS = 50


def megabytes(path):
    files = [path] if path.is_file() else [file for file in path.rglob('*') if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


# A separate process, so that processor seconds and peak memory (MB) are those of the report.
_MEASURED = """
import resource, sys
from ob2i_tf.analysis import __main__
status = __main__.main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)
sys.exit(status)
"""


def main():
    cli.parser('benchmarks.report', __doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs, out = Path(folder) / 'runs', Path(folder) / 'report'
        for method in folders.UPDATES:
            for game in ATARI_49:
                for seed in range(SEEDS):
                    folders.write_run(runs, method, game, seed, ITERATIONS)
        start = time.monotonic()
        command = [sys.executable, '-c', _MEASURED, str(runs), '--out', str(out)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seconds = time.monotonic() - start
        processor_seconds, peak = map(float, done.stdout.split()[-2:])
        count = len(folders.UPDATES) * len(ATARI_49) * SEEDS
        pictures = len(list((out / 'figures').glob('*.png')))
        print(f'| {count} runs, {megabytes(runs):.1f} MB | |\n|---|---:|')
        for name, value, unit in (
            ('the report', seconds, 's'),
            ('processor time', processor_seconds, 's'),
            ('peak memory', peak, 'MB'),
            ('report.html', megabytes(out / 'report.html'), 'MB'),
            (f'figures/, {pictures} as PNG, SVG and PDF', megabytes(out / 'figures'), 'MB'),
            ('the complete folder', megabytes(out), 'MB'),
        ):
            print(f'| {name} | {value:.1f} {unit} |')


if __name__ == '__main__':
    main()
