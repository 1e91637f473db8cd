"""Faults, each tried on real runs; every function yields one Outcome per try."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from campaigns import injections, power, runs, unsound


class Outcome(NamedTuple):
    """One try: the fault, the failure that followed ('' if survived), and the user's view of it."""

    fault: str
    wrong: str
    seen: str


RESUMED = 'the same command ends with the rows of an undisturbed run'


class Skipped(Exception):
    """This machine does not allow the fault to be tried."""


@functools.cache
def straight(bindings=runs.BINDINGS):
    """Folder of an undisturbed run."""
    base_dir = Path(tempfile.mkdtemp(prefix='faults-')) / 'run'
    status, printed = runs.run(base_dir, bindings)
    assert status == 0, printed
    return base_dir


@contextlib.contextmanager
def _run_folder():
    """The path of a run in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / 'run'


def _unless(expected, status, printed):
    """'' if a run ended with the expected status, else how it ended."""
    return '' if status == expected else f'status {status}: {runs.last_line(printed)}'


def _lost(had, there):
    """The failure that neither the newest checkpoint in `had` nor a newer one exists, or ''."""
    return f'checkpoint {had[-1]} is lost' if had and (not there or there[-1] < had[-1]) else ''


def _other_rows(base_dir, bindings=runs.BINDINGS):
    return '' if runs.rows(base_dir) == runs.rows(straight(bindings)) else 'other rows'


def finish(base_dir, had, bindings=runs.BINDINGS, output=None, half_deleted=False):
    """Runs to the end after a disturbance; describes the failure, '' if there is none.

    Args:
      base_dir: Run folder.
      had: Checkpoints, of which the newest, or a newer one, must still exist.
      bindings: Bindings of the run.
      output: See `runs.Started`.
      half_deleted: Whether older checkpoints may be damaged.
    """
    there, damaged = runs.checkpoints(base_dir), runs.damaged(base_dir)
    lost = _lost(had, [name for name in there if name not in damaged])
    if lost or (damaged and not half_deleted):
        return lost or f'damaged checkpoints {damaged}'
    status, printed = runs.run(base_dir, bindings, output=output)
    if status:
        return f'does not resume: {_short(runs.last_line(printed), base_dir)}'
    if there and 'Resuming' not in printed:
        return 'started over silently'
    if had and f'{had[-1]}: ' in printed:  # A warning says that it was skipped.
        return f'checkpoint {had[-1]} cannot be read'
    return _other_rows(base_dir, bindings)


def series(fault, injection, rng, kills):
    """One run, killed again and again, then finished."""
    with _run_folder() as base_dir:
        for _ in range(kills):
            had = runs.checkpoints(base_dir)
            status, printed = runs.run(base_dir, before=[injection(rng)])
            wrong = '' if status == 0 else _unless(-9, status, printed)
            wrong = wrong or _lost(had, runs.checkpoints(base_dir))
            if runs.damaged(base_dir):
                wrong = wrong or 'a damaged checkpoint'
            if had and 'Resuming' not in printed and 'Starting' in printed:
                wrong = wrong or 'started over silently'
            if wrong or status == -9:
                yield Outcome(fault, wrong, 'killed; the same command resumes')
            if status == 0:
                break
        wrong = finish(base_dir, runs.checkpoints(base_dir))
        yield Outcome(
            f'{fault}: the series ends', wrong, 'rows equal to those of a run never killed'
        )


def before_an_operation(rng):
    return functools.partial(injections.kill_before_operation, rng.randint(1, 150))


def kills(rng, count=50):
    """SIGKILL at random moments of training, evaluating, saving, and before random operations."""

    def in_phase(rng, phase):
        return functools.partial(injections.kill_in, phase, rng.randint(1, 2), rng.random() * 1.2)

    kinds = [
        (f'SIGKILL while it {what}', functools.partial(in_phase, phase=phase))
        for phase, what in zip(injections.PHASES, ('trains', 'evaluates', 'saves'))
    ]
    kinds.append(('SIGKILL before a random operation', before_an_operation))
    each = -(-count // len(kinds))
    for fault, injection in kinds:
        left = each
        while left > 0:
            outcomes = list(series(fault, injection, rng, min(left, 5)))
            left -= max(1, len(outcomes) - 1)
            yield from outcomes


SHORT = (*runs.BINDINGS, 'Runner.num_iterations = 2')  # Saves after 10, 20, 24, 30, 40, 48 steps.


def _recorded(folder, *deaths):
    """Journals of SHORT, run in `folder` by one process per death; (): to the end."""
    journals = []
    for number, death in enumerate(deaths):
        journals.append(folder / f'journal{number}')
        before = [functools.partial(power.record, folder / 'disk', journals[-1]), *death]
        status, printed = runs.run(
            folder / 'disk' / 'games' / 'run', SHORT, before, output=folder / 'stderr'
        )
        assert status == (-9 if death else 0), printed
    return journals


def _dies_in_save(number):
    return [functools.partial(injections.kill_in_save, number)]


def _scratch_disk():
    folder = Path(tempfile.mkdtemp(prefix='faults-'))
    (folder / 'disk').mkdir()
    return folder


def _after_cut(cut):
    """Describes the failure of a run that resumes after a power cut, '' if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        power.write(cut.left, folder)
        return finish(
            Path(folder) / 'games' / 'run',
            [cut.saved] if cut.saved else [],
            SHORT,
            Path(folder) / 'stderr',
            half_deleted=True,
        )


