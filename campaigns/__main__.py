"""The fault campaign: tries every kind of fault on real runs, and prints a table.

  python -m campaigns                      # all kinds
  python -m campaigns kills --count=50     # one kind, 50 tries
  python -m campaigns --out faults.md

Mounting (full and read-only disks, the missing ROM) needs root; without root these kinds are
skipped, and the table lists them as such. Exit status: 0 if every try was survived.
"""

import collections
import os
import platform
import random
import shlex
import sys
import time

import psutil

from campaigns import campaign
from ob2i_tf import cli


def machine():
    return (
        f'{platform.system()} {platform.machine()}, {os.cpu_count()} cores, '
        f'{psutil.virtual_memory().total / 2**30:.0f} GiB, Python {platform.python_version()}'
    )


def table(outcomes, skipped):
    """Markdown: fault, tries, number survived, observations."""
    by_fault = collections.defaultdict(list)
    for outcome in outcomes:
        by_fault[outcome.fault].append(outcome)
    yield '| fault | tried | survived | observed |'
    yield '|---|---:|---:|---|'
    for fault, tries in by_fault.items():
        bad = [o.wrong for o in tries if o.wrong]
        seen = '; '.join(dict.fromkeys(bad or [o.seen for o in tries]))
        seen = seen.replace('|', '\\|').replace('<', '&lt;')
        yield f'| {fault} | {len(tries)} | {len(tries) - len(bad)} | {seen} |'
    for name, reason in skipped.items():
        yield f'| {name} | 0 | | skipped: {reason} |'


def main(argv=None):
    parser = cli.parser('campaigns', __doc__)
    parser.add_argument(
        'kinds',
        nargs='*',
        metavar='KIND',
        choices=[*campaign.ALL, []],
        help=f'kinds of fault, by default all: {", ".join(campaign.ALL)}',
    )
    parser.add_argument(
        '--count',
        type=cli.count,
        help='tries of each kind that has several, in place of its default',
    )
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--out', help='file for the table')
    arguments = parser.parse_args(argv)
    for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'TF_NUM_INTRAOP_THREADS'):
        os.environ.setdefault(name, '1')  # Small runs, which may share the machine.
    outcomes, skipped, started = [], {}, time.monotonic()
    for name in arguments.kinds or campaign.ALL:
        limits = {'count': arguments.count} if arguments.count else {}
        try:
            for outcome in campaign.ALL[name](random.Random(arguments.seed), **limits):
                outcomes.append(outcome)
                print(f'{outcome.fault}: {outcome.wrong or "survived"}: {outcome.seen}', flush=True)
        except campaign.Skipped as reason:
            skipped[name] = str(reason)
    command = shlex.join(['python', '-m', 'campaigns', *(argv or sys.argv[1:])])
    head = [f'`{command}`, {machine()}, {(time.monotonic() - started) / 60:.0f} minutes.', '']
    text = '\n'.join([*head, *table(outcomes, skipped)]) + '\n'
    print(text)
    if arguments.out:
        with open(arguments.out, 'w') as file:
            file.write('# Faults\n\n' + text)
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == '__main__':
    sys.exit(main())
