"""Installed modules, the only ones that another person's run folder may import."""

import importlib.util
import json
import os
import site
import sys
import sysconfig
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from importlib import machinery, metadata
from pathlib import Path
from urllib import parse, request

_PROJECT = __name__.partition('.')[0]
_NAMES = ('site-packages', 'dist-packages')


def may_import(module: str, allowed: Iterable[str] = ()) -> bool:
    """Whether `import module` would run only installed files; imports nothing itself.

    Args:
      module: Dotted name.
      allowed: Names of modules and packages that may be imported from any folder.
    """
    top = module.partition('.')[0]
    if top == _PROJECT or any(f'{module}.'.startswith(f'{name}.') for name in allowed):
        return True
    folders = {*_site_packages(), *_editable_projects(top)}
    names = module.split('.')
    path: Sequence[str] = []
    for count in range(1, len(names) + 1):
        name = '.'.join(names[:count])
        try:  # find_spec imports the parents of a dotted name; PathFinder does not.
            if count == 1:
                spec = importlib.util.find_spec(name)
            else:
                spec = machinery.PathFinder.find_spec(name, path)
        # __main__ has no spec; a nested namespace whose parent is not imported yet has no path.
        except (ValueError, KeyError):
            return False
        # A namespace package has no location and no code.
        if spec is None or (spec.has_location and not _lies_in(folders, spec.origin)):
            return False
        path = spec.submodule_search_locations or []
    return True


def _lies_in(folders, file):
    parents = Path(os.path.abspath(file)).parents
    return any(os.path.realpath(parent) in folders for parent in parents)


def _site_packages():
    """Real paths of the folders that pip installs into."""
    folders = [*site.getsitepackages(), *map(sysconfig.get_path, ('purelib', 'platlib'))]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    # Folders of another environment, added by a .pth file or PYTHONPATH.
    named = (path for path in sys.path if os.path.basename(path) in _NAMES)
    added = set(map(os.path.realpath, named)) - {os.path.realpath(os.curdir)}
    return {*map(os.path.realpath, folders), *added}


def _editable_projects(top):
    """Real paths of projects with this top-level module that `pip install -e` installed."""
    for distribution in metadata.distributions(path=sorted(_site_packages())):
        if top in (distribution.read_text('top_level.txt') or '').split():
            origin = json.loads(distribution.read_text('direct_url.json') or '{}')
            if origin.get('dir_info', {}).get('editable'):
                yield os.path.realpath(request.url2pathname(parse.urlsplit(origin['url']).path))


def add_flag(parser: ArgumentParser) -> None:
    """Adds --allow_imports to a command that reads run folders."""
    parser.add_argument(
        '--allow_imports',
        action='extend',
        default=[],
        metavar='MODULE,..',
        type=lambda text: [name.strip() for name in text.split(',') if name.strip()],
        help='modules or packages outside installed distributions that a config.gin may import',
    )
