"""Many runs by one command: gin files x tasks x values of bindings x seeds.

  python -m ob2i_tf.sweep --base_dir=runs/mazes \
      --gin_files=ob2i_mnist_maze.gin --gin_files=bebu_mnist_maze.gin \
      --grid='make_mnist_maze.wall_density = 0.3, 0.4' --grid='make_mnist_maze.maze_seed = 0, 1'

A trial is a run of the program in <base_dir>/<gin file>/<values>/<task>/seed<seed>, with what it
prints beside that folder in seed<seed>.log. Started again, the sweep runs what is not complete, and
an interrupted trial goes on from its checkpoint. A trial that fails is started again at most
`--retries` times. `--print` writes a shell command for each trial instead, for other schedulers.
Exit status: 0 all trials are complete, 1 some are not, 2 the command line or a configuration is
wrong.
"""

import argparse
import concurrent.futures
import csv
import dataclasses
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

from ob2i_tf import config
from ob2i_tf import main as program
from ob2i_tf.environments import games
from ob2i_tf.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run: what its command line says."""

    gin_file: str
    bindings: tuple
    base_dir: Path

    @property
    def arguments(self):
        return [
            f'--gin_files={self.gin_file}',
            *(f'--gin_bindings={binding}' for binding in self.bindings),
            f'--base_dir={self.base_dir}',
        ]

    @property
    def command(self):
        return [sys.executable, '-m', 'ob2i_tf.main', *self.arguments]

    def complete(self):
        """Whether the folder holds all iterations that its config.gin asks for."""
        try:
            text = (self.base_dir / 'config.gin').read_text()
            iterations = int(re.search(r'^Runner.num_iterations = (\d+)$', text, re.M).group(1))
            with open(self.base_dir / 'train.csv', newline='') as file:
                return len(list(csv.DictReader(file))) >= iterations
        except (OSError, AttributeError):
            return False


def parse_grid(text):
    """'Name.parameter = 1, 2' -> ('Name.parameter', ['1', '2'])."""
    name, equals, values = text.partition('=')
    values = [value.strip() for value in values.split(',')]
    if not equals or not name.strip() or not all(values):
        raise ConfigError(f'--grid={text!r}: expected NAME = VALUE, VALUE, ...')
    return name.strip(), values


def trials(gin_files, base_dir, grid=(), tasks=(), seeds=1, bindings=()):
    """All combinations, the seeds innermost.

    Args:
      gin_files: names of gin files.
      base_dir: the sweep's folder.
      grid: (name of a parameter, its values in gin syntax), several.
      tasks: names of environments; none: what the gin file says.
      seeds: how many, from 0.
      bindings: for all trials.
    """
    made = []
    choices = [[(name, value) for value in values] for name, values in grid]
    for gin_file, chosen, task, seed in itertools.product(
        gin_files, list(itertools.product(*choices)), tasks or [None], range(seeds)
    ):
        folders = [os.path.splitext(os.path.basename(gin_file))[0]]
        folders += [f'{name.rpartition(".")[2]}={value}' for name, value in chosen]
        folders += [task] if task else []
        folders = [re.sub(r'[^A-Za-z0-9_.=-]+', '_', folder) for folder in folders]
        made.append(
            Trial(
                gin_file,
                (
                    *bindings,
                    *(f'{name} = {value}' for name, value in chosen),
                    *([f'make_environment.name = {task!r}'] if task else []),
                    f'Runner.seed = {seed}',
                ),
                Path(base_dir, *folders, f'seed{seed}'),
            )
        )
    return made


def check(all_trials):
    """Raises ConfigError for the first trial whose configuration is wrong."""
    with program.stderr_held_back():
        from ob2i_tf import runner  # noqa: F401, which registers all parts

    for trial in all_trials:
        try:
            config.load([trial.gin_file], trial.bindings)
        except ConfigError as error:
            raise ConfigError(f'{trial.base_dir}: {error}') from None


class Sweep:
    """Runs trials in processes of their own, some at once.

    Args:
      processes: how many at once; each gets its share of the cores.
      retries: how often a failed trial is started again.
    """

    def __init__(self, processes, retries):
        self._processes = processes
        self._retries = retries
        self._running = set()
        self._stopping = False
        self._lock = threading.Lock()

    def run(self, all_trials, report):
        """Runs what is not complete.

        Args:
          all_trials: Trials.
          report: called with (trial, exit status, last line printed) as each ends.

        Returns:
          The trials that are not complete.
        """
        with concurrent.futures.ThreadPoolExecutor(self._processes) as pool:
            futures = {pool.submit(self._run_one, t): t for t in all_trials if not t.complete()}
            for future in concurrent.futures.as_completed(futures):
                status, line = future.result()
                if not self._stopping:
                    report(futures[future], status, line)
        return [trial for trial in all_trials if not trial.complete()]

    def stop(self):
        """Lets the trials save and end."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                process.send_signal(signal.SIGTERM)

    def _run_one(self, trial):
        status, line = 0, ''
        for _ in range(1 + self._retries):
            status, line = self._attempt(trial)
            if self._stopping or status in (0, 2):  # 2: the configuration is wrong.
                break
        return status, line

    def _attempt(self, trial):
        log = trial.base_dir.with_name(trial.base_dir.name + '.log')
        log.parent.mkdir(parents=True, exist_ok=True)
        threads = str(max(1, (os.cpu_count() or 1) // self._processes))
        variables = ('TF_NUM_INTRAOP_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS')
        with self._lock:
            if self._stopping:
                return 1, ''
            with open(log, 'a') as file:
                process = subprocess.Popen(
                    trial.command, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True,
                    env={**os.environ, **dict.fromkeys(variables, threads)},
                )  # fmt: skip
            self._running.add(process)
        status = process.wait()
        with self._lock:
            self._running.discard(process)
        lines = re.split(r'[\r\n]+', log.read_text(errors='replace').strip())
        return status, lines[-1].strip()


def _arguments(argv):
    parser = argparse.ArgumentParser(
        'ob2i_tf.sweep', description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument('--gin_files', action='append', required=True, metavar='FILE')
    parser.add_argument('--gin_bindings', action='append', default=[], metavar='BINDING')
    parser.add_argument('--grid', action='append', default=[], metavar='NAME = VALUE, ...')
    parser.add_argument('--tasks', default='', help='names, with commas between, or atari49')
    parser.add_argument('--seeds', type=int, default=1, help='how many, from 0')
    parser.add_argument('--base_dir', default='runs/sweep')
    parser.add_argument('--processes', type=int, default=os.cpu_count())
    parser.add_argument('--retries', type=int, default=1)
    parser.add_argument('--print', action='store_true', help='only print the commands')
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the command line; returns the exit status."""
    arguments = _arguments(argv)
    tasks = [task for task in arguments.tasks.split(',') if task]
    if tasks == ['atari49']:
        tasks = list(games.ATARI_49)
    try:
        all_trials = trials(
            arguments.gin_files, arguments.base_dir, list(map(parse_grid, arguments.grid)), tasks,
            arguments.seeds, arguments.gin_bindings,
        )  # fmt: skip
        check(all_trials)
    except ConfigError as error:
        print('error:', ' '.join(str(error).split()), file=sys.stderr)
        return 2
    if arguments.print:
        for trial in all_trials:
            print(shlex.join(['python', *trial.command[1:]]))
        return 0

    sweep = Sweep(max(1, arguments.processes), arguments.retries)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sweep.stop())
    done = sum(trial.complete() for trial in all_trials)
    print(f'{len(all_trials)} trials, {done} complete', flush=True)

    def report(trial, status, line):
        nonlocal done
        done += trial.complete()
        what = 'complete' if trial.complete() else f'FAILED with status {status}: {line}'
        print(f'[{done}/{len(all_trials)}] {trial.base_dir}: {what}', flush=True)

    missing = sweep.run(all_trials, report)
    for trial in missing:
        print(f'not complete: {trial.base_dir}', file=sys.stderr)
    return 1 if missing else 0


if __name__ == '__main__':
    sys.exit(main())
