r"""Runs many trials with one command: gin files x tasks x values of bindings x seeds.

  python -m ob2i_tf.sweep --gin_files=ob2i_atari.gin --tasks=atari49 --seeds=5 --address=auto
  python -m ob2i_tf.sweep --base_dir=runs/mazes \
      --gin_files=ob2i_mnist_maze.gin --gin_files=bebu_mnist_maze.gin \
      --grid='make_mnist_maze.wall_density = 0.3, 0.4' --grid='make_mnist_maze.maze_seed = 0, 1'

A trial is one run, in <base_dir>/<gin file>/<values>/<task>/seed<seed>; its output goes to
seed<seed>.log beside that folder. Trials run on the cores of this machine or, with --address, on
Ray: 'local' means Ray on this machine, which distributes its GPUs; any other address is a cluster,
whose machines must share the folder. If the command is repeated, the sweep runs the trials that are
not complete; an interrupted trial resumes from its checkpoint, wherever it is started next. A trial
that ends without a new checkpoint is restarted at most --retries times, and a trial whose
checkpoints vanish is not restarted. A folder that holds a run with another configuration stops the
sweep before anything runs; a larger num_iterations extends finished trials. --print writes a shell
command per trial instead, for other schedulers.
Exit status: 0 if all trials are complete, 1 if some are not, 2 if the command line or a
configuration is wrong.
"""

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ob2i_tf import cli, config
from ob2i_tf.environments import games
from ob2i_tf.errors import ConfigError, UserError
from ob2i_tf.training import disk
from ob2i_tf.training.run_folder import RunFolder

