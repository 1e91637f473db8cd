"""Figures of runs beside the published results, readable in print and by the colour-blind.

Each function returns Figures, as PNG and SVG. Text and axes have the colour INK, which the page
replaces by that of its text.
"""

import contextlib
import io
import itertools
import math
import re
import textwrap
from typing import NamedTuple

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import ticker

from ob2i_tf.analysis import scores
from ob2i_tf.analysis.load import game_order
from ob2i_tf.environments.games import ATARI_49

INK = '#1a1c1f'
# Okabe and Ito's colours, dark enough for lines on white and light enough for lines on black.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#B8860B', '#3A9BDC', '#7F7F7F', '#8C564B')
MARKERS = 'osD^vPX*'
DASHES = (
    '-',
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (9, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 3)),
    (0, (7, 3, 2, 3)),
)
PANELS = 12  # Of a page of curves, at most.
FEWEST_POINTS = 3  # Games, of a scatter.
STYLE = {
    'font.size': 9,
    'axes.titlesize': 9,
    'axes.labelsize': 9,
    'legend.fontsize': 8.5,
    'xtick.labelsize': 8,
    'ytick.labelsize': 8,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.linewidth': 0.8,
    'legend.frameon': False,
    'svg.fonttype': 'none',
    'svg.hashsalt': 'ob2i_tf',
    'font.family': 'DejaVu Sans',
    'text.parse_math': False,  # Methods may have any name.
    'savefig.dpi': 150,
    'figure.dpi': 100,
    'path.simplify': True,
    'text.color': INK,
    'axes.edgecolor': INK,
    'axes.labelcolor': INK,
    'axes.titlecolor': INK,
    'xtick.color': INK,
    'ytick.color': INK,
}


class Figure(NamedTuple):
    """A figure: name of its files, a title, what it shows (for who cannot see it), its pictures."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: str


def rendered(name, title, caption, figure) -> Figure:
    """Draws and closes a matplotlib figure."""
    figure.draw_without_rendering()
    figure.set_layout_engine('none')  # It need not be found anew for each format.
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format='png', facecolor='white', metadata={'Software': None})
    figure.savefig(svg, format='svg', transparent=True, metadata={'Date': None, 'Creator': None})
    plt.close(figure)
    return Figure(name, title, caption, png.getvalue(), svg.getvalue())


def inline_svg(figure) -> str:
    """The SVG as part of a page: text in the page's colour, ids of its own, a name."""
    text = figure.svg[figure.svg.index('<svg') :].replace(INK, 'currentColor')
    text = re.sub(r'(\bid="|url\(#|href="#)', lambda match: match[1] + figure.name + '-', text)
    label = f'{figure.title}. {figure.caption}'.replace('&', '&amp;').replace('<', '&lt;')
    label = label.replace('"', '&quot;')
    return text.replace('<svg ', f'<svg role="img" aria-label="{label}" ', 1)


@contextlib.contextmanager
def style():
    with plt.rc_context(STYLE):
        yield


