"""Deep Sea: the largest size that each method solves within 10,000 episodes.

  python -m experiments.deep_sea --base_dir=runs/deep_sea --out=deep_sea.csv
  python -m experiments.deep_sea --base_dir=runs/deep_sea_4 --out=deep_sea_4.csv \\
      --gin_bindings='Agent.train_period = 4'  # A third of the time.

A run has solved its size at the first episode by which more than a tenth of all episodes so far
have found the treasure (bsuite, deep_sea/analysis.py: fewer than 0.9 of them bad; there only logged
episodes count, here all). It is then stopped, and `found` counts the treasures until then. A method
goes to a larger size if at least half of its seeds solve the previous one. Each run is one of
<method>_deep_sea.gin with mapping_seed 0, on one core. If the command is repeated, it runs those
that are missing. The table has one row per run; after each size it is rewritten, with a figure
beside it (.png, .svg, .pdf).
Exit status: 0 if complete, 1 if some runs failed or were stopped, 2 for a wrong command line.
"""

import csv
import functools
import os
import signal
import sys
import time
from pathlib import Path

from ob2i_tf import cli, config, sweep
from ob2i_tf.errors import ConfigError
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('analysis'):
    from matplotlib import lines as mlines
    from matplotlib import transforms

    from ob2i_tf.analysis import figures

EPISODES = 10_000
ITERATIONS = 100
SOLVED = 0.1  # Share of the episodes so far, to be exceeded.
FOUND = 0.5  # Score to be exceeded: the treasure is worth 1, the way there costs 0.01.
METHODS = {  # Gin file -> name in figures.
    'ob2i': 'OB2I',
    'bebu': 'BEBU',
    'bebu_ucb': 'BEBU-UCB',
    'bebu_ids': 'BEBU-IDS',
    'bootdqn': 'BootDQN',
    'ebu': 'EBU',
}
COLUMNS = ('method', 'size', 'seed', 'solved', 'episodes', 'found')
_LOOK_SECONDS = 10  # Between checks of a run's scores.


def solved_at(scores):
    """The first episode, counted from 1, by which more than a tenth had found it, or None."""
    found = 0
    for episode, score in enumerate(scores[:EPISODES], start=1):
        found += score > FOUND
        if found / episode > SOLVED:
            return episode
    return None


def scores_of(base_dir):
    rows = RunFolder(base_dir).rows('episodes')
    return [float(row['score']) for row in rows if row['length']]


def result(base_dir):
    """(solved, episodes, found) of a run that has solved its size or ended, else None."""
    scores = scores_of(base_dir)
    episode = solved_at(scores)
    if episode is None and len(scores) < EPISODES:
        return None
    until = episode or EPISODES
    return episode is not None, until, sum(score > FOUND for score in scores[:until])


@functools.lru_cache(maxsize=1024)
def _is_over(base_dir, look):
    del look
    return result(base_dir) is not None


class Trial(sweep.Trial):
    """A run that is complete once its result is known."""

    def complete(self):
        return result(self.base_dir) is not None


def trials(method, size, base_dir, seeds, bindings):
    fixed = {
        'make_deep_sea.size': size,
        'make_deep_sea.deterministic': True,  # Reward noise would count as treasure.
        'Runner.num_iterations': ITERATIONS,
        'Runner.training_steps': EPISODES // ITERATIONS * size,  # Complete episodes.
        'Runner.num_envs': 1,
    }
    made = sweep.trials(
        [f'{method}_deep_sea.gin'],
        os.path.join(base_dir, f'size{size}'),
        seeds=seeds,
        bindings=(*(f'{name} = {value}' for name, value in fixed.items()), *bindings),
    )
    for name, value in fixed.items():  # Resolved values, since bindings have several spellings.
        if config.value(name) != value:
            raise ConfigError(f'--gin_bindings: {name} is {value} here, not {config.value(name)}')
    return [Trial(**vars(trial)) for trial in made]


def write(path, rows):
    aside = f'{path}.tmp'
    with open(aside, 'w', newline='') as file:
        table = csv.writer(file, lineterminator='\n')
        table.writerows(
            [COLUMNS, *sorted(rows, key=lambda row: (list(METHODS).index(row[0]), row))]
        )
    os.replace(aside, path)
    figure(rows)._replace(name=Path(path).stem).save(Path(path).parent)


