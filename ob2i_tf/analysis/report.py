"""The report: scores.csv, summary.csv, tables/, figures/ and a page with all of them."""

import os
import urllib.parse
from pathlib import Path

import pandas as pd

from ob2i_tf.analysis import figures, load, scores, tables
from ob2i_tf.analysis.templates import render
from ob2i_tf.errors import UserError

SUMMARY_COLUMNS = [
    'method',
    'games',
    'seeds',
    *scores.STATISTICS,
    *(f'{name}{end}' for name in scores.STATISTICS for end in ('_low', '_high')),
    'seeds_fewest',
    'seeds_most',
    'runs',
]
_VERSIONS = ('ob2i_tf', 'tensorflow', 'numpy', 'ale-py', 'python')  # Those shown.


def write(sources, out, score='score_last', method=None) -> Path:
    """Writes the report on all runs at and below `sources`.

    Args:
      sources: See `load.load`.
      out: Folder for the report.
      score: 'score_last' or 'score_best', the evaluation that counts as a run's score.
      method: Method whose relative scores are drawn; None: OB2I, else the first.

    Returns:
      The path of report.html.

    Raises:
      UserError: There is no run, or `method` has no score.
    """
    out = Path(out)
    runs, problems = load.load(sources)
    known = scores.published()
    table = scores.table_of_runs(runs)
    if method is not None and method not in set(table['method']):
        names = ', '.join(sorted(set(table['method']))) or 'none'
        raise UserError(f'no score of {method!r}; methods with scores: {names}')
    for run in runs:
        if run.scores.empty:
            problems.append(load.printable(f'{run.path}: no score yet, so it is in no table'))
    summary = scores.summary(table, known, score).reindex(columns=SUMMARY_COLUMNS)
    shown_tables = tables.all_tables(table, summary, known, score)
    shown_figures = figures.all_figures(runs, table, summary, known, score, method)

    for folder in ('tables', 'figures'):
        (out / folder).mkdir(parents=True, exist_ok=True)
    table.to_csv(out / 'scores.csv', index=False)
    summary.to_csv(out / 'summary.csv', index=False)
    for shown in shown_tables:
        for ending, text in (
            ('md', tables.markdown(shown)),
            ('tex', tables.latex(shown)),
            ('csv', tables.csv_text(shown)),
        ):
            (out / 'tables' / f'{shown.name}.{ending}').write_text(text, encoding='utf-8')
    for figure in shown_figures:
        figure.save(out / 'figures')
    names = {shown.name for shown in (*shown_tables, *shown_figures)}
    earlier = [f for folder in ('tables', 'figures') for f in (out / folder).iterdir()]
    earlier = sorted(str(file.relative_to(out)) for file in earlier if file.stem not in names)
    if earlier:
        problems.append(load.printable(f'{out}: not from this report: {", ".join(earlier)}'))
    atari = len(summary) > 0
    page = render(
        'report.html',
        title='Runs beside the published results' if atari else 'Runs',
        summary=_summary(runs, table, score),
        problems=problems,
        coverage=tables.coverage(runs, table),
        tables=shown_tables,
        figures=shown_figures,
        configurations=_configurations(runs),
        runs=_runs(runs),
        viewers=_viewers(runs, out),
    )
    path = out / 'report.html'
    path.write_text(page, encoding='utf-8')
    return path


def _summary(runs, table, score):
    methods = sorted({run.method for run in runs})
    games = {run.game for run in runs}
    which = 'last' if score == 'score_last' else 'best'
    return (
        f'Methods: {", ".join(methods)}. Tasks: {len(games)}. Runs: {len(runs)}, {len(table)} of '
        f'them with a score ({which} evaluation).'
    )


def _configurations(runs) -> list[tables.Table]:
    """One table per family of tasks whose runs differ in bindings."""
    families = {}
    for run in runs:
        families.setdefault(run.family, []).append(run)
    shown = []
    for family, members in families.items():
        methods = list(dict.fromkeys(run.method for run in members))
        rows = [
            [binding, *(_values(by_value, method) for method in methods)]
            for binding, by_value in load.differences(members).items()
        ]
        if rows:
            title = f'{family}: bindings in which runs differ, besides game, seed and length'
            cells = pd.DataFrame(rows, columns=['Binding', *methods])
            shown.append(tables.Table(f'configurations_{len(shown)}', title, cells))
    return shown


def _values(by_value, method):
    """The value in the runs of a method; if there are several, each with its number of runs."""
    counts = {
        value: sum(run.method == method for run in members) for value, members in by_value.items()
    }
    counts = {value: count for value, count in counts.items() if count}
    if len(counts) == 1:
        return next(iter(counts))
    return ', '.join(f'{value} ({count} runs)' for value, count in counts.items()) or None


def _runs(runs) -> tables.Table:
    rows = [
        {
            'Method': run.method,
            'Game': run.game,
            'Seed': run.seed,
            'Frames': run.frames,
            'Versions': ', '.join(
                f'{name} {run.environment[name]}' for name in _VERSIONS if name in run.environment
            )
            or None,
            'Commit': run.environment.get('git_commit', '')[:8] or None,
            'Folder': load.printable(str(run.path)),
        }
        for run in runs
    ]
    return tables.Table('runs', f'{len(runs)} run folders', pd.DataFrame(rows))


def _viewers(runs, out):
    """(address, text) of the pages that `ob2i_tf.analysis.episode` wrote into run folders."""
    return [
        (
            urllib.parse.quote(os.fsencode(os.path.relpath(viewer, out))),
            f'{run.method}, {run.game}, seed {run.seed}',
        )
        for run in runs
        if (viewer := run.path / 'viewer' / 'episode.html').exists()
    ]
