"""The report: scores.csv, summary.csv, tables/, figures/ and a page with all of them."""

import os
import urllib.parse
from pathlib import Path

import pandas as pd

from ob2i_tf.analysis import figures, load, scores, tables
from ob2i_tf.analysis.templates import render
from ob2i_tf.errors import UserError

_VERSIONS = ('ob2i_tf', 'tensorflow', 'numpy', 'ale-py', 'python')  # Shown in the table of runs.


def write(sources, out, which='last', method=None) -> Path:
    """Writes the report on all runs at and below `sources`.

    Args:
      sources: See `load.load`.
      out: Folder for the report.
      which: 'last' or 'best', the evaluation that counts as the score of a run.
      method: Method whose relative scores are drawn; None: OB2I, else the first.

    Returns:
      The path of report.html.

    Raises:
      UserError: There is no run, or `method` has no score.
    """
    out = Path(out)
    runs, problems = load.load(sources)
    results = scores.Results(runs, which)
    methods = sorted(set(results.table['method']))
    if method is not None and method not in methods:
        names = ', '.join(methods) or 'none'
        raise UserError(f'no score of {method!r}; methods with scores: {names}')
    for run in runs:
        if run.scores.empty:
            problems.append(load.printable(f'{run.path}: no score yet, so it is not in the tables'))
    shown_tables = tables.all_tables(results)
    shown_figures = figures.all_figures(results, method)

    for folder in (out / 'tables', out / 'figures'):
        folder.mkdir(parents=True, exist_ok=True)
    results.table.to_csv(out / 'scores.csv', index=False, columns=list(scores.SCORE_COLUMNS))
    results.summary.to_csv(out / 'summary.csv', index=False)
    for table in shown_tables:
        table.save(out / 'tables')
    for figure in shown_figures:
        figure.save(out / 'figures')
    names = {table.name for table in shown_tables} | {figure.name for figure in shown_figures}
    earlier = [file for folder in ('tables', 'figures') for file in (out / folder).iterdir()]
    earlier = sorted(str(file.relative_to(out)) for file in earlier if file.stem not in names)
    if earlier:
        problems.append(load.printable(f'{out}: not from this report: {", ".join(earlier)}'))
    page = render(
        'report.html',
        results=results,
        methods=sorted({run.method for run in runs}),
        num_tasks=len({run.game for run in runs}),
        num_runs=len(runs),
        problems=problems,
        coverage=tables.coverage(runs, results.table),
        tables=shown_tables,
        figures=shown_figures,
        configurations=_configurations(runs),
        runs=_runs(runs),
        viewers=_viewers(runs, out),
    )
    path = out / 'report.html'
    path.write_text(page, encoding='utf-8')
    return path


def _configurations(runs) -> list[tables.Table]:
    """One table per family of tasks whose runs differ in bindings."""
    families = {}
    for run in runs:
        families.setdefault(run.family, []).append(run)
    shown = []
    for family, members in families.items():
        different = load.differences(members)
        if len(different.columns):
            by_method = different.groupby([run.method for run in members], sort=False)
            cells = by_method.agg(_values).T.rename_axis('Binding').reset_index()
            title = f'{family}: bindings in which runs differ, besides game, seed and length'
            shown.append(tables.Table(f'configurations_{len(shown)}', title, cells))
    return shown


def _values(column):
    """The value in the runs of a method; several are listed, each with its number of runs."""
    counts = column.value_counts(sort=False)
    if len(counts) == 1:
        return counts.index[0]
    return ', '.join(f'{value} ({count} runs)' for value, count in counts.items())


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
