"""MkDocs hooks: files of the repository outside docs/, generated parts, formulas.

A Markdown file links to others by their paths in the repository, so that the links work there too.
README.md is the home page, and whatever it or docs/ links to, directly or through such a file,
becomes a part of the site.
"""

import os
import posixpath
import re
from pathlib import Path

import latex2mathml.converter
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / 'build' / 'docs'  # By configuration.py and game.py.
_LINK = re.compile(r'(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))')


def on_config(config):
    fences = config.mdx_configs.setdefault('pymdownx.superfences', {})
    fences['custom_fences'] = [{'name': 'math', 'class': 'math', 'format': _formula}]


def on_files(files, config):
    pages = [_repository_path(file.src_uri) for file in files.documentation_pages()]
    pages += ['README.md']
    files.append(_file('game/episode.html', config, GENERATED))
    seen = set(pages)
    for page in pages:  # The list grows in the loop.
        if not page.startswith('docs/'):
            files.append(_file(page, config))
        for _, target, _ in _LINK.findall((ROOT / page).read_text()):
            path = _resolve(page, target)
            if path and path not in seen and not path.startswith('docs/'):
                seen.add(path)
                if path.endswith('.md'):
                    pages.append(path)
                else:
                    files.append(_file(path, config))


def on_page_markdown(markdown, page, config, files):
    path = _repository_path(page.file.src_uri)

    def link(found):
        before, target, after = found.groups()
        resolved = _resolve(path, target)
        if resolved is None:  # MkDocs then reports the missing file by its name in the page.
            return found[0]
        there = posixpath.relpath(_site_path(resolved), posixpath.dirname(page.file.src_uri) or '.')
        return before + there + after

    def generated(found):
        try:
            return (GENERATED / f'{found[1]}.md').read_text()
        except FileNotFoundError as error:
            raise PluginError(f'{error.filename} is missing: run `make docs`') from None

    # A folder without a README has no page.
    markdown = re.sub(
        r'\[([^\]]+)\]\(([^)#\s:]+)\)',
        lambda found: found[1] if _is_bare_folder(path, found[2]) else found[0],
        markdown,
    )
    markdown = _LINK.sub(link, markdown)
    return re.sub(r'<!-- generated: (\w+) -->.*', generated, markdown, flags=re.DOTALL)


def _repository_path(src_uri):
    inside = posixpath.join('docs', src_uri)
    return inside if (ROOT / inside).exists() else src_uri


def _site_path(path):
    return path.removeprefix('docs/')


def _resolve(page, target):
    """Path in the repository of a page's link; None if nothing is there."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    module = re.match(r'ob2i_tf/(\w+)', path)
    if module and (ROOT / 'docs' / 'api' / f'{module[1]}.md').exists():
        path = f'docs/api/{module[1]}.md'
    if (ROOT / path).is_dir():
        path = posixpath.join(path, 'README.md')
    return path if (ROOT / path).is_file() and not path.startswith('..') else None


def _is_bare_folder(page, target):
    path = ROOT / posixpath.dirname(page) / target
    return path.is_dir() and not (path / 'README.md').exists()


def _file(path, config, folder=ROOT):
    return File(path, os.fspath(folder), config.site_dir, config.use_directory_urls)


def _formula(source, language, css_class, options, md, **kwargs):
    formula = latex2mathml.converter.convert(' '.join(source.split()), display='block')
    return f'<div class="math">{formula}</div>'
