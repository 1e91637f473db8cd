"""What the bonus does: its size beside the gap between actions, and scores with larger weights.

  python -m experiments.bonus_size --out experiments/bonus_size

Reads the runs with a bonus of atari_ablation and mnist_maze, and those beside this script: OB2I
with 10 and 100 times the paper's weights on two games, and OB2I on Deep Sea. Writes

  sizes.csv    what the bonus adds, and the gap between actions, in each iteration of each run
  table.csv    means over seeds, in the first and the last iteration with learner steps
  weights.csv  the scores of two games by weight; BEBU has the weight 0
  sizes.png and mean_bonus.png, .svg and .pdf
"""

import os
import sys
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.training.run_folder import RunFolder

with cli.extra('analysis'):
    import pandas as pd

    from ob2i_tf.analysis import figures, load

HERE = Path(__file__).parent
STUDIES = HERE.parent
ATARI = {  # Method: folder.
    'OB2I': STUDIES / 'atari_ablation' / 'ob2i',
    'BootDQN-UCB': STUDIES / 'atari_ablation' / 'bootdqn_ucb',
    'BEBU-RND': STUDIES / 'atari_ablation' / 'bebu_rnd',
    'OB2I, 10 alpha': HERE / 'alpha_10',
    'OB2I, 100 alpha': HERE / 'alpha_100',
    'BEBU': STUDIES / 'atari_ablation' / 'bebu',
}
WEIGHTS = {'BEBU': 0, 'OB2I': 1, 'OB2I, 10 alpha': 10, 'OB2I, 100 alpha': 100}
OTHERS = {
    'OB2I, Deep Sea': HERE / 'deep_sea',
    **{
        f'OB2I, {setting}': STUDIES / 'mnist_maze' / 'runs' / setting / 'ob2i'
        for setting in ('paper', 'episode', 'scaled', 'mean')
    },
}
TERMS = (
    ('reward', 'alpha_1', 'reward_bonus_mean'),
    ('next', 'alpha_2', 'next_bonus_normalized_mean'),
)
RATIOS = ['reward_over_gap', 'next_over_gap', 'next_action_changes']


def sizes(runs):
    """What the bonus adds in each iteration of each run, beside the gap between actions.

    `reward_bonus_added` is alpha_1 B and `next_bonus_added` is alpha_2 B~, as they enter a target,
    at the mean; `reward_over_gap` and `next_over_gap` divide them by the mean gap between a head's
    best and second-best action. `next_action_changes` is the share of next states in which the
    bonus would change a head's best action.
    """
    tables = []
    for run in runs:
        table = pd.read_csv(RunFolder(run.path).table('bonus')).dropna()
        if table.empty:
            continue
        for term, alpha, column in TERMS:
            (weight,) = (x for name, x in run.config.items() if name.endswith(f'Update.{alpha}'))
            table[f'{term}_bonus_added'] = weight * table[column]
            table[f'{term}_over_gap'] = table[f'{term}_bonus_added'] / table['q_gap_mean']
        for column, value in (('seed', run.seed), ('task', run.game), ('method', run.method)):
            table.insert(0, column, value)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def ends(table):
    """Means over seeds of the first and the last iteration of `sizes`."""
    runs = table.groupby(['method', 'task', 'seed'])
    parts = [runs.head(1).assign(iteration='first'), runs.tail(1).assign(iteration='last')]
    grouped = pd.concat(parts).groupby(['task', 'method', 'iteration'])
    columns = ['reward_bonus_mean', 'next_bonus_mean', 'next_bonus_normalized_mean', 'q_gap_mean']
    return grouped[[*columns, *RATIOS]].mean().join(grouped.size().rename('runs'))


def weights(runs):
    """The last evaluation of each run on the games that have runs with a larger weight."""
    games = {run.game for run in runs if WEIGHTS.get(run.method, 0) > 1}
    rows = [
        (run.game, WEIGHTS[run.method], run.seed, run.scores['score_mean'].iloc[-1])
        for run in runs
        if run.method in WEIGHTS and run.game in games
    ]
    table = pd.DataFrame(rows, columns=['game', 'weight', 'seed', 'score'])
    return table.sort_values(['game', 'weight', 'seed'])


def figure(table):
    """alpha_2 B~ over the gap between actions, over training, one panel per task."""
    tasks = sorted(set(table['task']), key=load.game_order)
    looks = figures.line_styles(set(table['method']))
    with figures.style():
        picture, axes = figures.grid(len(tasks))
        lines = {}
        for axis, task in zip(axes, tasks):
            for method, rows in table[table['task'] == task].groupby('method'):
                mean = rows.groupby('frames')['next_over_gap'].mean()
                lines[method] = figures.plot(axis, mean.index, mean, lw=1.4, **looks[method])
            axis.axhline(1, color=figures.INK, lw=0.7, ls=(0, (1, 2)))
            axis.set_title(task)
            axis.set_yscale('log')
            axis.minorticks_off()
            axis.yaxis.set_major_formatter('{x:g}')
            axis.xaxis.set_major_formatter(lambda value, _: figures.short(value))
        for axis in axes[-3:]:
            axis.set_xlabel('frames')
        picture.supylabel('alpha_2 B~ / gap of values', fontsize=9)
        figures.legend(picture, lines)
        caption = 'Mean of alpha_2 B~, normalised, over the mean gap between best and second action'
        return figures.rendered('sizes', 'Size of the bonus', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.bonus_size', __doc__)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    out = Path(parser.parse_args(argv).out)
    out.mkdir(parents=True, exist_ok=True)
    folders = {name: path for name, path in (ATARI | OTHERS).items() if path.exists()}
    found = load.load(f'{name}={path}' for name, path in folders.items())
    table = sizes(found.runs)
    for name, rows in (
        ('sizes', table.set_index('method')),
        ('table', ends(table)),
        ('weights', weights(found.runs).set_index('game')),
    ):
        rows.to_csv(out / f'{name}.csv', float_format='%.6g')
    figure(table).save(out)
    (bonus,) = figures.mean_bonus([run for run in found.runs if run.family == 'Atari'])
    bonus.save(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
