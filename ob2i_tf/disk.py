"""Files that are whole or not there, and that can be told from damaged ones."""

import hashlib
import os

CHUNK_BYTES = 2**20


def describe(path):
    """{'bytes', 'sha256'} of a file; OSError if it cannot be read."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(CHUNK_BYTES):
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
    os.replace(aside, path)
