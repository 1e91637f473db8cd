"""A game of a real, tiny run is recorded, its folder stays as it was, and its page is used."""

import shutil
import sys
import time

import gin
import numpy as np
import pytest
from PIL import Image

from ob2i_tf.analysis import episode
from ob2i_tf.errors import UserError
from ob2i_tf.training.restore import restore
from tests.browser import browser, needs_browser  # noqa: F401, a fixture
from tests.training.test_runner import ATARI, newest, run

STEPS = 40  # After which the run's configuration ends a game.
needs_encoder = pytest.mark.skipif(not episode.encoder(), reason='needs imageio-ffmpeg')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp('episode') / 'run'
    run(
        base,
        gin_file=ATARI,
        Runner__num_iterations=2,
        Runner__training_steps=120,
        make_atari__frame_skip=3,
        make_atari__max_episode_frames=3 * STEPS,
        Agent__learning_starts=60,
    )
    return base


@pytest.fixture(scope='module')
def game(folder):
    """A game of Breakout; meanwhile nothing changes in the run folder."""
    before = files(folder)
    recording = episode.record(folder)
    assert files(folder) == before
    return recording


@pytest.fixture(autouse=True)
def clean_gin():
    yield
    gin.clear_config()


def files(folder):
    return {
        str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob('*') if p.is_file()
    }


def test_what_is_recorded(game):
    assert game.q_values.shape == (STEPS, 3, 4) and np.shape(game.frames) == (STEPS, 84, 84)
    assert game.finished and game.steps_per_second == 20  # 60 frames per second.
    chosen = game.q_values[np.arange(STEPS), :, game.actions]
    np.testing.assert_allclose(game.bonuses, chosen.std(axis=1), rtol=1e-4, atol=1e-6)
    assert (game.votes.sum(axis=1) == 3).all()
    taken = game.votes[np.arange(STEPS), game.actions]
    assert (game.random | (taken == game.votes.max(axis=1))).all()
    assert game.action_names == ('NOOP', 'FIRE', 'RIGHT', 'LEFT')


def test_it_is_the_newest_checkpoint_and_the_seed_that_decide(folder, game):
    import tensorflow as tf

    short = [episode.record(folder, seed=seed, max_steps=20).q_values for seed in (0, 1)]
    np.testing.assert_array_equal(short[0], game.q_values[:20])
    assert not np.array_equal(short[1], game.q_values[:20])
    saved = tf.train.load_checkpoint(str(newest(folder) / 'variables'))
    tensors = [saved.get_tensor(name) for name in saved.get_variable_to_shape_map()]
    for variable in restore(folder).posterior.network.trainable_variables:
        assert any(np.array_equal(variable.numpy(), tensor) for tensor in tensors)


