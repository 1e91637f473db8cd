"""Deep exploration in two minutes: OB2I, BootDQN and DQN on a Deep Sea.

  python -m ob2i_tf.demo

In Deep Sea only twenty moves to the right in a row reach the treasure, and each costs a little.
Three methods train side by side, one core each, with a line of progress per method. Then a page
shows when each found the treasure and where it has been; it opens in a browser if there is one. If
started again, the demo shows finished runs at once and resumes interrupted ones.
Exit status: 0 if complete, 1 if a run failed or was stopped.
"""

import os
import shlex
import shutil
import signal
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ob2i_tf import cli, sweep
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('demo'):
    import bsuite  # noqa: F401  The environment needs it; fail before anything runs.

    from ob2i_tf.analysis.templates import render

METHODS = {
    'OB2I': 'ten heads with fixed random priors; a bonus where they disagree, propagated backwards',
    'BootDQN': 'ten heads with fixed random priors; each episode follows one of them',
    'DQN': 'one head; random actions, fewer and fewer of them',
}
SIZE = 20
ITERATIONS, EPISODES_PER_ITERATION = 6, 100
TRAIN_PERIOD = 4  # Agent steps per learner step; with 1 the demo would take three times as long.
FOUND = 0.5  # Score to be exceeded: the treasure is worth 1, the way there costs 0.01.


def trials(base_dir: str | Path, seed: int) -> dict[str, sweep.Trial]:
    """{method: run of it}, in folders below `base_dir`."""
    bindings = (
        f'Runner.seed = {seed}',
        f'Runner.num_iterations = {ITERATIONS}',
        f'Runner.training_steps = {EPISODES_PER_ITERATION * SIZE}',
        f'make_deep_sea.size = {SIZE}',
        f'Agent.train_period = {TRAIN_PERIOD}',
    )
    return {
        method: sweep.Trial(
            f'{method.lower()}_deep_sea.gin',
            bindings,
            Path(base_dir, method.lower(), f'seed{seed}'),
            ITERATIONS,
        )
        for method in METHODS
    }


def train(runs: dict[str, sweep.Trial], processes: int) -> list[sweep.Trial]:
    """Trains the incomplete runs, with a progress bar each; returns those still incomplete.

    Where stderr is not a terminal, each run prints a line per iteration instead.

    Args:
      runs: {method: run}.
      processes: Maximum number of simultaneous runs, each with one thread.
    """
    total = ITERATIONS * EPISODES_PER_ITERATION
    bars = {
        method: tqdm(
            desc=f'{method:<8}',
            total=total,
            disable=not sys.stderr.isatty(),
            position=position,
            bar_format='{desc}{bar:30}{n:>5}/{total} episodes{postfix}',
        )
        for position, method in enumerate(runs)
    }
    printed = dict.fromkeys(runs, 0)  # Iterations.

    def show(running: list[sweep.Trial]) -> None:
        del running
        for method, bar in bars.items():
            found = treasures(runs[method].folder)
            text = f'treasure found {sum(found)} times'
            bar.set_postfix_str(text, refresh=False)
            bar.update(len(found) - bar.n)
            iterations = len(found) // EPISODES_PER_ITERATION
            if bar.disable and iterations > printed[method]:
                printed[method] = iterations
                line = f'{method:<8} {len(found):>5}/{total} episodes, {text}'
                print(line, file=sys.stderr, flush=True)

    complaints: list[str] = []

    def report(trial: sweep.Trial, status: int | str, lines: list[str]) -> None:
        if not trial.complete():
            complaints.append('\n    '.join([f'{trial.base_dir} ended with {status}:', *lines]))

    sweep_ = sweep.Sweep(sweep.LocalExecutor(processes))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sweep_.stop())
    missing = sweep_.run(list(runs.values()), report, show)
    show([])
    for bar in bars.values():
        bar.close()
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return missing


def treasures(folder: RunFolder) -> list[bool]:
    """Whether each finished episode of a run found the treasure."""
    return [float(row['score']) > FOUND for row in folder.rows('episodes') if row['length']]


def paths(folder: RunFolder) -> list[str]:
    """The path of each episode through the sea: its column at each depth, as a base-36 digit."""
    cli.import_tensorflow()
    from ob2i_tf.replay import EpisodeReplay
    from ob2i_tf.training import checkpoints
    from ob2i_tf.training.episode_files import EpisodeFiles

    replay = EpisodeReplay((SIZE, SIZE), 10**5, history=1)  # As in gin/base/deep_sea.gin.
    files = EpisodeFiles(folder.replay, replay)
    checkpoints.read_newest(
        folder.checkpoints, lambda path: files.load(checkpoints.read_state(path)['replay'])
    )
    seas = (replay.episode(index)[0][:SIZE] for index in range(replay.num_episodes))
    return [''.join(np.base_repr(row.any(axis=0).argmax(), 36) for row in sea) for sea in seas]


def page(runs: dict[str, sweep.Trial]) -> str:
    """The page about finished runs, HTML in one file."""
    methods = [
        {
            'name': method,
            'about': METHODS[method],
            'found': [int(found) for found in treasures(trial.folder)],
            'paths': paths(trial.folder),
        }
        for method, trial in runs.items()
    ]
    return render(
        'demo.html', title='Deep exploration', methods=methods, size=SIZE, command=_next_command()
    )


def _next_command():
    """A command that works without activating the environment."""
    program = 'ob2i-tf'
    if not shutil.which(program):
        program = shlex.quote(os.path.relpath(Path(sys.executable).with_name(program)))
    return f'{program} --gin_files=ob2i_atari_small.gin'


@cli.command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = cli.parser('ob2i_tf.demo', __doc__)
    parser.add_argument('--base_dir', type=os.path.expanduser, default='runs/demo')
    parser.add_argument('--seed', type=lambda text: cli.count(text, least=0), default=0)
    parser.add_argument('--processes', type=cli.count, default=os.cpu_count())
    arguments = parser.parse_args(argv)
    runs = trials(arguments.base_dir, arguments.seed)
    if train(runs, arguments.processes):
        print(f'not complete: the same command resumes, {arguments.base_dir}', file=sys.stderr)
        return 1
    out = Path(arguments.base_dir, 'demo.html').absolute()
    out.write_text(page(runs), encoding='utf-8')
    print(f'{out}\nNext: {_next_command()}')
    if os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY'):
        webbrowser.open(out.as_uri())
    return 0


if __name__ == '__main__':
    sys.exit(main())
