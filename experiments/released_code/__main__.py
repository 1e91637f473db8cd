"""The authors' released code beside this one: results on equal inputs, speed, learning curves.

  python -m experiments.released_code --repo OB2I --baselines baselines --out DIR
  python -m experiments.released_code --repo OB2I --baselines baselines --out DIR --speed
  python -m experiments.released_code --repo OB2I --baselines baselines --out DIR --curves

OB2I and baselines are clones of github.com/Baichenjia/OB2I and github.com/openai/baselines.
Without further options it compares results on equal inputs, in a minute or two, and writes
differences.csv. --speed writes speed.csv: both sides take turns, each round in a separate process.
--curves writes curves.csv; it takes hours. Each of its runs is a separate process with a folder in
--base_dir, and complete runs are not repeated; an interrupted run of ours resumes, one of theirs
starts over.
Exit status: 0 if written and no difference exceeds its bound, 1 otherwise, 2 for a wrong command.
"""

import concurrent.futures
import csv
import multiprocessing
import sys
from pathlib import Path

from ob2i_tf import cli

HERE = Path(__file__).parent
SIDES = 'ours', 'theirs'
GIN_FILES = {
    'small': ['ob2i_atari_released.gin', 'base/atari_small.gin'],
    'full': ['ob2i_atari_released.gin'],
}
SPEED_BINDINGS = [
    'Agent.learning_starts = 1000',
    'linear.steps = 1000',
    'EpisodeReplay.capacity_transitions = 100000',
]
CURVE_BINDINGS = ['Runner.num_iterations = 6', 'Runner.training_steps = 10000']


def write(path, columns, rows):
    """Writes a CSV file; numbers have 4 digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([f'{x:.4g}' if isinstance(x, float) else x for x in row])


def differences(arguments):
    """Prints and writes the comparison on equal inputs; returns the exit status."""
    from experiments.released_code import differences, theirs

    rows = []
    for row in differences.all_of(theirs.load(arguments.repo, arguments.baselines)):
        rows.append(row)
        print(f'{row.verdict}, {row.relative:.2g}: {row.quantity}, {row.inputs}', flush=True)
    write(arguments.out / 'differences.csv', differences.Difference._fields, rows)
    failed = [row.quantity for row in rows if row.verdict == differences.DIFFERS]
    if failed:
        cli.print_error(f'beyond their bounds: {"; ".join(failed)}')
    return 1 if failed else 0


def in_new_process(function, *arguments):
    """Calls a function of side.py in a new process."""
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *arguments).result()


def speed(arguments):
    """Measures and writes the speeds of both sides."""
    from experiments.released_code import side

    rows, clones = [], (arguments.repo, arguments.baselines)
    bindings = [*SPEED_BINDINGS, *arguments.gin_bindings]
    for network, gin_files in GIN_FILES.items():
        for number in range(arguments.rounds):
            for name in SIDES:
                result = in_new_process(side.speed, name, clones, gin_files, bindings)
                rows.append((network, number, name, *result))
                print(*rows[-1], flush=True)
    write(arguments.out / 'speed.csv', ('network', 'round', 'side', *side.SPEED_COLUMNS), rows)
    return 0


def curves(arguments):
    """Trains what is not complete and writes the evaluations of all runs."""
    from experiments.released_code import side

    rows, clones = [], (arguments.repo, arguments.baselines)
    for seed in range(arguments.seeds):
        bindings = [f'Runner.seed = {seed}', *CURVE_BINDINGS, *arguments.gin_bindings]
        for name in SIDES:
            folder = arguments.base_dir / name / f'seed{seed}'
            in_new_process(side.curve, name, clones, GIN_FILES['small'], bindings, folder)
            with open(folder / 'eval.csv', newline='') as file:
                for row in csv.DictReader(file):
                    scores = float(row['score_mean']), float(row['score_std'])
                    steps = int(row['frames']) // 4
                    rows.append((name, seed, steps, int(row['episodes']), *scores))
    columns = 'side', 'seed', 'agent_steps', 'games', 'score_mean', 'score_std'
    write(arguments.out / 'curves.csv', columns, rows)
    return 0


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.released_code', __doc__)
    parser.add_argument('--repo', required=True, type=Path, metavar='OB2I')
    parser.add_argument('--baselines', required=True, type=Path, metavar='DIR')
    parser.add_argument('--out', required=True, type=Path, metavar='DIR')
    what = parser.add_mutually_exclusive_group()
    what.add_argument('--speed', action='store_true')
    what.add_argument('--curves', action='store_true')
    parser.add_argument('--rounds', type=cli.count, default=3, help='rounds of --speed')
    parser.add_argument('--seeds', type=cli.count, default=2, help='seeds of --curves')
    parser.add_argument(
        '--base_dir', type=Path, default=Path('runs/released_code'), help='folder of --curves'
    )
    parser.add_argument(
        '--gin_bindings', nargs='+', default=[], help='bindings of both sides, not of differences'
    )
    arguments = parser.parse_args(argv)
    if arguments.speed:
        return speed(arguments)
    return curves(arguments) if arguments.curves else differences(arguments)


if __name__ == '__main__':
    sys.exit(main())
