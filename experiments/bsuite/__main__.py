"""This project's methods and bsuite's bootstrapped DQN on bsuite's exploration experiments.

  python -m experiments.bsuite --out=experiments/bsuite --peer_python=/somewhere/peer/bin/python
  python -m experiments.bsuite --out=experiments/bsuite --peer_python=... --speed

Each run is a process on one core. Once it is complete, its episodes go to
<base_dir>/<experiment>/<method>/seed<seed>.csv; its output goes to a .log beside them. The same
command makes missing runs only. Runs of a sea end once it is solved, as in experiments.deep_sea, or
after 2,000 episodes; those of the swing-up after 200. runs.csv has one row per complete run, and is
rewritten after each. At the end the README's table is printed. With --speed, OB2I and bsuite's
method alternate on the deterministic sea of 10 instead, and speed.csv has their agent steps per
second of processor time.
Exit status: 0 if complete, 1 if some runs failed, 2 for a wrong command line.
"""

import concurrent.futures
import csv
import itertools
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from ob2i_tf import cli

with cli.extra('deepsea'):
    from experiments.bsuite import recorded

ROOT = Path(__file__).resolve().parents[2]
METHODS = {  # Names of experiments.bsuite.run -> names in tables.
    'ob2i': 'OB2I',
    'bebu': 'BEBU',
    'bootdqn': 'BootDQN',
    'dqn': 'DQN',
    'bsuite': "bsuite's BootDQN",
}
EXPERIMENTS = {  # bsuite's ids -> names in tables.
    'deep_sea_stochastic/0': 'sea of 10',
    'deep_sea_stochastic/5': 'sea of 20',
    'cartpole_swingup/0': 'swing-up, height 0',
    'cartpole_swingup/5': 'swing-up, height 0.25',
    'cartpole_swingup/10': 'swing-up, height 0.5',
}
SEA_EPISODES, SWINGUP_EPISODES = 2000, 200
COLUMNS = (
    'experiment',
    'method',
    'seed',
    'episodes',
    'agent_steps',
    'solved',  # For seas only; else empty.
    'found',  # Treasures, or agent steps that paid for an upright pole.
    'score_mean',
    'score_best',
    'processor_seconds',
)
SPEED_COLUMNS = ('round', 'method', 'agent_steps_per_second')
SPEED_EPISODES = 150  # Of which the last 100 count: 1,000 agent steps, long after tracing.
ONE_THREAD = dict.fromkeys(
    ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS', 'OMP_NUM_THREADS'), '1'
)


def is_sea(experiment):
    return experiment.startswith('deep_sea')


def run(python, method, experiment, seed, episodes, path, *flags):
    """Makes a run, unless `path` exists; returns the exit status."""
    if path.exists():
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    what = [method, experiment, str(seed), str(episodes), str(path.resolve()), *flags]
    with open(path.with_suffix('.log'), 'w') as log:
        return subprocess.run(
            [python, '-m', 'experiments.bsuite.run', *what],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ).returncode


def read(path):
    """The episodes of a complete run."""
    with open(path, newline='') as file:
        return [recorded.Episode(*map(float, row.values())) for row in csv.DictReader(file)]


def row_of(experiment, method, seed, episodes):
    """The row in COLUMNS of a complete run."""
    scores, found, steps, seconds = zip(*episodes)
    return (
        experiment,
        method,
        seed,
        len(episodes),
        int(sum(steps)),
        recorded.solved(episodes) if is_sea(experiment) else '',
        int(sum(found)),
        round(statistics.fmean(scores), 3),
        round(max(scores), 3),
        round(seconds[-1]),
    )


def write(path, columns, rows):
    aside = path.with_suffix('.tmp')
    with open(aside, 'w', newline='') as file:
        csv.writer(file, lineterminator='\n').writerows([columns, *rows])
    os.replace(aside, path)


