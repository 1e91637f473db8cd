"""Many runs by one command: gin files x tasks x values of bindings x seeds.

  python -m ob2i_tf.sweep --gin_files=ob2i_atari.gin --tasks=atari49 --seeds=5 --address=auto
  python -m ob2i_tf.sweep --base_dir=runs/mazes \
      --gin_files=ob2i_mnist_maze.gin --gin_files=bebu_mnist_maze.gin \
      --grid='make_mnist_maze.wall_density = 0.3, 0.4' --grid='make_mnist_maze.maze_seed = 0, 1'

A trial is a run of the program in <base_dir>/<gin file>/<values>/<task>/seed<seed>, with what it
prints beside that folder in seed<seed>.log. It runs on this machine's cores, or with --address on
Ray: 'local' for Ray on this machine, which shares GPUs out, else a cluster, whose machines must
share the folder. Started again, the sweep runs what is not complete, and an interrupted trial goes
on from its checkpoint, wherever it is started next. A trial that ends without a new checkpoint is
started again at most --retries times, and one whose folder or checkpoints vanish never. A folder
that holds a run of another configuration stops the sweep before anything runs; more iterations
continue a finished trial. --print writes a shell command for each trial instead, for other
schedulers.
Exit status: 0 all trials are complete, 1 some are not, 2 the command line or a configuration is
wrong.
"""

import collections
import concurrent.futures
import csv
import ctypes
import dataclasses
import functools
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ob2i_tf import cli, config
from ob2i_tf.environments import games
from ob2i_tf.errors import ConfigError, UserError, missing_package
from ob2i_tf.training import disk
from ob2i_tf.training import main as program

