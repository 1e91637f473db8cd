"""The paper's own numbers from its own table, and a report of real runs."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

from ob2i_tf.analysis import scores

ROOT = Path(__file__).resolve().parents[2]


def test_the_papers_table_gives_these_summaries():
    """Acceptance values; the paper prints 553 and 38 for the first mean and the second median."""
    known = scores.published()
    table = scores.published_summary(known).set_index('method')
    papers = [name for name in table.index if name.startswith(('BEBU', 'OB2I'))]
    np.testing.assert_allclose(
        100 * table.loc[papers, 'mean'], [555.18, 610.40, 622.40, 764.87], atol=0.01
    )
    np.testing.assert_allclose(
        100 * table.loc[papers, 'median'], [36.01, 39.47, 44.24, 50.33], atol=0.01
    )
    assert (table.loc[papers, 'games'] == 49).all()


def test_wins_ties_and_losses_of_ob2i():
    paper = scores.published().paper
    bebu, ucb, ids, ob2i = (paper[column] for column in paper)
    assert [scores.wins_ties_losses(ob2i, other) for other in (bebu, ucb, ids)] == [
        (34, 2, 13), (33, 1, 15), (32, 2, 15)
    ]  # fmt: skip
    assert paper.loc['Atlantis'].idxmax() == ucb.name
    assert paper.loc['Private Eye'].idxmax() == ucb.name


def test_formulas_by_hand():
    assert scores.human_normalised(30, 10, 50) == 0.5
    assert scores.human_normalised(30, 50, 10) == -0.5  # The normaliser has |human - random|.
    assert scores.relative_score(30, 20, 10, 50) == 0.25
    assert scores.relative_score(30, 60, 10, 50) == -0.6


def test_a_report_of_real_runs_without_tensorflow(tmp_path):
    code = (
        'import sys; from ob2i_tf.analysis import __main__ as m; '
        f'status = m.main(["docs/results/atari_small", "--out", "{tmp_path}/report"]); '
        'sys.exit(status or 10 * ("tensorflow" in sys.modules))'
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / 'report' / 'scores.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert {(row['game'], row['seed']) for row in rows if row['method'] == 'OB2I'} == {
        (game, seed) for game in ('Breakout', 'Road Runner') for seed in '01'
    }
    page = (tmp_path / 'report' / 'report.html').read_text()
    assert 'Breakout' in page and 'src="http' not in page and 'href="http' not in page
