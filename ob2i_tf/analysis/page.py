"""HTML pages that need no network: one file, dark and light, by keyboard, on a phone too."""

import html

STYLE = """
:root { color-scheme: light dark; --ink: #1a1c1f; --soft: #5c636b; --paper: #fff; --line: #d5d9de;
  --wash: #f3f5f7; --link: #0a58a8; --hot: #c2410c; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) {
  --ink: #e6e8ea; --soft: #a0a7ae; --paper: #15181b; --line: #363c42;
  --wash: #1e2327; --link: #7db8f0; --hot: #fb923c; } }
:root[data-theme=dark] { color-scheme: dark; --ink: #e6e8ea; --soft: #a0a7ae; --paper: #15181b;
  --line: #363c42; --wash: #1e2327; --link: #7db8f0; --hot: #fb923c; }
:root[data-theme=light] { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem clamp(.75rem, 3vw, 2rem) 4rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
header { display: flex; gap: 1rem; align-items: start; justify-content: space-between; }
button { font: inherit; font-size: .9rem; padding: .3rem .7rem; color: var(--ink);
  background: var(--wash); border: 1px solid var(--line); border-radius: .4rem; cursor: pointer;
  white-space: nowrap; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; padding: 0;
  margin: .5rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { padding: .22rem .6rem; text-align: right; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; white-space: normal;
  min-width: 5.2rem; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody th { text-align: left; font-weight: 500; position: sticky; left: 0;
  background: var(--paper); }
thead th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
.text td, .text thead th { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.note, figcaption { color: var(--soft); font-size: .85rem; margin: .4rem 0; max-width: 46rem; }
figure { margin: 1.5rem 0; }
figure svg { display: block; max-width: 100%; height: auto; min-width: min(36rem, 170vw); }
.sentences { padding-left: 1.2rem; max-height: 24rem; overflow-y: auto; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; }
@media print { nav, button { display: none; } .wide { overflow: visible; }
  .sentences { max-height: none; } }
"""
_THEME = """
document.getElementById('theme').addEventListener('click', () => {
  const root = document.documentElement, dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const now = root.dataset.theme || (dark ? 'dark' : 'light');
  root.dataset.theme = now === 'dark' ? 'light' : 'dark';
});
"""


def page(title, sections, style='', script='') -> str:
    """A whole page.

    Args:
      title: its heading, text.
      sections: (id, heading, HTML); a heading of '' is no heading and no entry of the navigation.
      style, script: further CSS and JavaScript.
    """
    title = html.escape(title)
    links = ''.join(
        f'<li><a href="#{i}">{html.escape(heading)}</a></li>'
        for i, heading, _ in sections
        if heading
    )
    body = ''.join(
        f'<section id="{i}">{f"<h2>{html.escape(heading)}</h2>" if heading else ""}{text}</section>'
        for i, heading, text in sections
    )
    nav = f'<nav aria-label="Sections"><ul>{links}</ul></nav>' if links else ''
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f'<title>{title}</title><style>{STYLE}{style}</style></head><body>'
        '<a class="skip" href="#main">To the content</a>'
        f'<header><h1>{title}</h1><button id="theme" type="button">Dark or light</button></header>'
        f'{nav}<main id="main">{body}</main><script>{_THEME}{script}</script></body></html>\n'
    )
