"""Figures of results alongside the published ones, readable in print and by the colour-blind.

Each function returns Figures, with PNG, SVG and PDF. Text and axes have the colour INK, which a
page replaces by its text colour.
"""

import html
import io
import itertools
import math
import re
import textwrap
import zlib
from typing import NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import figure as mfigure
from matplotlib import lines as mlines
from matplotlib import patches, rcsetup, ticker

from ob2i_tf.analysis import scores
from ob2i_tf.analysis.load import game_order

INK = '#1a1c1f'
# Okabe and Ito's colours, dark enough for lines on white and light enough for lines on black.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#B8860B', '#3A9BDC', '#7F7F7F', '#8C564B')
_PATTERNS = (
    (5, 1.5),
    (1.5, 1.2),
    (6, 1.5, 1.5, 1.5),
    (9, 2),
    (3, 1, 1, 1, 1, 1),
    (2, 3),
    (7, 3, 2, 3),
)
WIDE, NARROW = 7.65, 5.6  # Widths of figures, in inches.
DASHES = ['-', *((0, pattern) for pattern in _PATTERNS)]
# In the order of their colours and dashes. Methods often shown together differ in colour.
METHODS = (
    *('OB2I', 'BEBU', 'BEBU-UCB', 'BEBU-IDS', 'BootDQN', 'EBU', 'DQN', 'BEBU-RND'),
    *('UBE', 'Bayesian-DQN', 'BootDQN-UCB', 'BootDQN-IDS'),
    *('NoisyNet', 'EBU, adaptive', 'NoisyNet-DQN', 'random policy'),
    *('UBE, 1-step', 'randomised LSVI', 'LSVI-UCB', 'epsilon-greedy LSVI'),
)
# For legends: what all methods share, in the colour of none.
SEED = mlines.Line2D([], [], color=INK, lw=0.7)
POINT = mlines.Line2D([], [], color=INK, ls='', marker='o', ms=3)
BAND = patches.Patch(facecolor=INK, alpha=0.25)
PANELS = 12  # Largest number per page of curves.
FEWEST_POINTS = 3  # Smallest number of games in a scatter plot.
STYLE = {
    'font.family': 'DejaVu Sans',
    'font.size': 9,
    'axes.titlesize': 9,
    'axes.titley': 1.0,  # Fixed, since the search for a free place at each drawing is slow.
    'axes.labelsize': 9,
    'legend.fontsize': 8.5,
    'xtick.labelsize': 8,
    'ytick.labelsize': 8,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'legend.frameon': False,
    'axes.prop_cycle': rcsetup.cycler(color=COLOURS),
    'svg.fonttype': 'none',
    'pdf.fonttype': 42,  # TrueType; publishers refuse the default, Type 3.
    'svg.hashsalt': 'ob2i_tf',
    'text.parse_math': False,  # Names of methods may contain '$'.
    'figure.dpi': 150,  # As saved, since widths of text depend on it.
    'savefig.dpi': 150,
    **dict.fromkeys(('text.color', 'axes.edgecolor', 'axes.labelcolor', 'axes.titlecolor'), INK),
    **dict.fromkeys(('xtick.color', 'ytick.color'), INK),
}


class Figure(NamedTuple):
    """A figure: the name of its files, a title, a description, and the images."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: str
    pdf: bytes

    def inline_svg(self) -> str:
        """The SVG for use in a page: text in the page's colour, unique ids, a description."""
        text = self.svg[self.svg.index('<svg') :].replace(INK, 'currentColor')
        text = re.sub(r'(\bid="|url\(#|href="#)', rf'\g<1>{self.name}-', text)
        label = html.escape(f'{self.title}. {self.caption}')
        return text.replace('<svg ', f'<svg role="img" aria-label="{label}" ', 1)

    def save(self, folder):
        for suffix, content in (('png', self.png), ('svg', self.svg.encode()), ('pdf', self.pdf)):
            (folder / f'{self.name}.{suffix}').write_bytes(content)


