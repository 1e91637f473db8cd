"""Deep Sea: the largest size that each method solves within 10,000 episodes.

  python -m benchmarks.deep_sea --base_dir=runs/deep_sea --out=deep_sea.csv
  python -m benchmarks.deep_sea --gin_bindings 'Agent.train_period = 4'  # a third of the time

A run has solved its size at the first episode at which more than a tenth of all episodes so far
have found the treasure (bsuite, deep_sea/analysis.py: fewer than 0.9 of them bad); it is stopped
then, and `found` counts the treasures until then. A larger
size is tried while at least half of the seeds solve the one before. Runs are whole runs of
<method>_deep_sea.gin, resumed where they are not done; a row of the table is a run.
"""

import argparse
import concurrent.futures
import csv
import os
from pathlib import Path

from ob2i_tf import sweep

EPISODES = 10_000
SOLVED = 0.1  # More than so many of the episodes so far.
FOUND = 0.5  # Of a score; the treasure is worth 1, all that it costs to go there 0.01.
METHODS = ('ob2i', 'bebu', 'bebu_ucb', 'bebu_ids', 'bootdqn', 'ebu')
COLUMNS = ('method', 'size', 'seed', 'solved', 'episodes', 'found')


def solved_at(scores):
    """The first episode, from 1, by which a tenth of `scores` and more found it, or None."""
    found = 0
    for episode, score in enumerate(scores[:EPISODES], start=1):
        found += score > FOUND
        if found / episode > SOLVED:
            return episode
    return None


def scores_of(base_dir):
    path = base_dir / 'episodes.csv'
    if not path.exists():
        return []
    with open(path, newline='') as file:  # Its last line may not be whole yet.
        return [float(row['score']) for row in csv.DictReader(file) if row['length']]


def play(trial):
    """Runs a trial until it is solved or over; returns its row."""
    def over():
        scores = scores_of(trial.base_dir)
        return solved_at(scores) is not None or len(scores) >= EPISODES

    if not over():
        status = sweep.attempt(trial.arguments, trial.base_dir, os.getcwd(), 1, _NowAndThen(over))
        if not over():
            raise SystemExit(f'{trial.base_dir}: status {status}: {trial.last_lines()}')
    scores = scores_of(trial.base_dir)
    episode = solved_at(scores)
    until = episode or EPISODES
    return episode is not None, until, sum(score > FOUND for score in scores[:until])


class _NowAndThen:
    """A question that is asked anew only every 50th time, that is every 10 seconds."""

    def __init__(self, question):
        self._question, self._asked = question, 0

    def __call__(self):
        self._asked += 1
        return self._asked % 50 == 0 and self._question()


def method_rows(method, arguments):
    for size in arguments.sizes:
        made = sweep.trials(
            [f'{method}_deep_sea.gin'], os.path.join(arguments.base_dir, f'size{size}'),
            seeds=arguments.seeds,
            bindings=(f'make_deep_sea.size = {size}', f'Runner.training_steps = {100 * size}',
                      'Runner.num_iterations = 100', *arguments.gin_bindings,
                      'make_deep_sea.deterministic = True'),  # Noise would look like treasure.
        )  # fmt: skip
        rows = list(arguments.pool.map(play, made))
        for seed, row in enumerate(rows):
            yield (method, size, seed, *row)
        if 2 * sum(solved for solved, *_ in rows) < len(rows):
            return


def main():
    parser = argparse.ArgumentParser(
        'benchmarks.deep_sea', description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument('--methods', nargs='+', default=METHODS, choices=METHODS)
    parser.add_argument('--sizes', nargs='+', type=int, default=[10, 20, 30, 40, 50])
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--gin_bindings', nargs='+', default=(), metavar='BINDING')
    parser.add_argument('--processes', type=int, default=os.cpu_count())
    parser.add_argument('--base_dir', default='runs/deep_sea')
    parser.add_argument('--out', default='deep_sea.csv')
    arguments = parser.parse_args()
    arguments.base_dir = str(Path(arguments.base_dir).resolve())
    arguments.pool = concurrent.futures.ThreadPoolExecutor(arguments.processes)
    with open(arguments.out, 'w', newline='') as file:
        table = csv.writer(file, lineterminator='\n')
        table.writerow(COLUMNS)
        for method in arguments.methods:
            for row in method_rows(method, arguments):
                table.writerow(row)
                file.flush()
                print(*row, flush=True)


if __name__ == '__main__':
    main()
