"""Plays games with the trained agents of runs, with one or more action preferences.

  python -m ob2i_tf.evaluate runs/mazes --preferences=vote,head --games=20 --out=evaluation.csv

For every run at or below the paths, the newest intact checkpoint plays in the environment of that
run with its evaluation epsilon; nothing is written into a run folder. Each row is one game: run
(absolute path of its folder), agent_steps (of the checkpoint), preferences, game (its number),
score (sum of raw rewards), length (agent steps). A game longer than --max_steps is cut off there.
Rows are written to FILE.playing, which replaces FILE at the end if any game was played; the mean
score and the number of games of each run and preference are printed. A config.gin may import
modules of installed distributions, and others that --allow_imports names.
Exit status: 0 if all runs were played, 1 if some could not be, 2 if the command line is wrong.
"""

import argparse
import contextlib
import csv
import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ob2i_tf import api, cli
from ob2i_tf.config import installed
from ob2i_tf.errors import UserError
from ob2i_tf.training import main as program
from ob2i_tf.training.run_folder import find_runs

if TYPE_CHECKING:  # It imports TensorFlow.
    from ob2i_tf.training.restore import TrainedAgent

COLUMNS = ('run', 'agent_steps', 'preferences', 'game', 'score', 'length')
PREFERENCES = ('vote', 'head', 'mean')


def play_games(
    agent: 'TrainedAgent',
    count: int,
    seed: int = 0,
    max_steps: int = 200_000,
    epsilon: float | None = None,
) -> Iterator[tuple[float, int]]:
    """Plays `count` games, one after another; if the agent follows a head, one for each game.

    Args:
      agent: Trained agent.
      count: Number of games.
      seed: Seed of environments, heads, random actions and ties.
      max_steps: Agent steps after which a game is cut off.
      epsilon: Probability of a random action; None: as in the evaluation of the run.

    Yields:
      The score and the length of each game.
    """
    from ob2i_tf.training import loop

    with contextlib.closing(agent.make_environment(seed=seed)) as env:
        for game in range(count):
            agent.reset(seed=None if game else seed)
            observations, _ = env.reset()
            score, length = 0.0, 0
            steps = loop.play(env, observations, lambda x: agent.act(x, epsilon))
            for step, games in itertools.islice(steps, max_steps):
                score += float(step.info['raw_rewards'][0])
                length += 1
                if games:
                    break
            yield score, length


def run_folders(paths: Iterable[str | Path]) -> list[Path]:
    """Real paths of the run folders at or below `paths`; UserError if a path has none."""
    found: list[Path] = []
    for path in paths:
        folders = find_runs(path)
        if not folders:
            raise UserError(f'no run folder at or below {path}: none holds config.gin')
        found += [folder.resolve() for folder in folders]
    return list(dict.fromkeys(found))


def _names(text):
    names = text.split(',')
    if not set(names) <= set(PREFERENCES):
        raise argparse.ArgumentTypeError(
            f'must be one or more of {",".join(PREFERENCES)}, got {text!r}'
        )
    return names


def _probability(text):
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f'must be in 0..1, got {text}')
    return float(text)


@cli.command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = cli.parser('ob2i_tf.evaluate', __doc__)
    parser.add_argument('runs', nargs='+', type=os.path.expanduser, metavar='RUNS')
    parser.add_argument('--preferences', type=_names, default=['vote'], metavar='NAME,..')
    parser.add_argument('--games', type=cli.count, default=20)
    parser.add_argument('--max_steps', type=cli.count, default=200_000)
    parser.add_argument(
        '--epsilon', type=_probability, help='default: as in the evaluation of the run'
    )
    parser.add_argument('--seed', type=functools.partial(cli.count, least=0), default=0)
    parser.add_argument(
        '--out', required=True, type=os.path.expanduser, metavar='FILE', help='CSV file, replaced'
    )
    installed.add_flag(parser)
    arguments = parser.parse_args(argv)
    if os.path.isdir(arguments.out):
        parser.error(f'--out={arguments.out} is a folder')
    program.start_tensorflow()
    from ob2i_tf import acting

    failed, played_any = 0, False
    folders = run_folders(arguments.runs)
    aside = f'{arguments.out}.playing'
    with open(aside, 'w', newline='', encoding='utf-8', errors='surrogateescape') as file:
        rows = csv.writer(file, lineterminator='\n')
        rows.writerow(COLUMNS)
        for folder in folders:
            try:
                agent = api.load(folder, arguments.seed, arguments.allow_imports)
            except UserError as error:
                cli.print_error(f'{folder}: {error}')
                failed += 1
                continue
            for name in arguments.preferences:
                scores = []
                try:
                    played = play_games(
                        agent.with_preferences(getattr(acting, f'{name}_preferences')),
                        arguments.games,
                        arguments.seed,
                        arguments.max_steps,
                        arguments.epsilon,
                    )
                    for number, (score, length) in enumerate(played):
                        rows.writerow([folder, agent.agent_steps, name, number, score, length])
                        scores.append(score)
                except UserError as error:
                    cli.print_error(f'{folder}: {error}')
                    failed += 1
                if scores:
                    played_any = True
                    mean = sum(scores) / len(scores)
                    print(f'{folder}, {name}: mean score {mean:g}, games {len(scores)}', flush=True)
            file.flush()
    if not played_any:
        os.remove(aside)
        return 1
    os.replace(aside, arguments.out)
    print(arguments.out)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
