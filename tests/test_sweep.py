"""Sweeps: their trials, and that they run the missing ones."""

import contextlib
import csv
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from campaigns import sweeps
from ob2i_tf import config, sweep
from ob2i_tf.errors import ConfigError
from ob2i_tf.training import disk
from ob2i_tf.training.run_folder import COLUMNS
from tests.processes import forked

TINY = (
    'Runner.num_iterations = 2',
    'Runner.training_steps = 20',
    'horizon = 10',
    'EpisodeReplay.capacity_transitions = 100',
)
FILE = 'lsvi_epsilon_linear_mdp.gin'


def test_trials_are_all_combinations_each_in_its_folder(tmp_path):
    made = sweep.trials(
        ['ob2i_atari.gin', 'bebu_atari.gin'],
        tmp_path,
        [('linear.final', ['0.1', '0.0']), ('Agent.train_period', ['4', '8'])],
        ['Q*Bert'],
        3,
        ['Runner.num_envs = 2'],
    )
    assert len(made) == len({trial.base_dir for trial in made}) == 2 * 2 * 2 * 3
    assert str(made[0].base_dir.relative_to(tmp_path)) == (
        'ob2i_atari/final=0.1/train_period=4/Q_Bert/seed0'
    )
    assert made[-1].bindings == (
        'Runner.seed = 2',
        "make_environment.name = 'Q*Bert'",
        'Runner.num_envs = 2',
        'linear.final = 0.0',
        'Agent.train_period = 8',
    )


@pytest.mark.parametrize('text', ['Agent.train_period', '= 1', 'a = 1,, 2', 'a ='])
def test_a_grid_that_is_none_is_named(text):
    with pytest.raises(ConfigError, match=f'--grid={text!r}'):
        sweep.parse_grid(text)


@pytest.mark.parametrize(
    'values', [['1', '2'], ['()', '((64, 4, 4), (64, 3, 1))'], ["'a, b'", '"c, \\" ("', '@f()']]
)
def test_a_grid_has_values_of_every_kind(values):
    assert sweep.parse_grid('a.b = ' + ', '.join(values)) == ('a.b', values)


@pytest.mark.parametrize(
    'keywords, what',
    [
        ({'grid': [('Runner.seed', ['5', '6'])]}, r'Runner.seed = 5 is bound, .* to 0'),
        ({'bindings': ['Runner.seed = 7'], 'seeds': 2}, r'Runner.seed = 7 is bound, .* to 0'),
        ({'bindings': ["make_environment.name = 'Pong'"], 'tasks': ['Alien']}, "'Pong' is bound"),
    ],
)
def test_what_the_sweep_binds_itself_cannot_be_bound(tmp_path, keywords, what):
    with pytest.raises(ConfigError, match=what):
        sweep.trials(['ob2i_atari.gin'], tmp_path, **keywords)


def test_rows_are_whole_lines(tmp_path):
    (trial,) = sweep.trials([FILE], tmp_path, bindings=('Runner.num_iterations = 3', *TINY[1:]))
    checkpoint = trial.base_dir / 'checkpoints' / '000000000060'
    checkpoint.mkdir(parents=True)
    (trial.base_dir / 'config.gin').touch()
    train = trial.base_dir / 'train.csv'
    for last in (b'2,60,6', b'\xff\0'):  # The half of 2,60,60.
        train.write_bytes(b'iteration,frames,agent_steps\n0,20,20\n1,40,40\n' + last)
        assert len(trial.folder.rows('train')) == 2 and not trial.complete()
    train.write_bytes(b'iteration,frames,agent_steps\n0,20,20\n1,4\xff,40\n2,60,60\n')
    assert trial.complete()


def test_two_trials_of_one_folder_are_refused(tmp_path):
    (tmp_path / 'ob2i_atari.gin').write_text("include 'ob2i_atari.gin'\n")
    files = ['ob2i_atari.gin', str(tmp_path / 'ob2i_atari.gin')]
    with pytest.raises(ConfigError, match='ob2i_atari/seed0 would be the folder of two trials'):
        sweep.trials(files, tmp_path / 'runs')


def test_a_wrong_configuration_stops_before_anything_runs(tmp_path, capsys):
    status = sweep.main(
        [f'--gin_files={FILE}', f'--base_dir={tmp_path}', '--grid=Agent.trainperiod = 1, 2']
    )
    assert status == 2
    assert 'trainperiod' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_print_gives_a_command_for_each_trial(tmp_path, capsys):
    sweep.main([f'--gin_files={FILE}', f'--base_dir={tmp_path}', '--seeds=2', '--print'])
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line)[-1] for line in lines] == [
        f'--base_dir={tmp_path}/lsvi_epsilon_linear_mdp/seed{seed}' for seed in range(2)
    ]


