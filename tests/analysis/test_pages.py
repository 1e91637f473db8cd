"""The pages in a browser: Chromium without a screen, driven over WebDriver's plain HTTP."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from ob2i_tf.analysis import episode, report
from tests.analysis.folders import write_run

DRIVER = shutil.which('chromedriver')
BROWSER = shutil.which('chromium') or shutil.which('google-chrome')
needs_browser = pytest.mark.skipif(
    not (DRIVER and BROWSER),
    reason='no browser: apt-get install chromium chromium-driver',
)


def recording(steps=120, maze=False):
    """A made-up game: the bonus peaks at 30 and 90; frame t is grey level t."""
    t = np.arange(steps)
    rng = np.random.default_rng(0)
    q_values = rng.standard_normal((steps, 3, 4)) + 0.01 * t[:, None, None]
    votes = np.zeros((steps, 4), int)
    for step, greedy in enumerate(q_values.argmax(axis=-1)):
        np.add.at(votes[step], greedy, 1)
    bonuses = 0.1 + np.exp(-((t - 30) / 3) ** 2) + 0.5 * np.exp(-((t - 90) / 3) ** 2)
    cells = np.stack([np.minimum(t // 12, 9), np.minimum(t // 12, 9)], 1) if maze else None
    return episode.Recording(
        'A <made-up> game', ('NOOP', 'FIRE', 'LEFT', 'RIGHT'),
        [np.full((84, 84), step, np.uint8) for step in t], votes.argmax(axis=-1), t % 20 == 0,
        np.ones(steps), q_values, votes, bonuses, cells,
        np.zeros((10, 10), bool) if maze else None,
    )  # fmt: skip


class Driver:
    """A session of chromedriver."""

    def __init__(self, width=1100, height=900, dark=False):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [DRIVER, f'--port={self._port}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {
            'binary': BROWSER,
            'args': ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars',
                     '--disable-dev-shm-usage', f'--window-size={width},{height}']
            + ['--force-dark-mode'] * dark,
        }  # fmt: skip
        if width < 500:  # A window is never so narrow.
            options['mobileEmulation'] = {
                'deviceMetrics': {'width': width, 'height': height, 'pixelRatio': 2}
            }
        capabilities = {'alwaysMatch': {'goog:chromeOptions': options,
                                        'goog:loggingPrefs': {'browser': 'ALL'}}}  # fmt: skip
        try:
            for _ in range(100):
                try:
                    self._call('GET', '/status')
                    break
                except (urllib.error.URLError, ConnectionError):
                    time.sleep(0.2)
            made = self._call('POST', '/session', {'capabilities': capabilities})
        except BaseException:
            self._process.kill()
            raise
        self._session = f'/session/{made["sessionId"]}'

    def _call(self, method, path, body=None):
        request = urllib.request.Request(
            f'http://127.0.0.1:{self._port}{path}', method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={'Content-Type': 'application/json'},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)['value']

    def call(self, path, body):
        return self._call('POST', self._session + path, body)

    def run(self, script):
        return self.call('/execute/sync', {'script': script, 'args': []})

    def open(self, path):
        self.call('/url', {'url': path.resolve().as_uri()})

    def pointer(self, *actions):
        self.call('/actions', {'actions': [{'type': 'pointer', 'id': 'mouse', 'actions': [
            {'type': 'pointerMove', 'x': round(a[0]), 'y': round(a[1]), 'duration': 20}
            if isinstance(a, tuple) else {'type': a, 'button': 0} for a in actions]}]})  # fmt: skip

    def keys(self, *keys):
        self.call('/actions', {'actions': [{'type': 'key', 'id': 'keys', 'actions': [
            {'type': kind, 'value': key} for key in keys
            for kind in ('keyDown', 'keyUp')]}]})  # fmt: skip

    def errors(self):
        log = self.call('/se/log', {'type': 'browser'})
        return [entry['message'] for entry in log if entry['level'] == 'SEVERE']

    def screenshot(self, path):
        import base64

        data = self._call('GET', self._session + '/screenshot')
        path.write_bytes(base64.b64decode(data))

    def close(self):
        try:
            self._call('DELETE', self._session)
        finally:
            self._process.terminate()
            self._process.wait()


@pytest.fixture
def browser(request):
    driver = Driver(**getattr(request, 'param', {}))
    yield driver
    driver.close()


SHOWN = """
const frame = document.getElementById('frame'), canvas = document.createElement('canvas');
canvas.width = canvas.height = 1;
const context = canvas.getContext('2d');
context.drawImage(frame, 0, 0, 84, 84, 0, 0, 1, 1);
return {step: +document.getElementById('slider').getAttribute('aria-valuenow'),
  where: document.getElementById('where').textContent,
  grey: context.getImageData(0, 0, 1, 1).data[0], complete: frame.complete,
  votes: [...document.querySelectorAll('#values tbody tr:first-child td')].map(
    (cell) => +cell.textContent),
  heads: document.querySelectorAll('#values tbody tr').length - 1};