def figure(rows):
    """Episodes until each seed solved a size, with a line through the means where all did.

    Args:
      rows: Tuples of COLUMNS.
    """
    look = figures.line_styles(set(METHODS.values()))
    with figures.style():
        picture = figures.empty(figures.NARROW, 3.3)
        axis = picture.subplots()
        lines = {}
        for place, (method, name) in enumerate(METHODS.items()):
            solved, missed = {}, []
            for row in rows:
                if row[0] == method and row[3]:
                    solved.setdefault(row[1], []).append(row[4])
                elif row[0] == method:
                    missed.append(row[1])
            by_all = [size for size in solved if size not in missed]
            means = [sum(solved[size]) / len(solved[size]) for size in by_all]
            color, shown = look[name]['color'], len(axis.lines)
            lines[name] = figures.plot(axis, by_all, means, lw=1.6, **look[name])
            for size, episodes in solved.items():
                axis.plot([size] * len(episodes), episodes, 'o', ms=3, color=color)
            axis.plot(missed, [EPISODES] * len(missed), 'x', ms=5, color=color)
            inches = (place - len(METHODS) / 2) * 3 / 72  # Else methods would cover each other.
            aside = transforms.ScaledTranslation(inches, 0, picture.dpi_scale_trans)
            for line in axis.lines[shown:]:
                line.set_transform(axis.transData + aside)
        axis.set_yscale('log')
        axis.yaxis.set_major_formatter(lambda value, _: figures.short(value))
        axis.set_xlabel('size')
        axis.set_ylabel('episodes until solved')
        cross = mlines.Line2D([], [], color=figures.INK, ls='', marker='x', ms=5)
        figures.legend(picture, lines | {'one seed': figures.POINT, 'one seed, not solved': cross})
        caption = (
            'Episodes until a seed solved a size, and the mean where all seeds did; crosses at the '
            'top: a seed did not. Methods stand side by side at each size'
        )
        return figures.rendered('deep_sea', 'Deep Sea', caption, picture)


@cli.command()
def main(argv=None):
    parser = cli.parser('experiments.deep_sea', __doc__)
    parser.add_argument('--methods', nargs='+', default=list(METHODS), choices=list(METHODS))
    parser.add_argument('--sizes', nargs='+', type=cli.count, default=[10, 20, 30, 40, 50])
    parser.add_argument('--seeds', type=cli.count, default=3)
    parser.add_argument('--gin_bindings', action='append', default=[], metavar='BINDING')
    parser.add_argument('--processes', type=cli.count, default=os.cpu_count())
    parser.add_argument('--base_dir', default='runs/deep_sea')
    parser.add_argument('--out', default='deep_sea.csv')
    arguments = parser.parse_args(argv)
    sizes, methods = sorted(set(arguments.sizes)), list(dict.fromkeys(arguments.methods))
    made = {
        (method, size): trials(
            method, size, arguments.base_dir, arguments.seeds, arguments.gin_bindings
        )
        for size in sizes
        for method in methods
    }
    executor = sweep.LocalExecutor(
        arguments.processes, lambda folder: _is_over(folder, time.monotonic() // _LOOK_SECONDS)
    )
    runs = sweep.Sweep(executor)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runs.stop())

    def report(trial, status, lines):
        if trial.complete():
            print(trial.base_dir, *result(trial.base_dir), flush=True)
        else:
            print(f'{trial.base_dir}: FAILED ({status})', *lines, sep='\n    ', flush=True)

    rows, all_missing = [], []
    for size in sizes:
        missing = runs.run([trial for method in methods for trial in made[method, size]], report)
        all_missing += missing
        solving = []
        for method in methods:
            of_seeds = [result(trial.base_dir) for trial in made[method, size]]
            rows += [(method, size, seed, *r) for seed, r in enumerate(of_seeds) if r]
            if None not in of_seeds and 2 * sum(solved for solved, *_ in of_seeds) >= len(of_seeds):
                solving.append(method)
        methods = solving
        write(arguments.out, rows)
    for trial in all_missing:
        print(f'not complete: {trial.base_dir}', file=sys.stderr)
    return 1 if all_missing else 0


if __name__ == '__main__':
    sys.exit(main())