def table(rows):
    """The README's table, of rows as csv.DictReader gives them.

    A cell has an entry per seed: seas the episode by which it was solved, or "no"; swing-ups the
    mean score of all episodes, with the best in brackets.
    """

    def entry(row):
        if is_sea(row['experiment']):
            return f'{int(row["episodes"]):,}' if row['solved'] == 'True' else 'no'
        return f'{float(row["score_mean"]):.0f} ({float(row["score_best"]):.0f})'

    lines = ['| | ' + ' | '.join([*EXPERIMENTS.values(), 'core-hours']) + ' |']
    lines.append('|---|' + '---|' * len(EXPERIMENTS) + '---:|')
    for method, name in METHODS.items():
        of_method = [row for row in rows if row['method'] == method]
        cells = [
            ', '.join(entry(row) for row in of_method if row['experiment'] == experiment)
            for experiment in EXPERIMENTS
        ]
        hours = sum(float(row['processor_seconds']) for row in of_method) / 3600
        lines.append(f'| {name} | ' + ' | '.join([*cells, f'{hours:.1f}']) + ' |')
    return '\n'.join(lines)


def speed(pythons, rounds, base_dir, out):
    """Alternates the methods of `pythons`; returns the exit status."""
    rows, medians = [], {}
    for number in range(rounds):
        for method in list(pythons)[:: 1 - 2 * (number % 2)]:
            path = base_dir / 'speed' / method / f'round{number}.csv'
            if status := run(pythons[method], method, 'deep_sea/0', 0, SPEED_EPISODES, path):
                print(f'{path}: FAILED ({status})', file=sys.stderr)
                return 1
            before, *measured = read(path)[-101:]
            steps = sum(episode.agent_steps for episode in measured)
            seconds = measured[-1].processor_seconds - before.processor_seconds
            rows.append((number, method, round(steps / seconds, 1)))
            medians.setdefault(method, []).append(rows[-1][2])
            print(*rows[-1], flush=True)
    write(out / 'speed.csv', SPEED_COLUMNS, rows)
    for method, each in medians.items():
        print(f'{METHODS[method]}: {statistics.median(each):.0f} agent steps per second')
    return 0


@cli.command()
def main(argv=None):
    parser = cli.parser('experiments.bsuite', __doc__)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--base_dir', type=Path, default=Path('runs/bsuite'))
    parser.add_argument('--methods', nargs='+', default=list(METHODS), choices=list(METHODS))
    parser.add_argument(
        '--experiments', nargs='+', default=list(EXPERIMENTS), choices=list(EXPERIMENTS)
    )
    parser.add_argument('--seeds', type=cli.count, default=2)
    parser.add_argument('--jobs', type=cli.count, default=1)
    parser.add_argument('--peer_python', help="Python of an environment with bsuite's baselines")
    parser.add_argument('--speed', action='store_true', help='only compare speeds')
    parser.add_argument('--rounds', type=cli.count, default=5, help='rounds of --speed')
    arguments = parser.parse_args(argv)
    theirs = arguments.speed or 'bsuite' in arguments.methods
    peer_python = shutil.which(arguments.peer_python or '')
    if theirs and not peer_python:
        parser.error("bsuite's method needs --peer_python; --methods selects others")
    pythons = dict.fromkeys(METHODS, sys.executable) | {
        'bsuite': peer_python and os.path.abspath(peer_python)
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.speed:
        both = {method: pythons[method] for method in ('ob2i', 'bsuite')}
        return speed(both, arguments.rounds, arguments.base_dir, arguments.out)

    def path_of(experiment, method, seed):
        return arguments.base_dir / experiment / method / f'seed{seed}.csv'

    def complete():
        return [
            row_of(*key, read(path_of(*key)))
            for key in itertools.product(EXPERIMENTS, METHODS, range(arguments.seeds))
            if path_of(*key).exists()
        ]

    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    started = {}
    for experiment, seed, method in itertools.product(
        arguments.experiments, range(arguments.seeds), arguments.methods
    ):
        length = (SEA_EPISODES, '--until_solved') if is_sea(experiment) else (SWINGUP_EPISODES,)
        path = path_of(experiment, method, seed)
        what = (method, experiment, seed, length[0], path, *length[1:])
        started[pool.submit(run, pythons[method], *what)] = path
    failed = 0
    for future in concurrent.futures.as_completed(started):
        path, status = started[future], future.result()
        failed += status != 0
        print(
            f'{path}: {"complete" if not status else f"FAILED ({status}), see its .log"}',
            flush=True,
        )
        write(arguments.out / 'runs.csv', COLUMNS, complete())
    with open(arguments.out / 'runs.csv', newline='') as file:
        print(table(list(csv.DictReader(file))))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
