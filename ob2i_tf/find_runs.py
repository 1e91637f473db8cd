"""Run folders below a path, behind symbolic links too."""

import os
from pathlib import Path
from typing import List

_INSIDE_A_RUN = ('checkpoints', 'replay', 'tensorboard')


def find_runs(path, files) -> List[Path]:
    """Folders at or below `path` that hold any of `files`, each once, sorted.

    A folder that links lead to as well is found by its own path, if that is below `path`.
    """
    found, seen, roots = [], set(), [path]
    for root in roots:  # Links are followed after all folders before them.
        for folder, names, there in os.walk(root):
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                names.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            if not set(files).isdisjoint(there):
                found.append(Path(folder))
                names[:] = [name for name in names if name not in _INSIDE_A_RUN]
            names.sort()
            roots += [link for name in names if os.path.islink(link := os.path.join(folder, name))]
    return sorted(found)