"""
BOX = """const box = document.getElementById('slider').getBoundingClientRect();
return [box.left, box.top, box.width, box.height];"""


def shown(browser):
    for _ in range(20):
        state = browser.run(SHOWN)
        if state['complete']:
            break
        time.sleep(0.05)
    return state


def at(box, step, last=119):
    return box[0] + 10 + (box[2] - 20) * step / last, box[1] + box[3] / 2


@needs_browser
def test_dragging_the_cursor_shows_step_frame_and_votes(browser, tmp_path):
    game = recording()
    browser.open(episode.write(game, tmp_path))
    assert shown(browser)['step'] == 0
    box = browser.run(BOX)
    browser.pointer(at(box, 10), 'pointerDown', at(box, 40), at(box, 77))
    state = shown(browser)
    assert state['step'] == state['grey'] == 77
    assert state['where'].startswith('step 77 of 119: bonus')
    assert f'action {game.action_names[game.actions[77]]}' in state['where']
    assert state['votes'] == game.votes[77].tolist() and state['heads'] == 3
    browser.pointer('pointerUp', at(box, 20))  # Without a button: hovering moves it too.
    assert shown(browser)['step'] == 20
    assert not browser.errors()


@needs_browser
def test_keys_spikes_and_play(browser, tmp_path):
    game = recording()
    assert episode.spikes(game.bonuses, 2) == [30, 90]
    browser.open(episode.write(game, tmp_path))
    browser.run("document.getElementById('slider').focus()")
    right, left, home, end = '\ue014', '\ue012', '\ue011', '\ue010'
    browser.keys(right, right, right, left)
    assert shown(browser)['step'] == 2
    browser.keys('n')
    assert shown(browser)['step'] in episode.spikes(game.bonuses)
    browser.keys(end)
    assert shown(browser)['grey'] == 119
    browser.keys(home)
    browser.run("document.querySelector('#spikes button[data-step=\"90\"]').click()")
    assert shown(browser)['step'] == shown(browser)['grey'] == 90
    browser.run("document.getElementById('play').click()")
    time.sleep(0.6)
    assert browser.run("return document.getElementById('play').textContent") == 'Pause'
    browser.run("document.getElementById('play').click()")
    stopped = shown(browser)['step']
    assert stopped > 90
    time.sleep(0.3)
    assert shown(browser)['step'] == stopped
    assert not browser.errors()


@needs_browser
@pytest.mark.parametrize('browser', [{'width': 390, 'height': 844}], indirect=True)
def test_pages_fit_a_phone_and_go_dark(browser, tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / 'runs', 'OB2I', 'Pong', seed, iterations=3)
    pages = [report.write([tmp_path / 'runs'], tmp_path / 'report'),
             episode.write(recording(maze=True), tmp_path / 'viewer')]  # fmt: skip
    for path in pages:
        browser.open(path)
        assert browser.run('return document.documentElement.scrollWidth') <= 390, path
        paper = 'return getComputedStyle(document.body).backgroundColor'
        light = browser.run(paper)
        browser.run("document.getElementById('theme').click()")
        assert browser.run(paper) != light
        # Text of figures follows the page's colour.
        assert browser.run("return getComputedStyle(document.querySelector('figure svg text')).fill"
                           ' === getComputedStyle(document.body).color')  # fmt: skip
        assert not browser.errors()


def test_a_recording_becomes_figure_video_and_page(tmp_path):
    from PIL import Image

    page = episode.write(recording(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        'bonus.png', 'bonus.svg', 'episode.gif', 'episode.html'
    }  # fmt: skip
    with Image.open(tmp_path / 'episode.gif') as video:
        assert video.n_frames > 100
    text = page.read_text()
    assert 'A &lt;made-up&gt; game' in text and 'http://' not in text.replace(
        'http://www.w3.org/', ''
    ).replace('http://purl.org/', '').replace('http://creativecommons.org/', '')


def test_spikes():
    assert episode.spikes(np.zeros(5)) == []
    assert episode.spikes(np.array([])) == []
    assert episode.spikes(np.array([3.0, 1, 1, 5, 0, 2]), 2) == [0, 3]
