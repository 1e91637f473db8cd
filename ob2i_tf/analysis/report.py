"""The report: scores.csv, summary.csv, tables/, figures/ and a page that holds them all."""

import html
import os
import urllib.parse
from pathlib import Path

from ob2i_tf.analysis import figures, load, page, scores, tables
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

_VERSIONS = ('ob2i_tf', 'tensorflow', 'numpy', 'ale-py', 'python')  # Which are shown.


def write(sources, out, score='score_last', method=None) -> Path:
    """Writes the report of all runs at and below `sources`.

    Args:
      sources: see `load.load`.
      out: folder for the report.
      score: 'score_last' or 'score_best', which evaluation counts as a run's score.
      method: whose relative scores are drawn; None: OB2I, else the first.

    Returns:
      The path of report.html.

    Raises:
      UserError: no run, or a `method` that is not there.
    """
    out = Path(out)
    runs, problems = load.load(sources)
    known = scores.published()
    table = scores.table_of_runs(runs)
    if method is not None and method not in set(table['method']):
        raise UserError(
            f'no score of {method!r}; there are {", ".join(sorted(set(table["method"]))) or "none"}'
        )
    for run in runs:
        if not len(run.eval.dropna(subset=['score_mean'])):
            problems.append(f'{run.path}: no evaluation with a score; it is in no table')
    summary = scores.summary(table, known, score).reindex(columns=SUMMARY_COLUMNS)
    coverage = tables.coverage(runs, table)
    shown_tables = tables.all_tables(table, summary, known, score)
    shown_figures = figures.all_figures(runs, table, summary, known, score, method)

    for folder in ('tables', 'figures'):
        (out / folder).mkdir(parents=True, exist_ok=True)
    table.to_csv(out / 'scores.csv', index=False)
    summary.to_csv(out / 'summary.csv', index=False)
    made = {shown.name for shown in (*shown_tables, *shown_figures)}
    earlier = sorted(
        str(file.relative_to(out))
        for folder in ('tables', 'figures')
        for file in (out / folder).iterdir()
        if file.stem not in made
    )
    if earlier:
        problems.append(f'{out}: not of this report: {", ".join(earlier)}')
    for shown in shown_tables:
        for ending, text in (
            ('md', tables.markdown),
            ('tex', tables.latex),
            ('csv', tables.csv_text),
        ):
            (out / 'tables' / f'{shown.name}.{ending}').write_text(text(shown), encoding='utf-8')
    for figure in shown_figures:
        (out / 'figures' / f'{figure.name}.png').write_bytes(figure.png)
        (out / 'figures' / f'{figure.name}.svg').write_text(figure.svg, encoding='utf-8')
    sections = [
        (
            'summary',
            'Summary',
            _summary(runs, table, score)
            + _table(shown_tables[0])
            + _figures(f for f in shown_figures if f.name == 'intervals'),
        ),
        ('problems', f'Problems ({len(problems)})', _list(problems, 'None was found.')),
        ('coverage', 'What is there', _list(coverage, 'No run has a score.')),
        ('tables', 'Tables', ''.join(map(_table, shown_tables[1:]))),
        ('figures', 'Figures', _figures(f for f in shown_figures if f.name != 'intervals')),
        ('configurations', 'Configurations', _configurations(runs)),
        ('runs', 'Runs', _runs(runs, out)),
    ]
    path = out / 'report.html'
    text = page.page('Runs beside the published results', sections)
    path.write_text(text, encoding='utf-8', errors='backslashreplace')  # Paths may be any bytes.
    return path


def _summary(runs, table, score):
    methods = sorted({run.method for run in runs})
    return (
        f'<p>{len(runs)} runs of {len(methods)} methods ({html.escape(", ".join(methods))}) in '
        f'{len({run.game for run in runs})} games; {len(table)} of them have a score, which is the '
        f'{"last" if score == "score_last" else "best"} evaluation.</p>'
    )


