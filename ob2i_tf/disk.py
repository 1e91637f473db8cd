"""Files that are intact or absent, survive a power cut, and can be told from damaged ones.

Nothing here writes through a symbolic link: a link in a run folder may point anywhere.
"""

import contextlib
import fcntl
import hashlib
import os
import zipfile
from pathlib import Path

import psutil

from ob2i_tf.errors import UserError

CHUNK_BYTES = 2**20


def describe(path, size=float('inf')):
    """{'bytes', 'sha256'} of a file or of its first `size` bytes; OSError if it cannot be read."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(min(CHUNK_BYTES, size - file.tell())):
            digest.update(chunk)
        return {'bytes': file.tell(), 'sha256': digest.hexdigest()}


def check_unpacked(path):
    """Raises a MemoryError if the content of a zip file exceeds the machine's free memory."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > psutil.virtual_memory().available:
        raise MemoryError(f'{path} holds {size:,} bytes')


def sync(path):
    """Brings a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileChangedError(OSError):
    """A file of a run that another program changed during the run."""

    def __init__(self, path):
        super().__init__(f'{path} was changed by another program during the run')


def make_folder(path):
    """Creates a folder, and its parents, so that a power cut does not take them away.

    That holds too where an earlier process was killed between making one and syncing its name.
    """
    path = Path(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    there = missing[-1].parent if missing else path
    for folder in (there, *reversed(missing)):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # Of a parent that is not the user's.
            sync(folder.parent)


def open_unlinked(path, mode, **keywords):
    """Like `open`, but an OSError if the path is a symbolic link."""

    def opener(path, flags):
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)

    return open(path, mode, opener=opener, **keywords)


def identity(path):
    """(inode, bytes): what tells a file from another one that took its place."""
    status = os.stat(path)
    return status.st_ino, status.st_size


def check_identity(path, expected):
    """Raises a FileChangedError if the `identity` of a file is another one."""
    if identity(path) != expected:
        raise FileChangedError(path)


def write_text(path, text):
    """Writes a file and brings it to the disk; its name gets there with `sync` of its folder."""
    with open_unlinked(path, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_text(path, text):
    """Replaces a file at once, so that a full disk or a kill leaves the old one."""
    aside = f'{path}.writing'
    write_text(aside, text)
    os.replace(aside, path)


class Lock:
    """Holds a run folder until it is closed.

    The folder itself is locked, so that removing the file `lock` lets nobody in; the file is for
    file systems that lock no folders, such as NFS.

    Raises:
      UserError: another process holds it.
    """

    def __init__(self, directory):
        self._held = []
        file = os.path.join(directory, 'lock')
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        for path, flags in ((file, flags), (directory, os.O_RDONLY | os.O_DIRECTORY)):
            self._held.append(os.open(path, flags, 0o666))
            try:
                fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                raise UserError(f'another process is running in {directory}') from None
            except OSError:
                if path == file:
                    raise

    def close(self):
        while self._held:
            os.close(self._held.pop())

    __del__ = close
