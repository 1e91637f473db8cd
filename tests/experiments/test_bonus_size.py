"""What the bonus does: its tables follow from the runs in the repository."""

import pandas as pd
import pytest

from experiments.bonus_size import __main__ as study


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp('bonus_size')
    assert study.main(['--out', str(folder)]) == 0
    return folder


@pytest.mark.parametrize('name', ['sizes', 'table', 'weights'])
def test_the_tables_are_those_of_the_runs(written, name):
    found, kept = pd.read_csv(written / f'{name}.csv'), pd.read_csv(study.HERE / f'{name}.csv')
    assert len(found)
    pd.testing.assert_frame_equal(found, kept, rtol=1e-5)


def test_what_the_bonus_adds_beside_the_gap(written):
    table = pd.read_csv(written / 'sizes.csv').query("method == 'OB2I' and task == 'Breakout'")
    row = table.iloc[-1]
    added = 0.5e-4 * row['reward_bonus_mean'], 0.5e-4 * row['next_bonus_normalized_mean']
    assert (row['reward_bonus_added'], row['next_bonus_added']) == pytest.approx(added, rel=1e-5)
    expected = [term / row['q_gap_mean'] for term in added]
    assert [row['reward_over_gap'], row['next_over_gap']] == pytest.approx(expected, rel=1e-5)


def test_means_over_seeds_of_the_first_and_the_last_iteration():
    values = [1.0, 5.0, 2.0, 3.0, 7.0, 4.0]
    columns = ['reward_bonus_mean', 'next_bonus_mean', 'next_bonus_normalized_mean', 'q_gap_mean']
    table = pd.DataFrame(
        {
            'method': 'OB2I',
            'task': 'Breakout',
            'seed': [0, 0, 0, 1, 1, 1],
            **dict.fromkeys([*columns, *study.RATIOS], values),
        }
    )
    found = study.ends(table).loc['Breakout', 'OB2I']
    assert list(found['next_over_gap']) == [2.0, 3.0]  # (1 + 3) / 2 and (2 + 4) / 2.
    assert list(found['runs']) == [2, 2]