_GAMES = 20  # Whose mean score is shown.
_LAST_LINES = 5  # Lines of the log that are reported when a trial fails.
_SAVING_SECONDS = 600  # Time limit for a process to save and end.
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run: its command line and the state of its folder."""

    gin_file: str
    bindings: tuple[str, ...]
    base_dir: Path
    num_iterations: int

    @property
    def arguments(self) -> list[str]:
        return [
            f'--gin_files={self.gin_file}',
            *(f'--gin_bindings={binding}' for binding in self.bindings),
            f'--base_dir={self.base_dir}',
        ]

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.base_dir)

    def complete(self) -> bool:
        return self.folder.complete(self.num_iterations)

    def share(self) -> float:
        """Share of the trial that is done, 0 to 1."""
        return self.folder.progress(self.num_iterations)

    @property
    def log(self) -> Path:
        return _log_path(self.base_dir)

    def last_lines(self) -> list[str]:
        try:
            lines = re.split(r'[\r\n]+', self.log.read_text(errors='replace'))
        except OSError:
            return []
        return [line.strip() for line in lines if line.strip()][-_LAST_LINES:]


def _log_path(base_dir: Path) -> Path:
    return base_dir.with_name(base_dir.name + '.log')


def parse_grid(text: str) -> tuple[str, list[str]]:
    """'Name.parameter = 1, (2, 3)' -> ('Name.parameter', ['1', '(2, 3)'])."""
    name, equals, right = text.partition('=')
    values = [value.strip() for value in _split(right)]
    if not equals or not name.strip() or not all(values):
        raise ConfigError(f'--grid={text!r}: expected NAME = VALUE, VALUE, ...')
    return name.strip(), values


def _split(values):
    """Splits at the commas outside strings and brackets, since gin's values are not Python's."""
    strings = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
    masked = strings.sub(lambda match: '_' * len(match[0]), values)
    parts, depth, start = [], 0, 0
    for i, character in enumerate(masked):
        depth += (character in '([{') - (character in ')]}')
        if character == ',' and not depth:
            parts.append(values[start:i])
            start = i + 1
    return [*parts, values[start:]]


def trials(
    gin_files: Sequence[str],
    base_dir: str | Path,
    grid: Iterable[tuple[str, Sequence[str]]] = (),
    tasks: Sequence[str] = (),
    seeds: int = 1,
    bindings: Sequence[str] = (),
) -> list[Trial]:
    """All combinations, with seeds innermost.

    Args:
      gin_files: Names of gin files.
      base_dir: Folder of the sweep.
      grid: Names of parameters, each with its values in gin syntax.
      tasks: Names of environments; if empty, the gin file names the environment.
      seeds: Number of seeds, counted from 0.
      bindings: Bindings of all trials.

    Raises:
      ConfigError: The configuration of a trial is wrong, or two trials have the same folder.
      UserError: The folder of a trial holds a run with another configuration.
    """
    made: dict[Path, Trial] = {}
    choices = [[(name, value) for value in values] for name, values in grid]
    for gin_file, chosen, task, seed in itertools.product(
        gin_files, list(itertools.product(*choices)), tasks or [''], range(seeds)
    ):
        folders = [os.path.splitext(os.path.basename(gin_file))[0]]
        folders += [f'{name.rpartition(".")[2]}={value}' for name, value in chosen]
        folders += [task] if task else []
        folders = [re.sub(r'[^A-Za-z0-9_.=-]+', '_', folder) for folder in folders]
        folder = Path(base_dir, *folders, f'seed{seed}')
        fixed: dict[str, Any] = {'Runner.seed': seed}
        if task:
            fixed['make_environment.name'] = task
        all_bindings = (
            *(f'{name} = {value!r}' for name, value in fixed.items()),
            *bindings,
            *(f'{name} = {value}' for name, value in chosen),
        )
        if folder in made:
            raise ConfigError(
                f'{folder} would be the folder of two trials: {made[folder].gin_file} with '
                f'{made[folder].bindings} and {gin_file} with {all_bindings}'
            )
        num_iterations = _check(gin_file, all_bindings, fixed, folder)
        made[folder] = Trial(gin_file, all_bindings, folder, num_iterations)
    return list(made.values())


def _check(gin_file, bindings, fixed, base_dir):
    """Checks the configuration and the folder of a trial; returns its number of iterations.

    Bindings of the user must not override `fixed`, the bindings of the sweep.
    """
    cli.import_tensorflow()
    from ob2i_tf.training import runner  # noqa: F401  Registers all configurables.

    try:
        config.load([gin_file], bindings)
    except ConfigError as error:
        raise ConfigError(f'{base_dir}: {error}') from None
    for name, value in fixed.items():
        if config.value(name) != value:
            raise ConfigError(
                f'{base_dir}: {name} = {config.value(name)!r} is bound, but the sweep binds it to '
                f'{value!r}'
            )
    RunFolder(base_dir).check_config(
        config.resolved_config(), config.resolved_config(defaults=False)
    )
    return config.value('Runner.num_iterations')


def attempt(
    arguments: Sequence[str],
    base_dir: str | Path,
    working_directory: str | Path,
    threads: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> int:
    """Runs the program once, on a worker; its process saves and ends if the worker dies.

    Args:
      arguments: Command line of the program.
      base_dir: Run folder, an absolute path.
      working_directory: Working directory of the program.
      threads: Number of threads of the program.
      should_stop: Called regularly. Once it returns True, or on a KeyboardInterrupt, by which Ray
        cancels tasks, the program gets SIGTERM or is not started.

    Returns:
      The exit status.
    """
    base_dir = Path(base_dir)
    base_dir.mkdir(parents=True, exist_ok=True)
    _await_lock(base_dir, should_stop)
    if should_stop():
        return 128 + signal.SIGTERM
    variables = ('TF_NUM_INTRAOP_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS')
    with open(_log_path(base_dir), 'a') as log:
        process = subprocess.Popen(
            [sys.executable, '-m', 'ob2i_tf.training.main', *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=working_directory,
            start_new_session=True,
            preexec_fn=_end_with_parent,
            env={**os.environ, **dict.fromkeys(variables, str(threads))},
        )
    try:
        while process.poll() is None and not should_stop():
            time.sleep(0.2)  # Ray cannot interrupt wait().
    except KeyboardInterrupt:
        pass
    process.send_signal(signal.SIGTERM)  # Does nothing if it has ended.
    return process.wait(_SAVING_SECONDS)


def _end_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _await_lock(base_dir, should_stop):
    """Waits for the process of an earlier attempt, whose worker died, to save and end."""
    deadline = time.monotonic() + _SAVING_SECONDS
    while time.monotonic() < deadline and not should_stop():
        try:
            disk.Lock(base_dir).close()
            return
        except UserError:
            time.sleep(0.2)
    # The program itself reports that another process is running.


class LocalExecutor:
    """Runs attempts in threads, each of which waits for its process.

    Args:
      capacity: Number of simultaneous attempts.
      should_stop: Called regularly with a run folder; once it returns True, that run saves and
        ends.
    """

    def __init__(self, capacity: int, should_stop: Callable[[str], bool] = lambda base_dir: False):
        self.capacity = capacity
        self._pool = concurrent.futures.ThreadPoolExecutor(capacity)
        self._stopping = threading.Event()
        self._should_stop = should_stop

    def submit(
        self, arguments: Sequence[str], base_dir: str, working_directory: str, threads: int
    ) -> Future:
        """Starts an `attempt`; returns a future of its exit status."""

        def should_stop():
            return self._stopping.is_set() or self._should_stop(base_dir)

        return self._pool.submit(
            attempt, arguments, base_dir, working_directory, threads, should_stop
        )

    def stop(self) -> None:
        """Makes the runs save and end."""
        self._stopping.set()


class RayExecutor:
    """Runs attempts as tasks of Ray.

    Args:
      address: Address of a cluster; 'local' starts Ray on this machine.
      cpus: Cores per trial.
      gpus: GPUs per trial, possibly a fraction; None: one if the cluster has any, else none.
      capacity: Number of simultaneous attempts; None: as many as the cores allow.
    """

    def __init__(
        self, address: str, cpus: int, gpus: float | None = None, capacity: int | None = None
    ):
        # Ray would hide all GPUs from a task that requests none.
        os.environ.setdefault('RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO', '0')
        os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
        with cli.extra('sweep'):
            import ray
        if not ray.is_initialized():
            _connect(ray, address)
        resources = ray.cluster_resources()
        if gpus is None:
            gpus = 1 if resources.get('GPU') else 0
        self.capacity = capacity or max(1, int(resources.get('CPU', 1)) // cpus)
        self._attempt = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, max_calls=1)(
            attempt
        )
        self._ray = ray
        self._tasks: list[Any] = []

    def submit(self, *arguments: Any) -> Future:
        """See `LocalExecutor.submit`."""
        self._tasks.append(self._attempt.remote(*arguments))
        return self._tasks[-1].future()

    def stop(self) -> None:
        """Makes the runs save and end."""
        while self._tasks:
            self._ray.cancel(self._tasks.pop())  # Does nothing if it has ended.


def _connect(ray, address):
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get('PYTHONPATH', '')]
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))  # For the workers.
    keywords: dict[str, Any] = {'include_dashboard': False} if address == 'local' else {}
    try:
        ray.init(address, log_to_driver=False, logging_level='CRITICAL', **keywords)
    except Exception as error:  # Ray raises plain Exceptions too.
        raise UserError(f'--address={address}: Ray did not start: {error}') from error


class Sweep:
    """Runs trials.

    Args:
      executor: Runs the attempts.
      threads: Threads per trial.
      retries: Number of restarts for a trial that ends without a new checkpoint.
    """

    def __init__(self, executor: LocalExecutor | RayExecutor, threads: int = 1, retries: int = 1):
        self._executor = executor
        self._threads = threads
        self._retries = retries
        self._stopping = False
        self._saved: set[Trial] = set()  # Those that have had a checkpoint.

    def run(
        self,
        all_trials: Sequence[Trial],
        report: Callable[[Trial, int | str, list[str]], object],
        show: Callable[[list[Trial]], object] = lambda running: None,
    ) -> list[Trial]:
        """Runs the trials that are not complete.

        Args:
          all_trials: Trials of the sweep.
          report: Called with (trial, exit status, last lines of its log) when a trial completes or
            is given up.
          show: Called regularly with the running trials.

        Returns:
          The trials that are not complete at the end.
        """
        waiting = collections.deque(trial for trial in all_trials if not trial.complete())
        for trial in waiting:
            self._vanished(trial)
        running: dict[Future, tuple[Trial, Path | None]] = {}  # With its checkpoint at the start.
        failures: collections.Counter[Trial] = collections.Counter()  # Since its last checkpoint.
        try:
            while running or (waiting and not self._stopping):
                while waiting and not self._stopping and len(running) < self._executor.capacity:
                    trial = waiting.popleft()
                    vanished = self._vanished(trial)
                    if vanished:
                        report(trial, 'not started again', vanished)
                    else:
                        running[self._submit(trial)] = trial, trial.folder.newest_checkpoint()
                if self._stopping:
                    self._executor.stop()
                first = concurrent.futures.FIRST_COMPLETED
                ended = concurrent.futures.wait(running, timeout=0.2, return_when=first).done
                for future in ended:
                    trial, checkpoint = running.pop(future)
                    status, vanished = _status(future), self._vanished(trial)
                    failures[trial] += 1
                    if trial.folder.newest_checkpoint() != checkpoint:
                        failures[trial] = 0
                    if trial.complete():
                        report(trial, status, [])
                    elif vanished or status == 2 or failures[trial] > self._retries:
                        report(trial, status, [*trial.last_lines(), *vanished])
                    else:
                        waiting.appendleft(trial)
                for trial, _ in running.values():
                    self._vanished(trial)
                show([trial for trial, _ in running.values()])
        finally:
            self._executor.stop()  # After an error, so that its threads do not wait for the runs.
        return [trial for trial in all_trials if not trial.complete()]

    def stop(self) -> None:
        """Makes the trials save and end; `run` then returns."""
        self._stopping = True

    def _submit(self, trial):
        base_dir = os.path.abspath(trial.base_dir)
        return self._executor.submit(trial.arguments, base_dir, os.getcwd(), self._threads)

    def _vanished(self, trial):
        """[message] if a trial that has had a checkpoint has none."""
        if trial.folder.newest_checkpoint():
            self._saved.add(trial)
        elif trial in self._saved:
            lost = trial.folder.checkpoints
            return [f'{lost} vanished during the sweep: the trial is not started again']
        return []


def _status(future):
    """Exit status of the program, or the reason why it could not be run."""
    try:
        return future.result()
    except Exception as error:  # The other trials continue.
        return f'{type(error).__name__}: {error}'.partition('\n')[0]


class Progress:
    """Prints each trial that ends, and below them a table of the running ones.

    On a terminal the table is redrawn every 5 seconds; elsewhere it is printed once per minute.

    Args:
      all_trials: Trials of the sweep.
      base_dir: Folder of the sweep.
      clock: Seconds.
    """

    def __init__(
        self,
        all_trials: Sequence[Trial],
        base_dir: str | Path,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.complete = sum(trial.complete() for trial in all_trials)
        self._shares = {trial: trial.share() for trial in all_trials}
        self._share_at_start = sum(self._shares.values())
        self._base_dir, self._clock = base_dir, clock
        self._lines, self._next = 0, 0.0
        self._started = clock()

    def report(self, trial: Trial, status: int | str, lines: list[str]) -> None:
        self._clear()
        complete = trial.complete()
        self.complete += complete
        self._shares[trial] = trial.share()
        outcome = 'complete' if complete else f'FAILED ({status})'
        print(f'[{self.complete}/{len(self._shares)}] {trial.base_dir}: {outcome}')
        print(*(f'    {line}\n' for line in lines), sep='', end='', flush=True)

    def show(self, running: list[Trial]) -> None:
        if self._clock() < self._next:
            return
        terminal = sys.stdout.isatty()
        self._next = self._clock() + (5 if terminal else 60)
        lines = self.table(running)
        if terminal:  # `_clear` assumes that no line wraps.
            lines = [line[: shutil.get_terminal_size().columns - 1] for line in lines]
        self._clear()
        print('\n'.join(lines), flush=True)
        self._lines = len(lines) if terminal else 0

    def table(self, running: list[Trial]) -> list[str]:
        """The progress of the sweep, and a line per running trial."""
        self._shares.update((trial, trial.share()) for trial in running)
        seconds, done = self._clock() - self._started, sum(self._shares.values())
        line = (
            f'{self.complete} of {len(self._shares)} complete, {len(running)} running, '
            f'{cli.duration(seconds)}'
        )
        if done > self._share_at_start:
            left = (len(self._shares) - done) / (done - self._share_at_start) * seconds
            line += f', about {cli.duration(left)} left'
        lines = [line]
        for trial in running:
            name = os.path.relpath(trial.base_dir, self._base_dir)
            lines.append(f'  {name:<50} {self._shares[trial]:>6.1%}  {_last_games(trial.folder)}')
        return lines

    def _clear(self):
        """Removes the table from the terminal."""
        if self._lines:
            print(f'\x1b[{self._lines}A\x1b[J', end='')
            self._lines = 0


def _last_games(folder):
    games = folder.last_rows('episodes')[-_GAMES:]
    try:
        score = statistics.fmean(float(game['score']) for game in games)
        return f'{int(games[-1]["frames"]):,} frames, score {score:.6g}'
    except (IndexError, ValueError):  # No game yet, or a damaged row.
        return ''


def scores(all_trials: Sequence[Trial], base_dir: str | Path) -> list[str]:
    """A table of the last scores: a line per group of trials that differ only in their seed.

    The score is that of the last evaluation or, without evaluations, of the last iteration.
    """
    groups: dict[str, list[float]] = collections.defaultdict(list)
    for trial in all_trials:
        rows = trial.folder.rows('eval') or trial.folder.rows('train')
        group = groups[os.path.relpath(trial.base_dir.parent, base_dir)]
        with contextlib.suppress(KeyError, ValueError, TypeError):  # A damaged row.
            last = [float(row['score_mean']) for row in rows if row['score_mean'] != 'nan'][-1:]
            group.extend(last)
    width = max(map(len, groups), default=0)
    lines = [f'{"last score":<{width}} {"seeds":>5} {"mean":>10} {"lowest":>10} {"highest":>10}']
    for name, found in groups.items():
        numbers = (statistics.fmean(found), min(found), max(found)) if found else ()
        columns = ''.join(f' {number:>10.5g}' for number in numbers)
        lines.append(f'{name:<{width}} {len(found):>5}{columns}')
    return lines


def _arguments(argv):
    parser = cli.parser('ob2i_tf.sweep', __doc__)
    parser.add_argument(
        '--gin_files', action='append', required=True, metavar='FILE', help='a method; repeatable'
    )
    parser.add_argument(
        '--gin_bindings', action='append', default=[], metavar='BINDING', help='for all trials'
    )
    parser.add_argument(
        '--grid',
        action='append',
        default=[],
        metavar='NAME = VALUE, ...',
        help='a binding with several values; each combination of them is a trial',
    )
    parser.add_argument('--tasks', default='', help='comma-separated names, or atari49')
    parser.add_argument(
        '--seeds', type=cli.count, default=1, help='number of seeds, from 0; default: 1'
    )
    parser.add_argument(
        '--base_dir',
        type=os.path.expanduser,
        default='runs/sweep',
        help='folder of all trials; default: runs/sweep',
    )
    parser.add_argument('--address', help="Ray cluster, or 'local' for Ray here")
    parser.add_argument('--processes', type=cli.count, help='maximum number of simultaneous trials')
    parser.add_argument(
        '--cpus', type=cli.count, help='cores per trial; default: an equal share, on Ray 1'
    )
    parser.add_argument('--gpus', type=float, help='GPUs per trial, such as 0.25; default: 1 or 0')
    parser.add_argument(
        '--retries',
        type=functools.partial(cli.count, least=0),
        default=1,
        help='restarts of a trial that ends without a new checkpoint; default: 1',
    )
    parser.add_argument('--print', action='store_true', help='only print the commands')
    return parser.parse_args(argv)


@cli.command()
def main(argv: Sequence[str] | None = None) -> int:
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
            print(shlex.join(['python', '-m', 'ob2i_tf.training.main', *trial.arguments]))
        return 0

    progress = Progress(all_trials, arguments.base_dir)
    print(f'{len(all_trials)} trials, {progress.complete} complete', flush=True)
    if progress.complete == len(all_trials):
        print(*scores(all_trials, arguments.base_dir), sep='\n')
        return 0
    capacity, cpus, cores = arguments.processes, arguments.cpus, os.cpu_count() or 1
    executor: LocalExecutor | RayExecutor
    if arguments.address or arguments.gpus is not None:  # Only Ray distributes GPUs.
        cpus = cpus or 1
        executor = RayExecutor(arguments.address or 'local', cpus, arguments.gpus, capacity)
    else:
        capacity = capacity or max(1, cores // (cpus or 1))
        cpus = cpus or max(1, cores // capacity)
        executor = LocalExecutor(capacity)
    sweep = Sweep(executor, cpus, arguments.retries)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sweep.stop())
    missing = sweep.run(all_trials, progress.report, progress.show)
    print(*scores(all_trials, arguments.base_dir), sep='\n', flush=True)
    for trial in missing:
        print(f'not complete: {trial.base_dir}', file=sys.stderr)
    return 1 if missing else 0


if __name__ == '__main__':
    sys.exit(main())
