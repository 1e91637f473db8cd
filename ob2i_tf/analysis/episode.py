"""One game of a trained agent, with the UCB-bonus of every step: a figure, a page, a video.

  python -m ob2i_tf.analysis.episode runs/ob2i_atari/Breakout/seed0 --out viewer

The run may still be going on: nothing is written into its folder, unless --out is in it; the report
links to RUN/viewer/episode.html. This is the one module of the package that imports TensorFlow.
"""

import argparse
import base64
import contextlib
import html
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ob2i_tf import cli
from ob2i_tf.config import installed
from ob2i_tf.errors import UserError, missing_package

NUM_SPIKES = 8  # As the paper's figure of VideoPinball.


class Recording(NamedTuple):
    """One game of T steps; what was known when each action was chosen.

    Attributes:
      title: which run it is.
      action_names: of the A actions.
      frames: T images, uint8 [height, width] or [height, width, 3].
      actions: [T] int.
      random: [T] bool, the action was drawn by epsilon.
      rewards: [T] float, raw.
      q_values: [T, K, A], the heads' values.
      votes: [T, A] int, how many heads have each action as their greedy one.
      bonuses: [T], the standard deviation over heads of Q(s_t, a_t), the UCB-bonus of the pair.
      cells: [T, 2] int in a maze, else None.
      walls: [rows, columns] bool in a maze, else None.
      finished: whether the game came to its end.
    """

    title: str
    action_names: Sequence[str]
    frames: list[np.ndarray]
    actions: np.ndarray
    random: np.ndarray
    rewards: np.ndarray
    q_values: np.ndarray
    votes: np.ndarray
    bonuses: np.ndarray
    cells: np.ndarray | None = None
    walls: np.ndarray | None = None
    finished: bool = True


def record(run, seed=0, max_steps=3000, allow_imports=()) -> Recording:
    """Plays one game as the run evaluates.

    Args:
      run: run folder.
      seed: of the game.
      max_steps: agent steps after which the recording ends, if the game has not.
      allow_imports: See `restore.restore`.

    Raises:
      UserError: if the run cannot be restored.
    """
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    from ob2i_tf import acting, bonuses, config
    from ob2i_tf.training.restore import restore

    if not (Path(run) / 'config.gin').is_file():
        raise UserError(f'{run} is no run folder: it has no config.gin')
    agent = restore(run, allow_imports)
    rng = np.random.default_rng(seed)
    steps = {name: [] for name in ('frames', 'actions', 'random', 'rewards', 'q', 'cells')}
    with contextlib.closing(agent.environment(num_envs=1, seed=seed)) as env:
        maze = _maze(env)
        observations, _ = env.reset()
        heads = agent.posterior.evaluation_heads(1, rng)
        finished = False
        while not finished and len(steps['actions']) < max_steps:
            steps['q'].append(agent.posterior.mean(observations).numpy()[0])
            # Whether epsilon strikes is drawn here, so that it can be shown.
            by_chance = bool(rng.random() < agent.epsilon)
            action = agent.policy.actions(observations, heads, float(by_chance), rng)
            if maze is None:
                steps['frames'].append(_newest_frame(observations[0]))
            else:
                steps['frames'].append(maze.render())
                steps['cells'].append(maze.cell)
            observations, _, _, _, info = env.step(action)
            steps['actions'].append(int(action[0]))
            steps['random'].append(by_chance)
            steps['rewards'].append(float(info['raw_rewards'][0]))
            finished = bool(info['game_over'][0])
        names = env.metadata.get('action_names')
    q_values = np.array(steps['q'])
    actions = np.array(steps['actions'])
    return Recording(
        f'{config.value("make_environment.name")}, {run}, {agent.agent_steps:,} agent steps',
        names or [str(action) for action in range(q_values.shape[-1])],
        steps['frames'],
        actions,
        np.array(steps['random']),
        np.array(steps['rewards']),
        q_values,
        acting.vote_preferences(q_values).numpy().astype(int),
        bonuses.ensemble_std(q_values).numpy()[np.arange(len(actions)), actions],
        np.array(steps['cells']) if maze is not None else None,
        maze.walls if maze is not None else None,
        finished,
    )


