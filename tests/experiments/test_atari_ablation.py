"""The ablation on small Atari: its tables follow from the runs in the repository."""

import csv
import functools
import re

import numpy as np
import pandas as pd
import pytest
from rliable import metrics

from experiments.atari_ablation import __main__ as ablation
from ob2i_tf.analysis import load, scores, tables


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp('ablation')
    assert ablation.main(['--out', str(folder)]) == 0
    return folder


def rows(path):
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize('name', ['scores', 'table', 'summary', 'comparisons'])
def test_the_tables_are_those_of_the_runs(written, name):
    found, kept = rows(written / f'{name}.csv'), rows(ablation.HERE / f'{name}.csv')
    assert len(found) == len(kept) > 0
    for one, other in zip(found, kept):
        assert one.keys() == other.keys()
        for column, text in one.items():
            assert text == other[column] or float(text) == pytest.approx(float(other[column]))


def test_a_score_is_that_of_the_last_evaluation(written):
    by_run = {(r['method'], r['game'], r['seed']): r for r in rows(written / 'scores.csv')}
    row = by_run['OB2I', 'Breakout', '0']
    last = rows(ablation.HERE / 'ob2i' / 'Breakout' / 'seed0' / 'eval.csv')[-1]
    assert float(row['score']) == pytest.approx(float(last['score_mean']), rel=1e-5)
    # The paper's columns of Breakout: random 1.7, human 31.8.
    assert float(row['normalised']) == pytest.approx((float(row['score']) - 1.7) / 30.1, rel=1e-4)


def test_comparisons_of_methods_over_common_games_and_seeds(monkeypatch):
    few = functools.partial(scores.bootstrap, repetitions=100)
    monkeypatch.setattr(scores, 'bootstrap', few)

    def rows_of(method, **scores):
        return [
            {'method': method, 'game': game, 'seed': seed, 'normalised': value}
            for game, values in scores.items()
            for seed, value in enumerate(values)
        ]

    one = {'A': [4.0, 6.0, 9.0], 'B': [1.0, 3.0]}  # Seed 2 of B is not complete,
    table = rows_of('OB2I', **one, C=[100.0, 100.0])  # nor is C for the others.
    for other in ('BEBU', 'BEBU-RND', 'BootDQN', 'BootDQN-UCB', 'EBU'):
        table += rows_of(other, A=[5.0, 3.0, 0.0], B=[1.0, 1.0, 0.0])
    pairs = ablation.comparisons(pd.DataFrame(table)).set_index(['method', 'over'])
    row = pairs.loc['OB2I', 'BEBU']
    assert (row['games'], row['seeds']) == (2, 2)
    # Quarters of 4 values are cut off at each end: (3 + 4) / 2 - (1 + 3) / 2.
    assert row['iqm_difference'] == pytest.approx(1.5)
    # A: 3 of 4 pairs; B: one tie with each of BEBU's, and two wins.
    assert row['probability'] == pytest.approx((3 / 4 + 3 / 4) / 2)
    assert row['probability_low'] < row['probability'] < row['probability_high']
    # The least and the largest that a choice of runs can give.
    assert row['iqm_difference_low'] >= (1 + 4) / 2 - (1 + 5) / 2
    assert row['iqm_difference_high'] <= (3 + 6) / 2 - (1 + 3) / 2
    same = pairs.loc['BootDQN-UCB', 'BootDQN']
    assert (same['iqm_difference'], same['probability']) == (0, 0.5)


def test_the_probability_of_improvement_is_that_of_rliable():
    drawn = np.random.default_rng(0).integers(0, 4, size=(2, 5, 3)).astype(float)  # With ties.
    _, probability = ablation.improvement(*drawn)
    assert probability == pytest.approx(metrics.probability_of_improvement(*drawn))


def test_all_complete_runs_are_read(written):
    complete = [p for p in ablation.HERE.glob('*/*/seed*/eval.csv') if len(rows(p)) == 4]
    assert len(rows(written / 'scores.csv')) == len(complete)
    text = (ablation.HERE / 'README.md').read_text()
    assert f' {len(complete)} of 90 runs' in text


def test_the_report_has_the_ablation_table(monkeypatch):
    text = (ablation.HERE / 'README.md').read_text()
    (command,) = re.findall(r'-m ob2i_tf\.analysis ((?:.*\\\n)*.*) --out', text)
    monkeypatch.chdir(ablation.HERE)
    found = load.load(command.replace('\\', '').split())
    assert not [problem for problem in found.problems if 'left out' in problem]
    table = tables.ablation(scores.Results(found.runs)).cells.set_index('Method')
    for row in rows(ablation.HERE / 'table.csv'):
        for game in tables.ABLATION_GAMES:
            if row['method'] != 'EBU' and row.get(game):
                shown = table.loc[f'{row["method"]} (here)', game]
                assert shown == pytest.approx(float(row[game]), rel=1e-5)