def power_cuts(rng, count=None):
    """Power cuts at every operation of a run that dies in its third save and is then resumed."""
    folder = _scratch_disk()
    journals = _recorded(folder, _dies_in_save(3), ())
    cuts = power.cuts(journals, folder / 'disk', rng, losses=(1, 0.5, 0.5, 0.1))
    shutil.rmtree(folder)
    # Cuts that lose everything after a save come first, in case `count` is small.
    rng.shuffle(cuts)
    cuts.sort(key=lambda cut: cut.saved if cut.operation == 'saved' and cut.loss == 1 else '~')
    for cut in cuts[:count]:
        lost = 'all' if cut.loss == 1 else f'{cut.loss:.0%} of'
        when = 'after a save' if cut.saved else 'before the first save'
        fault = f'power cut {when}, {lost} unsynced changes lost'
        yield Outcome(fault, _after_cut(cut), RESUMED)


def power_cuts_after_faults(rng, count=None):
    """Everything lost after the first save of a run that suffered a kill or a cut before it."""
    folder = _scratch_disk()
    journals = _recorded(folder, _dies_in_save(1))
    operations = [entry[0] for entry in power.read(journals[0])]
    cuts = power.cuts(journals, folder / 'disk', rng, losses=[0.5] * 8)
    # Cuts that keep folders and lose files come first: existing folders are not synced again.
    replay = Path('games/run/replay')
    files = lambda left: sum(content is not None for content in left.values())  # noqa: E731
    cuts.sort(key=lambda cut: (replay not in cut.left, files(cut.left)))
    shutil.rmtree(folder)
    sync = 'fsync of a folder'
    series = [{'number': i, 'only': sync} for i in range(1, 1 + operations.count(sync))]
    tries = [(f'SIGKILL before each {sync} in turn', {}, series)]
    tries += [('power cut, 50% lost', cut.left, []) for cut in cuts[: len(operations)]]
    numbers = range(1, len(operations) + 1)
    tries += [('SIGKILL before an operation', {}, [{'number': number}]) for number in numbers]
    for name, left, kills_before in tries[:count]:
        folder = _scratch_disk()
        power.write(left, folder / 'disk')
        kill = functools.partial(injections.kill_before_operation, folder=folder / 'disk')
        deaths = [[functools.partial(kill, **which)] for which in kills_before]
        journals = _recorded(folder, *deaths, ())
        cuts = power.cuts(journals, folder / 'disk', rng, losses=(1,))
        cut = next(cut for cut in cuts if cut.operation == 'saved')
        shutil.rmtree(folder)
        yield Outcome(f'{name}; a save; a power cut, all lost', _after_cut(cut), RESUMED)


STARTS = {'a run': (), 'a resume': _dies_in_save(4), 'a resume with replay': _dies_in_save(5)}


def kills_before_operations(rng, count=None, starts=STARTS):
    """SIGKILL before each operation in turn, of a run and of two resumed runs."""
    cases, disks = [], {}
    for name, death in starts.items():
        folder = _scratch_disk()
        if death:
            _recorded(folder, death)
        disks[name] = runs.scratch_copy(folder / 'disk')
        operations = [entry[0] for entry in power.read(_recorded(folder, ())[0])]
        operations = [operation for operation in operations if operation != 'saved']
        cases += [(name, *numbered) for numbered in enumerate(operations, 1)]
        shutil.rmtree(folder)
    for name, number, operation in rng.sample(cases, min(count or len(cases), len(cases))):
        disk = runs.scratch_copy(disks[name])
        base_dir, output = disk / 'games' / 'run', disk.parent / 'stderr'
        had = runs.checkpoints(base_dir)
        kill = functools.partial(injections.kill_before_operation, number, disk)
        wrong = _unless(-9, *runs.run(base_dir, SHORT, [kill], output=output))
        had = max(had, runs.checkpoints(base_dir), key=lambda names: names[-1:])
        wrong = wrong or finish(base_dir, had, SHORT, output)
        wrong = wrong and f'before {operation} ({number}): {wrong}'
        yield Outcome(f'SIGKILL before an operation of {name}', wrong, RESUMED)
        shutil.rmtree(disk.parent)
    for disk in disks.values():
        shutil.rmtree(disk.parent)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    'truncated': lambda path: os.truncate(path, path.stat().st_size // 2),
    'emptied': lambda path: path.write_bytes(b''),
    'a bit flipped': _flip,
    'deleted': lambda path: path.unlink(),
}


