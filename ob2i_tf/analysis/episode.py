"""Plays one game of a trained agent and shows the UCB-bonus of every step.

  python -m ob2i_tf.analysis.episode runs/ob2i_atari/Breakout/seed0 --out viewer

Writes a figure, a page and a video: episode.mp4, or episode.gif without the package imageio-ffmpeg.
The run may be in progress. Its folder is not changed, unless --out is in it; the report links to
RUN/viewer/episode.html.
"""

import base64
import contextlib
import functools
import io
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np

from ob2i_tf import api, cli
from ob2i_tf.config import installed
from ob2i_tf.errors import ConfigError, UserError

with cli.extra('analysis'):
    from PIL import Image, ImageDraw
    from scipy import signal

    from ob2i_tf.analysis import figures
    from ob2i_tf.analysis.load import printable
    from ob2i_tf.analysis.templates import render

NUM_SPIKES = 8  # As in the paper's figure on VideoPinball.
STEPS_PER_SECOND = 15  # Of the video, unless the environment has a speed.
_WIDTH, _HEIGHT, _STRIP = 252, 252, 84  # Pixels: the frame, and the curve below it.
_BLUE, _RED = figures.COLOURS[:2]


class Recording(NamedTuple):
    """One game of T steps, with everything known when each action was chosen.

    Attributes:
      title: Title, which names the run.
      action_names: Names of the A actions.
      frames: T images, uint8 [height, width] or [height, width, 3].
      actions: [T] int.
      random: [T] bool, whether epsilon chose a random action.
      rewards: [T] float, raw.
      q_values: [T, K, A], the heads' Q-values.
      votes: [T, A] int, the number of heads for which the action is greedy.
      bonuses: [T], the standard deviation over heads of Q(s_t, a_t), the UCB-bonus of the pair.
      cells: [T, 2] int in a maze, else None.
      walls: [rows, columns] bool in a maze, else None.
      finished: Whether the game ended.
      steps_per_second: Speed of the game, in agent steps.
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
    steps_per_second: float = STEPS_PER_SECOND


def record(run, seed=0, max_steps=3000, allow_imports=()) -> Recording:
    """Plays one game with the action rule of the run's evaluation.

    Args:
      run: Run folder, or the name of an agent in agents/.
      seed: Seed of the game.
      max_steps: Agent steps after which the recording ends, even if the game has not.
      allow_imports: See `api.load`.

    Raises:
      UserError: The run cannot be restored.
    """
    agent = api.load(run, seed, allow_imports)
    from ob2i_tf import acting, bonuses
    from ob2i_tf.frames import newest
    from ob2i_tf.training import loop

    frames, cells, actions, random, rewards, q_values = [], [], [], [], [], []
    with contextlib.closing(agent.make_environment(seed=seed)) as env:
        maze = _maze(env)

        def act(observations):
            newest_frame = newest(observations[0], agent.environment.history)
            frames.append(maze.render() if maze else _picture(newest_frame))
            cells.append(maze.cell if maze else None)
            q_values.append(agent.q_values(observations)[0])
            # Drawn here, so that the page can show which actions were random.
            random.append(bool(agent.rng.random() < agent.epsilon))
            return agent.act(observations, epsilon=float(random[-1]))

        steps = loop.play(env, env.reset()[0], act)
        for step, finished_games in itertools.islice(steps, max_steps):
            actions.append(int(step.actions[0]))
            rewards.append(float(step.info['raw_rewards'][0]))
            if finished_games:
                break
        names = env.metadata.get('action_names')
        steps_per_second = env.metadata.get('render_fps') or STEPS_PER_SECOND
    q_values = np.array(q_values)
    return Recording(
        title=f'{agent.task}, {run}, {agent.agent_steps:,} agent steps',
        action_names=names or [str(action) for action in range(q_values.shape[-1])],
        frames=frames,
        actions=np.array(actions),
        random=np.array(random),
        rewards=np.array(rewards),
        q_values=q_values,
        votes=acting.vote_preferences(q_values).numpy().astype(int),
        bonuses=bonuses.ensemble_std(q_values).numpy()[np.arange(len(actions)), actions],
        cells=np.array(cells) if maze else None,
        walls=maze.walls if maze else None,
        finished=bool(finished_games),
        steps_per_second=steps_per_second,
    )


def _maze(env):
    """The maze within a vector environment, or None."""
    envs = getattr(env.unwrapped, 'envs', None)
    one = envs[0].unwrapped if envs else None
    return one if hasattr(one, 'walls') else None


def _picture(frame):
    """A frame as a picture, grey or RGB; of other numbers of channels the last one."""
    if frame.ndim == 3 and frame.shape[-1] != 3:
        frame = frame[..., -1]
    frame = np.atleast_2d(frame)
    return frame.copy() if frame.dtype == np.uint8 else np.uint8(255 * (frame > 0))


def spikes(bonuses, count=NUM_SPIKES, scale=0.0) -> list[int]:
    """Steps of the most prominent maxima, in temporal order.

    A maximum counts if its prominence is 1% of the range of the bonuses, 0.1% of the largest bonus
    and more than rounding of the Q-values, and if it is not a plateau.

    Args:
      bonuses: [T].
      count: Largest number of maxima; any two are at least T / (4 count) steps apart.
      scale: Largest absolute Q-value.
    """
    if len(bonuses) == 0:
        return []
    padded = np.pad(bonuses, 1, constant_values=np.min(bonuses))  # The ends may be maxima too.
    distance = max(1, len(bonuses) // (4 * count))
    least = max(0.01 * np.ptp(bonuses), 1e-3 * np.max(bonuses), 1e-6 * scale)
    peaks, properties = signal.find_peaks(
        padded, distance=distance, prominence=least, plateau_size=(1, 1 + distance)
    )
    chosen = peaks[np.argsort(-properties['prominences'], kind='stable')[:count]]
    return sorted(int(peak) - 1 for peak in chosen)


def spike_figure(recording, steps):
    """The curve, its numbered spikes and their frames (paper, figure on VideoPinball)."""
    columns = 4
    rows = -(-len(steps) // columns)
    with figures.style():
        drawn = figures.empty(7.2, 2.3 + 1.75 * rows)
        grid = drawn.add_gridspec(rows + 1, columns, height_ratios=[1.25] + [1] * rows)
        axis = drawn.add_subplot(grid[0, :])
        figures.plot(axis, range(len(recording.bonuses)), recording.bonuses, lw=0.9, color=_BLUE)
        for number, step in enumerate(steps, 1):
            at = step, recording.bonuses[step]
            axis.plot(*at, 'o', ms=4, color=_RED)
            axis.annotate(
                str(number), at, (0, 4), ha='center', textcoords='offset points', fontweight='bold'
            )
            panel = drawn.add_subplot(grid[1 + (number - 1) // columns, (number - 1) % columns])
            panel.imshow(recording.frames[step], cmap='gray', vmin=0, vmax=255)
            panel.set_title(f'{number}: step {step}')
            panel.set_axis_off()
        axis.margins(x=0.01, y=0.15)
        axis.set_xlabel('agent step')
        axis.set_ylabel('UCB-bonus')
        return figures.rendered(
            'bonus',
            'UCB-bonus during a game',
            f'{recording.title}. {len(recording.actions)} steps, score {recording.rewards.sum():g}.'
            ' Spikes are numbered; their frames are below.',
            drawn,
        )


def bonus_map(recording):
    """[rows, columns]: the largest bonus per cell of the path, scaled to 0..1; NaN elsewhere."""
    largest = np.full(recording.walls.shape, np.nan)
    for cell, bonus in zip(map(tuple, recording.cells), recording.bonuses):
        largest[cell] = np.nanmax([largest[cell], bonus])
    return largest / (np.nanmax(largest) or 1)


def maze_figure(recording):
    """The maze, and the bonus along the path through it (paper, figure of maze visualisations)."""
    rows, columns = recording.walls.shape
    with figures.style():
        drawn = figures.empty(7.2, 3.5)
        axes = drawn.subplots(1, 2)
        for axis in axes:
            axis.imshow(recording.walls, cmap='gray_r', vmin=0, vmax=1.4)
            axis.set_xticks(range(columns))
            axis.set_yticks(range(rows))
            axis.tick_params(length=0)
            axis.spines[['top', 'right']].set_visible(True)
        spread = np.random.default_rng(0).uniform(-0.16, 0.16, recording.cells.shape)
        y, x = (recording.cells + spread).T
        axes[0].plot(x, y, '-', color=_BLUE, lw=0.9, marker='.', ms=2)
        for place, letter in ((0, 'S'), (rows - 1, 'G')):
            centred = {'ha': 'center', 'va': 'center', 'fontweight': 'bold'}
            axes[0].text(place, place, letter, color=_RED, **centred)
        axes[0].set_title(f'path, {len(recording.actions)} steps')
        shown = axes[1].imshow(bonus_map(recording), cmap='viridis', vmin=0, vmax=1)
        axes[1].set_title('largest UCB-bonus in each cell of the path')
        drawn.colorbar(shown, ax=axes[1], shrink=0.85, label='relative to the largest')
        return figures.rendered(
            'bonus_map',
            'UCB-bonus over the maze',
            f'{recording.title}. Walls are dark; the largest bonus is {recording.bonuses.max():g}.',
            drawn,
        )


def pictures(recording, steps, stride=1) -> Iterator[Image.Image]:
    """Pictures of a video: the frame above the curve with a cursor, for every `stride`-th step.

    Args:
      recording: Recording.
      steps: Steps of the spikes, which are marked on the curve.
      stride: Steps per picture.
    """
    x = np.linspace(6, _WIDTH - 6, max(2, len(recording.bonuses)))
    share = (recording.bonuses - recording.bonuses.min()) / (np.ptp(recording.bonuses) or 1)
    y = _HEIGHT + _STRIP - 8 - share * (_STRIP - 16)
    background = Image.new('RGB', (_WIDTH, _HEIGHT + _STRIP), 'white')
    draw = ImageDraw.Draw(background)
    draw.line(list(zip(x, y)) if len(y) > 1 else [], fill=_BLUE)
    for step in steps:
        draw.circle((x[step], y[step]), 2, fill=_RED)
    for step in range(0, len(recording.frames), stride):
        image = background.copy()
        frame = Image.fromarray(recording.frames[step]).convert('RGB')
        image.paste(frame.resize((_WIDTH, _HEIGHT), Image.Resampling.NEAREST))
        cursor = [x[step], _HEIGHT + 2, x[step], _HEIGHT + _STRIP - 2]
        ImageDraw.Draw(image).line(cursor, fill=figures.INK)
        yield image


def encoder() -> str | None:
    """Path of ffmpeg from the package imageio-ffmpeg; None without it."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ModuleNotFoundError, RuntimeError):  # The latter: built from source, without ffmpeg.
        return None