_LAST_LINES = 5  # Of a log, reported of a trial that failed.
_SAVING_SECONDS = 600  # At most, for a process that was told to save and end.
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run: what its command line says."""

    gin_file: str
    bindings: tuple
    base_dir: Path
    num_iterations: int

    @property
    def arguments(self):
        return self.arguments_in(self.base_dir)

    def arguments_in(self, base_dir):
        return [
            f'--gin_files={self.gin_file}',
            *(f'--gin_bindings={binding}' for binding in self.bindings),
            f'--base_dir={base_dir}',
        ]

    @property
    def command(self):
        return ['python', '-m', 'ob2i_tf.training.main', *self.arguments]

    def rows(self):
        """Of train.csv: one for each iteration that is done."""
        try:
            text = disk.read_text(self.base_dir / 'train.csv', errors='replace')
        except OSError:
            return []
        whole = text[: text.rfind('\n') + 1]
        return list(csv.DictReader(whole.splitlines()))

    def complete(self):
        """Whether all iterations are done and, since a row comes first, the last one is saved."""
        rows = self.rows()
        if not os.path.exists(self.base_dir / 'config.gin') or len(rows) < self.num_iterations:
            return False
        saved = int(self.newest_checkpoint().partition('-')[0] or -1)
        try:
            return not rows or saved >= int(rows[-1]['agent_steps'])
        except (KeyError, TypeError, ValueError):  # A damaged row.
            return False

    def newest_checkpoint(self):
        folder = self.base_dir / 'checkpoints'
        return max((p.name for p in folder.glob('[0-9]*')), default='')

    @property
    def log(self):
        return self.base_dir.with_name(self.base_dir.name + '.log')

    def last_lines(self):
        try:
            lines = re.split(r'[\r\n]+', self.log.read_text(errors='replace'))
        except OSError:
            return []
        return [line.strip() for line in lines if line.strip()][-_LAST_LINES:]


def parse_grid(text):
    """'Name.parameter = 1, (2, 3)' -> ('Name.parameter', ['1', '(2, 3)'])."""
    name, equals, values = text.partition('=')
    values = [value.strip() for value in _split(values)]
    if not equals or not name.strip() or not all(values):
        raise ConfigError(f'--grid={text!r}: expected NAME = VALUE, VALUE, ...')
    return name.strip(), values


def _split(values):
    """At the commas that are within no string and no brackets."""
    strings = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
    marks = strings.sub(lambda match: '_' * len(match[0]), values)
    parts, depth, start = [], 0, 0
    for i, mark in enumerate(marks):
        depth += (mark in '([{') - (mark in ')]}')
        if mark == ',' and not depth:
            parts.append(values[start:i])
            start = i + 1
    return [*parts, values[start:]]


def trials(gin_files, base_dir, grid=(), tasks=(), seeds=1, bindings=()):
    """All combinations, the seeds innermost.

    Args:
      gin_files: names of gin files.
      base_dir: the sweep's folder.
      grid: (name of a parameter, its values in gin syntax), several.
      tasks: names of environments; none: what the gin file says.
      seeds: how many, from 0.
      bindings: for all trials.

    Raises:
      ConfigError: for the first trial whose configuration is wrong, or whose folder is another's.
      UserError: for the first whose folder holds a run of another configuration.
    """
    made = {}
    choices = [[(name, value) for value in values] for name, values in grid]
    for gin_file, chosen, task, seed in itertools.product(
        gin_files, list(itertools.product(*choices)), tasks or [None], range(seeds)
    ):
        folders = [os.path.splitext(os.path.basename(gin_file))[0]]
        folders += [f'{name.rpartition(".")[2]}={value}' for name, value in chosen]
        folders += [task] if task else []
        folders = [re.sub(r'[^A-Za-z0-9_.=-]+', '_', folder) for folder in folders]
        folder = Path(base_dir, *folders, f'seed{seed}')
        own = {'Runner.seed': seed, **({'make_environment.name': task} if task else {})}
        all_bindings = (
            *(f'{name} = {value!r}' for name, value in own.items()),
            *bindings,
            *(f'{name} = {value}' for name, value in chosen),
        )
        if folder in made:
            raise ConfigError(
                f'{folder} would be the folder of two trials: {made[folder].gin_file} with '
                f'{made[folder].bindings} and {gin_file} with {all_bindings}'
            )
        made[folder] = Trial(
            gin_file, all_bindings, folder, _num_iterations(gin_file, all_bindings, own, folder)
        )
    return list(made.values())


def _num_iterations(gin_file, bindings, own, base_dir):
    """Of a trial, whose configuration, and what its folder holds, are looked at.

    Other bindings may not change the values of its `own`.
    """
    with program.stderr_held_back():
        from ob2i_tf.training import (
            run_folder,
            runner,  # noqa: F401  Registers all parts.
        )
    try:
        config.load([gin_file], bindings)
    except ConfigError as error:
        raise ConfigError(f'{base_dir}: {error}') from None
    for name, value in own.items():
        if config.value(name) != value:
            raise ConfigError(
                f'{base_dir}: {name} = {config.value(name)!r} is bound, but the sweep binds it to '
                f'{value!r}'
            )
    run_folder.check_config(base_dir)
    return config.value('Runner.num_iterations')


# What runs on a worker.


def _end_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def attempt(arguments, base_dir, folder, threads, stopping=lambda: False):
    """Runs the program once, as a process of its own that saves and ends if this one dies.

    Args:
      arguments: of the program.
      base_dir: absolute, the run's folder.
      folder: working directory.
      threads: of the program.
      stopping: called now and then; once it is true, or at a KeyboardInterrupt, which is how Ray
        cancels, the program gets SIGTERM, or is not started.

    Returns:
      The exit status.
    """
    base_dir = Path(base_dir)
    base_dir.mkdir(parents=True, exist_ok=True)
    _await_lock(base_dir, stopping)
    if stopping():
        return 128 + signal.SIGTERM
    variables = ('TF_NUM_INTRAOP_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS')
    with open(base_dir.with_name(base_dir.name + '.log'), 'a') as log:
        process = subprocess.Popen(
            [sys.executable, '-m', 'ob2i_tf.training.main', *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_end_with_parent,
            env={**os.environ, **dict.fromkeys(variables, str(threads))},
        )
    try:
        while process.poll() is None and not stopping():
            time.sleep(0.2)  # Not wait(): Ray's way to cancel does not interrupt it.
    except KeyboardInterrupt:
        pass
    process.send_signal(signal.SIGTERM)  # Does nothing to one that has ended.
    return process.wait(_SAVING_SECONDS)


def _await_lock(base_dir, stopping):
    """Waits for the process of an earlier attempt, whose worker died, to save and end."""
    deadline = time.monotonic() + _SAVING_SECONDS
    while time.monotonic() < deadline and not stopping():
        try:
            disk.Lock(base_dir).close()
            return
        except UserError:
            time.sleep(0.2)
    # The program itself says that another process is running.


# What starts them.


class OnThisMachine:
    """Runs attempts in threads, each of which waits for its process.

    Args:
      processes: at most so many at once.
      enough: (run folder) -> bool, called now and then; once it is true the run may save and end.
    """

    def __init__(self, processes, enough=lambda base_dir: False):
        self._pool = concurrent.futures.ThreadPoolExecutor(processes)
        self._stopping = threading.Event()
        self._enough = enough

    def submit(self, arguments, base_dir, folder, threads):
        def stopping():
            return self._stopping.is_set() or self._enough(base_dir)

        return self._pool.submit(attempt, arguments, base_dir, folder, threads, stopping)

    def ended(self, tasks):
        """Tasks that ended; waits a moment for the first."""
        first = concurrent.futures.FIRST_COMPLETED
        return concurrent.futures.wait(tasks, timeout=0.2, return_when=first).done

    def status(self, task):
        """Exit status of the program, or in words why it could not be run."""
        try:
            return task.result()
        except Exception as error:  # The other trials go on.
            return f'{type(error).__name__}: {error}'

    def stop(self, tasks):
        del tasks
        self._stopping.set()


class OnRay:
    """Runs attempts as tasks of Ray.

    Args:
      address: of a cluster; 'local' starts Ray on this machine.
      cpus: cores a trial.
      gpus: GPUs a trial, or a fraction; None: one, where there are any.
    """

    def __init__(self, address, cpus, gpus=None):
        # Ray would hide all GPUs from a task that asks for none.
        os.environ.setdefault('RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO', '0')
        os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
        try:
            import ray
        except ModuleNotFoundError as error:
            raise UserError(missing_package(error, 'sweep')) from None
        self._ray = ray
        if not ray.is_initialized():
            self._connect(address)
        if gpus is None:
            gpus = 1 if ray.cluster_resources().get('GPU') else 0
        self.room = max(1, int(ray.cluster_resources().get('CPU', 1)) // cpus)
        self._attempt = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, max_calls=1)(
            attempt
        )

    def _connect(self, address):
        paths = [str(Path(__file__).resolve().parents[1]), os.environ.get('PYTHONPATH', '')]
        os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))  # Of the workers.
        keywords = {'include_dashboard': False} if address == 'local' else {}
        try:
            self._ray.init(address, log_to_driver=False, logging_level='CRITICAL', **keywords)
        except Exception as error:  # Ray raises plain Exceptions too.
            raise UserError(f'--address={address}: Ray did not start: {error}') from error

    def submit(self, *arguments):
        return self._attempt.remote(*arguments)

    def ended(self, tasks):
        return self._ray.wait(list(tasks), timeout=1)[0]

    def status(self, task):
        """Exit status of the program, or in words what became of its worker."""
        try:
            return self._ray.get(task)
        except Exception as error:
            return f'{type(error).__name__} of Ray'

    def stop(self, tasks):
        for task in tasks:
            self._ray.cancel(task)


class Sweep:
    """Runs trials.

    Args:
      executor: OnThisMachine or OnRay.
      processes: at most so many at once.
      threads: a trial.
      retries: how often a trial that made no new checkpoint is started again.
    """

    def __init__(self, executor, processes, threads=1, retries=1):
        self._executor = executor
        self._processes = processes
        self._threads = threads
        self._retries = retries
        self._stopping = False

    def run(self, all_trials, report, table=lambda running: None):
        """Runs what is not complete.

        Args:
          all_trials: Trials.
          report: called with (trial, exit status, its last lines) as one is given up or completes.
          table: called now and then with the running trials.

        Returns:
          The trials that are not complete.
        """
        waiting = collections.deque(trial for trial in all_trials if not trial.complete())
        self._seen = {trial: (None, trial.newest_checkpoint()) for trial in waiting}
        self._lost = {}  # Trial -> message that names its vanished folder.
        running = {}  # Task -> (Trial, its newest checkpoint before).
        attempts = collections.Counter()  # Without a new checkpoint.
        told = False
        while running or (waiting and not self._stopping):
            if self._stopping and not told:
                told = True
                self._executor.stop(running)
            while waiting and not self._stopping and len(running) < self._processes:
                trial = waiting.popleft()
                self._look(trial)
                if trial in self._lost:
                    report(trial, 'not started again', [self._lost[trial]])
                else:
                    running[self._submit(trial)] = trial, trial.newest_checkpoint()
            for trial, _ in running.values():
                self._look(trial)
            for task in self._executor.ended(running):
                trial, checkpoint = running.pop(task)
                status = self._executor.status(task)
                if trial.complete():
                    report(trial, status, [])
                    continue
                self._look(trial)
                if trial in self._lost:
                    report(trial, status, [*trial.last_lines(), self._lost[trial]])
                    continue
                attempts[trial] += 1
                if trial.newest_checkpoint() != checkpoint:
                    attempts[trial] = 0
                if status == 2 or attempts[trial] > self._retries:  # 2: it cannot get better.
                    report(trial, status, trial.last_lines())
                else:
                    waiting.appendleft(trial)
            table([trial for trial, _ in running.values()])
        return [trial for trial in all_trials if not trial.complete()]

    def stop(self):
        """Lets the trials save and end; `run` then returns."""
        self._stopping = True

    def _look(self, trial):
        """Notes a trial's folder and checkpoint, or that one vanished: it would start over."""
        folder, checkpoint = _identity(trial.base_dir), trial.newest_checkpoint()
        folder_seen, checkpoint_seen = self._seen[trial]
        self._seen[trial] = folder_seen or folder, checkpoint or checkpoint_seen
        for lost, path in (
            (folder_seen not in (None, folder), trial.base_dir),
            (checkpoint_seen and not checkpoint, trial.base_dir / 'checkpoints' / checkpoint_seen),
        ):
            if lost:
                self._lost.setdefault(
                    trial, f'{path} vanished during the sweep: the trial is not started again'
                )

    def _submit(self, trial):
        base_dir = os.path.abspath(trial.base_dir)
        return self._executor.submit(
            trial.arguments_in(base_dir), base_dir, os.getcwd(), self._threads
        )


