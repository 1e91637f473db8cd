"""Golden rows: small runs of this checkout and of another commit, compared byte for byte.

  make golden REF=HEAD~3
  python -m tests.golden HEAD~3 --rows=ob2i,lsvi --jobs=2

A change that claims to change no number must leave all CSV files equal, except for the rate in the
last column of train.csv. Both commits run on this machine, since the bytes differ between
processors. Each run has two iterations of some hundred learner steps, with copies into the target
network, truncated episodes and evaluations; then it is resumed from a checkpoint within the second
iteration. REF must contain tests/golden.py: each commit runs the rows in its copy of this file,
with the names that bindings had then. Exit status: 0 if all rows are equal.
"""

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = ('train', 'eval', 'episodes', 'eval_episodes', 'bonus')
COMMON = {
    'Runner.num_iterations': 2,
    'Runner.training_steps': 300,
    'Runner.evaluation_steps': 60,
    'Runner.checkpoint_steps': 110,
    'EpisodeReplay.capacity_transitions': 400,
    'Agent.learning_starts': 60,
    'Agent.train_period': 1,
    'Agent.target_period': 100,
}
SMALL = {'MultiHeadQNetwork.hidden_units': 8, 'MultiHeadQNetwork.conv_layers': '((4, 8, 8),)'}
ATARI = {**COMMON, **SMALL, 'make_atari.max_episode_frames': 100}
LINEAR = {**COMMON, 'horizon': 12}
LSVI = {name: value for name, value in LINEAR.items() if name != 'Agent.learning_starts'}
ROWS = {
    'ob2i': ('ob2i_atari', ATARI),
    'released': ('ob2i_atari_released', {**ATARI, 'make_atari.max_episode_frames_by_game': '{}'}),
    'bebu_rnd': ('bebu_rnd_atari', ATARI),
    'bootdqn_ids': ('bootdqn_ids_atari', ATARI),
    'ube': ('ube_atari', {**ATARI, 'UncertaintyBellmanPosterior.n_steps': 10}),
    'bayesian_dqn': (
        'bayesian_dqn_atari',
        {**ATARI, 'BayesianLinearPosterior.regression_period': 2},
    ),
    'ebu_adaptive': ('ebu_adaptive_atari', {**ATARI, 'AdaptivePosterior.selection_period': 150}),
    'dueling': ('noisynet_dueling_atari', ATARI),
    'lsvi': ('lsvi_ucb_linear_mdp', LSVI),
    'deep_sea': ('ob2i_deep_sea', COMMON),
    'maze': ('ob2i_mnist_maze', {**COMMON, **SMALL, 'make_mnist_maze.max_episode_steps': 40}),
}


def run_row(row, folder):
    """Runs a row of this checkout twice below `folder`, uninterrupted and resumed."""
    gin_file, settings = ROWS[row]
    straight, resumed = Path(folder, row, 'straight'), Path(folder, row, 'resumed')
    for base_dir in (straight, resumed):
        run = subprocess.run(
            [
                sys.executable,
                'run_experiment.py',
                f'--gin_files={gin_file}.gin',
                f'--base_dir={base_dir}',
                *(f'--gin_bindings={name} = {value}' for name, value in settings.items()),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if run.returncode:
            sys.exit(f'{row} in {ROOT}: {run.stderr.strip().splitlines()[-1]}')
        if base_dir is straight:
            shutil.copytree(straight, resumed)
            shutil.rmtree(max((resumed / 'checkpoints').iterdir()))


def rows_of(base_dir, without=()):
    """[(table, line number, line)] of a run, without the rate and the tables in `without`."""
    found = []
    for table in TABLES:
        if table in without:
            continue
        lines = (base_dir / f'{table}.csv').read_text().splitlines()
        if table == 'train':
            lines = [line.rpartition(',')[0] for line in lines]
        found += [(table, number, line) for number, line in enumerate(lines, start=1)]
    return found


def difference(one, other):
    """Describes the first difference between two runs; '' if there is none."""
    if not other.exists():
        return 'not run there'
    missing = [name for name in TABLES if not (other / f'{name}.csv').exists()]  # Added since.
    pairs = set(rows_of(one, missing)) ^ set(rows_of(other, missing))
    return '{}.csv:{}: {}'.format(*min(pairs)) if pairs else ''


def run_row_of(tree, row, folder):
    """Runs a row of a checkout, in a process that imports from it; returns the exit status."""
    environment = {**os.environ, 'PYTHONPATH': str(tree), 'TF_CPP_MIN_LOG_LEVEL': '3'}
    for name in ('TF_NUM_INTRAOP_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
        environment[name] = '1'
    command = [sys.executable, '-m', 'tests.golden', '--run', str(folder), '--rows', row]
    return subprocess.run(command, cwd=tree, env=environment).returncode


def main():
    parser = argparse.ArgumentParser('tests.golden', description=__doc__.partition('\n')[0])
    parser.add_argument('ref', nargs='?', help='commit to compare with')
    parser.add_argument('--rows', default=','.join(ROWS), help='comma-separated names')
    parser.add_argument('--jobs', type=int, default=os.cpu_count(), help='rows run in parallel')
    parser.add_argument('--run', metavar='FOLDER', help='only run the rows, below this folder')
    arguments = parser.parse_args()
    rows = arguments.rows.split(',')
    if arguments.run:
        for row in rows:
            if row in ROWS:
                run_row(row, arguments.run)
        return 0
    if not arguments.ref:
        parser.error('name the commit to compare with, as in make golden REF=HEAD~1')
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        tree = folder / 'tree'
        subprocess.run(
            ['git', 'worktree', 'add', '--quiet', '--detach', tree, arguments.ref],
            cwd=ROOT,
            check=True,
        )
        try:
            with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
                tasks = [
                    pool.submit(run_row_of, where, row, folder / name)
                    for row in rows
                    for name, where in (('here', ROOT), ('there', tree))
                ]
            failed = sum(task.result() != 0 for task in tasks)
        finally:
            subprocess.run(['git', 'worktree', 'remove', '--force', tree], cwd=ROOT, check=True)
        for row in rows:
            for run in ('straight', 'resumed'):
                here = folder / 'here' / row
                differs = difference(here / run, folder / 'there' / row / run)
                differs = differs or difference(here / 'straight', here / run)
                failed += bool(differs)
                print(f'{row:<14} {run:<9} {differs or "equal"}', flush=True)
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
