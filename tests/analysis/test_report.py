"""The whole report, from the command line."""

import csv
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from ob2i_tf.analysis import __main__ as command
from ob2i_tf.analysis import tables
from tests.analysis.folders import write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    """A report of two methods, three games and two seeds, with a hole."""
    base = tmp_path_factory.mktemp('runs')
    for method in ('OB2I', 'BEBU'):
        for game in ('Pong', 'Q*Bert', 'Freeway'):
            for seed in (0, 1):
                if (method, game, seed) != ('BEBU', 'Pong', 1):
                    write_run(base, method, game, seed, iterations=3)
    (base / 'ob2i_atari' / 'Freeway' / 'seed1' / 'eval.csv').write_text('')
    out = tmp_path_factory.mktemp('report')
    assert command.main([str(base), '--out', str(out)]) == 0
    return out


class Page(HTMLParser):
    """Collects ids and addresses."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses, self.text = [], [], ''
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if 'id' in attrs:
            self.ids.append(attrs['id'])
        self.addresses += [v for n, v in attrs.items() if n in ('src', 'href', 'xlink:href')]

    def handle_data(self, data):
        self.text += data


def test_tidy_files(report):
    with open(report / 'scores.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ['method', 'game', 'seed', 'frames', 'episodes', 'score_last',
                             'score_best']  # fmt: skip
    assert len(rows) == 10
    summary = pd.read_csv(report / 'summary.csv').set_index('method')
    assert list(summary.columns[:5]) == ['games', 'seeds', 'mean', 'median', 'iqm']
    assert summary.loc['OB2I', 'games'] == 3
    assert summary.loc['OB2I', 'iqm_low'] <= summary.loc['OB2I', 'iqm']


def test_tables_in_three_forms(report):
    names = {path.stem for path in (report / 'tables').iterdir()}
    assert names == {'normalised_summary', 'raw_scores', 'wins_ties_losses', 'ablation',
                     'montezuma'}  # fmt: skip
    for name in names:
        assert {p.suffix for p in (report / 'tables').glob(f'{name}.*')} == {'.md', '.tex', '.csv'}
    with open(report / 'tables' / 'raw_scores.csv', newline='') as file:
        rows = list(csv.reader(file))
    assert len(rows) == 50 and all(len(row) == len(rows[0]) for row in rows)
    by_game = {row[0]: dict(zip(rows[0], row)) for row in rows}
    assert by_game['Alien']['OB2I (here)'] == ''
    assert float(by_game['Pong']['OB2I (paper)']) == 18.7
    assert float(by_game['Freeway']['OB2I (here)']) > 20
    text = (report / 'tables' / 'ablation.md').read_text()
    assert 'OB2I (here)' in text and '4,275.0' in text


def test_figures_in_two_forms(report):
    stems = {path.stem for path in (report / 'figures').glob('*.svg')}
    assert stems == {path.stem for path in (report / 'figures').glob('*.png')}
    assert {'learning_curves', 'mean_bonus', 'performance_profiles', 'intervals', 'relative_bebu',
            'relative_bebu_paper', 'length_bebu'} <= stems  # fmt: skip


def test_the_page_is_whole_and_names_what_is_missing(report):
    page = Page((report / 'report.html').read_text())
    assert len(page.ids) == len(set(page.ids))
    for address in page.addresses:
        assert address.startswith(('#', 'data:')), address
        if address.startswith('#'):
            assert address[1:] in page.ids
    assert 'eval.csv is empty' in page.text
    assert 'BEBU, Pong: n = 1 of 2 seeds, none of seed 1' in page.text
    assert 'OB2I, Freeway: n = 1 of 2 seeds' in page.text


def test_the_report_imports_no_tensorflow():
    code = (
        'import sys, ob2i_tf, ob2i_tf.analysis.report, ob2i_tf.analysis.episode, '
        'ob2i_tf.analysis.__main__\n'
        'print([name for name in sys.modules if name.partition(".")[0] in '
        '("tensorflow", "tf_keras", "tf_agents", "keras")])'
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == '[]\n', done.stderr


@pytest.mark.parametrize(
    'arguments, says', [(['{}/none'], 'no folder'), (['{}'], 'no run folder')]
)
def test_errors_are_one_line(tmp_path, capsys, arguments, says):
    sources = [argument.format(tmp_path) for argument in arguments]
    assert command.main([*sources, '--out', str(tmp_path / 'out')]) == 1
    error = capsys.readouterr().err
    assert error.startswith('error: ') and says in error and error.count('\n') == 1
    assert not (tmp_path / 'out').exists()


def test_latex_and_markdown_escape():
    table = tables.Table('t', '50% & more', ['a_b', 'Q*Bert'], [['x|y', 1.0]], frozenset({(0, 1)}))
    assert r'50\% \& more' in tables.latex(table)
    assert r'\textbf{1.0}' in tables.latex(table)
    assert r'x\|y | **1.0** |' in tables.markdown(table)


def test_a_method_of_ones_own_beside_the_paper(tmp_path):
    write_run(tmp_path / 'runs', 'OB2I', 'Pong', 0, iterations=1)
    out = tmp_path / 'out'
    assert command.main([f'Mine & yours={tmp_path / "runs"}', '--out', str(out)]) == 0
    assert pd.read_csv(out / 'scores.csv')['method'].tolist() == ['Mine & yours']
    assert 'Mine &amp; yours' in (out / 'report.html').read_text()


def test_a_report_of_real_runs(tmp_path):
    runs = ROOT / 'docs' / 'results' / 'atari_small'
    assert command.main([str(runs), '--out', str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / 'scores.csv', dtype={'seed': str})
    ours = table[table['method'] == 'OB2I']
    assert set(zip(ours['game'], ours['seed'])) == {
        (game, seed) for game in ('Breakout', 'Road Runner') for seed in '01'
    }
    assert 'cut short: 600,000 of 800,000 frames' in (tmp_path / 'report.html').read_text()
