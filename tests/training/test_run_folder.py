"""Run folders are found behind symbolic links, and each once."""

import os

from ob2i_tf import evaluate
from ob2i_tf.analysis import load
from ob2i_tf.training.run_folder import find_runs
from tests.analysis.folders import write_run


def test_links_are_followed_and_loops_end(tmp_path):
    away = write_run(tmp_path / 'disk', 'OB2I', 'Pong', 0, iterations=1)
    here = write_run(tmp_path / 'runs', 'BEBU', 'Pong', 1, iterations=1)
    runs = tmp_path / 'runs'
    (runs / 'a link').symlink_to(tmp_path / 'disk', target_is_directory=True)
    (runs / 'loop').symlink_to(os.pardir, target_is_directory=True)  # To what holds both.
    (runs / 'a second').symlink_to(here, target_is_directory=True)
    (runs / 'nowhere').symlink_to('nothing')
    (here / 'replay').mkdir()
    (here / 'replay' / 'again').symlink_to(tmp_path, target_is_directory=True)
    linked = runs / 'a link' / away.relative_to(tmp_path / 'disk')
    assert find_runs(runs, ['config.gin']) == [linked, here]
    assert find_runs(runs / 'a link', ['config.gin']) == [linked]
    assert find_runs(tmp_path, ['config.gin']) == [away, here]
    assert find_runs(runs, ['no such file']) == []


def test_all_that_read_run_folders_find_them_once(tmp_path):
    away = write_run(tmp_path / 'disk', 'OB2I', 'Pong', 0, iterations=1)
    runs = tmp_path / 'runs'
    runs.mkdir()
    for name in ('one', 'two'):
        (runs / name).symlink_to(away, target_is_directory=True)
    assert evaluate.find([runs, away, tmp_path]) == [away]
    (run,), problems = load.load([runs, tmp_path])
    assert run.path.resolve() == away and not problems