def looks(methods):
    """{method: keywords of a line}, a colour and dashes for each; OB2I has the first."""
    methods = sorted(methods, key=lambda method: (not method.startswith('OB2I'), method))
    return {
        method: {
            'color': COLOURS[i % len(COLOURS)],
            'linestyle': DASHES[(i + i // len(COLOURS)) % len(DASHES)],
        }
        for i, method in enumerate(methods)
    }


def short(value) -> str:
    """0.5, 20, 3k, 1.2M."""
    for size, unit in ((1e6, 'M'), (1e3, 'k')):
        if abs(value) >= size:
            return f'{value / size:.4g}{unit}'
    return f'{value:.4g}'


def _short_ticks(axis):
    axis.set_major_locator(ticker.MaxNLocator(4))
    axis.set_major_formatter(lambda value, _: short(value))


def _percent_ticks(axis):
    """For a scale that is linear to 10 and logarithmic beyond."""
    steps = [5, 10, 30, 100, 300, 1000, 3000, 10000, 30000]
    axis.set_major_locator(ticker.FixedLocator([*(-step for step in steps), 0, *steps]))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(lambda value, _: f'{value:g}')


def _heading(method, against):
    """Names may be long."""
    return textwrap.fill(f'{method} against {against}', 72)


def curves_of(runs, table, column) -> pd.DataFrame:
    """The runs' `column` of their `table` ('eval' or 'train'), frames x seeds."""
    columns = {}
    for run in runs:
        rows = getattr(run, table).dropna(subset=[column]).drop_duplicates('frames', keep='last')
        if len(rows):
            columns[run.seed] = rows.set_index('frames')[column]
    return pd.DataFrame(columns).sort_index()


def interval_of_mean(curves, draws=1000):
    """Mean over seeds and its 95% bootstrap interval, a row each; NaN where there is one seed."""
    values = curves.to_numpy()
    count = values.shape[1]
    low, high = (np.full(len(values), np.nan) for _ in range(2))
    rng = np.random.default_rng(0)
    whole = ~np.isnan(values).any(axis=1)
    if count > 1 and whole.any():
        means = values[whole][:, rng.integers(count, size=(draws, count))].mean(axis=-1)
        low[whole], high[whole] = np.percentile(means, [2.5, 97.5], axis=1)
    for i in np.flatnonzero(~whole):
        seeds = values[i][~np.isnan(values[i])]
        if len(seeds) > 1:
            means = rng.choice(seeds, (draws, len(seeds))).mean(axis=1)
            low[i], high[i] = np.percentile(means, [2.5, 97.5])
    return curves.mean(axis=1), low, high


def grid(count):
    columns = min(3, count)
    rows = -(-count // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(7.65, 2.0 * rows + 0.3), squeeze=False, layout='constrained'
    )
    for axis in axes.flat[count:]:
        axis.axis('off')
    return figure, list(axes.flat[:count])


def legend(figure, lines):
    names = list(lines)
    characters = 16 * figure.get_figwidth()
    columns = int(characters / (max(map(len, names)) + 8))  # A name and its line.
    columns = min(4, len(names), max(1, columns))
    figure.set_figheight(figure.get_figheight() + 0.18 * -(-len(names) // columns))
    figure.legend(
        [lines[n] for n in names],
        names,
        loc='outside lower center',
        ncols=columns,
        handlelength=3.2,
    )


def _panels(runs, table, column, known, name, title, caption, ylabel) -> list[Figure]:
    """Pages of panels, one a game, with thin lines for seeds and a band for the mean's interval."""
    by_game = {}
    for run in runs:
        if not getattr(run, table)[column].isna().all():
            by_game.setdefault(run.game, {}).setdefault(run.method, []).append(run)
    names = sorted(by_game, key=game_order)
    look = looks({method for methods in by_game.values() for method in methods})
    count = -(-len(names) // PANELS)
    pages = [names[len(names) * i // count : len(names) * (i + 1) // count] for i in range(count)]
    figures = []
    for number, page in enumerate(pages, 1):
        with style():
            figure, axes = grid(len(page))
            lines = {}
            for axis, game in zip(axes, page):
                for method, members in sorted(by_game[game].items()):
                    curves = curves_of(members, table, column)
                    mean, low, high = interval_of_mean(curves)
                    for seed in curves:
                        seen = curves[seed].dropna()
                        axis.plot(seen.index, seen, color=look[method]['color'], lw=0.5, alpha=0.45)
                    axis.fill_between(
                        curves.index, low, high, color=look[method]['color'], alpha=0.18, lw=0
                    )
                    marker = {'marker': 'o', 'ms': 3} if len(mean) < 3 else {}
                    (lines[method],) = axis.plot(
                        curves.index, mean, lw=1.6, **look[method], **marker
                    )
                axis.set_xlim(0, 1.04 * axis.dataLim.x1)
                if known is not None and game in known.paper.index:
                    lines |= _end_points(axis, known, game)
                axis.set_title(game)
                _short_ticks(axis.xaxis)
                _short_ticks(axis.yaxis)
            for axis in axes[-3:]:
                axis.set_xlabel('frames')
            figure.supylabel(ylabel, fontsize=9)
            legend(figure, lines)
            several = len(pages) > 1
            figures.append(
                rendered(
                    f'{name}_{number}' if several else name,
                    f'{title}, page {number} of {len(pages)}' if several else title,
                    caption,
                    figure,
                )
            )
    return figures


def _end_points(axis, known, game):
    """Published scores at the right edge, random and human play as lines.

    What is so far from the curves that they would be flat beside it is written in the corner.
    """
    lines = {}
    low, high = axis.get_ylim()
    span, right = high - low, axis.get_xlim()[1]
    published = known.paper.loc[game]
    near = published.between(low - 2 * span, high + 2 * span)
    for method, marker in zip(known.paper, MARKERS):
        if near[method]:
            lines[f'{method}, paper at 20M'] = axis.scatter(
                right,
                published[method],
                marker=marker,
                s=16,
                facecolor='none',
                edgecolor=INK,
                lw=0.8,
                clip_on=False,
                zorder=3,
            )
    far = published[~near]
    if len(far):
        bounds = ' to '.join(dict.fromkeys(short(value) for value in (far.min(), far.max())))
        where = 'above' if far.min() > high else 'below' if far.max() < low else 'beyond'
        axis.text(
            0.98,
            0.98,
            f'paper, {where}: {bounds}',
            transform=axis.transAxes,
            ha='right',
            va='top',
            fontsize=7,
        )
    low, high = axis.get_ylim()  # Before the lines: human play may be far above everything.
    margin = 0.03 * (high - low)
    lines['human'] = axis.axhline(known.human[game], color=INK, lw=0.7, ls=(0, (1, 2)))
    lines['random'] = axis.axhline(known.random[game], color=INK, lw=0.7, ls=(0, (6, 3)))
    axis.set_ylim(min(low, known.random[game]) - margin, high + 5 * margin * (len(far) > 0))
    return lines


def learning_curves(runs, known) -> list[Figure]:
    return _panels(
        runs,
        'eval',
        'score_mean',
        known,
        'learning_curves',
        'Learning curves',
        'Evaluation score over training frames. Thin: seeds. Thick: their mean, with its 95% '
        'bootstrap interval where there are two seeds. Marks at the right edge: published scores '
        'at 20M frames, wherever the runs end; in the corner those that lie far off.',
        'evaluation score',
    )


def mean_bonus(runs) -> list[Figure]:
    """The mean UCB-bonus in the learning process (paper, its figure of the same name)."""
    return _panels(
        [run for run in runs if (run.train['bonus_mean'] > 0).any()],
        'train',
        'bonus_mean',
        None,
        'mean_bonus',
        'Mean bonus over training',
        'Mean of the bonus B of drawn episodes over training frames; thin lines are seeds.',
        'mean bonus',
    )


def relative_scores(mine, baseline, known, method, against, name) -> list[Figure]:
    """Bars of one method's relative scores against a baseline (paper, appendix G).

    Args:
      mine, baseline: raw scores by game.
      known: Published.
      method, against: what they are called.
      name: of the figure.
    """
    relative = scores.relative_score(mine, baseline, known.random, known.human)
    relative = (100 * relative.dropna()).sort_values()
    if relative.empty:
        return []
    with style():
        figure, axis = plt.subplots(figsize=(6.3, 0.17 * len(relative) + 1.1), layout='constrained')
        better = relative > 0
        axis.barh(
            range(len(relative)),
            relative,
            height=0.72,
            color=np.where(better, COLOURS[0], COLOURS[1]),
        )
        for i, value in enumerate(relative):
            axis.annotate(
                f'{value:+.1f}',
                (value, i),
                (3 if value >= 0 else -3, 0),
                textcoords='offset points',
                va='center',
                fontsize=7,
                ha='left' if value >= 0 else 'right',
            )
        axis.set_yticks(range(len(relative)), relative.index, fontsize=7.5)
        axis.set_ylim(-0.7, len(relative) - 0.3)
        axis.axvline(0, color=INK, lw=0.8)
        axis.set_xscale('symlog', linthresh=10)
        _percent_ticks(axis.xaxis)
        axis.margins(x=0.16)
        axis.set_title(_heading(method, against))
        axis.set_xlabel('relative score, % (linear to 10, then log)')
        counts = int(better.sum()), int((relative == 0).sum()), int((relative < 0).sum())
        return [
            rendered(
                name,
                f'{method} against {against}',
                '(score - baseline) / (max(human, baseline) - random) in percent. Of '
                f'{len(relative)}: {counts[0]} above, {counts[1]} equal, {counts[2]} below.',
                figure,
            )
        ]


def episode_length(runs, mine, baseline, known, method, against, name) -> list[Figure]:
    """Length of games against relative score, a point a game (paper, failure analysis)."""
    lengths = {}
    for run in runs:
        if run.method == method:
            last = run.games.loc[run.games['iteration'] == run.games['iteration'].max(), 'length']
            source = (
                last.dropna()
                if last.notna().any()
                else (run.train['episode_length_mean'].dropna().iloc[-1:])
            )
            if len(source):
                lengths.setdefault(run.game, []).append(source.mean())
    relative = scores.relative_score(mine, baseline, known.random, known.human)
    points = pd.DataFrame(
        {'length': {game: np.mean(seeds) for game, seeds in lengths.items()}, 'score': relative}
    ).dropna()
    if len(points) < FEWEST_POINTS:
        return []
    with style():
        figure, axis = plt.subplots(figsize=(6.3, 4.2), layout='constrained')
        above = points['score'] > 0
        for mask, colour, marker in ((above, COLOURS[0], 'o'), (~above, COLOURS[1], 'v')):
            axis.scatter(
                points['length'][mask],
                100 * points['score'][mask],
                s=22,
                color=colour,
                marker=marker,
            )
        for game, (length, score) in points[points['score'].abs() > 0.05].iterrows():
            axis.annotate(
                game, (length, 100 * score), (3, 3), textcoords='offset points', fontsize=6.5
            )
        axis.axhline(0, color=INK, lw=0.8)
        axis.set_xscale('log')
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.xaxis.set_major_formatter(lambda value, _: f'{value:,g}')
        axis.set_yscale('symlog', linthresh=10)
        axis.margins(x=0.08, y=0.08)
        _percent_ticks(axis.yaxis)
        axis.set_title(_heading(method, against))
        axis.set_xlabel('mean length of an evaluation game, agent steps')
        axis.set_ylabel('relative score, %')
        return [
            rendered(
                name,
                f'Episode length and relative score: {method} against {against}',
                'A point a game, named where it is further than 5% from 0. The paper finds its '
                'method weak where games are short.',
                figure,
            )
        ]


def performance_profiles(normalised, known, draws=500) -> list[Figure]:
    """Share of runs above a normalised score (Agarwal et al. 2021), with bootstrap bands.

    Args:
      normalised: of `scores.normalised_runs`.
      known: Published; the paper's columns appear as lines, one value a game.
      draws: of the bootstrap, stratified by game.
    """
    taus = np.linspace(0, 4, 161)
    if normalised.empty:
        return []
    with style():
        figure, axis = plt.subplots(figsize=(6.3, 3.6), layout='constrained')
        rng = np.random.default_rng(0)
        groups = dict(tuple(normalised.groupby('method')))
        look = looks(groups)
        for method, group in groups.items():
            games = [values.to_numpy() for _, values in group.groupby('game')['normalised']]
            share = _share(games, taus)
            axis.plot(taus, share, lw=1.8, label=f'{method}, n = {len(games)}', **look[method])
            if max(len(values) for values in games) > 1:
                bands = [_share([rng.choice(g, len(g)) for g in games], taus) for _ in range(draws)]
                axis.fill_between(
                    taus,
                    *np.percentile(bands, [2.5, 97.5], axis=0),
                    color=look[method]['color'],
                    alpha=0.18,
                    lw=0,
                )
        for i, method in enumerate(known.paper):
            values = scores.human_normalised(known.paper[method], known.random, known.human)
            axis.plot(
                taus,
                _share([values.to_numpy()], taus),
                color=INK,
                lw=0.8,
                alpha=0.75,
                ls=DASHES[i],
                label=f'{method}, paper',
            )
        axis.set_ylim(0, 1)
        axis.set_xlim(0, taus[-1])
        axis.set_xlabel('human-normalised score τ')
        axis.set_ylabel('share of runs above τ')
        axis.legend(loc='upper right')
        return [
            rendered(
                'performance_profiles',
                'Performance profiles',
                'Share of runs whose human-normalised score is above a threshold, each of the n '
                'games counting alike; bands are 95% bootstrap intervals over seeds. '
                "The paper's lines are of one mean a game.",
                figure,
            )
        ]


def _share(games, taus):
    sorted_games = (np.sort(values) for values in games)
    return np.mean([1 - np.searchsorted(v, taus, side='right') / len(v) for v in sorted_games], 0)


def intervals(summary, known) -> list[Figure]:
    """Mean, median, IQM and optimality gap with their intervals, beside the published columns."""
    published = scores.published_summary(known)
    published = published[published['frames_millions'] == 20]
    rows = [(f'{r["method"]} (here)', r, COLOURS[0]) for _, r in summary.iterrows()]
    rows += [(f'{r["method"]} (paper)', r, INK) for _, r in published.iterrows()]
    with style():
        figure, axes = plt.subplots(
            1, 4, figsize=(7.6, 0.26 * len(rows) + 1.0), sharey=True, layout='constrained'
        )
        for axis, name in zip(axes, scores.STATISTICS):
            for y, (_, row, colour) in enumerate(reversed(rows)):
                low, high = row.get(f'{name}_low', math.nan), row.get(f'{name}_high', math.nan)
                if not math.isnan(low):
                    axis.plot(
                        [100 * low, 100 * high],
                        [y, y],
                        color=colour,
                        lw=6,
                        alpha=0.35,
                        solid_capstyle='butt',
                    )
                axis.plot(100 * row[name], y, 'o' if colour != INK else 'D', color=colour, ms=5)
            axis.set_title(name.replace('_', ' ').replace('iqm', 'IQM') + ', %')
            axis.grid(axis='x', color=INK, alpha=0.15, lw=0.6)
            axis.xaxis.set_major_locator(ticker.MaxNLocator(3))
        axes[0].set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
        axes[0].set_ylim(-0.6, len(rows) - 0.4)
        return [
            rendered(
                'intervals',
                'Human-normalised summary',
                'Points and 95% stratified bootstrap intervals. Rows over different numbers of '
                'games are not comparable; see the table.',
                figure,
            )
        ]


def _slugs(names):
    """Of each a name for files, different from the others'."""
    slugs = []
    for name in names:
        slug = re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_') or 'method'
        numbered = (slug + f'_{i}' * (i > 1) for i in itertools.count(1))
        slugs.append(next(free for free in numbered if free not in slugs))
    return slugs


def all_figures(runs, table, summary, known, score='score_last', method=None) -> list[Figure]:
    """Every figure that these runs allow.

    Args:
      method: whose relative scores are shown; by default OB2I, of several the one with most games,
        else any.
    """
    mine = scores.by_game(table, score)
    of_paper = [m for m in mine if mine[m].reindex(ATARI_49).notna().any()]
    figures = [*intervals(summary, known)] if len(summary) else []
    figures += learning_curves(runs, known)
    figures += performance_profiles(scores.normalised_runs(table, known, score), known)
    if method is None and of_paper:
        method = max(of_paper, key=lambda m: (m.startswith('OB2I'), mine[m].count()))
    if method is not None:
        baselines = [(m, mine[m], m) for m in of_paper if m != method]
        baselines += [(f'{m} (paper)', known.paper[m], f'{m}_paper') for m in known.paper]
        slugs = _slugs([file for _, _, file in baselines])
        for (against, baseline, _), slug in zip(baselines, slugs):
            figures += relative_scores(
                mine[method], baseline, known, method, against, f'relative_{slug}'
            )
            figures += episode_length(
                runs, mine[method], baseline, known, method, against, f'length_{slug}'
            )
    figures += mean_bonus(runs)
    return figures