def test_a_damaged_checkpoint_is_skipped_and_none_is_an_error(folder, tmp_path, capsys):
    copy = tmp_path / 'copy'
    shutil.copytree(folder, copy)
    (newest(copy) / 'state.json').write_text('{}')
    before = restore(folder).agent_steps
    assert 0 < restore(copy).agent_steps < before
    shutil.rmtree(copy / 'checkpoints')
    for path, says in ((copy, 'no checkpoint'), (tmp_path, 'not a run folder')):
        assert episode.main([str(path), '--out', str(tmp_path / 'out')]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith('error: ') and says in error


SHOWN = """
const frame = document.getElementById('frame'), canvas = document.createElement('canvas');
if (!frame.complete) return null;
canvas.width = frame.naturalWidth; canvas.height = frame.naturalHeight;
const context = canvas.getContext('2d');
context.drawImage(frame, 0, 0);
const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
const rows = [...document.querySelectorAll('#values tbody tr')];
const numbers = (row) => [...row.querySelectorAll('td')].map((c) => parseFloat(c.textContent));
return {step: +document.getElementById('slider').getAttribute('aria-valuenow'),
  where: document.getElementById('where').textContent,
  pixels: [...pixels].filter((_, i) => !(i % 4)),
  votes: numbers(rows[0]), heads: rows.slice(1).map(numbers),
  play: document.getElementById('play').textContent};
"""
BOX = """const box = document.getElementById('slider').getBoundingClientRect();
return [box.left, box.top, box.width, box.height];"""


def shown(browser):  # noqa: F811
    for _ in range(100):
        state = browser.run(SHOWN)
        if state:
            return state
        time.sleep(0.05)
    raise AssertionError('the frame was never shown')


@needs_browser
def test_the_page_follows_cursor_keys_spikes_and_play(browser, game, tmp_path):  # noqa: F811
    def is_of(state, step):
        assert state['step'] == step
        assert state['where'].startswith(f'step {step} of {STEPS - 1}: bonus ')
        assert f'action {game.action_names[game.actions[step]]}' in state['where']
        np.testing.assert_array_equal(state['pixels'], game.frames[step].ravel())
        assert state['votes'] == game.votes[step].tolist()
        np.testing.assert_allclose(state['heads'], game.q_values[step], rtol=1e-3, atol=1e-3)
        return True

    def at(step):
        return box[0] + 64 + (box[2] - 78) * step / (STEPS - 1), box[1] + box[3] / 2

    game = game._replace(q_values=game.q_values.copy())
    game.q_values[0, 0, 0] = -1e-4
    page = episode.write(game, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        'bonus.pdf',
        'bonus.png',
        'bonus.svg',
        'episode.html',
        'episode.mp4' if episode.encoder() else 'episode.gif',
    }
    browser.screen(1100, 900)
    browser.open(page)
    assert is_of(shown(browser), 0)
    cells = browser.run("return document.getElementById('values').innerText").split()
    assert '0.000' in cells and '-0.000' not in cells
    box = browser.run(BOX)
    labels = browser.run(
        "return [...document.querySelectorAll('#curve .tick')].map((tick) => tick.textContent)"
    )
    assert labels[-2:] == ['agent step', 'bonus']
    steps = labels[labels.index('0', 1) : -2] if '0' in labels[1:] else labels[:-2]
    assert '20' in steps and '30' in steps
    low, high = game.bonuses.min(), game.bonuses.max()
    of_bonus = [float(label) for label in labels[: -2 - len(steps)]]
    assert len(of_bonus) >= 2 and all(low <= bonus <= high for bonus in of_bonus)
    browser.pointer(at(7), 'pointerDown', at(20), at(31))
    assert is_of(shown(browser), 31)
    browser.pointer('pointerUp', at(12))  # Without a button: hovering moves it too.
    assert is_of(shown(browser), 12)

    browser.run("document.getElementById('slider').focus()")
    right, left, home, end = '\ue014', '\ue012', '\ue011', '\ue010'
    browser.keys(right, right, right, left)
    assert is_of(shown(browser), 14)
    browser.keys(end)
    assert is_of(shown(browser), STEPS - 1)
    spikes = episode.spikes(game.bonuses)
    browser.keys(home, 'n', 'n')
    assert is_of(shown(browser), [step for step in spikes if step > 0][1])
    buttons = "return [...document.querySelectorAll('#spikes button')].map((b) => +b.dataset.step)"
    assert browser.run(buttons) == spikes
    browser.run(f'document.querySelector(\'#spikes button[data-step="{spikes[-1]}"]\').click()')
    assert is_of(shown(browser), spikes[-1])

    browser.run("document.getElementById('slider').focus()")
    browser.keys(home, ' ')
    for _ in range(100):
        if shown(browser)['step'] > 1:
            break
        time.sleep(0.05)
    assert shown(browser)['play'] == 'Pause'
    browser.keys(' ')
    stopped = shown(browser)
    time.sleep(0.3)  # Longer than 4 steps take.
    assert shown(browser) == stopped and stopped['play'] == 'Play' and stopped['step'] > 1
    browser.screen(390, 844)
    assert browser.run('return document.documentElement.scrollWidth') <= 390
    assert not browser.errors()


def test_a_maze_is_drawn_with_its_bonus(tmp_path):
    """The path and the scaled bonus are the map's own; the numbers are made up."""
    walls = np.zeros((10, 10), bool)
    walls[0, 1] = True
    cells = np.array([[0, 0], [1, 0], [1, 1], [1, 0]])
    game = episode.Recording(
        'A <maze>',
        ('up', 'right', 'down', 'left'),
        [np.zeros((10, 10, 3), np.uint8)] * 4,
        np.array([2, 1, 3, 0]),
        np.zeros(4, bool),
        np.ones(4),
        np.ones((4, 3, 4)),
        np.full((4, 4), 3),
        np.array([0.5, 2.0, 1.0, 3.0]),
        cells,
        walls,
    )
    np.testing.assert_allclose(
        [episode.bonus_map(game)[cell] for cell in ((0, 0), (1, 0), (1, 1), (5, 5))],
        [0.5 / 3, 1, 1 / 3, np.nan],
    )
    text = episode.write(game, tmp_path).read_text()
    assert 'A &lt;maze&gt;' in text and 'cell (' in text
    assert 'The bonus of a step is the standard deviation over heads' in text
    assert (tmp_path / 'bonus_map.svg').is_file()


def test_spikes():
    assert episode.spikes(np.zeros(5)) == []
    assert episode.spikes(np.array([])) == []
    assert episode.spikes(np.array([3.0, 1, 1, 5, 0, 2]), 2) == [0, 3]


def test_neither_rounding_nor_a_plateau_is_a_spike():
    spike = np.array([0.0, 0, 1, 0, 0, 0])
    assert episode.spikes(spike) == [2]
    assert episode.spikes(spike + 1e-8 * np.array([0, 0, 0, 0, 1, 0])) == [2]
    assert episode.spikes(1 + 1e-8 * spike) == []
    assert episode.spikes(1e-8 * spike, scale=0.1) == []
    assert episode.spikes(np.array([0.0, 3, 3, 0, 2, 2, 2, 0, 1, 0])) == [1, 8]


def test_every_observation_is_a_picture():
    """Grey, RGB, four channels, features, a vector."""
    channels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for frame, expected in (
        (channels[0], channels[0]),
        (channels[..., 1:], channels[..., 1:]),
        (channels, channels[..., 3]),
        (np.array([[0.0, 0.3], [1.0, 0.0]], np.float32), [[0, 255], [255, 0]]),
        (np.array([0.0, -2.0, 5.0]), [[0, 0, 255]]),
    ):
        picture = episode._picture(frame)
        assert picture.dtype == np.uint8
        np.testing.assert_array_equal(picture, expected)


@needs_encoder
def test_the_mp4_has_every_step_of_a_bundled_agents_game_at_the_speed_of_play(
    tmp_path, monkeypatch
):
    import imageio_ffmpeg

    monkeypatch.chdir(tmp_path)
    game = episode.record('ob2i_breakout', max_steps=520)  # More steps than a GIF shows.
    episode.write(game, 'a:b')  # To ffmpeg, 'a:' alone is a protocol.
    assert not (tmp_path / 'a:b' / 'episode.gif').exists()
    frames = imageio_ffmpeg.read_frames(str(tmp_path / 'a:b' / 'episode.mp4'))
    facts = next(frames)
    assert facts['codec'] == 'h264' and facts['pix_fmt'].startswith('yuv420p')
    assert facts['size'] == (252, 336) and facts['fps'] == 15  # 60 frames per second, 4 per step.
    assert facts['duration'] == pytest.approx(520 / 15, abs=0.01)
    pictures = [np.frombuffer(frame, np.uint8).reshape(336, 252, 3) for frame in frames]
    assert len(pictures) == 520
    for step in (0, 300, 519):
        screen = game.frames[step].repeat(3, axis=0).repeat(3, axis=1)
        assert np.abs(pictures[step][:252].mean(axis=2) - screen).mean() < 1  # Of 255.
        cursor = pictures[step][252:].mean(axis=(0, 2)).argmin()
        assert abs(cursor - (6 + 240 * step / 519)) <= 1


@needs_encoder
def test_a_video_that_ffmpeg_cannot_write_is_an_error(game, tmp_path, capfd):
    (tmp_path / 'episode.mp4').mkdir()
    with pytest.raises(UserError, match='episode.mp4: ffmpeg ended with'):
        episode.write(game, tmp_path)
    assert 'Is a directory' in capfd.readouterr().err


def test_without_an_encoder_the_video_is_a_gif_of_at_most_500_frames(game, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'imageio_ffmpeg', None)  # An import fails.
    episode.write(game, tmp_path)
    assert not (tmp_path / 'episode.mp4').exists()
    with Image.open(tmp_path / 'episode.gif') as gif:
        assert gif.size == (252, 336) and gif.n_frames == STEPS
        assert gif.info['duration'] == 50  # ms
    episode.write_gif(game, [], tmp_path / 'short.gif', max_frames=15)
    with Image.open(tmp_path / 'short.gif') as gif:
        assert gif.n_frames == 14  # Of 40 steps, every third.
