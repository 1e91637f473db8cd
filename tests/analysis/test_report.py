"""The complete report, from the command line."""

import csv
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ob2i_tf.analysis import __main__ as command
from ob2i_tf.analysis import figures, tables
from tests.analysis.folders import write_run
from tests.browser import browser, needs_browser  # noqa: F401, a fixture

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    """A report of two methods, three games and two seeds, with holes; OB2I fills its own."""
    base = tmp_path_factory.mktemp('runs')
    for method in ('OB2I', 'BEBU'):
        for game in ('Pong', 'Q*Bert', 'Freeway'):
            for seed in (0, 1):
                if (method, game, seed) != ('BEBU', 'Pong', 1):
                    write_run(base, method, game, seed, iterations=3)
    (base / 'ob2i_atari' / 'Freeway' / 'seed1' / 'eval.csv').write_text('')
    write_run(base, 'OB2I', 'Freeway', 2, iterations=3)
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
    assert list(rows[0]) == [
        'method',
        'game',
        'seed',
        'frames',
        'episodes',
        'score_last',
        'score_best',
        'scored_by',
    ]
    assert len(rows) == 11
    summary = pd.read_csv(report / 'summary.csv').set_index('method')
    assert list(summary.columns[:5]) == ['games', 'seeds', 'mean', 'median', 'iqm']
    assert summary.loc['OB2I', 'games'] == 3
    assert summary.loc['OB2I', 'iqm_low'] <= summary.loc['OB2I', 'iqm']
    assert np.isnan(summary.loc['BEBU', 'iqm_low'])  # One seed on Pong.


def test_tables_in_three_forms(report):
    names = {path.stem for path in (report / 'tables').iterdir()}
    assert names == {
        'normalised_summary',
        'raw_scores',
        'wins_ties_losses',
        'ablation',
    }
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


def test_figures_in_three_forms(report):
    stems = {path.stem for path in (report / 'figures').glob('*.svg')}
    for form, begins in (('png', b'\x89PNG'), ('pdf', b'%PDF')):
        files = list((report / 'figures').glob(f'*.{form}'))
        assert stems == {path.stem for path in files}
        assert all(path.read_bytes().startswith(begins) for path in files)
    assert b'/Type3' not in (report / 'figures' / 'intervals.pdf').read_bytes()
    assert {
        'learning_curves',
        'mean_bonus',
        'performance_profiles',
        'intervals',
        'relative_bebu',
        'relative_bebu_paper',
        'length_bebu',
    } <= stems


def test_the_page_is_whole_and_names_what_is_missing(report):
    page = Page((report / 'report.html').read_text())
    assert len(page.ids) == len(set(page.ids))
    for address in page.addresses:
        assert address.startswith(('#', 'data:')), address
        if address.startswith('#'):
            assert address[1:] in page.ids
    assert 'eval.csv is empty' in page.text
    assert 'BEBU, Pong: n = 1 of 2 seeds, none of seed 1' in page.text
    assert 'OB2I, Freeway: n = 2 of 3 seeds' in page.text


@pytest.mark.parametrize('arguments, says', [(['{}/none'], 'no folder'), (['{}'], 'no run folder')])
def test_errors_are_one_line(tmp_path, capsys, arguments, says):
    sources = [argument.format(tmp_path) for argument in arguments]
    assert command.main([*sources, '--out', str(tmp_path / 'out')]) == 1
    error = capsys.readouterr().err
    assert error.startswith('error: ') and says in error and error.count('\n') == 1
    assert not (tmp_path / 'out').exists()


def test_methods_of_any_name_have_figures_of_their_own(tmp_path, capsys):
    names = ['beta +1', 'beta -1', 'beta (1)', 'beta 1 2', '$_$', '\u03b2', '_mine']
    for name in names:
        for game in ('Pong', 'Q*Bert'):
            write_run(tmp_path / name, 'OB2I', game, 0, iterations=3)
    out = tmp_path / 'out'
    runs = [f'{name}={tmp_path / name}' for name in names]
    assert command.main([*runs, '--method=beta +1', '--out', str(out)]) == 0
    ids = Page((out / 'report.html').read_text()).ids
    assert len(ids) == len(set(ids))
    made = {file.stem for file in (out / 'figures').glob('relative_*.svg')}
    slugs = ('beta_1', 'beta_1_2', 'beta_1_2_2', 'method', 'method_2', 'mine')
    assert {f'relative_{slug}' for slug in slugs} <= made
    profiles = (out / 'figures' / 'performance_profiles.svg').read_text()
    assert all(f'{name}, n = 2' in profiles for name in names)
    assert command.main([runs[0], '--out', str(out)]) == 0  # Fewer figures into the same folder.
    text = (out / 'report.html').read_text()
    assert 'not from this report: figures/' in text and 'figures/relative_method.png' in text


