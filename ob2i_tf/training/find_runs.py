"""Run folders below a path, also behind symbolic links."""

import os
from pathlib import Path

_INSIDE_A_RUN = ('checkpoints', 'replay', 'tensorboard')


def find_runs(path, files) -> list[Path]:
    """Folders at or below `path` that hold any of `files`, each once, sorted.

    A folder that links lead to as well is named by its path without links, if that is below `path`.
    """
    found, seen, roots = [], set(), [path]
    for root in roots:  # Grows: links are followed after the folders found without them.
        for folder, names, there in os.walk(root):
            real = os.path.realpath(folder)
            if real in seen:
                names.clear()
                continue
            seen.add(real)
            if not set(files).isdisjoint(there):
                found.append(Path(folder))
                names[:] = [name for name in names if name not in _INSIDE_A_RUN]
            names.sort()
            roots += [link for name in names if os.path.islink(link := os.path.join(folder, name))]
    return sorted(found)
