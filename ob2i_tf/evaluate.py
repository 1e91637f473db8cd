"""Plays games with the trained agents of runs, by one way of acting or by several.

  python -m ob2i_tf.evaluate runs/mazes --preferences=vote,head --games=20 --out=evaluation.csv

The newest whole checkpoint of every run at or below the paths is played with the run's own
environment and its evaluation epsilon; nothing is written into a run folder. A row is a game: run
(its folder, absolute), agent_steps (that the run had taken), preferences, game, score (raw
rewards), length (agent steps). A game that has not ended after --max_steps is cut off, its score
and length those up to there. The file is replaced at the end, if any game was played; until then
rows are in FILE.playing. A config.gin may import modules of installed distributions, and others
only if --allow_imports names them.
Exit status: 0 all runs were played, 1 some could not be, 2 the command line is wrong.
"""

import argparse
import contextlib
import csv
import functools
import itertools
import os
import sys

import numpy as np

from ob2i_tf import cli
from ob2i_tf.config import installed
from ob2i_tf.errors import UserError
from ob2i_tf.training.run_folder import find_runs

COLUMNS = ('run', 'agent_steps', 'preferences', 'game', 'score', 'length')
PREFERENCES = ('vote', 'head', 'mean')


def games(agent, policy, count, seed=0, max_steps=200_000, epsilon=None):
    """Plays `count` games, one after another.

    Args:
      agent: A `restore.TrainedAgent`, whose configuration is gin's.
      policy: an `acting.Policy`; a head it follows is drawn for each game.
      count: games.
      seed: of environments, heads, epsilon and ties; the same for each way of acting.
      max_steps: agent steps after which a game is cut off.
      epsilon: None: that of the run's evaluation.

    Yields:
      (score, length) of each.
    """
    from ob2i_tf.training import loop

    rng = np.random.default_rng(seed)
    epsilon = agent.epsilon if epsilon is None else epsilon
    with contextlib.closing(agent.environment(num_envs=1, seed=seed)) as env:
        for _ in range(count):
            observations, _ = env.reset()
            score, length = 0.0, 0
            steps = loop.play_policy(env, observations, policy, agent.posterior, epsilon, rng)
            for step, _ in itertools.islice(steps, max_steps):
                score += float(step.info['raw_rewards'][0])
                length += 1
                if step.info['game_over'][0]:
                    break
            yield score, length


def find(paths):
    """Real paths of the run folders at or below the paths; a UserError for a path without any."""
    found = []
    for path in paths:
        folders = find_runs(path)
        if not folders:
            raise UserError(f'no run folder at or below {path}: none holds config.gin')
        found += [folder.resolve() for folder in folders]
    return list(dict.fromkeys(found))


def _names(text):
    names = text.split(',')
    if not set(names) <= set(PREFERENCES):
        raise argparse.ArgumentTypeError(f'{text!r}: some of {",".join(PREFERENCES)}')
    return names


def _probability(text):
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f'{text} is not in 0..1')
    return float(text)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('ob2i_tf.evaluate', __doc__)
    parser.add_argument('runs', nargs='+', type=os.path.expanduser, metavar='RUNS')
    parser.add_argument('--preferences', type=_names, default=['vote'], metavar='NAME,..')
    parser.add_argument('--games', type=cli.count, default=20)
    parser.add_argument('--max_steps', type=cli.count, default=200_000)
    parser.add_argument(
        '--epsilon', type=_probability, help="default: that of the run's evaluation"
    )
    parser.add_argument('--seed', type=functools.partial(cli.count, least=0), default=0)
    parser.add_argument(
        '--out', required=True, type=os.path.expanduser, metavar='FILE', help='CSV file, replaced'
    )
    installed.add_flag(parser)
    arguments = parser.parse_args(argv)
    if os.path.isdir(arguments.out):
        parser.error(f'--out={arguments.out} is a folder')
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    from ob2i_tf import acting
    from ob2i_tf.training.restore import restore

    failed, played_any = 0, False
    folders = find(arguments.runs)
    aside = f'{arguments.out}.playing'
    with open(aside, 'w', newline='', encoding='utf-8', errors='surrogateescape') as file:
        rows = csv.writer(file, lineterminator='\n')
        rows.writerow(COLUMNS)
        for folder in folders:
            try:
                agent = restore(folder, arguments.allow_imports)
            except UserError as error:
                cli.print_error(f'{folder}: {error}')
                failed += 1
                continue
            for name in arguments.preferences:
                try:
                    policy = agent.policy.with_preferences(getattr(acting, f'{name}_preferences'))
                except ValueError as error:
                    cli.print_error(f'{folder}: {error}')
                    failed += 1
                    continue
                played = games(
                    agent,
                    policy,
                    arguments.games,
                    arguments.seed,
                    arguments.max_steps,
                    arguments.epsilon,
                )
                for number, (score, length) in enumerate(played):
                    rows.writerow([folder, agent.agent_steps, name, number, score, length])
                    played_any = True
            file.flush()
    if not played_any:
        os.remove(aside)
        return 1
    os.replace(aside, arguments.out)
    print(arguments.out)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
