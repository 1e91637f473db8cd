"""Tables of runs beside the published ones, as Markdown, LaTeX and CSV."""

import csv
import io
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from ob2i_tf.analysis import scores
from ob2i_tf.environments.games import ATARI_49

ABLATION_GAMES = ('Q*Bert', 'Space Invaders', 'Freeway')
MONTEZUMA = "Montezuma's Revenge"
_LATEX = {
    '&': r'\&',
    '%': r'\%',
    '_': r'\_',
    '#': r'\#',
    '$': r'\$',
    '{': r'\{',
    '}': r'\}',
    '~': r'\textasciitilde{}',
    '^': r'\textasciicircum{}',
    '\\': r'\textbackslash{}',
}


class Table(NamedTuple):
    """One table.

    Attributes:
      name: of its files.
      title: one line.
      columns: headings.
      rows: cells, each a text, a number or None where there is nothing.
      best: (row, column) of the cells to mark.
      notes: sentences below it.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: list[list]
    best: frozenset = frozenset()
    notes: tuple[str, ...] = ()


def cell(value) -> str:
    """A cell as text: numbers with a decimal place, what is not there as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return '–'
    if isinstance(value, float):
        return f'{value:,.2f}' if 0 < abs(value) < 0.95 else f'{value:,.1f}'
    return f'{value:,}' if isinstance(value, int) else str(value)


def markdown(table) -> str:
    lines = [table.columns, ['---'] + ['---:'] * (len(table.columns) - 1)]
    for i, row in enumerate(table.rows):
        texts = [cell(value).replace('|', r'\|').replace('*', r'\*') for value in row]
        lines.append([f'**{t}**' if (i, j) in table.best else t for j, t in enumerate(texts)])
    body = '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
    return '\n\n'.join([f'**{table.title}**', body, *table.notes]) + '\n'


def _escaped(text):
    return ''.join(_LATEX.get(character, character) for character in text)


def latex(table) -> str:
    """A booktabs table; needs the packages booktabs and inputenc (utf8)."""
    lines = []
    for i, row in enumerate(table.rows):
        texts = [_escaped(cell(value)).replace('–', '--') for value in row]
        texts = [rf'\textbf{{{t}}}' if (i, j) in table.best else t for j, t in enumerate(texts)]
        lines.append('    ' + ' & '.join(texts) + r' \\')
    return '\n'.join(
        [
            r'\begin{table}',
            r'  \centering',
            rf'  \caption{{{_escaped(table.title)}}}',
            rf'  \label{{tab:{table.name}}}',
            rf'  \begin{{tabular}}{{l{"r" * (len(table.columns) - 1)}}}',
            r'    \toprule',
            '    ' + ' & '.join(map(_escaped, table.columns)) + r' \\',
            r'    \midrule',
            *lines,
            r'    \bottomrule',
            r'  \end{tabular}',
            *(rf'  \par\smallskip{{\footnotesize {_escaped(note)}}}' for note in table.notes),
            r'\end{table}',
            '',
        ]
    )