def _identity(folder):
    """Device and inode, which a new folder of the same name does not share; None without one."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sweep(address, processes, cpus, gpus, retries):
    """The Sweep that the command line asks for."""
    cores = os.cpu_count() or 1
    if gpus is not None:
        address = address or 'local'  # Only Ray shares GPUs out.
    if address:
        cpus = cpus or 1
        executor = OnRay(address, cpus, gpus)
        processes = processes or executor.room
    else:
        processes = processes or max(1, cores // (cpus or 1))
        executor = OnThisMachine(processes)
    return Sweep(executor, processes, cpus or max(1, cores // processes), retries)


class Table:
    """What the running trials do, on the terminal: redrawn there, and once a minute in a log."""

    def __init__(self, all_trials, base_dir):
        self._all, self._base_dir = all_trials, base_dir
        self._lines, self._next = 0, 0.0
        self._began = time.monotonic()

    def __call__(self, running):
        if time.monotonic() < self._next:
            return
        terminal = sys.stdout.isatty()
        self._next = time.monotonic() + (5 if terminal else 60)
        done = sum(trial.complete() for trial in self._all)
        hours = (time.monotonic() - self._began) / 3600
        lines = [f'{done} of {len(self._all)} complete, {len(running)} running, {hours:.1f} h']
        for trial in running:
            name = os.path.relpath(trial.base_dir, self._base_dir)
            of = f'{len(trial.rows())}/{trial.num_iterations}'
            lines.append(f'  {name:<50} {of:>10}  {_last_score(trial)}')
        if terminal:  # `clear` takes each for one row of it.
            lines = [line[: shutil.get_terminal_size().columns - 1] for line in lines]
        self.clear()
        print('\n'.join(lines), flush=True)
        self._lines = len(lines) if terminal else 0

    def clear(self):
        """Makes room for other lines, above the next table."""
        if self._lines:
            print(f'\x1b[{self._lines}A\x1b[J', end='')
            self._lines = 0


def _last_score(trial):
    try:
        row = trial.rows()[-1]
        return f'{int(row["frames"]):,} frames, score {float(row["score_mean"]):.6g}'
    except (IndexError, KeyError, ValueError, TypeError):
        return ''


def _arguments(argv):
    parser = cli.parser('ob2i_tf.sweep', __doc__)
    parser.add_argument('--gin_files', action='append', required=True, metavar='FILE')
    parser.add_argument('--gin_bindings', action='append', default=[], metavar='BINDING')
    parser.add_argument('--grid', action='append', default=[], metavar='NAME = VALUE, ...')
    parser.add_argument('--tasks', default='', help='names, with commas between, or atari49')
    parser.add_argument('--seeds', type=cli.count, default=1, help='how many, from 0')
    parser.add_argument('--base_dir', type=os.path.expanduser, default='runs/sweep')
    parser.add_argument('--address', help="of a Ray cluster, or 'local' for Ray here")
    parser.add_argument('--processes', type=cli.count, help='at most so many trials at once')
    parser.add_argument(
        '--cpus', type=cli.count, help='cores a trial; by default its share, on Ray 1'
    )
    parser.add_argument('--gpus', type=float, help='GPUs a trial, such as 0.25; by default 1 or 0')
    parser.add_argument('--retries', type=functools.partial(cli.count, least=0), default=1)
    parser.add_argument('--print', action='store_true', help='only print the commands')
    return parser.parse_args(argv)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    arguments = _arguments(argv)
    tasks = [task.strip() for task in arguments.tasks.split(',') if task.strip()]
    if tasks == ['atari49']:
        tasks = list(games.ATARI_49)
    all_trials = trials(
        arguments.gin_files,
        arguments.base_dir,
        list(map(parse_grid, arguments.grid)),
        tasks,
        arguments.seeds,
        arguments.gin_bindings,
    )
    if arguments.print:
        for trial in all_trials:
            print(shlex.join(trial.command))
        return 0

    done = sum(trial.complete() for trial in all_trials)
    print(f'{len(all_trials)} trials, {done} complete', flush=True)
    if done == len(all_trials):
        return 0
    sweep = _sweep(
        arguments.address,
        arguments.processes,
        arguments.cpus,
        arguments.gpus,
        arguments.retries,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sweep.stop())
    table = Table(all_trials, arguments.base_dir)

    def report(trial, status, lines):
        nonlocal done
        done += trial.complete()
        what = 'complete' if trial.complete() else f'FAILED ({status})'
        table.clear()
        print(
            f'[{done}/{len(all_trials)}] {trial.base_dir}: {what}',
            *(f'    {line}' for line in lines),
            sep='\n',
            flush=True,
        )

    missing = sweep.run(all_trials, report, table)
    for trial in missing:
        print(f'not complete: {trial.base_dir}', file=sys.stderr)
    return 1 if missing else 0


if __name__ == '__main__':
    sys.exit(main())
