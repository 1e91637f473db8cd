"""Files that are whole or not there, and that can be told from damaged ones."""

import fcntl
import hashlib
import os

from ob2i_tf.errors import UserError

CHUNK_BYTES = 2**20


def describe(path, size=float('inf')):
    """{'bytes', 'sha256'} of a file or of its first `size` bytes; OSError if it cannot be read."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(min(CHUNK_BYTES, size - file.tell())):
            digest.update(chunk)
        return {'bytes': file.tell(), 'sha256': digest.hexdigest()}


def sync(path):
    """Brings a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path, text):
    """Replaces a file at once, so that a full disk or a kill leaves the old one."""
    aside = f'{path}.writing'
    with open(aside, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def lock(directory):
    """Holds a run folder until the returned file is closed; UserError if another process does."""
    file = open(os.path.join(directory, 'lock'), 'w')
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f'another process is running in {directory}') from None
    return file