def test_lines_of_many_methods_look_different():
    styles = figures.line_styles([f'method {i}' for i in range(40)])
    assert len({str(keywords) for keywords in styles.values()}) == 40


def test_a_method_looks_the_same_whichever_others_are_missing():
    shown = figures.line_styles([*figures.METHODS, '_mine'])
    for method in shown:
        assert figures.line_styles([method]) == {method: shown[method]}
    assert figures.line_styles(['bebu_ucb'])['bebu_ucb'] == shown['BEBU-UCB']
    assert len({str(look) for look in figures.line_styles(['OB2I', 'ob2i']).values()}) == 2


def test_a_mean_ends_where_a_seed_ends_and_a_single_point_is_visible():
    look = figures.line_styles(['OB2I'])['OB2I']
    curves = pd.DataFrame({0: [1.0, 2, 3, 4], 1: [3.0, np.nan, 5, np.nan]}, [10, 20, 30, 40])
    axis = figures.grid(1)[1][0]
    mean = figures._draw_seeds(axis, curves, look)
    np.testing.assert_allclose(mean.get_xydata(), [[10, 2], [20, 3], [30, 4]])
    gap = np.nan
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), [10, 20, 30, 40, gap, 10, 30, gap])
    axis = figures.grid(1)[1][0]
    mean = figures._draw_seeds(axis, curves[:1], look)
    assert mean.get_marker() == 'o' and axis.collections[0].get_linewidth() > 0
    assert axis.lines[0].get_markevery() == [0, 2]


@pytest.mark.parametrize('end, step', [(4000, 1000), (5000, 1000), (20e6, 5e6), (9, 3), (1, 0.25)])
def test_the_last_tick_is_near_the_end(end, step):
    ticks = figures._ticks(end)
    assert len(ticks) <= 6
    np.testing.assert_allclose(ticks, np.arange(0, 1.01 * end, step))


def test_legends_name_everything_that_is_drawn(report):
    for name, shown in (
        ('learning_curves', ('OB2I', 'one seed', '95% interval of the mean', 'BEBU, paper at 20M')),
        ('performance_profiles', ('BEBU, n = 3', 'OB2I, paper', '95% interval')),
        ('intervals', ('95% interval',)),
    ):
        text = (report / 'figures' / f'{name}.svg').read_text()
        assert all(f'>{entry}</text>' in text for entry in shown), name


def test_long_names_stay_within_the_figure():
    figure, (axis,) = figures.grid(1)
    line = figures.plot(axis, [0, 1], [0, 1])
    figures.legend(figure, {'OB2I (' + 'EpisodicUpdate.greedy, ' * 12 + ')': line})
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert axis.get_window_extent().height > 100


def test_the_demo_has_the_looks_of_figures():
    """Dashes in CSS are in pixels, those of figures in widths of the line."""
    text = (ROOT / 'ob2i_tf' / 'analysis' / 'templates' / 'demo.css').read_text()
    for number, look in enumerate(figures.line_styles(['OB2I', 'BootDQN', 'DQN']).values()):
        assert f'--method-{number}: {look["color"].lower()};' in text
        dashes = 'none'
        if look['linestyle'] != '-':
            dashes = ' '.join(f'{2.5 * length:g}' for length in look['linestyle'][1])
        assert f'--dashes-{number}: {dashes};' in text