def run(made, retries=1):
    """(trials that are not complete, {name: report}); attempts are forked."""
    reports = {}

    def report(trial, status, lines):
        reports[trial.base_dir.name] = status, lines

    with forked():
        return sweep.Sweep(sweep.LocalExecutor(2), retries=retries).run(made, report), reports


def _played(trial, frames, scores, saved=0):
    """Writes what a run has when games ended at `frames` with `scores`."""
    trial.base_dir.mkdir(parents=True, exist_ok=True)
    trial.folder.config.write_text(
        'make_atari.frame_skip = 4\n'
        f'Runner.num_iterations = {trial.num_iterations}\nRunner.training_steps = 1000\n'
    )
    rows = [f'{at},{score},10\n' for at, score in zip(frames, scores)]
    trial.folder.table('episodes').write_text('frames,score,length\n' + ''.join(rows) + '99')
    header = ','.join(COLUMNS['train']) + '\n'
    row = ','.join([str(saved)] * len(COLUMNS['train'])) + '\n'
    trial.folder.table('train').write_text(header + row * bool(saved))


def test_the_display_moves_within_an_iteration_and_says_the_time_left(tmp_path):
    first, second, waiting = (
        sweep.Trial('a.gin', (), tmp_path / 'a' / f'seed{seed}', 2) for seed in range(3)
    )
    frames = range(4, 2004, 4)
    assert first.share() == 0  # There is no folder yet.
    _played(second, [800], [1.0])
    seconds = iter([0.0, 0.0, 3600.0])
    progress = sweep.Progress([first, second, waiting], tmp_path, lambda: next(seconds))
    (line,) = progress.table([])
    assert line == '0 of 3 complete, 0 running, 0 s'
    _played(first, frames, [0.0] * 480 + [5.0] * 10 + [7.0] * 10)  # Half an iteration of two.
    line, one, other = progress.table([first, second])
    # 0.25 of 3 trials in an hour; 0.1 was done before.
    assert line == '0 of 3 complete, 2 running, 1 h 0 min, about 10 h 36 min left'
    assert one.split() == ['a/seed0', '25.0%', '2,000', 'frames,', 'score', '6']
    assert other.split() == ['a/seed1', '10.0%', '800', 'frames,', 'score', '1']


def test_a_run_whose_games_do_not_end_progresses_with_its_iterations(tmp_path):
    trial = sweep.Trial('a.gin', (), tmp_path / 'seed0', 2)
    _played(trial, [], [], saved=4000)
    assert trial.share() == 0.5
    longer = sweep.Trial('a.gin', (), tmp_path / 'seed0', 4)
    assert longer.share() == 0.25
    trial.folder.table('episodes').write_bytes(b'frames,score,length\nx,\xff,\0\n')
    assert trial.share() == 0  # Damaged.


def test_the_table_of_scores_has_a_line_for_seeds_together(tmp_path):
    made = [
        sweep.Trial('a.gin', (), tmp_path / name / f'seed{seed}', 2)
        for name in ('a/Pong', 'b')
        for seed in range(3)
    ]
    for trial, scores in zip(made, (['1.0', '4.0'], ['2.0', 'nan'], ['nan'], ['7.5'])):
        trial.base_dir.mkdir(parents=True)
        rows = ''.join(f'{score}\n' for score in scores)
        trial.folder.table('eval').write_text(f'score_mean\n{rows}')
    header, *lines = (line.split() for line in sweep.scores(made, tmp_path))
    assert header == ['last', 'score', 'seeds', 'mean', 'lowest', 'highest']
    assert lines == [['a/Pong', '2', '3', '2', '4'], ['b', '1', '7.5', '7.5', '7.5']]
    assert [line.split() for line in sweep.scores(made[4:], tmp_path)][1:] == [['b', '0']]


def starts(trial):
    return trial.log.read_text().count('Starting in')


def resumes(trial):
    return trial.log.read_text().count('Resuming in')


@pytest.fixture(scope='module')
def failing(tmp_path_factory):
    """A sweep of three trials: a whole one, one that fails, and one that cannot be started."""
    folder = tmp_path_factory.mktemp('failing')
    made = sweep.trials([FILE], folder, seeds=3, bindings=TINY)
    broken = made[1].base_dir
    broken.mkdir(parents=True)
    (broken / 'train.csv').write_text('rows\n' * 5)  # Without a checkpoint: a run refuses.
    made[2].base_dir.write_text('a file\n')
    return folder, made, *run(made)


