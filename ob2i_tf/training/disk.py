"""Files that are intact or absent, survive a power cut, and can be told from damaged ones.

No file is written through a symbolic link: a link in a run folder may point anywhere.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from ob2i_tf.errors import UserError

CHUNK_BYTES = 2**20


def fingerprint(path, size=float('inf')):
    """{'bytes', 'sha256'} of a file or of its first `size` bytes; OSError if it cannot be read."""
    digest = hashlib.sha256()
    with open_regular(path, 'rb') as file:
        while chunk := file.read(min(CHUNK_BYTES, size - file.tell())):
            digest.update(chunk)
        return {'bytes': file.tell(), 'sha256': digest.hexdigest()}


def check_unpacked(path):
    """Raises a MemoryError if the content of a zip file exceeds the machine's free memory."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    free = psutil.virtual_memory().available
    if size > free:
        raise MemoryError(f'{path} holds {size:,} bytes, and {free:,} are free')


def sync(path):
    """Brings a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileChangedError(OSError):
    """Another program changed a file of a run in progress."""

    def __init__(self, path):
        super().__init__(f'{path} was changed by another program during the run')


def make_folder(path):
    """Creates a folder and its missing parents, so that they survive a power cut.

    An earlier process may have been killed after it made the folder and before it synced the name.
    """
    path = Path(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    existing = missing[-1].parent if missing else path
    for folder in (existing, *reversed(missing)):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # Of a parent that is not the user's.
            sync(folder.parent)


def remove(path):
    """Removes a file, a folder with all it holds, or a symbolic link, not what it leads to."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def open_regular(path, mode='r', flags=0, **keywords):
    """Like `open`, but raises an OSError for a pipe or a device, which may block or never end."""

    def opener(path, of_mode):
        descriptor = os.open(path, of_mode | flags | os.O_NONBLOCK, 0o666)
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # Of a folder `open` itself says so.
            os.close(descriptor)
            raise OSError(errno.EINVAL, 'Not a regular file', path)
        return descriptor

    return open(path, mode, opener=opener, **keywords)


def read_text(path, encoding='utf-8', errors='strict'):
    """Like `Path.read_text`, of a regular file only."""
    with open_regular(path, encoding=encoding, errors=errors) as file:
        return file.read()


def open_nofollow(path, mode, **keywords):
    """Like `open_regular`, but raises an OSError if the path is a symbolic link."""
    return open_regular(path, mode, os.O_NOFOLLOW, **keywords)


def identity(path):
    """(inode, bytes) of a file, which tell it from another one in its place."""
    status = os.stat(path)
    return status.st_ino, status.st_size


def check_identity(path, expected):
    """Raises a FileChangedError if a file no longer has this `identity`."""
    if identity(path) != expected:
        raise FileChangedError(path)


@contextlib.contextmanager
def tensorflow_path(folder) -> Iterator[str]:
    """A path of `folder` for TensorFlow, whose C++ code encodes it in UTF-8 in any locale."""
    with contextlib.ExitStack() as stack:
        name = str(folder)
        if name.encode('utf-8', 'replace') != os.fsencode(folder):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            name = f'/proc/self/fd/{descriptor}'
        yield name


def write_text(path, text):
    """Writes a file and brings it to the disk; `sync` of its folder does so for its name."""
    with open_nofollow(path, 'w', encoding='utf-8') as file:
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

    The folder itself is locked, so that the lock survives the removal of its file `lock`. The file
    is locked too, for file systems that cannot lock folders, such as NFS.

    Raises:
      UserError: another process holds it.
    """

    def __init__(self, directory):
        self._held = []
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

    def close(self):
        while self._held:
            os.close(self._held.pop())

    __del__ = close