def test_numbers_keep_the_digits_in_which_methods_differ_and_only_equal_ones_share_the_best():
    shown = [0.0, 1.0, 0.99, 0.99449, -6.4, 18.74, 4275.0, None]
    expected = ['0.0', '1.0', '0.99', '0.994', '-6.4', '18.7', '4,275.0', '–']
    assert list(map(tables.cell, shown)) == expected
    cells = pd.DataFrame([['tie', 0.99, 0.99], ['none', 0.9904, 0.9903]], columns=[*'abc'])
    marked = [[best for _, best in row[1:]] for row in tables.Table('t', 'T', cells, [1, 2]).rows()]
    assert marked == [[True, True], [True, False]]


def test_latex_and_markdown_escape():
    cells = pd.DataFrame([['x|y', 1.0]], columns=['a_b', 'Q*Bert'])
    table = tables.Table('t', '50% & more', cells, [1], ('{~^\\}',))
    assert r'50\% \& more' in tables.latex(table) and r'a\_b & Q*Bert' in tables.latex(table)
    assert r' \{\textasciitilde{}\textasciicircum{}\textbackslash{}\}' in tables.latex(table)
    assert r'\textbf{1.0}' in tables.latex(table)
    assert r'x\|y | **1.0** |' in tables.markdown(table)


def test_latex_tables_fit_a_column_or_a_page_or_are_split():
    def table(rows, columns):
        names = ['Game', *(f'Method {i} (here)' for i in range(columns))]
        cells = pd.DataFrame([['Pong'] + [1.0] * columns] * rows, columns=names)
        return tables.latex(tables.Table('t', 'T', cells, notes=('N.',)))

    column, page, split = table(3, 2), table(49, 9), table(60, 25)
    assert column.startswith('\\begin{table}\n') and page.startswith('\\begin{table*}\n')
    assert r'\begin{tabular}{lrr}' in column and r'\toprule' in column
    assert r'\shortstack[r]{Method 0\\(here)}' in column
    parts = split.split('\n\n')
    assert len(parts) == 4  # Two of columns, two of rows.
    assert all(f'(part {i} of 4)' in part for i, part in enumerate(parts, 1))
    assert [part.count('Pong & 1.0') for part in parts] == [50, 10, 50, 10]
    assert split.count('1.0') == 60 * 25 and split.count('N.') == 1
    assert len(set(re.findall('label{(.*)}', split))) == 4


