"""What a run shows: its speed while it learns, forecasts, its last lines."""

import contextlib
import csv
import math
import re

import pytest

from ob2i_tf.training import progress
from ob2i_tf.training.loop import Game
from ob2i_tf.training.run_folder import COLUMNS, RunFolder
from tests.processes import start
from tests.terminal import Terminal


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def test_the_pace_counts_neither_warm_up_nor_the_first_learner_steps():
    clock = Clock()
    pace = progress.Pace(clock)
    for frames in range(0, 50_000, 1000):  # Random play, at 1000 frames per second.
        clock.seconds += 1
        assert all(map(math.isnan, pace.measure(frames)))
    for _ in range(20):  # The first takes a minute.
        clock.seconds += 3
        pace.measure(50_000)
        pace.learned()
    pace.measure(50_000)
    clock.seconds += 40
    pace.learned()
    assert pace.measure(50_400) == (40, 10)


def test_a_bar_shows_the_time_left_and_the_last_games():
    clock = Clock()
    with progress.ProgressBar(20_000, 8_000, 'frames', False, clock) as bar:
        bar.played([Game(100.0, 1.0, 5)] * 3 + [Game(6.0, 1.0, 5)] * 19 + [Game(26.0, 1.0, 5)])
        bar.update(8_000, 1.0)
        assert bar.text() == 'score=7, epsilon=1.00'  # The last 20.
        for _ in range(20):
            bar.learned({'loss': 0.5})
        bar.update(8_000, 0.25)
        clock.seconds += 10
        bar.update(10_000, 0.25)
        text = '200 frames/s, 50 s left, score=7, loss=0.5, epsilon=0.25'
        assert bar.text() == text


def test_a_log_has_a_line_per_minute_in_place_of_the_bar(capsys):
    clock = Clock()
    with progress.ProgressBar(20_000, 8_000, 'frames', False, clock) as bar:
        for _ in range(100):
            clock.seconds += 1.5
            bar.update(bar._frames + 40, 1.0)
        assert capsys.readouterr().err.splitlines() == [
            '48% of 20,000 frames, 60 s: epsilon=1.00',
            '56% of 20,000 frames, 2 min: epsilon=1.00',
        ]
    assert capsys.readouterr().err == '60% of 20,000 frames, 2 min: epsilon=1.00\n'


def test_a_run_into_a_file_redraws_nothing(tmp_path):
    settings = ['make_deep_sea.size = 4', 'Runner.num_iterations = 1', 'Runner.training_steps = 80']
    process = start(
        [
            'run',
            '--gin_files=ob2i_deep_sea.gin',
            '--base_dir=run',
            *(f'--gin_bindings={setting}' for setting in settings),
        ],
        output=tmp_path / 'stderr',
        cwd=tmp_path,
    )
    process.join()
    printed = (tmp_path / 'stderr').read_bytes()
    assert process.exitcode == 0, printed
    assert b'\r' not in printed and b'\x1b' not in printed
    assert b'\n100% of 80 steps, ' in printed


def test_a_run_without_steps_is_complete(capsys):
    with progress.ProgressBar(0, 0, 'frames', False):
        pass
    assert capsys.readouterr().err.startswith('100% of 0 frames, ')


def test_a_terminal_has_a_bar():
    with (
        contextlib.redirect_stderr(Terminal()) as terminal,
        progress.ProgressBar(20_000, 8_000, 'frames', False) as bar,
    ):
        bar.update(10_000, 1.0)
    bar = r'\r 50%\|.* 10\.0k/20\.0k frames .*epsilon=1\.00'
    assert re.search(bar, terminal.getvalue())


@pytest.mark.parametrize(
    'frames, unit, gpu, parts',
    [
        (5 * 3600, 'steps', False, ['Training will take 5 h 0 min, without evaluations: 18,000 s']),
        (5 * 3600, 'frames', False, ['take 5 h 0 min', '--gin_files=ob2i_atari_small.gin']),
        (500, 'frames', False, []),
    ],
)
def test_a_forecast(frames, unit, gpu, parts):
    text = progress.forecast(frames, 1.0, unit, gpu)
    assert bool(text) == bool(parts) and all(part in text for part in parts)


@pytest.mark.parametrize('unit, gpu', [('steps', False), ('frames', True)])
def test_only_a_long_run_on_atari_without_a_gpu_has_an_alternative(unit, gpu):
    assert 'ob2i_atari_small' not in progress.forecast(10**6, 1.0, unit, gpu)
    assert 'ob2i_atari_small' not in progress.forecast(10**4, 1.0, 'frames', False)


def _write(folder, table, scores):
    with open(folder.table(table), 'w', newline='') as file:
        rows = csv.DictWriter(file, COLUMNS[table])
        rows.writeheader()
        for number, score in enumerate(scores, start=1):
            rows.writerow({'frames': 1000 * number, 'score_mean': score})


def test_the_last_lines_of_a_run(tmp_path):
    folder = RunFolder(tmp_path / 'a run')
    folder.path.mkdir()
    _write(folder, 'train', [3.0, 'nan'])
    _write(folder, 'eval', [])
    first, second, third = progress.last_lines(folder).splitlines()
    assert first == 'Training score: best 3 at 1,000 frames, last 3 at 1,000 frames'
    assert second.endswith(f' are in {folder}')
    assert third == f"Next: python -m ob2i_tf.analysis '{folder}' --out report"
    _write(folder, 'eval', [1.0, 22.5, 2.0])
    first = progress.last_lines(folder).splitlines()[0]
    assert first == 'Evaluation score: best 22.5 at 2,000 frames, last 2 at 3,000 frames'


def test_temporary_lines_are_printed_only_if_it_takes_long(capsys, monkeypatch):
    assert list(progress.progress_bar(range(3), 3, 'playing again')) == [*range(3)]
    assert capsys.readouterr().err == ''
    monkeypatch.setattr(progress, '_interval', lambda: 0)
    assert list(progress.progress_bar(range(3), 3, 'playing again')) == [*range(3)]
    lines = [f'playing again: {number} of 3 steps' for number in range(3)]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_terminal_has_a_temporary_bar(monkeypatch):
    monkeypatch.setattr(progress, '_interval', lambda: 1e-9)
    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert list(progress.progress_bar(range(5), 5, 'playing again')) == [*range(5)]
    assert re.search(r'playing again: +\d+%.* 5/5 ', terminal.getvalue())
