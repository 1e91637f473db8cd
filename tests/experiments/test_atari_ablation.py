"""The ablation on small Atari: its tables follow from the runs in the repository."""

import csv
import re

import pytest

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


@pytest.mark.parametrize('name', ['scores', 'table', 'summary', 'bonus'])
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


def test_what_the_bonus_adds(written):
    row = next(r for r in rows(written / 'bonus.csv') if r['method'] == 'OB2I')
    added = 0.5e-4 * float(row['next_bonus_normalized_mean'])
    assert float(row['next_bonus_added']) == pytest.approx(added, rel=1e-5)
    assert float(row['added_over_gap']) == pytest.approx(added / float(row['q_gap_mean']), rel=1e-5)
    assert {r['method'] for r in rows(written / 'bonus.csv')} <= {'OB2I', 'BEBU-RND', 'BootDQN-UCB'}


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
