"""Power cuts: the states in which a cut may leave a run's disk, if only fsync guarantees anything.

The file operations of a run are recorded, each with the preceding content of its folder. From the
record follow the disks that a power cut may leave, in a strict reading of POSIX:

- The content of a file is certain up to its last fsync. Until the next fsync it may be any later
  content, or a part of one whose end is missing or zero; a new file may be empty. The common prefix
  of all contents since the last fsync remains.
- A change of a name in a folder (created, renamed, removed) is certain once the folder itself was
  synced. Any of the changes since then may be lost and any kept, regardless of their order. A
  rename is one change: either the new name replaces the old one, or everything is as before.
  Syncing a file does not make its name certain.
- If the name of a folder is lost, so is everything in it.
"""

import os
import pickle
from pathlib import Path
from typing import NamedTuple

from campaigns import injections

_SYNCS = 'fsync', 'fsync of a folder'


def record(root, journal):
    """Injection: records the operations below `root` in the file `journal`.

    Args:
      root: A folder, whose present content is certain.
      journal: File that receives (operation, its subject, `look` before it) for each operation.
    """
    from ob2i_tf.training.checkpoints import Checkpoints

    file, known, save = open(journal, 'wb'), {}, Checkpoints.save
    pickler = pickle.Pickler(file)  # A single one, so that repeated content is written once.

    def note(operation, about):
        if operation in (*_SYNCS, 'open to truncate'):
            about = os.stat(about).st_ino if os.path.exists(about) else None
        pickler.dump((operation, about, look(root, known)))
        file.flush()

    def save_and_note(self, *arguments):
        save(self, *arguments)
        note('saved', self.all()[0].name)

    Checkpoints.save = save_and_note
    injections.before_operations(note, root)


def look(root, known):
    """{inode: content of the file, or {name: inode} of the folder}, `root` first."""
    nodes = {}

    def enter(path):
        inode = os.stat(path).st_ino
        nodes[inode] = {}
        if os.path.isdir(path):
            nodes[inode] = {name: enter(os.path.join(path, name)) for name in os.listdir(path)}
        else:
            content = Path(path).read_bytes()
            nodes[inode] = known.setdefault(content, content)
        return inode

    enter(root)
    return nodes


def read(journal):
    """The entries that `record` wrote, as a list."""
    entries = []
    with open(journal, 'rb') as file:
        unpickler = pickle.Unpickler(file)
        while file.peek(1):
            entries.append(unpickler.load())
    return entries


class _File:
    """One inode: its content at the last fsync, and each later content."""

    def __init__(self):
        self._contents = [b'']

    def see(self, content):
        if content != self._contents[-1]:
            self._contents.append(content)

    def sync(self):
        del self._contents[:-1]

    def after_cut(self, rng, loss):
        if loss == 1:
            return self._contents[0]
        if rng.random() >= loss:
            return self._contents[-1]
        content = rng.choice(self._contents)
        certain = len(os.path.commonprefix(self._contents))
        left = content[: rng.randint(certain, len(content))]
        return left if rng.random() < 0.5 else left.ljust(len(content), b'\0')


class _Folder:
    """One inode: its names at the last fsync, and each later change, {name: node or None}."""

    def __init__(self):
        self._synced, self._names, self._changes = {}, {}, []

    def see(self, names):
        renamed = set()
        for name, node in names.items():
            if self._names.get(name) is not node:
                old = [n for n, x in self._names.items() if x is node and n not in names]
                self._changes.append({**dict.fromkeys(old), name: node})
                renamed.update(old)
        gone = self._names.keys() - names.keys() - renamed
        self._changes += [{name: None} for name in sorted(gone)]
        self._names = names

    def sync(self):
        self._synced, self._changes = self._names, []

    def after_cut(self, rng, loss):
        names = self._synced
        for change in self._changes:
            if rng.random() >= loss:  # A node has one name at a time.
                names = {n: x for n, x in names.items() if x not in change.values()} | change
        return {name: node for name, node in names.items() if node}


class Disk:
    """The inodes of a disk while a record is replayed; numbers are reused, nodes are not.

    The `look` that it is created with is certain.
    """

    def __init__(self, looked):
        self._nodes = {}
        self.see(looked)
        for node in self._nodes.values():
            node.sync()

    def see(self, looked):
        self._root = next(iter(looked))
        self._nodes = {
            inode: self._nodes.get(inode) or (_Folder() if isinstance(content, dict) else _File())
            for inode, content in looked.items()
        }
        for inode, content in looked.items():
            if isinstance(content, dict):
                content = {name: self._nodes[i] for name, i in content.items()}
            self._nodes[inode].see(content)

    def do(self, operation, about):
        if operation in _SYNCS:
            self._nodes[about].sync()
        if operation == 'open to truncate' and about:
            self._nodes[about].see(b'')

    def after_cut(self, rng, loss):
        """{path: its content, None for a folder}; each change is lost with probability `loss`."""

        def walk(node, path):
            left = node.after_cut(rng, loss)
            if isinstance(node, _File):
                yield path, left
                return
            yield path, None
            for name, child in left.items():
                yield from walk(child, path / name)

        return dict(walk(self._nodes[self._root], Path()))


class Cut(NamedTuple):
    operation: str  # The next one.
    loss: float  # Probability with which a change was lost.
    saved: str | None  # The newest checkpoint whose save had returned.
    left: dict  # See `Disk.after_cut`.


def cuts(journals, root, rng, losses):
    """[Cut], one before each operation for each of `losses`; equal disks only once.

    Args:
      journals: Journals of `record`, from successive processes.
      root: The folder as the last process left it.
      rng: random.Random.
      losses: Probabilities with which a change is lost; 1: everything that can be.
    """
    entries = [entry for journal in journals for entry in read(journal)]
    entries.append(('end', None, look(root, {})))
    disk, saved, found, seen = Disk(entries[0][2]), None, [], set()
    for operation, about, looked in entries:
        disk.see(looked)
        if operation == 'saved':
            saved = about
        for loss in losses:
            left = disk.after_cut(rng, loss)
            key = (saved, frozenset(left.items()))
            if key not in seen:
                seen.add(key)
                found.append(Cut(operation, loss, saved, left))
        disk.do(operation, about)
    return found


def write(left, root):
    """Writes the disk that a cut left into the empty folder `root`."""
    for path, content in left.items():
        path = Path(root) / path
        if content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)
