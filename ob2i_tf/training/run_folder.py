"""A run folder: the names of its files, and the facts that they tell about the run.

Nothing here needs TensorFlow, so that reports start quickly.
"""

import csv
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from absl import logging

import ob2i_tf
from ob2i_tf.errors import UserError
from ob2i_tf.training import checkpoints, disk

# Columns of the tables, README, "A run".
COLUMNS = {
    'train': (
        'iteration',
        'frames',
        'agent_steps',
        'learner_steps',
        'episodes',
        'score_mean',
        'return_mean',
        'episode_length_mean',
        'loss',
        'bonus_mean',
        'next_bonus_mean',
        'q_mean',
        'epsilon',
        'agent_steps_per_second',
    ),
    'eval': (
        'iteration',
        'frames',
        'episodes',
        'score_mean',
        'score_std',
        'score_min',
        'score_max',
    ),
    'episodes': ('frames', 'score', 'length'),
    'eval_episodes': ('iteration', 'frames', 'score', 'length'),
    'bonus': (
        'iteration',
        'frames',
        'reward_bonus_mean',
        'next_bonus_mean',
        'next_bonus_normalized_mean',
        'q_gap_mean',
        'next_action_changes',
    ),
}
_PACKAGES = ('tensorflow', 'tf-keras', 'tf-agents', 'numpy', 'gymnasium', 'ale-py')


class RunFolder:
    """Paths of a run folder, which may be missing, and what its files say.

    Attributes:
      path: The folder.
      config: config.gin, every parameter of the run; alone it reproduces the run.
      environment: environment.json, what each process of the run ran on.
      checkpoints, replay, tensorboard: Folders.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / 'config.gin'
        self.environment = self.path / 'environment.json'
        self.checkpoints = self.path / 'checkpoints'
        self.replay = self.path / 'replay'
        self.tensorboard = self.path / 'tensorboard'

    def __str__(self):
        return str(self.path)

    def table(self, name: str) -> Path:
        """Path of one of the CSV files in COLUMNS."""
        return self.path / f'{name}.csv'

    def check_config(self, text: str) -> None:
        """Makes sure that the folder holds no run of another configuration than `text`.

        `Runner.num_iterations` may differ: nothing that a run computes depends on it.

        Raises:
          UserError: names the first line that differs.
        """
        try:
            there = disk.read_text(self.config, 'utf-8-sig', 'replace')
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise UserError(f'the configuration of the run cannot be read: {error}') from error
        for old, new in itertools.zip_longest(there.splitlines(), text.splitlines()):
            if old != new and not (old or '').startswith('Runner.num_iterations ='):
                raise UserError(
                    f'{self.config} was created with a different configuration: {old!r} there, '
                    f'{new!r} here; use another --base_dir'
                )

    def check_unlinked(self) -> None:
        """Makes sure that a run writes and deletes files of its own folder only.

        Raises:
          UserError: names a folder in it that is a symbolic link.
        """
        for path in (self.checkpoints, self.replay, self.tensorboard):
            if path.is_symlink():
                raise UserError(
                    f'{path} is a symbolic link, through which no run writes; move the folder '
                    'back, or the whole run folder'
                )

    def write_environment(self, devices: list[str]) -> None:
        """Writes what this process runs on to environment.json, before what earlier ones ran on."""
        earlier = []
        if self.environment.exists():
            try:
                last = json.loads(disk.read_text(self.environment))
                earlier = [*last.pop('earlier'), last]
            except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
                damaged = self.environment.with_name(f'{self.environment.name}.damaged')
                logging.warning(
                    '%s is damaged, and kept as %s: %s', self.environment, damaged.name, error
                )
                os.replace(self.environment, damaged)
        versions = {name: _version(name) for name in _PACKAGES}
        record = {
            'started': time.strftime('%Y-%m-%dT%H:%M:%S%z'),
            'command': sys.argv,
            'git_commit': git_commit(Path(__file__).resolve().parents[2]),
            'python': platform.python_version(),
            'packages': {'ob2i_tf': ob2i_tf.__version__, **versions},
            'platform': platform.platform(),
            'cpu_cores': os.cpu_count(),
            'devices': devices,
        }
        disk.replace_text(self.environment, json.dumps({**record, 'earlier': earlier}, indent=1))

    def rows(self, table: str) -> list[dict[str, str]]:
        """The complete rows of a table; [] if it cannot be read."""
        try:
            text = disk.read_text(self.table(table), errors='replace')
        except OSError:
            return []
        return list(csv.DictReader(text[: text.rfind('\n') + 1].splitlines()))

    def num_iterations(self) -> int:
        """Number of iterations that are done, logged and saved; 0 if there is no run."""
        if not self.config.exists():
            return 0
        newest = checkpoints.newest_first(self.checkpoints)
        saved = checkpoints.agent_steps(newest[0]) if newest else -1
        rows = self.rows('train')
        try:  # The row comes before the checkpoint.
            return sum(int(row['agent_steps']) <= saved for row in rows)
        except (KeyError, TypeError, ValueError):  # A damaged row.
            return 0


def find_runs(path, files=('config.gin',)) -> list[Path]:
    """Folders at or below `path` that hold any of `files`, each once, sorted.

    A folder that links lead to as well is named by its path without links, if that is below `path`.
    """
    inside_a_run = {'checkpoints', 'replay', 'tensorboard'}
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
                names[:] = [name for name in names if name not in inside_a_run]
            names.sort()
            roots += [link for name in names if os.path.islink(link := os.path.join(folder, name))]
    return sorted(found)


def git_commit(folder: Path) -> str | None:
    """Commit of a checkout, with '+' if tracked files were changed; None if it is not one."""
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


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
