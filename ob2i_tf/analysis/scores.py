"""Scores of runs and of publications, normalised and summarised."""

import os
from typing import NamedTuple

import numpy as np
import pandas as pd

from ob2i_tf.analysis.load import game_order
from ob2i_tf.config import resources
from ob2i_tf.environments.games import ATARI_49

SCORE_COLUMNS = (
    'method',
    'game',
    'seed',
    'frames',
    'episodes',
    'score_last',
    'score_best',
    'scored_by',
)
_LONGEST_GAME = 120  # Rows; weights are exact with up to 5 seeds per game.
STATISTICS = ('mean', 'median', 'iqm', 'optimality_gap')
SUMMARY_COLUMNS = (
    'method',
    'games',
    'seeds',
    *STATISTICS,
    *(f'{name}{end}' for name in STATISTICS for end in ('_low', '_high')),
    'seeds_fewest',
    'seeds_most',
    'runs',
)
PAPER = ('BEBU', 'BEBU-UCB', 'BEBU-IDS', 'OB2I')
# Columns of published_scores.csv with all 49 games -> names here.
EARLIER = {'DQN': 'DQN', 'NoisyNet_DQN': 'NoisyNet-DQN', 'NoisyNet_Dueling': 'NoisyNet'}


class Published(NamedTuple):
    """Published scores, games x columns.

    Attributes:
      random, human: The paper's own columns, Series by game.
      paper: The paper's four methods, 20M frames.
      bold: The method that the paper prints in bold, by game; NaN if none.
      earlier: Methods of earlier papers, 200M frames.
      summary: The paper's table of summaries as printed, with sources.
      ablation, montezuma: These tables as printed.
    """

    random: pd.Series
    human: pd.Series
    paper: pd.DataFrame
    bold: pd.Series
    earlier: pd.DataFrame
    summary: pd.DataFrame
    ablation: pd.DataFrame
    montezuma: pd.DataFrame


def published() -> Published:
    """The published scores in third_party/, found in a checkout and after an install."""
    folder = os.path.join(resources.folder('third_party'), 'published_scores')

    def read(name, **keywords):
        return pd.read_csv(os.path.join(folder, name), **keywords)

    paper = read('ob2i_paper_scores.csv', index_col='game')
    earlier = read('published_scores.csv', index_col='game')[list(EARLIER)]
    return Published(
        paper['random'],
        paper['human'],
        paper[list(PAPER)],
        paper['bold_in_paper'],
        earlier.rename(columns=EARLIER),
        *(read(f'{name}_as_printed.csv') for name in ('summary', 'ablation', 'montezuma')),
    )


class Results:
    """The scores of runs, alongside the published ones.

    Attributes:
      runs: The runs.
      which: 'last' or 'best', the evaluation that counts as the score of a run.
      table: See `table_of_runs`, with an additional column `score`.
      atari: Its rows on the 49 games, with an additional column `normalised`.
      means: Their mean scores, see `by_game`.
      summary: See `summary`.
      known: The published scores.
      published_summary: See `published_summary`.
    """

    def __init__(self, runs, which='last'):
        self.runs, self.which, self.known = runs, which, published()
        self.table = table_of_runs(runs)
        self.table['score'] = self.table[f'score_{which}']
        self.atari = self.table[self.table['game'].isin(ATARI_49)].copy()
        random, human = (self.atari['game'].map(x) for x in (self.known.random, self.known.human))
        self.atari['normalised'] = human_normalised(self.atari['score'], random, human)
        self.means = by_game(self.atari)
        self.summary = summary(self.atari)
        self.published_summary = published_summary(self.known)


def table_of_runs(runs) -> pd.DataFrame:
    """One row per run that has a score, with SCORE_COLUMNS.

    A score is the mean of an evaluation, or of the training episodes of an iteration (`scored_by`);
    frames and episodes are those of the last one.
    """
    rows = []
    for run in runs:
        scored = run.scores
        if len(scored):
            last = scored.iloc[-1]
            episodes = None if pd.isna(last['episodes']) else int(last['episodes'])
            ends = int(last['frames']), episodes, last['score_mean'], scored['score_mean'].max()
            rows.append([run.method, run.game, run.seed, *ends, run.scored_by])
    return pd.DataFrame(rows, columns=list(SCORE_COLUMNS))


