"""Scores against the paper's own table, and against arrays worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from ob2i_tf.analysis import scores, tables
from tests.analysis.folders import KNOWN


def test_the_papers_table_gives_these_means_and_medians():
    summary = scores.published_summary(KNOWN).set_index('method')
    methods = ['BEBU', 'BEBU-UCB', 'BEBU-IDS', 'OB2I']
    assert (100 * summary.loc[methods, 'mean']).round(1).tolist() == [555.2, 610.4, 622.4, 764.9]
    assert (100 * summary.loc[methods, 'median']).round(1).tolist() == [36.0, 39.5, 44.2, 50.3]
    assert (summary['games'] == 49).all()
    assert 100 * summary.loc['DQN', 'mean'] == pytest.approx(241.07, abs=0.1)
    assert 100 * summary.loc['DQN', 'median'] == pytest.approx(93.52, abs=0.1)


@pytest.mark.parametrize(
    'baseline, counts',
    [('BEBU', (34, 2, 13)), ('BEBU-UCB', (33, 1, 15)), ('BEBU-IDS', (32, 2, 15))],
)
def test_wins_and_ties_of_the_papers_table(baseline, counts):
    assert scores.wins_ties_losses(KNOWN.paper['OB2I'], KNOWN.paper[baseline]) == counts


def test_best_in_row_of_the_papers_table():
    table = tables.raw_scores(scores.Results([]))
    best = {
        row[0][0]: {column for column, (_, best) in zip(table.cells, row) if best}
        for row in table.rows()
    }
    assert best['Atlantis'] == best['Private Eye'] == {'BEBU-UCB (paper)'}
    assert best['Star Gunner'] == {'BEBU (paper)'}
    assert len(best['Tennis']) == 3 and len(best["Montezuma's Revenge"]) == 4
    counts = pd.Series([name for names in best.values() for name in names]).value_counts()
    order = [f'{method} (paper)' for method in scores.PAPER]
    assert counts[order].tolist() == [7, 12, 10, 25]


def test_formulas():
    assert scores.human_normalised(30.0, 10.0, 20.0) == 2
    assert scores.human_normalised(-5.0, 10.0, 0.0) == -1.5
    assert scores.relative_score(30.0, 20.0, 0.0, 10.0) == 0.5
    assert scores.relative_score(30.0, 20.0, 0.0, 100.0) == pytest.approx(0.1)


def test_statistics_are_rliables_and_repeatable():
    rng = np.random.default_rng(0)
    columns = [rng.random(4) for _ in range(6)]
    before = np.random.get_state()[1].tolist()
    points, bounds = scores.intervals(columns, repetitions=200)
    assert np.random.get_state()[1].tolist() == before
    matrix = np.stack(columns, 1)
    flat = np.sort(matrix.ravel())
    expected = [
        matrix.mean(),
        np.median(matrix.mean(0)),
        flat[6:18].mean(),
        1 - np.minimum(matrix, 1).mean(),
    ]
    np.testing.assert_allclose(points, expected)
    assert (bounds[0] < points).all() and (points < bounds[1]).all()
    np.testing.assert_array_equal(bounds, scores.intervals(columns, repetitions=200)[1])


def test_unequal_numbers_of_seeds_count_games_alike():
    columns = [np.array([1.0, 1.0]), np.array([0.0, 0.0, 0.0])]
    points, bounds = scores.intervals(columns, repetitions=50)
    np.testing.assert_allclose(points[[0, 1, 3]], 0.5)
    assert not np.isnan(bounds).any()


@pytest.mark.parametrize('second', [[1.5], [1.0, 2.0]])
def test_a_game_with_one_seed_leaves_no_interval(second):
    points, bounds = scores.intervals([np.array([0.5]), np.array(second)])
    assert points[0] == 1 and np.isnan(bounds).all()


def iqm_difference(first, second):
    return np.array([scores.statistics(first)[2] - scores.statistics(second)[2]])


def test_the_bootstrap_draws_the_runs_of_each_matrix():
    first = np.array([[0.0, 1.0, 2.0, 9.0], [0.0, 1.0, 2.0, 9.0]])
    second = np.full((3, 4), 0.5)
    (difference,), bounds = scores.bootstrap([first, second], iqm_difference, repetitions=50)
    assert difference == 1.0 and bounds.tolist() == [[1.0], [1.0]]  # The middle half is 1, 1, 2, 2.
    second[0] = 0.2  # One of three seeds: the difference lies between 1.5 - 0.5 and 1.5 - 0.2.
    (difference,), bounds = scores.bootstrap([first, second], iqm_difference, repetitions=200)
    assert difference == pytest.approx(1.5 - 0.45) and 1.0 <= bounds[0] < bounds[1] <= 1.3
    drawn, bounds = np.random.default_rng(0).random((2, 3, 4)), []
    for state in range(2):  # Of the global generator, which does not matter.
        np.random.seed(state)
        bounds.append(scores.bootstrap(list(drawn), iqm_difference, repetitions=50)[1].tolist())
    assert bounds[0] == bounds[1]