def _list(sentences, otherwise):
    if not sentences:
        return f'<p>{otherwise}</p>'
    items = ''.join(f'<li>{html.escape(sentence)}</li>' for sentence in sentences)
    return f'<ul class="sentences">{items}</ul>'


def _table(table):
    rows = []
    for i, row in enumerate(table.rows):
        cells = [html.escape(tables.cell(value)) for value in row]
        cells = [
            f'<strong>{c}</strong>' if (i, j) in table.best else c for j, c in enumerate(cells)
        ]
        rows.append(_row(cells))
    head = ''.join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    notes = ''.join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
    title = html.escape(table.title)
    return (
        f'<h3 id="table-{table.name}">{title}</h3>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{title}"><table>'
        f'<thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{notes}'
    )


def _row(cells):
    first, *others = cells
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{c}</td>" for c in others)}</tr>'


def _figures(shown):
    return ''.join(
        f'<figure id="figure-{figure.name}"><div class="wide" tabindex="0" role="region" '
        f'aria-label="{html.escape(figure.title)}">{figures.inline_svg(figure)}</div>'
        f'<figcaption><b>{html.escape(figure.title)}.</b> {html.escape(figure.caption)}'
        '</figcaption></figure>'
        for figure in shown
    )


def _configurations(runs):
    different = load.differences([run for run in runs if run.config])
    if not different:
        return '<p>The runs differ in game, seed and length only.</p>'
    methods = list(dict.fromkeys(run.method for run in runs))
    rows = [
        [binding, *(_values(by_value, method) for method in methods)]
        for binding, by_value in different.items()
    ]
    table = tables.Table(
        'configurations',
        'Bindings in which runs differ, besides game, seed and length',
        ['Binding', *methods],
        rows,
    )
    return _table(table)


def _values(by_value, method):
    """The value that the runs of a method have; of several each with its number of runs."""
    counts = {
        value: sum(run.method == method for run in members) for value, members in by_value.items()
    }
    counts = {value: count for value, count in counts.items() if count}
    if len(counts) == 1:
        return next(iter(counts))
    return ', '.join(f'{value} ({count} runs)' for value, count in counts.items()) or None


def _runs(runs, out):
    rows = []
    for run in runs:
        packages = run.environment.get('packages')
        packages = packages if isinstance(packages, dict) else {}
        packages = {**packages, 'python': run.environment.get('python')}
        versions = ', '.join(f'{name} {packages[name]}' for name in _VERSIONS if packages.get(name))
        commit = str(run.environment.get('git_commit') or '')[:8]
        reached = run.eval['frames'].max() if len(run.eval) else None
        rows.append(
            [
                run.method,
                run.game,
                run.seed,
                None if reached is None else int(reached),
                versions or None,
                commit or None,
                str(run.path),
            ]
        )
    table = tables.Table(
        'runs',
        f'{len(runs)} run folders',
        ['Method', 'Game', 'Seed', 'Frames', 'Versions', 'Commit', 'Folder'],
        rows,
    )
    return _table(table).replace('<table>', '<table class="text">') + _viewers(runs, out)


def _viewers(runs, out):
    """Links to the pages that `ob2i_tf.analysis.episode` left in run folders."""
    links = []
    for run in runs:
        viewer = run.path / 'viewer' / 'episode.html'
        if viewer.exists():
            target = urllib.parse.quote(os.path.relpath(viewer, out))
            text = html.escape(f'{run.method}, {run.game}, seed {run.seed}')
            links.append(f'<li><a href="{target}">{text}</a></li>')
    shown = (
        f'<ul>{"".join(links)}</ul>'
        if links
        else (
            '<p>None. <code>python -m ob2i_tf.analysis.episode RUN --out RUN/viewer</code> records '
            'one of a run that has checkpoints.</p>'
        )
    )
    return f'<h3 id="viewers">Recorded games</h3>{shown}'
