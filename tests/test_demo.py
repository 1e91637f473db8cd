"""The demo: three short runs, the page about them, and a failed run."""

import contextlib
import json
import re
import shutil
import subprocess
import sys

import pytest

from ob2i_tf import demo
from tests.browser import browser, needs_browser  # noqa: F401, a fixture
from tests.processes import forked
from tests.terminal import Terminal

EPISODES = 100


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """The folder of a demo on a sea of 4 rows."""
    base_dir = tmp_path_factory.mktemp('demo')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, 'SIZE', 4)
        patch.setattr(demo, 'ITERATIONS', 1)
        patch.setattr(demo, 'EPISODES_PER_ITERATION', EPISODES)
        patch.delenv('DISPLAY', raising=False)
        patch.delenv('WAYLAND_DISPLAY', raising=False)
        with forked():
            assert demo.main([f'--base_dir={base_dir}', '--seed=1']) == 0
        yield base_dir


def test_the_page_shows_the_path_and_the_treasure_of_each_episode(finished):
    page = (finished / 'demo.html').read_text()
    methods = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [method['name'] for method in methods] == ['OB2I', 'BootDQN', 'DQN']
    for method in methods:
        assert len(method['found']) == len(method['paths']) == EPISODES
        for path, found in zip(method['paths'], method['found']):
            steps = list(map(int, path))
            assert steps[0] == 0 and all(abs(b - a) <= 1 for a, b in zip(steps, steps[1:]))
            assert not found or path == '0123'  # Then the last move was to the right, too.
    assert sum(methods[0]['found']) > 0


def test_a_second_demo_trains_nothing(finished, capsys):
    logs = {path: path.read_bytes() for path in finished.glob('*/*.log')}
    assert len(logs) == 3
    assert demo.main([f'--base_dir={finished}', '--seed=1']) == 0
    assert logs == {path: path.read_bytes() for path in finished.glob('*/*.log')}
    printed = capsys.readouterr().out
    assert str(finished / 'demo.html') in printed
    program, flag = re.search('Next: (.*) (--gin_files=.*)', printed).groups()
    assert shutil.which(program) and flag == '--gin_files=ob2i_atari_small.gin'


def test_a_pipe_gets_a_line_per_iteration(finished):
    code = (
        'import sys; from ob2i_tf import demo; demo.SIZE, demo.ITERATIONS = 4, 1;'
        "sys.exit(demo.main(['--seed=1', '--base_dir=.']))"
    )
    ended = subprocess.run(
        [sys.executable, '-c', code], cwd=finished, stderr=subprocess.PIPE, check=True
    )
    printed = ended.stderr.decode()
    assert '\r' not in printed and '\x1b' not in printed
    for line, method in zip(printed.splitlines(), demo.METHODS, strict=True):
        assert re.fullmatch(rf'{method} +100/100 episodes, treasure found \d+ times', line)


def test_a_terminal_gets_bars(finished):
    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert demo.main([f'--base_dir={finished}', '--seed=1']) == 0
    for method in demo.METHODS:
        assert re.search(rf'\r{method} +[█#]+ +100/100 episodes, treasure', terminal.getvalue())


def test_a_failed_run_is_reported_with_its_last_line(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, 'TRAIN_PERIOD', 0)
    with forked():
        assert demo.main([f'--base_dir={tmp_path}']) == 1
    complaint = capsys.readouterr().err
    assert complaint.count(' ended with 2:') == 3 and 'Agent.train_period' in complaint
    assert 'the same command resumes' in complaint


@needs_browser
def test_the_slider_shows_the_visits_so_far(finished, browser):  # noqa: F811
    browser.screen(1200, 900)
    browser.open(finished / 'demo.html')
    show = (
        "const slider = document.getElementById('episode'); slider.value = {};"
        "slider.dispatchEvent(new Event('input'));"
        "return [...document.querySelectorAll('.seas svg')].map("
        "  (sea) => sea.querySelector('title').textContent);"
    )
    assert browser.run(show.format(1)) == 3 * ['depth 1, column 1: 1 visits']
    assert browser.run(show.format(EPISODES)) == 3 * [f'depth 1, column 1: {EPISODES} visits']
    assert browser.run('return document.body.scrollWidth <= innerWidth')
    browser.screen(390, 844)
    assert browser.run('return document.body.scrollWidth <= innerWidth')
    assert not browser.errors()