@pytest.mark.skipif(not shutil.which('pdflatex'), reason='no LaTeX')
def test_latex_tables_compile(report, tmp_path):
    files = sorted((report / 'tables').glob('*.tex'))
    assert files
    page = tmp_path / 'page.tex'
    page.write_text(
        r'\documentclass[twocolumn]{article}\usepackage[utf8]{inputenc}\usepackage{booktabs,graphicx}'
        + r'\begin{document}'
        + ''.join(rf'\input{{{file}}}' for file in files)
        + r'\end{document}'
    )
    command = ['pdflatex', '-halt-on-error', '-output-directory', str(tmp_path), str(page)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and 'Overfull' not in done.stdout, done.stdout


@pytest.fixture(scope='module')
def real(tmp_path_factory):
    """A report of real runs, one of which is given a name, made in a separate process."""
    runs = ROOT / 'experiments' / 'atari_small'
    out = tmp_path_factory.mktemp('real')
    code = (
        'import sys\n'
        'from ob2i_tf.analysis import __main__, episode\n'
        'status = __main__.main(sys.argv[1:])\n'
        'imported = {name.partition(".")[0] for name in sys.modules}\n'
        'sys.exit(status or str(imported & {"tensorflow", "tf_keras", "keras", "tf_agents"}))'
    )
    sources = [f'Mine & yours={runs / "Breakout" / "seed1"}', str(runs)]
    done = subprocess.run(
        [sys.executable, '-c', code, *sources, '--out', str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stderr == 'set()\n', 'TensorFlow was imported, or worse'
    return out


def test_a_report_of_real_runs(real):
    table = pd.read_csv(real / 'scores.csv', dtype={'seed': str})
    assert {*zip(table['method'], table['game'], table['seed'])} == {
        ('Mine & yours', 'Breakout', '1'),
        ('atari_small', 'Breakout', '0'),
        ('atari_small', 'Road Runner', '0'),
        ('atari_small', 'Road Runner', '1'),
        ('random', 'Breakout', '0'),
        ('random', 'Road Runner', '0'),
    }
    text = (real / 'report.html').read_text()
    assert 'cut short: 600,000 of 800,000 frames' in text
    assert 'Mine &amp; yours' in text and 'Mine & yours' not in text


@needs_browser
def test_the_page_fits_screens_goes_dark_and_needs_no_mouse(browser, real):  # noqa: F811
    paper = 'return getComputedStyle(document.body).backgroundColor'
    light, dark = 'rgb(255, 255, 255)', 'rgb(21, 24, 27)'
    for width, prefers_dark in ((390, False), (1200, True)):
        browser.screen(width, 844, prefers_dark)
        browser.open(real / 'report.html')
        assert browser.run('return document.documentElement.scrollWidth') <= width
        assert browser.run(paper) == (dark if prefers_dark else light)
        # Text of figures follows the page's colour.
        assert browser.run(
            "return getComputedStyle(document.querySelector('figure svg text')).fill"
            ' === getComputedStyle(document.body).color'
        )
        # Anything wider than the screen can be reached and scrolled by keyboard.
        tab, enter = '\ue004', '\ue007'
        browser.keys(tab)
        focused = 'return document.activeElement.'
        assert browser.run(focused + 'className') == 'skip'
        browser.keys(tab, enter)
        assert browser.run(focused + 'id') == 'theme'
        assert browser.run(paper) == (light if prefers_dark else dark)
        out_of_reach = browser.run(
            "return [...document.querySelectorAll('.wide')].filter((box) => box.tabIndex !== 0 && "
            'box.scrollWidth > box.clientWidth).length'
        )
        assert out_of_reach == 0
        assert not browser.errors()
    browser.screen(1920, 1080)
    browser.open(real / 'report.html')
    table, figure = browser.run(
        "return [...document.querySelectorAll('#summary .side-by-side > *')].map((part) => "
        '[part.getBoundingClientRect().top, part.getBoundingClientRect().right])'
    )
    assert figure[0] - table[0] < 60 and figure[1] > 1500  # Beside each other.


def test_a_report_without_an_atari_run_has_nothing_published(tmp_path):
    bindings = {
        'make_environment.name': "'DeepSea'",
        'make_deep_sea.size': 10,
        'Runner.evaluation_steps': 0,
    }
    for method in ('OB2I', 'BEBU'):
        for seed in (0, 1):
            write_run(tmp_path / 'runs', method, 'Pong', seed, 1, None, **bindings)
    out = tmp_path / 'out'
    assert command.main([str(tmp_path / 'runs'), '--out', str(out)]) == 0
    assert {path.name for path in (out / 'tables').iterdir()} == {
        'tasks.md',
        'tasks.tex',
        'tasks.csv',
    }
    table = pd.read_csv(out / 'tables' / 'tasks.csv')
    assert table.loc[0, ['Task', 'Scored by', 'Seeds']].tolist() == ['DeepSea 10', 'training', 2]
    scores = pd.read_csv(out / 'scores.csv').groupby('method')['score_last'].mean()
    assert table[['BEBU', 'OB2I']].iloc[0].tolist() == pytest.approx(scores.tolist())
    markdown = (out / 'tables' / 'tasks.md').read_text()
    assert markdown.splitlines()[4].count('**') == 2
    assert 'at least two seeds' in markdown
    by_seed = pd.read_csv(out / 'scores.csv').groupby('method')['score_last']
    for method, (low, high) in zip(('BEBU', 'OB2I'), zip(by_seed.min(), by_seed.max())):
        interval = f'[{tables.cell(low)}, {tables.cell(high)}]'  # Of two seeds.
        assert table.loc[0, f'{method}, 95% interval'] == interval
    assert {path.stem for path in (out / 'figures').iterdir()} == {'learning_curves', 'mean_bonus'}
    text = (out / 'report.html').read_text()
    shown = Page(text).text.partition('Skip to the content')[2]  # After the style.
    assert 'Problems (0)' in shown and 'paper' not in shown.lower()
    assert '4 of them with a score (last training iteration).' in shown
    assert 'Tables' not in shown and 'at least two seeds' in shown
    # The curves have a single point.
    assert (out / 'figures' / 'learning_curves.svg').read_text().count('<use') > 4