def _maze(env):
    """The maze within a vector environment, or None."""
    envs = getattr(env.unwrapped, 'envs', None)
    one = envs[0].unwrapped if envs else None
    return one if hasattr(one, 'walls') else None


def _newest_frame(observation):
    frame = observation[..., -1] if observation.ndim == 3 else np.atleast_2d(observation)
    return frame.copy() if frame.dtype == np.uint8 else np.uint8(255 * (frame > 0))


def spikes(bonuses, count=NUM_SPIKES) -> list[int]:
    """Steps of the most prominent maxima, in order of time.

    Args:
      bonuses: [T].
      count: of them, at most; two are at least T / (4 count) steps apart.
    """
    from scipy import signal

    if len(bonuses) == 0 or np.ptp(bonuses) == 0:
        return []
    padded = np.pad(bonuses, 1, constant_values=np.min(bonuses))  # The ends may be maxima too.
    distance = max(1, len(bonuses) // (4 * count))
    peaks, properties = signal.find_peaks(padded, distance=distance, prominence=0)
    chosen = peaks[np.argsort(-properties['prominences'], kind='stable')[:count]]
    return sorted(int(peak) - 1 for peak in chosen)


# The figure.


def figure(recording, steps):
    """The curve, its numbered spikes and their frames (paper, figure of VideoPinball)."""
    from ob2i_tf.analysis import figures

    plt = figures.plt
    with figures.style():
        columns = 4
        rows = -(-len(steps) // columns)
        drawn = plt.figure(figsize=(7.2, 2.3 + 1.75 * rows), layout='constrained')
        grid = drawn.add_gridspec(rows + 1, columns, height_ratios=[1.25] + [1] * rows)
        axis = drawn.add_subplot(grid[0, :])
        axis.plot(recording.bonuses, color=figures.COLOURS[0], lw=0.9)
        for number, step in enumerate(steps, 1):
            axis.plot(step, recording.bonuses[step], 'o', ms=4, color=figures.COLOURS[1])
            axis.annotate(
                str(number),
                (step, recording.bonuses[step]),
                (0, 4),
                ha='center',
                textcoords='offset points',
                fontsize=8.5,
                fontweight='bold',
            )
        axis.margins(x=0.01, y=0.15)
        axis.set_xlabel('agent step')
        axis.set_ylabel('UCB-bonus')
        for number, step in enumerate(steps, 1):
            panel = drawn.add_subplot(grid[1 + (number - 1) // columns, (number - 1) % columns])
            panel.imshow(recording.frames[step], cmap='gray', vmin=0, vmax=255)
            panel.set_title(f'{number}: step {step}')
            panel.set_axis_off()
        return figures.rendered(
            'bonus',
            'UCB-bonus of a game',
            f'{recording.title}. {len(recording.actions)} steps, score {recording.rewards.sum():g}.'
            ' Spikes are numbered; below are their frames.',
            drawn,
        )


def bonus_map(recording):
    """[rows, columns]: the largest bonus in each cell of a path, scaled to 0..1; else NaN."""
    largest = np.full(recording.walls.shape, np.nan)
    for cell, bonus in zip(map(tuple, recording.cells), recording.bonuses):
        largest[cell] = np.nanmax([largest[cell], bonus])
    return largest / (np.nanmax(largest) or 1)


def maze_figure(recording):
    """The maze and the bonus over it along the path (paper, figure of maze visualisations)."""
    from ob2i_tf.analysis import figures

    plt = figures.plt
    with figures.style():
        drawn, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.5), layout='constrained')
        for axis in (left, right):
            axis.imshow(recording.walls, cmap='gray_r', vmin=0, vmax=1.4)
            axis.set_xticks(range(recording.walls.shape[1]))
            axis.set_yticks(range(recording.walls.shape[0]))
            axis.tick_params(length=0)
            axis.spines[['top', 'right']].set_visible(True)
        rng = np.random.default_rng(0)
        path = recording.cells + rng.uniform(-0.16, 0.16, recording.cells.shape)
        left.plot(path[:, 1], path[:, 0], '-', color=figures.COLOURS[0], lw=0.9, marker='.', ms=2)
        left.text(0, 0, 'S', ha='center', va='center', fontweight='bold', color=figures.COLOURS[1])
        goal = recording.walls.shape[0] - 1
        left.text(
            goal, goal, 'G', ha='center', va='center', fontweight='bold', color=figures.COLOURS[1]
        )
        left.set_title(f'path, {len(recording.actions)} steps')
        shown = right.imshow(bonus_map(recording), cmap='viridis', vmin=0, vmax=1)
        right.set_title('UCB-bonus along it, largest of each cell')
        drawn.colorbar(shown, ax=right, shrink=0.85, label='share of the largest')
        return figures.rendered(
            'bonus_map',
            'UCB-bonus over the maze',
            f'{recording.title}. Walls are dark; the largest bonus is {recording.bonuses.max():g}.',
            drawn,
        )


# The video.


def video(recording, steps, path, max_frames=500):
    """A GIF: the frame above the curve with a cursor; of a long game every n-th step.

    Args:
      recording: the game.
      steps: of the spikes, marked on the curve.
      path: of the file.
      max_frames: of the GIF.
    """
    from PIL import Image, ImageDraw

    stride = -(-len(recording.frames) // max_frames)
    width, height, strip = 252, 252, 84
    x, y = (
        _scaled(v, lo, hi)
        for v, lo, hi in (
            (np.arange(len(recording.bonuses)), 6, width - 6),
            (recording.bonuses, height + strip - 8, height + 8),
        )
    )
    background = Image.new('RGB', (width, height + strip), 'white')
    draw = ImageDraw.Draw(background)
    if len(x) > 1:
        draw.line(list(zip(x, y)), fill='#0072B2')
    for step in steps:
        draw.ellipse([x[step] - 2, y[step] - 2, x[step] + 2, y[step] + 2], fill='#D55E00')
    images = []
    for step in range(0, len(recording.frames), stride):
        image = background.copy()
        frame = Image.fromarray(recording.frames[step]).convert('RGB')
        image.paste(frame.resize((width, height), Image.NEAREST))
        ImageDraw.Draw(image).line(
            [x[step], height + 2, x[step], height + strip - 2], fill='#1a1c1f'
        )
        images.append(image.quantize(32, dither=Image.Dither.NONE))
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=66, loop=0, optimize=False
    )


def _scaled(values, low, high):
    span = np.ptp(values) or 1
    return (low + (values - np.min(values)) / span * (high - low)).tolist()


# The page.


def _data_url(image):
    from PIL import Image

    file = io.BytesIO()
    picture = Image.fromarray(image)
    picture = picture.quantize(16) if image.ndim == 3 else picture
    picture.save(file, format='PNG', optimize=True)
    return 'data:image/png;base64,' + base64.b64encode(file.getvalue()).decode()


def viewer(recording, steps, pictures) -> str:
    """The page: the curve, and what the agent saw and thought at the step under the cursor.

    Args:
      recording: the game.
      steps: of the spikes.
      pictures: figures that it shows below.
    """
    from ob2i_tf.analysis import figures, page

    data = {
        'actions': recording.actions.tolist(),
        'names': list(recording.action_names),
        'random': recording.random.astype(int).tolist(),
        'rewards': recording.rewards.tolist(),
        'bonuses': [float(f'{value:.5g}') for value in recording.bonuses],
        'q': [
            [[float(f'{value:.4g}') for value in head] for head in step]
            for step in recording.q_values
        ],
        'votes': recording.votes.tolist(),
        'spikes': steps,
        'cells': None if recording.cells is None else recording.cells.tolist(),
        'frames': [_data_url(frame) for frame in recording.frames],
    }
    text = json.dumps(data, separators=(',', ':')).replace('<', '\\u003c')
    heads = recording.q_values.shape[1]
    facts = (
        f'{len(recording.actions):,} steps, score {recording.rewards.sum():g}'
        + ('' if recording.finished else ', cut off before the game ended')
        + (f', {heads} heads' if heads > 1 else ', one head, of which the bonus is 0')
    )
    shown = ''.join(
        f'<figure><div class="wide">{figures.inline_svg(f)}</div></figure>' for f in pictures
    )
    sections = [
        (
            'player',
            '',
            html.escape(f'{recording.title}: {facts}.').join(('<p>', '</p>'))
            + _PLAYER
            + f'<script type="application/json" id="data">{text}</script>',
        ),
        ('figure', '', shown),
    ]
    return page.page('The UCB-bonus of a game', sections, _STYLE, _SCRIPT)


_PLAYER = """
<div id="slider" role="slider" tabindex="0" aria-label="Step of the game" aria-valuemin="0"
  aria-describedby="keys"><svg id="curve" width="100%" height="180" aria-hidden="true"></svg></div>
<p id="keys" class="note">Move over the curve, drag, or use the arrow keys; Page Up and Down move 25
  steps, Home and End to the ends, N and P to the next and last spike, the space bar plays.</p>
<p class="controls"><button id="play" type="button">Play</button>
  <label>Speed <select id="speed"><option value="5">5 steps/s</option>
  <option value="15" selected>15 steps/s</option><option value="60">60 steps/s</option></select>
  </label> <output id="where"></output></p>
<div class="state"><div><img id="frame" alt=""></div>
  <div><div class="wide" tabindex="0" role="region" aria-label="Values"><table id="values"></table>
  </div><p class="note">Q-values of the heads; each head's greedy action is bold, its votes are the
  bars; the action taken is marked.</p></div>
  <div><h2>Spikes</h2><ol id="spikes"></ol></div></div>
"""
_STYLE = """
#slider { touch-action: pan-y; cursor: crosshair; background: var(--wash); border-radius: .4rem;
  margin: 1rem 0 .25rem; }
#curve { display: block; }
#curve .line { fill: none; stroke: var(--link); stroke-width: 1.2; }
#curve .cursor { stroke: var(--ink); stroke-width: 1.5; }
#curve .spike { fill: var(--hot); } #curve text { fill: var(--ink); font: 700 12px system-ui;
  stroke: var(--wash); stroke-width: 4px; paint-order: stroke; }
#curve .at { fill: var(--ink); }
.controls { display: flex; gap: 1rem; align-items: center; flex-wrap: wrap; margin: .5rem 0; }
.controls button { min-width: 4.5rem; } select { font: inherit; }
#where { font-variant-numeric: tabular-nums; }
.state { display: grid; grid-template-columns: minmax(12rem, 21rem) minmax(0, 1fr) 11rem;
  gap: 1.5rem; }
.state > div { min-width: 0; }
.state h2 { border: 0; padding: 0; margin: 0 0 .3rem; font-size: 1rem; }
#frame { width: 100%; image-rendering: pixelated; border: 1px solid var(--line); display: block; }
#values { font-size: .8rem; } #values td, #values th { padding: .1rem .5rem; }
#values thead th { min-width: 4rem; text-align: right; }
#values thead th:first-child { text-align: left; }
#values .taken { background: color-mix(in srgb, var(--hot) 18%, transparent); }
#values td.greedy { font-weight: 700; }
#values .bar { display: block; height: .45rem; background: var(--link); margin-left: auto; }
#spikes { padding-left: 1.4rem; margin: 0; } #spikes button { width: 100%; text-align: left;
  margin-bottom: .3rem; } #spikes button[aria-current=true] { border-color: var(--hot); }
@media (max-width: 60rem) { .state { grid-template-columns: minmax(0, 1fr) minmax(0, 1.4fr); } }
@media (max-width: 36rem) { .state { grid-template-columns: minmax(0, 1fr); } }
"""
_SCRIPT = """
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const last = data.actions.length - 1, slider = byId('slider'), curve = byId('curve');
const HEIGHT = 180, TOP = 26, EDGE = 10;
let step = 0, timer = null;
const totals = data.rewards.map((sum => value => sum += value)(0));
const peak = Math.max(...data.bonuses), floor = Math.min(...data.bonuses);
const width = () => slider.clientWidth;
const xOf = (i) => EDGE + (width() - 2 * EDGE) * (last ? i / last : 0);
const yOf = (i) =>
  HEIGHT - 8 - (HEIGHT - 8 - TOP) * (data.bonuses[i] - floor) / (peak - floor || 1);

function draw() {
  const points = data.bonuses.map((_, i) => xOf(i).toFixed(1) + ',' + yOf(i).toFixed(1)).join(' ');
  const marks = data.spikes.map((s, n) =>
    `<circle class="spike" cx="${xOf(s)}" cy="${yOf(s)}" r="4"></circle>` +
    `<text x="${xOf(s)}" y="${yOf(s) - 8}" text-anchor="middle">${n + 1}</text>`).join('');
  curve.setAttribute('viewBox', `0 0 ${width()} ${HEIGHT}`);
  curve.innerHTML = `<polyline class="line" points="${points}"></polyline>` +
    `<line class="cursor" y1="0" y2="${HEIGHT}"></line>${marks}<circle class="at" r="4"></circle>`;
  show(step);
}

function show(to) {
  step = Math.max(0, Math.min(last, to));
  const cursor = curve.querySelector('.cursor'), at = curve.querySelector('.at');
  cursor.setAttribute('x1', xOf(step)); cursor.setAttribute('x2', xOf(step));
  at.setAttribute('cx', xOf(step)); at.setAttribute('cy', yOf(step));
  const cell = data.cells ? `, cell (${data.cells[step].join(', ')})` : '';
  const chance = data.random[step] ? ' by chance' : '';
  const text = `step ${step} of ${last}: bonus ${data.bonuses[step].toPrecision(3)}, ` +
    `action ${data.names[data.actions[step]]}${chance}, score ${+totals[step].toFixed(2)}${cell}`;
  byId('where').textContent = text;
  slider.setAttribute('aria-valuenow', step);
  slider.setAttribute('aria-valuetext', text);
  byId('frame').src = data.frames[step];
  byId('frame').alt = `What the agent saw at step ${step}`;
  byId('frame').dataset.step = step;
  table();
  for (const button of byId('spikes').querySelectorAll('button'))
    button.setAttribute('aria-current', +button.dataset.step === step);
}

function table() {
  const q = data.q[step], votes = data.votes[step], taken = data.actions[step];
  const mark = (a) => a === taken ? ' taken' : '';
  const head = data.names.map((name, a) =>
    `<th scope="col" class="${mark(a)}">${name}</th>`).join('');
  const bars = votes.map((n, a) => `<td class="${mark(a)}">${n}<span class="bar" ` +
    `style="width:${100 * n / q.length}%"></span></td>`).join('');
  const rows = q.map((values, k) => {
    const top = Math.max(...values);
    return `<tr><th scope="row">head ${k}</th>` + values.map((value, a) =>
      `<td class="${value === top ? 'greedy' : ''}${mark(a)}">${value.toFixed(3)}</td>`).join('') +
      '</tr>';
  }).join('');
  byId('values').innerHTML = `<thead><tr><th scope="col">action</th>${head}</tr></thead><tbody>` +
    `<tr><th scope="row">votes</th>${bars}</tr>${rows}</tbody>`;
}

function play(on) {
  clearInterval(timer);
  timer = on ? setInterval(() => step < last ? show(step + 1) : play(false),
                           1000 / byId('speed').value) : null;
  byId('play').textContent = on ? 'Pause' : 'Play';
}

function follow(event) {
  const box = slider.getBoundingClientRect();
  show(Math.round(last * (event.clientX - box.left - EDGE) / (box.width - 2 * EDGE)));
}

slider.setAttribute('aria-valuemax', last);
slider.addEventListener('pointermove', (event) => { if (!timer || event.buttons) follow(event); });
slider.addEventListener('pointerdown', (event) => {
  slider.setPointerCapture(event.pointerId); play(false); follow(event);
});
slider.addEventListener('keydown', (event) => {
  const next = (d) => data.spikes.filter((s) => d * (s - step) > 0).at(d > 0 ? 0 : -1) ?? step;
  const to = {ArrowLeft: step - 1, ArrowDown: step - 1, ArrowRight: step + 1, ArrowUp: step + 1,
    PageDown: step - 25, PageUp: step + 25, Home: 0, End: last, n: next(1), p: next(-1)}[event.key];
  if (event.key === ' ') play(!timer); else if (to !== undefined) { play(false); show(to); }
  else return;
  event.preventDefault();
});
byId('play').addEventListener('click', () => { if (step === last) show(0); play(!timer); });
byId('speed').addEventListener('change', () => play(!!timer));
data.spikes.forEach((s, n) => {
  const item = document.createElement('li'), button = document.createElement('button');
  button.type = 'button'; button.dataset.step = s;
  button.textContent = `step ${s}, ${data.bonuses[s].toPrecision(3)}`;
  button.addEventListener('click', () => { play(false); show(s); });
  item.append(button); byId('spikes').append(item);
});
addEventListener('resize', draw);
draw();
"""


def write(recording, out) -> Path:
    """Writes figure, page and video of a recording into a folder; returns the page's path."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    steps = spikes(recording.bonuses)
    pictures = [figure(recording, steps)] if recording.walls is None else [maze_figure(recording)]
    for picture in pictures:
        (out / f'{picture.name}.png').write_bytes(picture.png)
        (out / f'{picture.name}.svg').write_text(picture.svg, encoding='utf-8')
    video(recording, steps, out / 'episode.gif')
    path = out / 'episode.html'
    text = viewer(recording, steps, pictures)
    path.write_text(text, encoding='utf-8', errors='backslashreplace')  # Paths may be any bytes.
    return path


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m ob2i_tf.analysis.episode',
        description='Plays one game with a trained agent and shows the UCB-bonus of every step.',
    )
    parser.add_argument('run', type=os.path.expanduser, metavar='RUN', help='a run folder')
    parser.add_argument(
        '--out',
        required=True,
        type=os.path.expanduser,
        metavar='DIR',
        help='folder for the viewer',
    )
    parser.add_argument('--seed', type=int, default=0, help='of the game (default: 0)')
    parser.add_argument(
        '--max_steps', type=int, default=3000, help='agent steps at most (default: 3000)'
    )
    installed.add_flag(parser)
    arguments = parser.parse_args(argv)
    if arguments.max_steps < 1 or arguments.seed < 0:
        parser.error('--max_steps must be at least 1 and --seed at least 0')
    try:
        game = record(arguments.run, arguments.seed, arguments.max_steps, arguments.allow_imports)
        path = write(game, arguments.out)
    except ModuleNotFoundError as error:
        print('error:', missing_package(error, 'analysis'), file=sys.stderr)
        return 1
    except (UserError, OSError) as error:
        message = str(error).partition('\n  In call to configurable')[0]
        print('error:', ' '.join(message.split()), file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == '__main__':
    sys.exit(main())
