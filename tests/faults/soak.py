"""Many small runs in one process, one after another: does anything grow?

  python -m tests.faults.soak --hours=0.25 --out soak.csv

After each run: resident memory, open files, threads, and bytes of its folder, the newest of which
stays for the next run to be compared with.
"""

import argparse
import csv
import gc
import os
import shutil
import sys
import tempfile
import time

import psutil

from tests.faults import runs

COLUMNS = ('run', 'minutes', 'resident_megabytes', 'open_files', 'threads', 'disk_kilobytes')


def main():
    parser = argparse.ArgumentParser(
        'tests.faults.soak', description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument('--hours', type=float, default=1.0)
    parser.add_argument('--out', default='soak.csv')
    arguments = parser.parse_args()
    import ob2i_tf.main

    process, began = psutil.Process(), time.monotonic()
    with open(arguments.out, 'w', newline='') as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.writer(file, lineterminator='\n')
        writer.writerow(COLUMNS)
        number = 0
        while time.monotonic() - began < 3600 * arguments.hours:
            base_dir = os.path.join(folder, 'run')
            shutil.rmtree(base_dir, ignore_errors=True)
            bindings = (*runs.BINDINGS, f'Runner.seed = {number}')
            status = ob2i_tf.main.main(
                ['run', f'--gin_files={runs.GIN_FILE}', f'--base_dir={base_dir}',
                 *(f'--gin_bindings={binding}' for binding in bindings)])  # fmt: skip
            if status:
                return status
            gc.collect()
            size = sum(
                os.path.getsize(os.path.join(root, name))
                for root, _, names in os.walk(folder) for name in names
            )  # fmt: skip
            writer.writerow(
                [number, f'{(time.monotonic() - began) / 60:.2f}',
                 f'{process.memory_info().rss / 1e6:.1f}', process.num_fds(),
                 process.num_threads(), f'{size / 1e3:.0f}'])  # fmt: skip
            file.flush()
            number += 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