def csv_text(table) -> str:
    """Numbers in full; empty cells where there is nothing."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow(
            ['' if v is None or (isinstance(v, float) and math.isnan(v)) else v for v in row]
        )
    return file.getvalue()


def _best(rows, columns):
    """Cells of the largest number in each row, all of them where there is a tie."""
    best = set()
    for i, row in enumerate(rows):
        numbers = {
            j: row[j]
            for j in columns
            if isinstance(row[j], (int, float)) and not math.isnan(row[j])
        }
        if numbers:
            top = max(numbers.values())
            best |= {(i, j) for j, number in numbers.items() if number == top}
    return frozenset(best)


def _number(series, key):
    value = series.get(key)
    return None if value is None or pd.isna(value) else float(value)


def coverage(runs, table) -> list[str]:
    """For each method the games it lacks a score in, and seeds that are not there: '48 of 49'."""
    sentences = []
    wanted = {}
    for run in runs:
        wanted.setdefault(run.method, {}).setdefault(run.game, set()).add(run.seed)
    for method, by_game in wanted.items():
        rows = table[table['method'] == method]
        of_paper = sorted(set(rows['game']) & set(ATARI_49), key=ATARI_49.index)
        if of_paper:
            missing = [game for game in ATARI_49 if game not in of_paper]
            text = f'{method}: a score in {len(of_paper)} of {len(ATARI_49)} games'
            few = len(missing) <= 5
            sentences.append(text + (f', none in {", ".join(missing)}' if missing and few else ''))
        all_seeds = set().union(*by_game.values())
        for game in by_game:
            scored = set(rows.loc[rows['game'] == game, 'seed'])
            lacking = all_seeds - scored
            if lacking:
                sentences.append(
                    f'{method}, {game}: n = {len(scored)} of {len(all_seeds)} seeds, '
                    f'none of seed {", ".join(sorted(lacking))}'
                )
    return sentences


def raw_scores(table, known, score) -> Table:
    """Raw scores of the 49 games beside the published columns (paper, table of raw scores)."""
    table = table[table['game'].isin(ATARI_49)]
    mine = scores.by_game(table, score)
    counts = table.groupby(['method', 'game']).size()
    methods = list(mine)
    earlier = [name for name in known.earlier if known.earlier[name].notna().sum() > 24]
    columns = [
        'Game',
        'Random',
        'Human',
        *(f'{m} (here)' for m in methods),
        *(f'{m} (paper)' for m in known.paper),
        *(f'{m} (200M)' for m in earlier),
    ]
    rows = []
    for game in ATARI_49:
        rows.append(
            [
                game,
                float(known.random[game]),
                float(known.human[game]),
                *(_number(mine[m], game) for m in methods),
                *(_number(known.paper[m], game) for m in known.paper),
                *(_number(known.earlier[m], game) for m in earlier),
            ]
        )
    of_20m = range(3, 3 + len(methods) + len(known.paper.columns))
    notes = [
        f'Mean over seeds of the {"last" if score == "score_last" else "best"} evaluation. Marked '
        'is the best of what is here and the paper at 20M frames; columns (200M) are trained ten '
        'times as long.'
    ]
    for method in methods:
        n = counts[method]
        notes.append(
            f'{method} (here): {len(n)} of {len(ATARI_49)} games, {_range(n)} a game, '
            f'{_frames(table[table["method"] == method])} frames.'
        )
    return Table(
        'raw_scores', 'Raw scores, 49 Atari games', columns, rows, _best(rows, of_20m), tuple(notes)
    )


def _range(counts):
    low, high = int(counts.min()), int(counts.max())
    return f'{low} seed{"s" * (low != 1)}' if low == high else f'{low} to {high} seeds'


def _frames(rows):
    low, high = rows['frames'].min(), rows['frames'].max()
    return f'{low:,}' if low == high else f'{low:,} to {high:,}'


def other_tasks(table) -> Table:
    """Scores of what is none of the 49 games."""
    other = table[~table['game'].isin(ATARI_49)]
    rows = []
    for (game, method), group in other.groupby(['game', 'method']):
        means = [float(group[f'score_{which}'].mean()) for which in ('last', 'best')]
        rows.append([game, method, len(group), int(group['frames'].min()), *means])
    columns = ['Task', 'Method', 'Seeds', 'Frames', 'Last score', 'Best score']
    return Table('other_tasks', 'Other tasks', columns, rows)


def normalised_summary(summary, known) -> Table:
    """Human-normalised mean, median, IQM and optimality gap beside what is published."""
    rows = []
    for _, row in summary.iterrows():
        seeds = _range(pd.Series([row['seeds_fewest'], row['seeds_most']]))
        rows.append(
            [
                f'{row["method"]} (here)',
                f'{int(row["games"])} of 49',
                seeds,
                *(_with_interval(row, name) for name in scores.STATISTICS),
                None,
                None,
            ]
        )
    computed = scores.published_summary(known).set_index(['method', 'frames_millions'])
    printed = known.summary.set_index(['method', 'frames_millions'])
    for key in dict.fromkeys([*computed.index, *printed.index]):
        method, frames = key
        games, texts = None, [None] * len(scores.STATISTICS)
        if key in computed.index:
            games = f'{int(computed.loc[key, "games"])} of 49'
            texts = [f'{100 * computed.loc[key, name]:.1f}' for name in scores.STATISTICS]
        as_printed = (
            [int(printed.loc[key, name]) for name in ('mean', 'median')]
            if key in printed.index
            else [None, None]
        )
        rows.append(
            [
                f'{method} (paper)' if method in known.paper else f'{method} ({frames}M)',
                games,
                None,
                *texts,
                *as_printed,
            ]
        )
    return Table(
        'normalised_summary',
        'Human-normalised scores, percent',
        [
            'Method',
            'Games',
            'Seeds',
            'Mean',
            'Median',
            'IQM',
            'Optimality gap',
            'Mean as printed',
            'Median as printed',
        ],
        rows,
        notes=(
            "By the paper's formula and its random and human scores. In brackets the 95% interval "
            'of a bootstrap stratified by game; none with one seed a game. Rows over different '
            'games are not comparable.',
            'Published scores are means over seeds: their IQM and optimality gap are of one value '
            'a game. "As printed" are the numbers of the paper\'s own summary; for methods that '
            "are not the paper's they are over other games or with other human scores "
            '(third_party/README.md).',
        ),
    )


def _with_interval(row, name):
    low, high = row[f'{name}_low'], row[f'{name}_high']
    text = f'{100 * row[name]:.1f}'
    return text if pd.isna(low) else f'{text} [{100 * low:.1f}, {100 * high:.1f}]'


def ablation(table, known, score) -> Table:
    """Backward or not, UCB-bonus, none or RND (paper, its ablation table)."""
    mine = scores.by_game(table, score)
    rows = []
    for _, printed in known.ablation.iterrows():
        parts = [printed['backward'], printed['bonus']]
        values = [float(printed[game]) for game in ABLATION_GAMES]
        rows.append([f'{printed["method"]} (paper)', *parts, *values])
        for method in mine:
            values = [_number(mine[method], game) for game in ABLATION_GAMES]
            if _row(method) == printed['method'] and any(v is not None for v in values):
                rows.append([f'{method} (here)', *parts, *values])
    return Table('ablation', 'Ablation', ['Method', 'Backward', 'Bonus', *ABLATION_GAMES], rows)


def _row(method):
    """'OB2I (ob2i_atari_small)' -> 'OB2I'."""
    return method.partition(' (')[0]


def montezuma(table, known, score) -> Table:
    """Montezuma's Revenge, where none of the paper's methods scores."""
    rows = [
        [f'{row["method"]} (paper)', f'{row["frames_millions"]},000,000', float(row['score'])]
        for _, row in known.montezuma.iterrows()
    ]
    here = table[table['game'] == MONTEZUMA]
    for method, group in here.groupby('method'):
        rows.append([f'{method} (here)', _frames(group), float(group[score].mean())])
    return Table('montezuma', MONTEZUMA, ['Method', 'Frames', 'Score'], rows)


def wins_ties_losses(table, known, score) -> Table:
    """In how many of the 49 games a method is above, at and below each other one."""
    mine = scores.by_game(table[table['game'].isin(ATARI_49)], score)
    here = {f'{m} (here)': mine[m] for m in mine}
    paper = {f'{m} (paper)': known.paper[m] for m in known.paper}
    pairs = [
        *itertools.combinations(here, 2),
        *itertools.product(here, paper),
        *(('OB2I (paper)', other) for other in paper if other != 'OB2I (paper)'),
    ]
    rows = []
    for pair in pairs:
        counts = scores.wins_ties_losses(*((here | paper)[name] for name in pair))
        if sum(counts):
            rows.append([*pair, *counts, f'{sum(counts)} of 49'])
    return Table(
        'wins_ties_losses',
        'Wins, ties and losses',
        ['Method', 'Against', 'Wins', 'Ties', 'Losses', 'Games in common'],
        rows,
        notes=(
            'The paper claims 36, 34 and 35 games for OB2I; its own table gives 34, 33 and 32, '
            'with ties 36, 34 and 34.',
        ),
    )


def all_tables(table, summary, known, score='score_last') -> list[Table]:
    """Every table that has something to say about these runs."""
    tables = [
        normalised_summary(summary, known),
        raw_scores(table, known, score),
        wins_ties_losses(table, known, score),
        ablation(table, known, score),
        montezuma(table, known, score),
        other_tasks(table),
    ]
    return [t for t in tables if t.rows]
