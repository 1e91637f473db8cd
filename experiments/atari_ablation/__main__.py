"""The ablation on small Atari: scores of six methods on five games.

  python -m experiments.atari_ablation --out experiments/atari_ablation

Reads the runs beside this script, <method>/<game>/<seed>/. A score is the mean of the last
evaluation. Writes

  scores.csv       the score of each run
  table.csv        mean scores over seeds, methods x games, beside the paper's
  summary.csv      human-normalised scores over the games that all methods have played
  comparisons.csv  pairs of methods: difference of interquartile means, probability of improvement
  curves.png, .svg and .pdf
"""

import os
import sys
from pathlib import Path

from ob2i_tf import cli

with cli.extra('analysis'):
    import numpy as np
    import pandas as pd
    from rliable import metrics

    from ob2i_tf.analysis import figures, load, scores

HERE = Path(__file__).parent
ITERATIONS = 4  # Of a complete run.
METHODS = {  # Whose folders have these names.
    'OB2I': 'ob2i',
    'BEBU': 'bebu',
    'BEBU-RND': 'bebu_rnd',
    'BootDQN-UCB': 'bootdqn_ucb',
    'BootDQN': 'bootdqn',
    'EBU': 'ebu',
}
PAIRS = (
    ('OB2I', 'BEBU'),  # The UCB-bonus, with a backward pass,
    ('BootDQN-UCB', 'BootDQN'),  # and without.
    ('OB2I', 'BootDQN-UCB'),  # The backward pass, with the bonus,
    ('BEBU', 'BootDQN'),  # and without.
    ('OB2I', 'BootDQN'),  # Both.
    ('OB2I', 'BEBU-RND'),  # The UCB-bonus instead of RND's.
    ('BEBU-RND', 'BEBU'),
    ('BEBU', 'EBU'),  # Ten heads.
)


def summary(atari):
    """Human-normalised scores by method, over the games that all methods have played.

    Args:
      atari: `Results.atari`.
    """
    counts = atari.groupby('game')['method'].nunique()
    common = counts.index[counts == atari['method'].nunique()]
    table = scores.summary(atari[atari['game'].isin(common)])
    columns = ['method', 'games', 'runs', 'mean', 'mean_low', 'mean_high']
    return table[[*columns, 'iqm', 'iqm_low', 'iqm_high']]


def beside_the_paper(means, known):
    """Mean scores, methods x games, with the paper's of the same games.

    Args:
      means: Games x methods.
      known: `scores.published()`.
    """
    paper = known.ablation.set_index('method').drop(columns=['backward', 'bonus'])
    return means.T.join(paper.add_suffix(', paper'), how='left').rename_axis('method')


def comparisons(atari):
    """How PAIRS differ: in the interquartile mean, and by the probability of improvement.

    Each with its 95% interval, by a bootstrap of the runs of each game (Agarwal et al. 2021), over
    the games and seeds that both methods have completed; NaN with one seed.

    Args:
      atari: `Results.atari`.
    """
    matrices = {
        method: group.pivot(index='seed', columns='game', values='normalised')
        for method, group in atari.groupby('method')
    }
    rows = []
    for method, other in PAIRS:
        one, two = matrices[method], matrices[other]
        one, two = one.align(two, join='inner')
        complete = (one.notna() & two.notna()).all(axis=1)
        pair = one[complete].to_numpy(), two[complete].to_numpy()
        seeds, games = pair[0].shape
        if seeds > 1:
            values, bounds = scores.bootstrap(pair, improvement)
        else:
            values, bounds = improvement(*pair), np.full((2, 2), np.nan)
        rows.append([method, other, games, seeds, *np.ravel([values, *bounds], order='F')])
    ends = ('', '_low', '_high')
    columns = [f'{name}{end}' for name in ('iqm_difference', 'probability') for end in ends]
    return pd.DataFrame(rows, columns=['method', 'over', 'games', 'seeds', *columns])


def improvement(one, two):
    """[runs, games] of two methods -> difference of interquartile means, P(one > two).

    P is the mean over games of the share of pairs of runs; ties count half. rliable's function is
    the same, and a hundred times slower.
    """
    difference = metrics.aggregate_iqm(one) - metrics.aggregate_iqm(two)
    pairs = np.sign(one[:, None] - two[None])
    return np.array([difference, (1 + pairs.mean()) / 2])


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.atari_ablation', __doc__)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    out = Path(parser.parse_args(argv).out)
    out.mkdir(parents=True, exist_ok=True)
    found = load.load(f'{name}={HERE / folder}' for name, folder in METHODS.items())
    runs = [run for run in found.runs if len(run.eval) == ITERATIONS]
    results = scores.Results(runs)
    columns = ['method', 'game', 'seed', 'episodes', 'score', 'normalised']
    tables = {
        'scores': results.atari[columns].set_index('method'),
        'table': beside_the_paper(results.means, results.known),
        'summary': summary(results.atari).set_index('method'),
        'comparisons': comparisons(results.atari).set_index('method'),
    }
    for name, table in tables.items():
        table.to_csv(out / f'{name}.csv', float_format='%.6g')
    (figure,) = figures.learning_curves(runs, results.known)
    figure._replace(name='curves').save(out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