def test_a_sweep_runs_what_is_missing_and_names_what_fails(failing):
    folder, made, missing, reports = failing
    assert missing == made[1:]
    assert reports['seed0'] == (0, [])
    status, lines = reports['seed1']
    assert status == 1 and lines[-1].startswith('error: ') and 'no checkpoint' in lines[-1]
    log = made[1].log.read_text()
    assert sum(line.startswith('error: ') for line in log.splitlines()) == 2  # Tried again once.
    with open(made[0].base_dir / 'train.csv', newline='') as file:
        assert len(list(csv.DictReader(file))) == 2
    missing, reports = run(made[::2], retries=0)
    assert missing == [made[2]] and list(reports) == ['seed2']  # The other is not run again.
    assert starts(made[0]) == 1
    (longer,) = sweep.trials([FILE], folder, bindings=('Runner.num_iterations = 3', *TINY[1:]))
    assert made[0].complete() and not longer.complete()
    assert run([longer]) == ([], {'seed0': (0, [])})
    assert (len(longer.folder.rows('train')), resumes(longer)) == (3, 1)
    shutil.rmtree(longer.folder.newest_checkpoint())
    assert not longer.complete()  # Its last row was written, but no checkpoint after it.


def test_a_folder_of_another_configuration_is_refused(tmp_path, capsys):
    (trial,) = sweep.trials([FILE], tmp_path, bindings=TINY)
    trial.base_dir.mkdir(parents=True)
    (trial.base_dir / 'config.gin').write_text(config.resolved_config())
    sweep.trials([FILE], tmp_path, bindings=('Runner.num_iterations = 7', *TINY[1:]))
    arguments = [f'--gin_files={FILE}', f'--base_dir={tmp_path}']
    arguments += [f'--gin_bindings={binding}' for binding in TINY]
    assert sweep.main([*arguments, '--gin_bindings=Runner.checkpoints_kept = 5']) == 1
    error = capsys.readouterr().err
    assert f'{trial.base_dir}/config.gin was created with a different configuration' in error
    assert "'Runner.checkpoints_kept = 5'" in error


def test_a_trial_that_cannot_be_started_lets_the_others_go_on(failing):
    _, made, missing, reports = failing
    assert made[2] in missing and reports['seed0'] == (0, [])
    assert reports['seed2'][0].startswith('FileExistsError: ')


def test_a_trial_that_is_killed_goes_on_from_its_checkpoint(tmp_path):
    (trial,) = sweep.trials([FILE], tmp_path, bindings=('Runner.num_iterations = 30', *TINY[1:]))
    killed, reports = [], []

    def kill(running):
        """The first attempt, when it has done two iterations."""
        if not killed and len(trial.folder.rows('train')) >= 2:
            for process in psutil.Process().children():
                if f'--base_dir={trial.base_dir}' in process.cmdline():
                    process.kill()
                    killed.append(process.pid)

    first = sweep.Sweep(sweep.LocalExecutor(1), retries=0)
    missing = first.run([trial], lambda *end: reports.append(end), kill)
    assert len(killed) == 1
    assert not missing and reports == [(trial, 0, [])]
    assert (starts(trial), resumes(trial)) == (1, 1)
    assert len(trial.folder.rows('train')) == 30


def test_a_stopped_sweep_saves_and_a_later_one_goes_on(tmp_path):
    """A trial whose worker dies saves too: its process gets the same signal."""
    (trial,) = sweep.trials([FILE], tmp_path, bindings=('Runner.num_iterations = 30', *TINY[1:]))
    first = sweep.Sweep(sweep.LocalExecutor(1))

    def stop(running):
        if len(trial.folder.rows('train')) >= 2:
            first.stop()

    with forked():
        assert first.run([trial], lambda *end: None, stop) == [trial]
    assert 'Stopped by SIGTERM, saved at' in trial.log.read_text()
    missing, reports = run([trial])
    assert not missing and reports == {'seed0': (0, [])}
    assert (starts(trial), resumes(trial)) == (1, 1)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_waits_for_another_one_can_be_stopped(tmp_path, number):
    trial = sweep.Trial(FILE, (), tmp_path / FILE.partition('.')[0] / 'seed0', 2)
    trial.base_dir.mkdir(parents=True)
    with contextlib.closing(disk.Lock(trial.base_dir)):  # As another sweep does.
        command = [
            f'--gin_files={FILE}',
            f'--base_dir={tmp_path}',
            *(f'--gin_bindings={binding}' for binding in TINY),
        ]
        waiting = subprocess.Popen(
            [sys.executable, '-m', 'ob2i_tf.sweep', *command], stdout=subprocess.PIPE, text=True
        )
        assert waiting.stdout.readline() == '1 trials, 0 complete\n'
        time.sleep(1)
        assert waiting.poll() is None
        waiting.send_signal(number)
        assert waiting.wait(60) == 1
        waiting.stdout.close()
    assert not trial.log.exists()  # No process was started.


