"""Tables of results alongside the published ones, as Markdown, LaTeX and CSV."""

import itertools
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ob2i_tf.analysis import figures, scores
from ob2i_tf.environments.games import ATARI_49

ABLATION_GAMES = ['Q*Bert', 'Space Invaders', 'Freeway']
MONTEZUMA = "Montezuma's Revenge"
_LATEX = str.maketrans(
    {character: f'\\{character}' for character in '&%$#_{}'}
    | {'~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '\\': r'\textbackslash{}'}
    | {'–': '--', '±': r'$\pm$'}
)
_COLUMN, _PAGE = 235, 488  # Widths of a column and of a page of two, in points.
_DIGIT, _GAP = 4.25, 8  # Widths of a digit of \footnotesize and between columns.
_SHRUNK = 1.25  # Largest width of a table over that of its place.
_MARKDOWN = str.maketrans({'|': r'\|', '*': r'\*'})


class Table(NamedTuple):
    """One table.

    Attributes:
      name: Name of the files.
      title: One line.
      cells: Strings and numbers; None or NaN if a cell is empty. The first column names the row.
      best: Positions of the columns among which each row's largest number is marked.
      notes: Sentences below the table.
    """

    name: str
    title: str
    cells: pd.DataFrame
    best: Sequence[int] = ()
    notes: tuple[str, ...] = ()

    def rows(self) -> list[list[tuple[str, bool]]]:
        """The cells as strings, each with a flag: whether it is marked as the best of its row."""
        numbers = self.cells.iloc[:, list(self.best)].astype(float)
        best = np.zeros(self.cells.shape, bool)
        best[:, list(self.best)] = numbers.eq(numbers.max(axis=1), axis=0)
        cells = self.cells.map(cell).to_numpy(object)
        return [list(zip(*row)) for row in zip(cells, best)]

    def save(self, folder):
        """Writes Markdown, LaTeX, and CSV with unrounded numbers."""
        (folder / f'{self.name}.md').write_text(markdown(self), encoding='utf-8')
        (folder / f'{self.name}.tex').write_text(latex(self), encoding='utf-8')
        self.cells.to_csv(folder / f'{self.name}.csv', index=False)


def cell(value) -> str:
    """A cell as a string: one decimal or, below 10, three digits; a dash if it is empty."""
    if pd.isna(value):
        return '–'
    if isinstance(value, float):
        return str(float(f'{value:.3g}')) if abs(value) < 10 else f'{value:,.1f}'
    return f'{value:,}' if isinstance(value, int) else str(value)


def markdown(table) -> str:
    def text(value, best=False):
        value = value.translate(_MARKDOWN)
        return f'**{value}**' if best else value

    lines = [list(map(text, table.cells)), ['---'] + ['---:'] * (table.cells.shape[1] - 1)]
    lines += [list(itertools.starmap(text, row)) for row in table.rows()]
    body = '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
    return '\n\n'.join([f'**{table.title}**', body, *table.notes]) + '\n'


def latex(table) -> str:
    """booktabs tables for one column of a paper or, if wide, for both; needs graphicx and booktabs.

    A table is split into parts if it has more than 50 rows or is too wide to be shrunk a little.
    """

    def text(value, best=False):
        value = value.translate(_LATEX)
        return rf'\textbf{{{value}}}' if best else value

    def head(side, lines):
        stack = r'\\'.join(map(text, lines))
        return rf'\shortstack[{side}]{{{stack}}}' if len(lines) > 1 else stack

    rows, names = table.rows(), list(table.cells)
    heads = [
        textwrap.wrap(n, max(8, -(-len(n) // 2)), break_long_words=False, break_on_hyphens=False)
        for n in names
    ]
    cells = [[row[i][0] for row in rows] for i in range(len(names))]
    widths = [_DIGIT * max(map(len, [*lines, *of])) + _GAP for lines, of in zip(heads, cells)]
    parts = [[0]]
    for i, width in enumerate(widths[1:], 1):
        if len(parts[-1]) > 1 and sum(widths[k] for k in parts[-1]) + width > _SHRUNK * _PAGE:
            parts.append([0])
        parts[-1].append(i)
    parts = [(part, rows[k : k + 50]) for part in parts for k in range(0, len(rows), 50)]
    tables = []
    for number, (part, part_rows) in enumerate(parts, 1):
        wide = '*' * (sum(widths[i] for i in part) > _SHRUNK * _COLUMN)
        suffix = f' (part {number} of {len(parts)})' if len(parts) > 1 else ''
        alignment = ['l' if all(c[:1].isalpha() for c in cells[i]) else 'r' for i in part]
        lines = [
            rf'\begin{{table{wide}}}',
            r'\centering\footnotesize\setlength{\tabcolsep}{4pt}',
            rf'\caption{{{text(table.title)}{suffix}}}',
            rf'\label{{tab:{table.name}{f"_{number}" * (number > 1)}}}',
            r'\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%',
            rf'\begin{{tabular}}{{{"".join(alignment)}}}',
            r'\toprule',
            ' & '.join(head(side, heads[i]) for side, i in zip(alignment, part)) + r' \\',
            r'\midrule',
            *(' & '.join(text(*row[i]) for i in part) + r' \\' for row in part_rows),
            r'\bottomrule',
            r'\end{tabular}}',
            *(rf'\par\smallskip {text(note)}' for note in table.notes if number == len(parts)),
            rf'\end{{table{wide}}}',
        ]
        tables.append('\n'.join(lines) + '\n')
    return '\n'.join(tables)


def coverage(runs, table) -> list[str]:
    """For each method, the number of the 49 games that have a score, and the missing seeds."""
    sentences, seeds = [], {}
    for run in runs:
        by_task = seeds.setdefault((run.method, run.family), {})
        by_task.setdefault(run.game, []).append(run.seed)
    for (method, _), by_task in seeds.items():
        scored = dict(iter(table[table['method'] == method].groupby('game')))
        missing = [game for game in ATARI_49 if game not in scored]
        count = len(ATARI_49) - len(missing)
        if count and not by_task.keys().isdisjoint(ATARI_49):
            names = f', none in {", ".join(missing)}' if 0 < len(missing) <= 5 else ''
            sentences.append(f'{method}: a score in {count} of {len(ATARI_49)} games{names}')
        wanted = list(dict.fromkeys(itertools.chain(*by_task.values())))
        for task in by_task:
            existing = set(scored[task]['seed']) if task in scored else set()
            lacking = '; '.join(seed for seed in wanted if seed not in existing)
            if lacking:
                n = f'n = {len(existing)} of {len(wanted)} seeds'
                sentences.append(f'{method}, {task}: {n}, none of seed {lacking}')
    return sentences


def all_tables(results) -> list[Table]:
    """Every table for which there are results; tasks outside the 49 games come first."""
    tables = [tasks(results)]
    if len(results.atari):
        tables += [
            normalised_summary(results),
            raw_scores(results),
            wins_ties_losses(results),
            ablation(results),
            montezuma(results),
        ]
    return [table for table in tables if len(table.cells)]


def tasks(results) -> Table:
    """Mean scores of each method in each task outside the 49 games, with their intervals."""
    table = results.table[~results.table['game'].isin(ATARI_49)]
    means = scores.by_game(table)
    seeds = dict(iter(table.groupby(['game', 'method'])['score']))
    intervals = {key: _interval(values) for key, values in seeds.items() if len(values) > 1}
    rows = []
    for game in means.index:
        of_task = table[table['game'] == game]
        facts = [
            ', '.join(sorted(set(of_task['scored_by']))),
            _range(of_task.groupby('method').size()),
            _range(of_task['frames']),
        ]
        rows.append(
            [game, *facts, *means.loc[game], *(intervals.get((game, method)) for method in means)]
        )
    columns = ['Task', 'Scored by', 'Seeds', 'Frames', *means]
    columns += [f'{method}, 95% interval' for method in means]
    notes = (
        f'Mean over seeds of the {results.which} evaluation or, if scored by training, of the '
        f'training episodes of the {results.which} iteration, exploration included. The best is '
        'marked.',
    )
    if intervals:
        notes += (
            'Intervals are bootstrap intervals of the mean, which need at least two seeds and are '
            'too narrow if there are few.',
        )
    cells = pd.DataFrame(rows, columns=columns).dropna(axis='columns', how='all')
    return Table('tasks', 'Scores by task', cells, range(4, 4 + means.shape[1]), notes)


def _interval(values):
    low, high = figures.interval_of_mean(pd.DataFrame([values.to_numpy()])).ravel()
    return f'[{cell(low)}, {cell(high)}]'


def _range(counts):
    """'3' or '1 to 3'."""
    return ' to '.join(dict.fromkeys(f'{int(count):,}' for count in (counts.min(), counts.max())))


def raw_scores(results) -> Table:
    """Raw scores of the 49 games alongside the published columns (paper, table of raw scores)."""
    known = results.known
    here = results.means.add_suffix(' (here)')
    paper = known.paper.add_suffix(' (paper)')
    cells = pd.concat(
        [
            pd.DataFrame({'Random': known.random, 'Human': known.human}),
            here,
            paper,
            known.earlier.add_suffix(' (200M)'),
        ],
        axis=1,
    ).reindex(list(ATARI_49))
    notes = [
        f'Mean over seeds of the {results.which} evaluation. The best of these runs and the '
        "paper's, at 20M frames, is marked; columns (200M) were trained ten times as long."
    ]
    for method, rows in results.atari.groupby('method'):
        counts = rows.groupby('game').size()
        notes.append(
            f'{method} (here): {len(counts)} of {len(ATARI_49)} games, {_range(counts)} '
            f'{"seed" if counts.max() == 1 else "seeds"} per game, {_range(rows["frames"])} frames.'
        )
    cells = cells.astype(float).rename_axis('Game').reset_index()
    best = range(3, 3 + len([*here, *paper]))
    return Table('raw_scores', 'Raw scores, 49 Atari games', cells, best, tuple(notes))


def normalised_summary(results) -> Table:
    """Human-normalised mean, median, IQM and optimality gap alongside the published ones."""
    rows = [
        [
            f'{row["method"]} (here)',
            f'{int(row["games"])} of 49',
            _range(row[['seeds_fewest', 'seeds_most']]),
            *(_with_interval(row, name) for name in scores.STATISTICS),
        ]
        for _, row in results.summary.iterrows()
    ]
    keys = ['method', 'frames_millions']
    computed = results.published_summary.set_index(keys)
    printed = results.known.summary.set_index(keys).add_suffix('_printed')
    for (method, frames), row in pd.concat([computed, printed], axis=1).iterrows():
        rows.append(
            [
                f'{method} (paper)' if method in results.known.paper else f'{method} ({frames}M)',
                None if pd.isna(row['games']) else f'{int(row["games"])} of 49',
                None,
                *(_with_interval(row, name) for name in scores.STATISTICS),
                *(None if pd.isna(row[n]) else int(row[n]) for n in printed),
            ]
        )
    columns = ['Method', 'Games', 'Seeds', 'Mean', 'Median', 'IQM', 'Optimality gap']
    columns += ['Mean as printed', 'Median as printed']
    cells = pd.DataFrame(rows, columns=columns, dtype=object)
    notes = (
        "By the paper's formula and its random and human scores; in brackets, the 95% interval of "
        'a bootstrap stratified by game, which needs two seeds per game. Methods with different '
        'games are not comparable.',
        'Published scores are means over seeds, so their IQM and optimality gap are computed from '
        'one value per game. "As printed" are the numbers of the paper\'s own summary; those of '
        'earlier methods cover other games or use other human scores (third_party/README.md).',
    )
    title = 'Human-normalised scores, percent'
    return Table('normalised_summary', title, cells, notes=notes)


def _with_interval(row, name):
    if pd.isna(row[name]):
        return None
    low, high = row.get(f'{name}_low'), row.get(f'{name}_high')
    text = f'{100 * row[name]:.1f}'
    return text if pd.isna(low) else f'{text} [{100 * low:.1f}, {100 * high:.1f}]'


def wins_ties_losses(results) -> Table:
    """The numbers of the 49 games in which a method is above, equal to and below another one."""
    here = dict(results.means.add_suffix(' (here)'))
    paper = dict(results.known.paper.add_suffix(' (paper)'))
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
    columns = ['Method', 'Against', 'Wins', 'Ties', 'Losses', 'Games in common']
    notes = (
        'The paper claims 36, 34 and 35 games for OB2I; its own table gives 34, 33 and 32, '
        'or 36, 34 and 34 with ties.',
    )
    cells = pd.DataFrame(rows, columns=columns)
    return Table('wins_ties_losses', 'Wins, ties and losses', cells, notes=notes)


def ablation(results) -> Table:
    """With and without backward updates; UCB-bonus, none or RND (paper, ablation table)."""
    mine = results.means.reindex(ABLATION_GAMES).dropna(axis=1, how='all')
    rows = []
    for _, printed in results.known.ablation.iterrows():
        parts = [printed['backward'], printed['bonus']]
        rows.append(
            [f'{printed["method"]} (paper)', *parts, *printed[ABLATION_GAMES].astype(float)]
        )
        for method in mine:
            if method.partition(' (')[0] == printed['method']:
                rows.append([f'{method} (here)', *parts, *mine[method]])
    columns = ['Method', 'Backward', 'Bonus', *ABLATION_GAMES]
    return Table('ablation', 'Ablation', pd.DataFrame(rows if mine.size else [], columns=columns))


def montezuma(results) -> Table:
    """Montezuma's Revenge, where none of the paper's methods scores."""
    rows = [
        [f'{row["method"]} (paper)', f'{row["frames_millions"]},000,000', float(row['score'])]
        for _, row in results.known.montezuma.iterrows()
    ]
    here = results.atari[results.atari['game'] == MONTEZUMA]
    for method, group in here.groupby('method'):
        rows.append([f'{method} (here)', _range(group['frames']), group['score'].mean()])
    columns = ['Method', 'Frames', 'Score']
    return Table('montezuma', MONTEZUMA, pd.DataFrame(rows if len(here) else [], columns=columns))
