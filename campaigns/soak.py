"""Small runs one after another for hours, to see whether anything grows.

  python -m campaigns.soak --hours=1 --out soak.csv

Each run is a separate process, like the trials of a sweep (TensorFlow never frees everything that
it allocated for a run). A row per run has the peak resident memory, open files and threads of its
process; the same for this process, which starts all runs; and the size of the run folder. At the
end the medians over the first and over the last tenth of the runs are compared. Exit status: 1 if
any grew by more than a twentieth.
"""

import csv
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from campaigns import runs
from ob2i_tf import cli

MEASURED = (
    *('resident_megabytes', 'open_files', 'threads'),
    *('starter_megabytes', 'starter_open_files', 'starter_threads'),
    'disk_kilobytes',
)
GROWTH = 1.05


def measure(process):
    """Megabytes, open files, threads; None for a process that has ended."""
    try:
        return process.memory_info().rss / 1e6, process.num_fds(), process.num_threads()
    except psutil.Error:
        return None


def soak(hours, out):
    """Writes one row per run to `out`; returns the rows, with MEASURED each."""
    own, began, rows = psutil.Process(), time.monotonic(), []
    with open(out, 'w', newline='') as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.writer(file, lineterminator='\n')
        writer.writerow(('run', 'minutes', *MEASURED))
        base_dir = os.path.join(folder, 'run')
        while time.monotonic() - began < 3600 * hours:
            shutil.rmtree(base_dir, ignore_errors=True)
            started = runs.Started(base_dir, (*runs.BINDINGS, f'Runner.seed = {len(rows)}'))
            process, seen = psutil.Process(started.process.pid), []
            while started.process.is_alive():
                seen.append(measure(process))
                time.sleep(0.1)
            status, printed = started.end()
            if status:
                raise SystemExit(f'run {len(rows)} ended with status {status}: {printed[-2000:]}')
            files = [path for path in Path(folder).rglob('*') if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            most = [max(values) for values in zip(*filter(None, seen))]
            rows.append([round(x, 1) for x in (*most, *measure(own), size / 1e3)])
            writer.writerow([len(rows), f'{(time.monotonic() - began) / 60:.2f}', *rows[-1]])
            file.flush()
    return rows


def main(argv=None):
    parser = cli.parser('campaigns.soak', __doc__)
    parser.add_argument('--hours', type=float, default=1.0)
    parser.add_argument('--out', default='soak.csv')
    arguments = parser.parse_args(argv)
    rows = soak(arguments.hours, arguments.out)
    tenth, grown = max(1, len(rows) // 10), []
    print(f'{len(rows)} runs')
    for name, first, last in zip(MEASURED, zip(*rows[:tenth]), zip(*rows[-tenth:])):
        first, last = statistics.median(first), statistics.median(last)
        print(f'{name}: {first:g}, at the end {last:g}')
        grown += [name] if last > GROWTH * first else []
    print(f'grown: {", ".join(grown)}' if grown else 'nothing grew')
    return bool(grown)


if __name__ == '__main__':
    sys.exit(main())
