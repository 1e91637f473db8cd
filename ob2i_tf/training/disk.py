"""Atomic writes that survive a power cut, checksums and locks.

No file is written through a symbolic link, since a link in a run folder may point anywhere.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ob2i_tf.errors import UserError

CHUNK_BYTES = 2**20
StrPath = str | os.PathLike[str]


def fingerprint(path: StrPath, size: int | None = None) -> dict[str, Any]:
    """{'bytes', 'sha256'} of a file or of its first `size` bytes; OSError if it cannot be read."""
    digest = hashlib.sha256()
    size = sys.maxsize if size is None else size
    with open_regular(path, 'rb') as file:
        while chunk := file.read(min(CHUNK_BYTES, size - file.tell())):
            digest.update(chunk)
        return {'bytes': file.tell(), 'sha256': digest.hexdigest()}


def sync(path: StrPath) -> None:
    """Syncs a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileChangedError(OSError):
    """Another program changed a file of a run in progress."""

    def __init__(self, path: StrPath):
        super().__init__(f'{path} was changed by another program during the run')


def make_folder(path: StrPath) -> None:
    """Creates a folder and its missing parents, so that they survive a power cut.

    An existing folder is synced too: an earlier process may have been killed before it did so.
    """
    path = Path(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    existing = missing[-1].parent if missing else path
    for folder in (existing, *reversed(missing)):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # The parent may belong to another user.
            sync(folder.parent)


def remove(path: StrPath) -> None:
    """Removes a file, a folder with its content, or a symbolic link but not its target."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def open_regular(path: StrPath, mode: str = 'r', flags: int = 0, **keywords: Any) -> IO[Any]:
    """Like `open`, but raises an OSError for a pipe or a device, which may block or never end."""

    def opener(path, mode_flags):
        descriptor = os.open(path, mode_flags | flags | os.O_NONBLOCK, 0o666)
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # `open` itself rejects folders.
            os.close(descriptor)
            raise OSError(errno.EINVAL, 'Not a regular file', path)
        return descriptor

    return open(path, mode, opener=opener, **keywords)


def read_text(path: StrPath, encoding: str = 'utf-8', errors: str = 'strict') -> str:
    """Like `Path.read_text`, but reads only regular files."""
    with open_regular(path, encoding=encoding, errors=errors) as file:
        return file.read()


def open_nofollow(path: StrPath, mode: str, **keywords: Any) -> IO[Any]:
    """Like `open_regular`, but raises an OSError if the path is a symbolic link."""
    return open_regular(path, mode, os.O_NOFOLLOW, **keywords)


def identity(path: StrPath) -> tuple[int, int]:
    """(inode, bytes) of a file, which distinguish it from another file in its place."""
    status = os.stat(path)
    return status.st_ino, status.st_size


def check_identity(path: StrPath, expected: tuple[int, int]) -> None:
    """Raises a FileChangedError if a file no longer has this `identity`."""
    if identity(path) != expected:
        raise FileChangedError(path)


@contextlib.contextmanager
def tensorflow_path(folder: StrPath) -> Iterator[str]:
    """A path of `folder` for TensorFlow, whose C++ code encodes it in UTF-8 in any locale."""
    with contextlib.ExitStack() as stack:
        name = str(folder)
        if name.encode('utf-8', 'replace') != os.fsencode(folder):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            name = f'/proc/self/fd/{descriptor}'
        yield name


def write_text(path: StrPath, text: str) -> None:
    """Writes a file and syncs it to disk; its name needs `sync` of the folder."""
    with open_nofollow(path, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_text(path: StrPath, text: str) -> None:
    """Replaces a file atomically, so that a full disk or a kill leaves the old one."""
    aside = f'{path}.writing'
    write_text(aside, text)
    os.replace(aside, path)


class Lock:
    """Locks a run folder until it is closed.

    The folder itself is locked, so that the lock survives the removal of its file `lock`. The file
    is locked too, for file systems that cannot lock folders, such as NFS.

    Raises:
      UserError: Another process holds the lock.
    """

    def __init__(self, directory: StrPath):
        self._held: list[int] = []
        file = os.path.join(directory, 'lock')
        read_write = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        for path, flags in ((file, read_write), (directory, os.O_RDONLY | os.O_DIRECTORY)):
            self._held.append(os.open(path, flags, 0o666))
            try:
                fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                raise UserError(f'another process is running in {directory}') from None
            except OSError:
                if path == file:
                    raise

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    __del__ = close