def write_mp4(recording, steps, path, ffmpeg):
    """Writes all steps at the speed of the game: H.264 in the pixel format that all browsers play.

    Args:
      recording: Recording.
      steps: Steps of the spikes.
      path: Path of the video.
      ffmpeg: Path of ffmpeg.

    Raises:
      UserError: ffmpeg failed; it has printed why.
    """
    command = [ffmpeg, '-v', 'error', '-nostdin', '-y']
    command += ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{_WIDTH}x{_HEIGHT + _STRIP}']
    command += ['-r', str(recording.steps_per_second), '-i', 'pipe:']
    command += ['-c:v', 'libx264', '-pix_fmt', 'yuv420p', '-movflags', '+faststart']
    command += [f'file:{path}']  # Or a colon in the path would name a protocol.
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    with contextlib.suppress(BrokenPipeError), process, cast(BinaryIO, process.stdin) as pipe:
        for image in pictures(recording, steps):
            pipe.write(image.tobytes())
    if process.returncode:
        raise UserError(f'{path}: ffmpeg ended with {process.returncode}')


def write_gif(recording, steps, path, max_frames=500):
    """Writes a GIF, for a long game of every n-th step, which plays n times as fast.

    Args:
      recording: Recording.
      steps: Steps of the spikes.
      path: Path of the GIF.
      max_frames: Largest number of frames in the GIF.
    """
    stride = -(-len(recording.frames) // max_frames)
    first, *others = (
        image.quantize(32, dither=Image.Dither.NONE) for image in pictures(recording, steps, stride)
    )
    duration = 1000 / recording.steps_per_second  # ms
    first.save(path, save_all=True, append_images=others, optimize=False, duration=duration, loop=0)


def viewer(recording, steps, figure) -> str:
    """The page: the curve, with the frame, Q-values and votes at the step under the cursor.

    Args:
      recording: Recording.
      steps: Steps of the spikes.
      figure: Figure at the end of the page.
    """
    heads = recording.q_values.shape[1]
    facts = [
        f'{recording.title}: {len(recording.actions):,} steps',
        f'score {recording.rewards.sum():g}',
        *(() if recording.finished else ('cut off before the game ended',)),
        f'{heads} heads' if heads > 1 else 'one head, whose bonus is 0',
    ]
    data = {
        'actions': recording.actions.tolist(),
        'names': list(recording.action_names),
        'random': recording.random.astype(int).tolist(),
        'rewards': recording.rewards.tolist(),
        'bonuses': _rounded(recording.bonuses, 5),
        'q': _rounded(recording.q_values, 4),
        'votes': recording.votes.tolist(),
        'spikes': steps,
        'cells': None if recording.cells is None else recording.cells.tolist(),
        'frames': [_data_url(frame) for frame in recording.frames],
    }
    title = 'The UCB-bonus during a game'
    return render(
        'viewer.html', title=title, facts=', '.join(facts) + '.', data=data, figure=figure
    )


def _rounded(values, digits):
    """Nested lists of numbers, rounded to `digits` significant digits."""
    if np.ndim(values):
        return [_rounded(value, digits) for value in values]
    return float(f'{values:.{digits}g}')


def _data_url(image):
    file = io.BytesIO()
    picture = Image.fromarray(image)
    picture = picture.quantize(16) if image.ndim == 3 else picture
    picture.save(file, format='PNG', optimize=True)
    return 'data:image/png;base64,' + base64.b64encode(file.getvalue()).decode()


def write(recording, out) -> Path:
    """Writes figure, page and video of a recording into a folder; returns the page's path."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    recording = recording._replace(title=printable(recording.title))
    steps = spikes(recording.bonuses, scale=np.max(np.abs(recording.q_values)))
    in_maze = recording.walls is not None
    figure = maze_figure(recording) if in_maze else spike_figure(recording, steps)
    figure.save(out)
    ffmpeg = encoder()
    if ffmpeg:
        write_mp4(recording, steps, out / 'episode.mp4', ffmpeg)
    else:
        write_gif(recording, steps, out / 'episode.gif')
    path = out / 'episode.html'
    path.write_text(viewer(recording, steps, figure), encoding='utf-8')
    return path


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('ob2i_tf.analysis.episode', __doc__)
    path = os.path.expanduser
    parser.add_argument('run', type=path, metavar='RUN', help='a run folder, or a name in agents/')
    parser.add_argument(
        '--out', required=True, type=path, metavar='DIR', help='folder for the viewer'
    )
    parser.add_argument(
        '--seed',
        type=functools.partial(cli.count, least=0),
        default=0,
        help='seed of the game (default: 0)',
    )
    parser.add_argument(
        '--max_steps',
        type=cli.count,
        default=3000,
        help='largest number of agent steps (default: 3000)',
    )
    installed.add_flag(parser)
    arguments = parser.parse_args(argv)
    try:
        game = record(arguments.run, arguments.seed, arguments.max_steps, arguments.allow_imports)
    except ConfigError as error:  # Of the run, not of the command line.
        raise UserError(error) from error
    print(write(game, arguments.out))
    return 0


if __name__ == '__main__':
    sys.exit(main())