def damages(rng, count=None):
    """Each file of a run folder truncated, emptied, bit-flipped and deleted in turn."""
    base_dir = straight()
    newest = runs.checkpoints(base_dir)[-1]
    files = [path.relative_to(base_dir) for path in sorted(base_dir.rglob('*')) if path.is_file()]
    files = [p for p in files if p.parts[0] != 'checkpoints' or p.parts[1] == newest]
    files = [p for p in files if (base_dir / p).stat().st_size]  # The lock is empty.
    cases = [(path, damage) for path in files for damage in DAMAGES]
    for path, damage in rng.sample(cases, min(count or len(cases), len(cases))):
        other = runs.scratch_copy(base_dir)
        DAMAGES[damage](other / path)
        status, printed = runs.run(other)
        name = path.parts[0] if path.parts[0] != 'checkpoints' else path.name
        lost = [c for c in runs.checkpoints(base_dir)[:-1] if c not in runs.checkpoints(other)]
        wrong = f'checkpoint {lost} lost' if lost else ''
        if status == 0:
            wrong = wrong or _other_rows(other)
            warned = 'damaged' in printed or 'Skipping' in printed
            seen = 'resumes with a warning' if warned else 'resumes: not needed'
        else:
            wrong = wrong or runs.one_line(status, printed)
            seen = 'refuses: ' + _short(runs.last_line(printed), other)
        yield Outcome(f'{name} {damage}', wrong, seen)
        shutil.rmtree(other.parent)


@contextlib.contextmanager
def _disk(size):
    """A tmpfs of this size: its folder, and a function that remounts it with other options."""
    folder = tempfile.mkdtemp(prefix='faults-')

    def mount(*arguments):
        return subprocess.run(['mount', *arguments, folder], capture_output=True, text=True)

    done = mount('-t', 'tmpfs', '-o', f'size={size}', 'tmpfs')
    if done.returncode:
        os.rmdir(folder)
        raise Skipped(f'mounting is not permitted: {done.stderr.strip()}')
    try:
        yield Path(folder), lambda option: mount('-o', f'remount,{option}').check_returncode()
    finally:
        subprocess.run(['umount', folder], check=True)
        os.rmdir(folder)


