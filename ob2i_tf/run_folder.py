"""What a run folder says of its run: configuration, machine, and state of a checkpoint."""

import contextlib
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import logging

import ob2i_tf
from ob2i_tf import config, disk
from ob2i_tf.errors import CheckpointError, UserError

CHECKPOINT_FORMAT = 4
_FOLDERS = ('checkpoints', 'replay', 'tensorboard')


def check_config(directory):
    """Makes sure that the config.gin there, if any, describes the run of gin's configuration.

    `Runner.num_iterations` may differ: nothing that a run computes depends on it.

    Raises:
      UserError: that names the first line that differs.
    """
    path = directory / 'config.gin'
    try:
        there = disk.read_text(path, 'utf-8-sig', 'replace')
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UserError(f'the configuration of the run cannot be read: {error}') from error
    text = config.resolved_config()
    for old, new in itertools.zip_longest(there.splitlines(), text.splitlines()):
        if old != new and not (old or '').startswith('Runner.num_iterations ='):
            raise UserError(
                f'{path} holds another configuration: it says {old!r}, this run {new!r}; '
                'use another --base_dir'
            )


def check_unlinked(directory):
    """Makes sure that a run writes and deletes files of its folder only.

    Raises:
      UserError: that names a folder in it that is a symbolic link.
    """
    for path in (directory / name for name in _FOLDERS):
        if path.is_symlink():
            raise UserError(
                f'{path} is a symbolic link, through which no run writes; move the folder back, or '
                'the whole run folder'
            )


def check_data(directory, data):
    """Makes sure that environments show what they showed to the process before this one.

    Raises:
      UserError: they do not; a configuration may leave the source to the machine.
    """
    try:
        there = json.loads(disk.read_text(directory / 'environment.json')).get('data', data)
    except (OSError, ValueError, AttributeError):
        return  # Missing or damaged, as `write_environment` says.
    if there != data:
        raise UserError(
            f'{directory} was begun with {there}, and this machine has {data}: go on where there '
            'are the same'
        )


def write_environment(directory, data):
    """Writes what this process runs on to environment.json, before what earlier ones ran on."""
    path = directory / 'environment.json'
    earlier = []
    if path.exists():
        try:
            last = json.loads(disk.read_text(path))
            earlier = [*last.pop('earlier'), last]
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            logging.warning('%s is damaged, and kept as %s.damaged: %s', path, path.name, error)
            os.replace(path, f'{path}.damaged')
    packages = ('tensorflow', 'tf-keras', 'tf-agents', 'numpy', 'gymnasium', 'ale-py')
    record = {
        'started': time.strftime('%Y-%m-%dT%H:%M:%S%z'),
        'command': sys.argv,
        'git_commit': _git_commit(),
        'python': platform.python_version(),
        'packages': {'ob2i_tf': ob2i_tf.__version__, **{name: _version(name) for name in packages}},
        'platform': platform.platform(),
        'cpu_cores': os.cpu_count(),
        'devices': [device.name for device in tf.config.list_physical_devices()],
        **({'data': data} if data else {}),
    }
    disk.replace_text(path, json.dumps({**record, 'earlier': earlier}, indent=1))


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit():
    """Commit of the checkout that this file is part of, with '+' if it was changed; or None."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / '.git').exists():
        return None
    try:
        commit, changes = (
            subprocess.run(
                ['git', '--no-optional-locks', *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            for arguments in (('rev-parse', 'HEAD'), ('status', '--porcelain', '-uno'))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ('+' if changes else '')


@contextlib.contextmanager
def named_for_tensorflow(folder):
    """A path of `folder` for TensorFlow, whose C++ code encodes it in UTF-8 in any locale."""
    with contextlib.ExitStack() as stack:
        name = str(folder)
        if name.encode('utf-8', 'replace') != os.fsencode(folder):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            name = f'/proc/self/fd/{descriptor}'
        yield name


def read_state(checkpoint):
    """state.json of the folder of a checkpoint; CheckpointError if it is of another format."""
    state = json.loads((checkpoint / 'state.json').read_text())
    if state['format'] != CHECKPOINT_FORMAT:
        raise CheckpointError(f'{checkpoint} has format {state["format"]}, not {CHECKPOINT_FORMAT}')
    return state


def read_arrays(checkpoint):
    """{name: array} of arrays.npz in the folder of a checkpoint."""
    path = checkpoint / 'arrays.npz'
    disk.check_unpacked(path)
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def arrays_of(part, arrays):
    """Of the arrays of a checkpoint those of one part, by the names that the part gave them."""
    prefix = f'{part}_'
    return {n.removeprefix(prefix): arrays[n] for n in arrays if n.startswith(prefix)}