def rendered(name, title, caption, figure) -> Figure:
    """Draws a matplotlib figure."""
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine(None)  # The layout need not be computed again for each format.
    png, svg, pdf = io.BytesIO(), io.StringIO(), io.BytesIO()
    figure.savefig(png, format='png', facecolor='white', metadata={'Software': None})
    figure.savefig(svg, format='svg', transparent=True, metadata={'Date': None, 'Creator': None})
    dates = dict.fromkeys(('CreationDate', 'Creator', 'Producer'))
    figure.savefig(pdf, format='pdf', transparent=True, metadata=dates)
    return Figure(name, title, caption, png.getvalue(), svg.getvalue(), pdf.getvalue())


def style():
    """A context that gives figures the same style."""
    return matplotlib.rc_context(STYLE)  # type: ignore[arg-type]


def empty(width, height) -> mfigure.Figure:
    """A matplotlib figure of this size in inches, without axes; pyplot, the user's, is not used."""
    return mfigure.Figure((width, height), layout='constrained')


def line_styles(methods):
    """{method: keywords of a line}, OB2I first.

    Colour and dashes depend on the name alone, in any spelling ('bebu_ucb' looks like 'BEBU-UCB'),
    unless two of the methods would then look alike.
    """

    def plain(method):
        return re.sub('[^a-z0-9]+', ' ', method.lower())

    known = {plain(method): look for look, method in enumerate(METHODS)}
    others = range(len(METHODS), len(COLOURS) * len(DASHES))
    looks = {}
    for method in sorted(methods, key=lambda method: (method not in METHODS, method)):
        start = zlib.crc32(plain(method).encode()) % len(others)
        wanted = [*others[start:], *others[:start]]
        if plain(method) in known:
            wanted.insert(0, known[plain(method)])
        looks[method] = next((look for look in wanted if look not in looks.values()), wanted[0])
    return {
        method: {
            'color': COLOURS[looks[method] % len(COLOURS)],
            'linestyle': DASHES[(looks[method] + looks[method] // len(COLOURS)) % len(DASHES)],
        }
        for method in sorted(looks, key=lambda method: (not method.startswith('OB2I'), method))
    }


def plot(axis, x, y, **keywords):
    """A line, with a marker if it is a single point, which would otherwise be invisible."""
    marker = {'marker': 'o', 'ms': 3, 'clip_on': False} if len(x) == 1 else {}
    (line,) = axis.plot(x, y, **marker, **keywords)
    return line


def band(axis, x, low, high, color, alpha=0.18):
    """Fills the space between two lines; a single point gets a bar."""
    axis.fill_between(x, low, high, color=color, alpha=alpha, lw=4 if len(x) == 1 else 0)


def short(value) -> str:
    """0.5, 20, 3k, 1.2M."""
    for size, unit in ((1e6, 'M'), (1e3, 'k')):
        if abs(value) >= size:
            return f'{value / size:.4g}{unit}'
    return f'{value:.4g}'


def _percent_ticks(axis):
    """Sets the ticks of a scale that is linear up to 10 and logarithmic beyond."""
    steps = [5, 10, 30, 100, 300, 1000, 3000, 10000, 30000]
    axis.set_major_locator(ticker.FixedLocator([*(-step for step in steps), 0, *steps]))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(lambda value, _: f'{value:g}')


def _ticks(end):
    """Up to six round numbers from 0, the last of them as near to the end as possible."""
    candidates = [ticker.MaxNLocator(count).tick_values(0, end) for count in (3, 4, 5)]
    return max((ticks[ticks <= end] for ticks in candidates), key=lambda ticks: ticks[-1])


def run_curves(runs, table, column) -> pd.DataFrame:
    """The `column` of a table of the runs ('scores' or 'train'), frames x seeds."""
    columns = {}
    for run in runs:
        rows = getattr(run, table)
        curve = rows.set_index('frames')[column].dropna()
        if len(curve):
            columns[run.seed] = curve[~curve.index.duplicated(keep='last')]
    return pd.DataFrame(columns).sort_index()


def interval_of_mean(curves, draws=1000):
    """95% bootstrap interval of the mean over seeds, [2, frames], of [frames, seeds]."""
    values = curves.to_numpy()
    seeds = np.random.default_rng(0).integers(values.shape[1], size=(draws, values.shape[1]))
    return np.percentile(values[:, seeds].mean(axis=-1), [2.5, 97.5], axis=1)


def grid(count):
    """A figure with `count` panels in up to three columns, and their axes."""
    columns = min(3, count)
    rows = -(-count // columns)
    figure = empty(WIDE, 2.0 * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[count:]:
        axis.axis('off')
    return figure, list(axes.flat[:count])


def legend(figure, lines):
    """Adds a legend below the figure, which grows by the height of the legend.

    Args:
      figure: Figure.
      lines: {name: line, or anything else that has a handle in legends}.
    """
    names = [textwrap.fill(name, int(12 * figure.get_figwidth())) for name in lines]
    width = max(len(line) for name in names for line in name.splitlines()) + 8  # With its line.
    columns = min(4, len(names), max(1, int(16 * figure.get_figwidth() / width)))
    rows = -(-len(names) // columns) * max(name.count('\n') + 1 for name in names)
    figure.set_figheight(figure.get_figheight() + 0.18 * rows)
    place = {'loc': 'outside lower center', 'ncols': columns, 'handlelength': 3.2}
    made = figure.legend(lines.values(), ['-'] * len(names), **place)
    for text, name in zip(made.get_texts(), names):
        text.set_text(name)  # Only here, since legends leave out names that start with '_'.


@style()
def _panels(runs, table, column, known, name, title, caption, ylabel) -> list[Figure]:
    """Pages of panels, one per game, with thin lines for seeds and a band for the mean."""
    by_game = {}
    for run in runs:
        if getattr(run, table)[column].notna().any():
            by_game.setdefault(run.game, {}).setdefault(run.method, []).append(run)
    games = sorted(by_game, key=game_order)
    styles = line_styles({method for methods in by_game.values() for method in methods})
    count = -(-len(games) // PANELS)
    pages = [games[len(games) * i // count : len(games) * (i + 1) // count] for i in range(count)]
    figures = []
    for number, page in enumerate(pages, 1):
        figure, axes = grid(len(page))
        lines, shared = {}, {}
        for axis, game in zip(axes, page):
            for method in (method for method in styles if method in by_game[game]):
                curves = run_curves(by_game[game][method], table, column)
                lines[method] = _draw_seeds(axis, curves, styles[method])
                if len(curves.columns) > 1:
                    shared = {'one seed': SEED, '95% interval of the mean': BAND}
            end = axis.dataLim.x1 or 1
            axis.set_xlim(0, 1.04 * end)
            if known is not None and game in known.paper.index:
                shared |= _published_scores(axis, known, game)
            axis.set_title(game)
            axis.xaxis.set_major_locator(ticker.FixedLocator(_ticks(end)))
            axis.yaxis.set_major_locator(ticker.MaxNLocator(4))
            for each in (axis.xaxis, axis.yaxis):
                each.set_major_formatter(lambda value, _: short(value))
        for axis in axes[-3:]:
            axis.set_xlabel('frames')
        figure.supylabel(ylabel, fontsize=9)
        legend(figure, lines | shared)
        suffix = f'_{number}' if count > 1 else ''
        of_count = f', page {number} of {count}' if count > 1 else ''
        figures.append(rendered(name + suffix, title + of_count, caption, figure))
    return figures


def _draw_seeds(axis, curves, look):
    """A thin line per seed and a band for their mean; returns the thick line of the mean.

    The mean is that of the lines, and ends where a seed ends, as others would move it there.
    """
    common = curves.interpolate(method='index', limit_area='inside').dropna()
    if len(curves.columns) > 1:
        seen = [curves[seed].dropna() for seed in curves]
        ends = np.cumsum([len(seed) + 1 for seed in seen])
        single = [int(end) - 2 for end, seed in zip(ends, seen) if len(seed) == 1]
        x, y = np.concatenate([[*seed.items(), (np.nan, np.nan)] for seed in seen]).T
        thin = {'lw': 0.5, 'alpha': 0.45, 'marker': 'o', 'ms': 3, 'markevery': single}
        axis.plot(x, y, color=look['color'], **thin)  # One line, since drawing many is slow.
        low, high = interval_of_mean(common)
        band(axis, common.index, low, high, look['color'])
    return plot(axis, common.index, common.mean(axis=1), lw=1.6, **look)


def _published_scores(axis, known, game):
    """Marks published scores at the right edge, and random and human play by lines.

    Scores so far away that they would flatten the curves are printed in the corner.
    """
    lines = {}
    low, high = axis.get_ylim()
    published = known.paper.loc[game]
    near = published.between(low - 2 * (high - low), high + 2 * (high - low))
    for (method, style), marker in zip(line_styles(known.paper).items(), 'osD^'):
        if near[method]:
            look = {'ls': '', 'ms': 4, 'mfc': 'none', 'mec': style['color'], 'clip_on': False}
            (mark,) = axis.plot(axis.get_xlim()[1], published[method], marker, zorder=3, **look)
            lines[f'{method}, paper at 20M'] = mark
    far = published[~near]
    if len(far):
        bounds = ' to '.join(dict.fromkeys(short(value) for value in (far.min(), far.max())))
        where = 'above' if far.min() > high else 'below' if far.max() < low else 'beyond'
        corner = {'transform': axis.transAxes, 'ha': 'right', 'va': 'top', 'fontsize': 7}
        axis.text(0.98, 0.98, f'paper, {where}: {bounds}', **corner)
    low, high = axis.get_ylim()  # Before the lines: human play may be far above everything.
    margin = 0.03 * (high - low)
    lines['human play'] = axis.axhline(known.human[game], color=INK, lw=0.7, ls=(0, (1, 2)))
    lines['random play'] = axis.axhline(known.random[game], color=INK, lw=0.7, ls=(0, (6, 3)))
    axis.set_ylim(min(low, known.random[game]) - margin, high + 5 * margin * (len(far) > 0))
    return lines


def learning_curves(runs, known) -> list[Figure]:
    atari = any(run.game in known.paper.index for run in runs)
    return _panels(
        runs,
        'scores',
        'score_mean',
        known,
        'learning_curves',
        'Learning curves',
        'Score over training frames. Thin: seeds. Thick: their mean, as far as all seeds reach, '
        'with its 95% bootstrap interval if there are at least two seeds; with few seeds it is too '
        'narrow. Scores are those of evaluations, or of training episodes if the runs of a task '
        'have no evaluations.'
        + ' Marks at the right edge: published scores at 20M frames, wherever the runs end; those '
        'far off are printed in the corner.' * atari,
        'score',
    )


def mean_bonus(runs) -> list[Figure]:
    """The mean UCB-bonus over training (paper, figure "mean UCB-bonus in the learning process")."""
    return _panels(
        [run for run in runs if (run.train['bonus_mean'] > 0).any()],
        'train',
        'bonus_mean',
        None,
        'mean_bonus',
        'Mean bonus over training',
        'Mean of the bonus B of sampled episodes over training frames; thin lines are seeds.',
        'mean bonus',
    )


def _signs(method):
    """Colours of scores above and below a baseline."""
    return line_styles([method])[method]['color'], '#8a8f95'


@style()
def relative_scores(relative, method, against, name) -> list[Figure]:
    """Bars of a method's relative scores against a baseline (paper, appendix G).

    Args:
      relative: Relative scores in percent, by game.
      method, against: Names of the method and the baseline.
      name: Name of the figure.
    """
    if relative.empty:
        return []
    relative = relative.sort_values()
    better = relative > 0
    figure = empty(NARROW, 0.17 * len(relative) + 1.1)
    axis = figure.subplots()
    places = range(len(relative))
    bars = axis.barh(places, relative, height=0.72, color=np.where(better, *_signs(method)))
    axis.bar_label(bars, fmt='%+.1f', padding=3, fontsize=7)
    axis.set_yticks(places, relative.index, fontsize=7.5)
    axis.set_ylim(-0.7, len(relative) - 0.3)
    axis.axvline(0, color=INK, lw=0.8)
    axis.set_xscale('symlog', linthresh=10)
    _percent_ticks(axis.xaxis)
    axis.margins(x=0.16)
    axis.set_title(textwrap.fill(f'{method} against {against}', 64))
    axis.set_xlabel('relative score, % (linear to 10, then logarithmic)')
    caption = (
        '(score - baseline) / (max(human, baseline) - random) in percent. '
        f'Of {len(relative)} games, {better.sum()} are above 0, {(relative == 0).sum()} equal '
        f'and {(relative < 0).sum()} below.'
    )
    return [rendered(name, f'{method} against {against}', caption, figure)]


def game_lengths(runs) -> pd.Series:
    """Mean length of the games of the last evaluation, else of training, by game."""
    lengths = {}
    for run in runs:
        last = run.games.loc[run.games['iteration'] == run.games['iteration'].max(), 'length']
        if last.isna().all():
            last = run.train['episode_length_mean'].dropna().iloc[-1:]
        if len(last):
            lengths.setdefault(run.game, []).append(last.mean())
    return pd.Series({game: np.mean(seeds) for game, seeds in lengths.items()}, dtype=float)


@style()
def episode_length(lengths, relative, method, against, name) -> list[Figure]:
    """Relative score against length of games, one point per game (paper, failure analysis).

    Args:
      lengths: See `game_lengths`.
      relative, method, against, name: See `relative_scores`.
    """
    points = pd.DataFrame({'length': lengths, 'score': relative}).dropna()
    if len(points) < FEWEST_POINTS:
        return []
    figure = empty(NARROW, 4.0)
    axis = figure.subplots()
    above = points['score'] > 0
    for chosen, colour, marker in zip((above, ~above), _signs(method), 'ov'):
        axis.scatter('length', 'score', data=points[chosen], s=22, color=colour, marker=marker)
    axis.axhline(0, color=INK, lw=0.8)
    axis.set_xscale('log')
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_minor_locator(ticker.NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f'{value:,g}')
    axis.set_yscale('symlog', linthresh=10)
    axis.margins(x=0.08, y=0.08)
    _percent_ticks(axis.yaxis)
    axis.set_title(textwrap.fill(f'{method} against {against}', 64))
    _names(axis, points[points['score'].abs() > 5].sort_values('score', key=abs, ascending=False))
    axis.set_xlabel('mean length of an evaluation game, agent steps')
    axis.set_ylabel('relative score, %')
    return [
        rendered(
            name,
            f'Episode length and relative score: {method} against {against}',
            'One point per game, named if it is further than 5% from 0 and there is room. The '
            'paper finds its method weak in short games.',
            figure,
        )
    ]


def _names(axis, points):
    """Names points (x, y) in their order, except where a name would cover an earlier one."""
    middle = np.mean(axis.get_window_extent().intervalx)
    taken = []
    for name, at in zip(points.index, axis.transData.transform(points)):
        side = -1 if at[0] > middle else 1  # Names point inwards.
        width, height = (size * axis.figure.dpi / 72 for size in (4.2 * len(name) + 6, 9))
        left = min(at[0], at[0] + side * width)
        if any(abs(left - x) < max(width, w) and abs(at[1] - y) < height for x, w, y in taken):
            continue
        taken.append((left, width, at[1]))
        place = {'xytext': (3 * side, 3), 'ha': 'right' if side < 0 else 'left'}
        axis.annotate(name, points.loc[name], textcoords='offset points', fontsize=6.5, **place)


@style()
def performance_profiles(results, draws=500) -> list[Figure]:
    """Share of runs above a normalised score (Agarwal et al. 2021), with bootstrap bands.

    Args:
      results: scores.Results; the paper's methods appear as lines, one value per game.
      draws: Repetitions of the bootstrap, stratified by game.
    """
    if results.atari.empty:
        return []
    known = results.known
    taus = np.linspace(0, 4, 161)
    rng = np.random.default_rng(0)
    figure = empty(NARROW, 3.4)
    axis = figure.subplots()
    lines, shared = {}, {}
    groups = dict(tuple(results.atari.groupby('method')))
    for method, keywords in line_styles(groups).items():
        by_game = groups[method].groupby('game')['normalised']
        games = [values.to_numpy()[:, None] > taus for _, values in by_game]
        share = np.mean([above.mean(axis=0) for above in games], axis=0)
        lines[f'{method}, n = {len(games)}'] = plot(axis, taus, share, lw=1.8, **keywords)
        if min(map(len, games)) > 1:
            drawn = [g[rng.integers(len(g), size=(draws, len(g)))].mean(axis=1) for g in games]
            low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5], axis=0)
            band(axis, taus, low, high, keywords['color'])
            shared = {'95% interval': BAND}
    for method, keywords in line_styles(known.paper).items():
        values = scores.human_normalised(known.paper[method], known.random, known.human)
        share = (values.to_numpy()[:, None] > taus).mean(axis=0)
        lines[f'{method}, paper'] = plot(axis, taus, share, lw=0.8, **keywords)
    axis.set_ylim(0, 1)
    axis.set_xlim(0, taus[-1])
    axis.set_xlabel('human-normalised score τ')
    axis.set_ylabel('share of runs above τ')
    legend(figure, lines | shared)
    return [
        rendered(
            'performance_profiles',
            'Performance profiles',
            'Share of runs whose human-normalised score is above a threshold, with equal weight '
            'for each of the n games; bands are 95% bootstrap intervals over seeds, which need two '
            'seeds per game. The lines of the paper are computed from one mean per game.',
            figure,
        )
    ]


@style()
def intervals(results) -> list[Figure]:
    """Mean, median, IQM and optimality gap with their intervals, alongside the published ones."""
    if results.summary.empty:
        return []
    published = results.published_summary.query('frames_millions == 20')
    rows = [('here', row) for _, row in results.summary.iterrows()]
    rows += [('paper', row) for _, row in published.iterrows()]
    names = [textwrap.fill(f'{row["method"]} ({source})', 40) for source, row in rows]
    looks = line_styles({row['method'] for _, row in rows})
    figure = empty(WIDE, 0.26 * len(rows) + 1.0)
    axes = figure.subplots(1, 4, sharey=True)
    for axis, name in zip(axes, scores.STATISTICS):
        for y, (source, row) in enumerate(rows):
            low, high = row.get(f'{name}_low', math.nan), row.get(f'{name}_high', math.nan)
            color = looks[row['method']]['color']
            axis.barh(y, 100 * (high - low), 0.45, 100 * low, color=color, alpha=0.35)
            axis.plot(100 * row[name], y, 'oD'[source == 'paper'], color=color, ms=5)
        axis.set_title(name.replace('_', ' ').replace('iqm', 'IQM') + ', %')
        axis.use_sticky_edges = False  # Else bars may end at the edge, as if cut off.
        axis.grid(axis='x', color=INK, alpha=0.15, lw=0.6)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(3))
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    if 'mean_low' in results.summary and results.summary['mean_low'].notna().any():
        legend(figure, {'95% interval': BAND})
    return [
        rendered(
            'intervals',
            'Human-normalised summary',
            'Points and 95% stratified bootstrap intervals. Methods with different numbers of '
            'games are not comparable; see the table.',
            figure,
        )
    ]


def _slugs(names):
    """A unique file name for each."""
    slugs = []
    for name in names:
        slug = re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_') or 'method'
        numbered = (slug + f'_{i}' * (i > 1) for i in itertools.count(1))
        slugs.append(next(free for free in numbered if free not in slugs))
    return slugs


def all_figures(results, method=None) -> list[Figure]:
    """Every figure that these runs allow.

    Args:
      results: scores.Results.
      method: Method whose relative scores are shown; by default the variant of OB2I with the most
        games, else any method.
    """
    runs, mine, known = results.runs, results.means, results.known
    figures = intervals(results) + learning_curves(runs, known) + performance_profiles(results)
    if method is None and len(mine):
        method = max(mine, key=lambda m: (m.upper().startswith('OB2I'), mine[m].count()))
    if method in mine:
        lengths = game_lengths([run for run in runs if run.method == method])
        baselines = dict(mine.drop(columns=method)) | dict(known.paper.add_suffix(' (paper)'))
        for (against, baseline), slug in zip(baselines.items(), _slugs(baselines)):
            relative = scores.relative_score(mine[method], baseline, known.random, known.human)
            relative = 100 * relative.dropna()
            figures += relative_scores(relative, method, against, f'relative_{slug}')
            figures += episode_length(lengths, relative, method, against, f'length_{slug}')
    return figures + mean_bonus(runs)
