"""The authors' released code beside this one: results on equal inputs, speed, learning curves.

  python -m experiments.released_code --repo OB2I --baselines baselines --out DIR
  python -m experiments.released_code --repo OB2I --baselines baselines --out DIR --speed
  python -m experiments.released_code --repo OB2I --baselines baselines --out DIR --curves

OB2I and baselines are work trees of github.com/Baichenjia/OB2I and github.com/openai/baselines.
Without further options it compares results on equal inputs, in a minute or two, and writes
differences.csv. --speed writes speed.csv: both sides take turns, each round in a separate process.
--curves writes curves.csv; it takes hours. Each of its runs is a separate process with a folder in
--base_dir, and complete runs are not repeated; an interrupted run of ours resumes, one of theirs
starts over.
Exit status: 0 if written and no difference exceeds its bound, 1 otherwise, 2 for a wrong command.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.errors import UserError

HERE = Path(__file__).parent
GIN_FILES = {
    'small': ['ob2i_atari_released.gin', 'base/atari_small.gin'],
    'full': ['ob2i_atari_released.gin'],
}
SPEED_BINDINGS = [
    'Agent.learning_starts = 1000',
    'linear.steps = 1000',
    'EpisodeReplay.capacity_transitions = 100000',
]
EVALUATIONS = 6  # Of a learning curve.


def write(path, columns, rows):
    """Writes a CSV file; numbers have 4 digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([f'{x:.4g}' if isinstance(x, float) else x for x in row])


def differences(arguments):
    """Prints and writes the report on equal inputs; whether all differences are in their bounds."""
    from experiments.released_code import differences, theirs

    modules, rows = theirs.load(arguments.repo, arguments.baselines), []
    print(f'| quantity | inputs | absolute | relative | verdict |\n|---|---|{"---:|" * 2}---|')
    for row in differences.all_of(modules, arguments.repo):
        rows.append(row)
        text = f'{row.verdict}: {row.reason}' if row.reason else row.verdict
        print(f'| {row.quantity} | {row.inputs} ', end='')
        print(f'| {row.absolute:.2g} | {row.relative:.2g} | {text} |', flush=True)
    write(arguments.out / 'differences.csv', differences.Difference._fields, rows)
    failed = [row.quantity for row in rows if row.verdict == differences.DIFFERS]
    if failed:
        print(f'error: beyond their bounds: {"; ".join(failed)}', file=sys.stderr)
    return not failed


def run_side(arguments, what, side, options, **keywords):
    """Runs side.py in a process."""
    command = [sys.executable, '-m', 'experiments.released_code.side', what, side]
    command += [arguments.repo, arguments.baselines, *options]
    done = subprocess.run(command, check=False, **keywords)
    if done.returncode:
        raise UserError(f'{what} of {side}: exit status {done.returncode}')
    return done.stdout


def speed(arguments):
    """Measures and writes the speeds of both sides."""
    columns = 'agent_steps', 'learner_steps', 'steps_per_second', 'cpu_ms_per_step'
    rows = []
    for network in arguments.networks:
        for number in range(arguments.rounds):
            for side in arguments.sides:
                options = ['--gin_files', *GIN_FILES[network], '--gin_bindings', *SPEED_BINDINGS]
                options += [*arguments.gin_bindings, f'--agent_steps={arguments.timed_steps}']
                text = run_side(arguments, 'speed', side, options, stdout=subprocess.PIPE)
                report = json.loads(text.splitlines()[-1])
                rows.append((network, number, side, *(report[name] for name in columns)))
                print(*rows[-1], flush=True)
    write(arguments.out / 'speed.csv', ('network', 'round', 'side', *columns), rows)
    return True


def curves(arguments):
    """Trains what is not complete and writes the evaluations of all runs."""
    rows = []
    for seed in range(arguments.seeds):
        for side in arguments.sides:
            folder = arguments.base_dir / side / f'seed{seed}'
            bindings = [
                f'Runner.seed = {seed}',
                f'Runner.num_iterations = {EVALUATIONS}',
                f'Runner.training_steps = {arguments.agent_steps // EVALUATIONS}',
                *arguments.gin_bindings,
            ]
            options = ['--gin_files', *GIN_FILES['small'], '--gin_bindings', *bindings]
            run_side(arguments, 'curve', side, [*options, f'--base_dir={folder}'])
            with open(folder / 'eval.csv', newline='') as file:
                for row in csv.DictReader(file):
                    numbers = [float(row[name]) for name in ('score_mean', 'score_std')]
                    steps = int(row['frames']) // 4
                    rows.append((side, seed, steps, int(row['episodes']), *numbers))
    columns = 'side', 'seed', 'agent_steps', 'games', 'score_mean', 'score_std'
    write(arguments.out / 'curves.csv', columns, rows)
    return True


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.released_code', __doc__)
    folder = lambda text: Path(os.path.expanduser(text))  # noqa: E731
    parser.add_argument('--repo', required=True, type=folder, metavar='OB2I')
    parser.add_argument('--baselines', required=True, type=folder, metavar='DIR')
    parser.add_argument('--out', required=True, type=folder, metavar='DIR')
    what = parser.add_mutually_exclusive_group()
    for report in (speed, curves):
        what.add_argument(
            f'--{report.__name__}',
            action='store_const',
            dest='report',
            const=report,
            default=differences,
        )
    parser.add_argument(
        '--sides', nargs='+', choices=['ours', 'theirs'], default=['ours', 'theirs']
    )
    parser.add_argument('--gin_bindings', nargs='+', default=[], help='of both sides')
    parser.add_argument('--networks', nargs='+', choices=list(GIN_FILES), default=list(GIN_FILES))
    parser.add_argument('--rounds', type=cli.count, default=3, help='of --speed')
    parser.add_argument('--timed_steps', type=cli.count, default=2000, help='of --speed')
    parser.add_argument('--seeds', type=cli.count, default=2, help='of --curves')
    parser.add_argument('--agent_steps', type=cli.count, default=60_000, help='of --curves')
    parser.add_argument('--base_dir', type=folder, default=Path('runs/released_code'))
    arguments = parser.parse_args(argv)
    return 0 if arguments.report(arguments) else 1


if __name__ == '__main__':
    sys.exit(main())