def test_an_unexpected_error_ends_the_running_trials(tmp_path):
    waiting, failing = sweep.trials([FILE], tmp_path, seeds=2, bindings=TINY)
    waiting.base_dir.mkdir(parents=True)
    failing.base_dir.write_text('a file\n')
    executor, futures = sweep.LocalExecutor(2), []

    def submit(*arguments):
        futures.append(sweep.LocalExecutor.submit(executor, *arguments))
        return futures[-1]

    def report(trial, status, lines):
        raise RuntimeError(trial.base_dir.name)

    executor.submit = submit
    with contextlib.closing(disk.Lock(waiting.base_dir)):  # As another sweep does.
        with pytest.raises(RuntimeError, match='^seed1$'):
            sweep.Sweep(executor, retries=0).run([waiting, failing], report)
        assert futures[0].result(timeout=10) == 128 + signal.SIGTERM


def removes(folder, trial):
    """A function for `Sweep.run` that removes `folder`, once, when `trial` has a checkpoint."""
    removed = []

    def show(running):
        if not removed and trial.folder.newest_checkpoint():
            removed.append(folder)
            while folder.exists():  # The trial may write meanwhile.
                shutil.rmtree(folder, ignore_errors=True)

    return show


VANISHING = ('.', 'seed0', 'seed0/checkpoints')


@pytest.fixture(scope='module')
def vanished(tmp_path_factory):
    """({what vanished: its trial}, another trial, missing trials, reports) of one sweep."""
    base_dir, many = tmp_path_factory.mktemp('sweep'), ('Runner.num_iterations = 300', *TINY[1:])
    lost = {}
    for number, folder in enumerate(VANISHING):
        (lost[folder],) = sweep.trials([FILE], base_dir / str(number), bindings=many)
    (other,) = sweep.trials([FILE], base_dir / 'other', bindings=TINY)
    removals = [removes(t.base_dir.parent / folder, t) for folder, t in lost.items()]
    reports = {}

    def report(trial, status, lines):
        reports[trial] = status, lines

    def show(running):
        for remove in removals:
            remove(running)

    with forked():
        missing = sweep.Sweep(sweep.LocalExecutor(1), retries=3).run(
            [*lost.values(), other], report, show
        )
    return lost, other, missing, reports


@pytest.mark.parametrize('folder', VANISHING)
def test_a_trial_whose_folder_vanishes_does_not_start_over(vanished, folder):
    all_lost, other, missing, reports = vanished
    lost = all_lost[folder]
    assert missing == list(all_lost.values())
    assert reports[other] == (0, [])  # Which continues.
    status, lines = reports[lost]
    assert status == 1
    assert lines[-1].startswith(str(lost.base_dir))
    assert lines[-1].endswith(' vanished during the sweep: the trial is not started again')
    assert not os.path.exists(lost.log) or starts(lost) == 1


def test_a_trial_whose_checkpoints_vanish_before_its_turn_does_not_start_over(tmp_path):
    made = sweep.trials([FILE], tmp_path, seeds=2, bindings=TINY)
    (made[1].base_dir / 'checkpoints' / '000000000020').mkdir(parents=True)  # Of an earlier sweep.
    reports = []
    with forked():
        missing = sweep.Sweep(sweep.LocalExecutor(1)).run(
            made, lambda *end: reports.append(end), removes(made[1].base_dir, made[1])
        )
    assert missing == [made[1]] and reports[0] == (made[0], 0, [])
    trial, status, (line,) = reports[1]
    assert (trial, status) == (made[1], 'not started again') and 'checkpoints vanished' in line
    assert not made[1].log.exists()


def test_ray_runs_a_trial_and_a_second_time_nothing(tmp_path, capsys):
    ray = pytest.importorskip('ray')
    command = [
        f'--gin_files={FILE}',
        f'--base_dir={tmp_path}',
        '--address=local',
        *(f'--gin_bindings={binding}' for binding in TINY),
    ]
    try:
        assert sweep.main(command) == 0
    finally:
        ray.shutdown()
    (trial,) = sweep.trials([FILE], tmp_path, bindings=TINY)
    assert trial.complete()
    assert '1 trials, 0 complete' in capsys.readouterr().out
    assert sweep.main(command) == 0
    assert capsys.readouterr().out.startswith('1 trials, 1 complete\nlast score')


def test_a_worker_and_a_node_of_ray_that_are_lost_change_no_row(tmp_path):
    pytest.importorskip('ray')
    assert not sweeps.on_nodes(tmp_path, count=2, seeds=1, iterations=30)