def full_disks(rng, count=16):
    """A tmpfs that is full after a random number of bytes, so that any write of a run may fail."""
    page = os.sysconf('SC_PAGE_SIZE')
    all_pages = sum(-(-p.stat().st_size // page) for p in straight().rglob('*')) + 12
    for pages in sorted(rng.sample(range(2, all_pages), min(count, all_pages - 2))):
        with _disk(pages * page) as (folder, remount):
            base_dir = folder / 'run'  # Its output is on the full disk too.
            status, printed = runs.run(base_dir)
            if status == 0:
                yield Outcome('disk just large enough', '', 'complete')
                continue
            had = runs.checkpoints(base_dir)
            wrong = _unless(1, status, printed)
            remount('size=64m')
            yield Outcome(
                'disk full, its log on it too',
                wrong or finish(base_dir, had),
                'status 1; resumes once there is room',
            )


def read_only_folders(rng, count=1):
    """A read-only file system."""
    with _disk('64m') as (folder, remount):
        base_dir, output = folder / 'run', Path(tempfile.mkdtemp(prefix='faults-')) / 'run'
        remount('ro')
        status, printed = runs.run(base_dir, output=output)
        remount('rw')
        yield Outcome(
            'read-only folder',
            runs.one_line(status, printed) or finish(base_dir, []),
            _short(runs.last_line(printed), base_dir),
        )


def clocks(rng, count=2):
    """A time of day that jumps by up to a year whenever it is read."""
    for _ in range(count):
        with _run_folder() as base_dir:
            jump = functools.partial(injections.jump_clock, rng.random())
            wrong = _unless(0, *runs.run(base_dir, before=[jump])) or _other_rows(base_dir)
            yield Outcome('clock that jumps', wrong, 'the same rows')


def crowds(rng, count=2):
    """Several processes that start in one folder at the same time."""
    for _ in range(count):
        with _run_folder() as base_dir:
            outputs = [base_dir.with_name(f'out{i}') for i in range(3)]
            started = [runs.Started(base_dir, output=output) for output in outputs]
            ends = [process.end() for process in started]
            statuses = sorted(status for status, _ in ends)
            wrong = '' if statuses == [0, 1, 1] else f'statuses {statuses}'
            refused = [runs.last_line(printed) for status, printed in ends if status]
            if not all('another process is running' in line for line in refused):
                wrong = wrong or f'ended with {refused}'
            yield Outcome(
                'three processes in one folder',
                wrong or _other_rows(base_dir),
                'one runs; ' + _short(refused[0] if refused else '', base_dir),
            )


def missing_roms(rng, count=1):
    """An empty folder of ALE's ROMs."""
    import ale_py

    roms = os.path.join(os.path.dirname(ale_py.__file__), 'roms')
    with _run_folder() as base_dir:
        before = [functools.partial(injections.hide_folder, roms)]
        status, printed = runs.run(base_dir, (), before, 'ob2i_atari_small.gin')
        if 'Operation not permitted' in printed:
            raise Skipped('mounting is not permitted')
        yield Outcome('ROM missing', runs.one_line(status, printed), runs.last_line(printed))


def weights(rng, count=2):
    """NaN in one weight of a network."""
    for part in ('online', 'target')[:count]:
        with _run_folder() as base_dir:
            spoil = functools.partial(injections.spoil_weights, part, 40)
            status, printed = runs.run(base_dir, runs.UNSOUND, [spoil], 'ob2i_deep_sea.gin')
            wrong = runs.one_line(status, printed)
            damaged = runs.damaged(base_dir)
            steps = runs.checkpoints(base_dir)
            if damaged or not steps or int(steps[-1]) >= 40:
                wrong = wrong or f'checkpoints {steps}, damaged {damaged}'
            yield Outcome(f'NaN in the {part} network', wrong, runs.last_line(printed))


def unsound_environments(rng, count=None):
    """An environment that raises, hangs, or returns a wrong shape, a wrong dtype or NaN."""
    for fault in unsound.FAULTS[1:][:count]:
        with _run_folder() as base_dir:
            # Otherwise the same run, so that a sound environment may finish it.
            at = 0 if fault == 'raises_in_reset' else 15
            fault_bindings = f"make_unsound.fault = '{fault}'", f'make_unsound.at = {at}'
            before = [functools.partial(injections.limit_steps_of_environments, 2.0)]
            status, printed = runs.run(
                base_dir, (*runs.UNSOUND, *fault_bindings), before, 'ob2i_deep_sea.gin'
            )
            wrong = runs.one_line(status, printed)
            if runs.damaged(base_dir):
                wrong = wrong or 'a damaged checkpoint'
            if fault != 'raises_in_reset' and not runs.checkpoints(base_dir):
                wrong = wrong or 'no checkpoint'
            yield Outcome(f'environment: {fault}', wrong, runs.last_line(printed))


def memory(rng, count=2):
    """Replay larger than the machine; a machine that runs out of memory during a run."""
    with _run_folder() as base_dir:
        huge = (*runs.BINDINGS, 'EpisodeReplay.capacity_transitions = 100_000_000_000')
        ended = runs.run(base_dir, huge)
        yield Outcome('replay beyond the machine', runs.one_line(*ended), runs.last_line(ended[1]))
    with _run_folder() as base_dir:
        atari = (
            'Runner.training_steps = 4000',
            'Runner.evaluation_steps = 0',
            'Runner.checkpoint_steps = 100',
            'Runner.num_iterations = 1',
            'make_atari.max_episode_frames = 200',
            'MultiHeadQNetwork.num_heads = 2',
        )
        limit = functools.partial(injections.run_out_of_memory, 220, 2_000_000)
        status, printed = runs.run(base_dir, atari, [limit], 'ob2i_atari_small.gin')
        wrong = runs.one_line(status, printed)
        if runs.damaged(base_dir) or not runs.checkpoints(base_dir):
            wrong = wrong or 'checkpoints are lost'
        yield Outcome('no memory left', wrong, runs.last_line(printed))


def _short(line, base_dir):
    """A line with placeholders for the folder and for segments of replay."""
    line = re.sub(r'episodes-[\w-]+\.npz', 'SEGMENT', line.replace(str(base_dir), 'RUN'))
    return re.sub(r'has \d+ bytes, not \d+; move', 'has N bytes, not M; move', line)


ALL = {
    function.__name__: function
    for function in (
        *(kills, kills_before_operations, power_cuts, power_cuts_after_faults, damages),
        *(full_disks, read_only_folders, clocks, crowds, missing_roms, weights),
        *(unsound_environments, memory),
    )
}