def by_game(table) -> pd.DataFrame:
    """Mean `score` over seeds, games x methods; NaN where a method has no run."""
    if table.empty:
        return pd.DataFrame()
    wide = table.pivot_table(index='game', columns='method', values='score', aggfunc='mean')
    wide.columns.name = wide.index.name = None
    return wide.loc[sorted(wide.index, key=game_order)]


def human_normalised(score, random, human):
    """(score - random) / |human - random| (paper, section 5.2); 1 is the human score."""
    return (score - random) / np.abs(human - random)


def relative_score(score, baseline, random, human):
    """(score - baseline) / (max(human, baseline) - random) (paper, appendix G)."""
    return (score - baseline) / (np.maximum(human, baseline) - random)


def wins_ties_losses(scores, baseline):
    """Numbers of games with `scores` above, equal to and below `baseline`, where both exist."""
    difference = (scores - baseline).dropna()
    return int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum())


def statistics(matrix):
    """[runs, games] normalised scores -> STATISTICS, by rliable."""
    from rliable import metrics

    return np.array(
        [
            metrics.aggregate_mean(matrix),
            metrics.aggregate_median(matrix),
            metrics.aggregate_iqm(matrix),
            metrics.aggregate_optimality_gap(matrix),
        ]
    )


def _statistics_of_columns(*columns):
    """The same for games with unequal numbers of seeds; each column is [runs, 1].

    Mean and median are taken over games anyway. For the others, runs are repeated until every game
    has the same number, so that games have equal weight.
    """
    length = min(np.lcm.reduce([len(column) for column in columns]), _LONGEST_GAME)
    repeated = [column[np.arange(length) * len(column) // length] for column in columns]
    means = np.array([[column.mean() for column in columns]])
    return np.concatenate([statistics(means)[:2], statistics(np.concatenate(repeated, 1))[2:]])


def intervals(columns, repetitions=2000, seed=0):
    """STATISTICS of a method and their 95% stratified bootstrap intervals (Agarwal et al. 2021).

    Args:
      columns: For each game the normalised scores of its seeds, [runs] each.
      repetitions: Repetitions of the bootstrap.
      seed: Seed of the bootstrap.

    Returns:
      [4] and [2, 4]; the intervals are NaN if a game has one seed, since its spread is unknown.
    """
    lengths = {len(column) for column in columns}
    separate = [np.reshape(column, (-1, 1)) for column in columns]
    if min(lengths) == 1:
        return _statistics_of_columns(*separate), np.full((2, len(STATISTICS)), np.nan)
    if len(lengths) == 1:
        return bootstrap(np.stack(columns, axis=1), statistics, repetitions, seed)
    return bootstrap(separate, _statistics_of_columns, repetitions, seed)


def bootstrap(data, function, repetitions=2000, seed=0):
    """The value of a function of scores, and its 95% stratified bootstrap interval, by rliable.

    Args:
      data: [runs, games], or a sequence of such matrices, which become separate arguments.
      function: Of these to [n].
      repetitions: Repetitions of the bootstrap.
      seed: Seed of the bootstrap.

    Returns:
      [n] and [2, n].
    """
    from rliable import library

    state = np.random.get_state()  # rliable uses this generator.
    np.random.seed(seed)
    try:
        points, bounds = library.get_interval_estimates({'': data}, function, reps=repetitions)
    finally:
        np.random.set_state(state)
    return points[''], bounds['']


def summary(atari) -> pd.DataFrame:
    """One row per method, with SUMMARY_COLUMNS; seeds: mean, fewest and most per game.

    Only the 49 games count; methods with different games are not comparable.
    """
    rows = []
    for method, group in atari.groupby('method'):
        columns = [scores.to_numpy() for _, scores in group.groupby('game')['normalised']]
        points, bounds = intervals(columns)
        counts = list(map(len, columns))
        seeds = sum(counts) / len(counts), *points, *bounds.T.ravel(), min(counts), max(counts)
        rows.append([method, len(columns), *seeds, sum(counts)])
    return pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS))


def published_summary(known) -> pd.DataFrame:
    """STATISTICS of the published columns, by the paper's random and human scores.

    Published scores are means over seeds, so IQM and optimality gap take one value per game.
    """
    rows = []
    for frames, scores in ((20, known.paper), (200, known.earlier)):
        for method in scores:
            normalised = human_normalised(scores[method], known.random, known.human).to_numpy()
            rows.append([method, frames, len(normalised), *statistics(normalised[None])])
    return pd.DataFrame(rows, columns=['method', 'frames_millions', 'games', *STATISTICS])
