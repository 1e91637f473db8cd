"""A run folder: the names of its files, and facts read from them.

This is the only module that names files of a run folder; checkpoints.py and episode_files.py name
those within `checkpoints` and `replay`. It does not import TensorFlow, so that reports start
quickly.
"""

import ast
import contextlib
import csv
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from absl import logging

import ob2i_tf
from ob2i_tf.errors import UserError
from ob2i_tf.training import checkpoints, disk

# {table: columns} of the CSV files; docs/run_folder.md describes them.
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
_CONFIG = 'config.gin'
_TAIL_BYTES = 4096
_PACKAGES = ('tensorflow', 'tf-keras', 'tf-agents', 'numpy', 'gymnasium', 'ale-py')


class RunFolder:
    """Paths and content of a run folder, which may be missing.

    Attributes:
      path: The folder.
      config: Path of config.gin, every parameter of the run; this file alone reproduces the run.
      environment: Path of environment.json, the machine and packages of each process of the run.
      checkpoints, replay, tensorboard: Paths of folders.
      freed: Path of the file that says that the episodes in `replay` were deleted or left out.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / _CONFIG
        self.environment = self.path / 'environment.json'
        self.checkpoints = self.path / 'checkpoints'
        self.replay = self.path / 'replay'
        self.tensorboard = self.path / 'tensorboard'
        self.freed = self.replay / 'freed.txt'

    def __str__(self) -> str:
        return str(self.path)

    def table(self, name: str) -> Path:
        """Path of one of the CSV files in COLUMNS."""
        return self.path / f'{name}.csv'

    def read_config(self) -> str:
        """Text of config.gin; OSError if it cannot be read."""
        return disk.read_text(self.config, 'utf-8-sig', 'replace')

    def check_config(self, resolved: str, bound: str) -> None:
        """Checks that the folder holds no run with another configuration.

        `Runner.num_iterations` may differ, since nothing that a run computes depends on it. A
        parameter that an earlier version of the package did not have may have its default.

        Args:
          resolved: `config.resolved_config()`.
          bound: The same without defaults.

        Raises:
          UserError: A line differs; the error names the first one. Or the folder is a file.
        """
        try:
            existing = _settings(self.read_config())
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise UserError(
                f'{self} cannot be the run folder: part of this path is a file; use another '
                '--base_dir'
            ) from None
        except OSError as error:
            raise UserError(f'the configuration of the run cannot be read: {error}') from error
        known = {line.partition(' = ')[0] for line in existing}
        added = set(_settings(resolved)) - set(_settings(bound))
        ours = [
            line
            for line in _settings(resolved)
            if line not in added or line.partition(' = ')[0] in known
        ]
        for old, new in itertools.zip_longest(existing, ours):
            if old != new:
                raise UserError(
                    f'{self.config} was created with a different configuration: {old!r} there, '
                    f'{new!r} here; use another --base_dir'
                )

    def check_unlinked(self) -> None:
        """Checks that a run writes and deletes no files outside its folder.

        Raises:
          UserError: A folder in it is a symbolic link; the error names it.
        """
        for path in (self.checkpoints, self.replay, self.tensorboard):
            if path.is_symlink():
                raise UserError(
                    f'{path} is a symbolic link, and a run never writes through one; move the '
                    'folder back, or move the entire run folder'
                )

    def check_replay(self) -> None:
        """Checks that a run in this folder has not lost its replay.

        Raises:
          UserError: The replay was freed, or only the agent was saved here.
        """
        if self.freed.exists():
            raise UserError(
                f'{self} cannot be continued: its replay was freed by ob2i_tf.training.prune, or '
                'left out when the agent was saved'
            )

    def write_environment(self, devices: list[str]) -> None:
        """Adds the machine and the packages of this process to environment.json.

        Args:
          devices: Names of TensorFlow's devices.
        """
        earlier: list[Any] = []
        if self.environment.exists():
            try:
                last = json.loads(disk.read_text(self.environment))
                earlier = [*last.pop('earlier'), last]
            except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
                damaged = self.environment.with_name(f'{self.environment.name}.damaged')
                logging.warning(
                    '%s is damaged and renamed to %s: %s', self.environment, damaged.name, error
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
            return self.read_rows(table)
        except UserError:
            return []

    def read_rows(self, table: str) -> list[dict[str, str]]:
        """The complete rows of a table; [] if it is missing.

        Raises:
          UserError: The table cannot be read; the error names its file.
        """
        path = self.table(table)
        try:
            text = disk.read_text(path, errors='replace')
            text = text.partition('\0')[0]  # A power cut may leave NULs in place of unwritten rows.
            return list(csv.DictReader(text[: text.rfind('\n') + 1].splitlines()))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, csv.Error) as error:
            raise UserError(f'{path} cannot be read: {error}') from error

    def last_rows(self, table: str) -> list[dict[str, str]]:
        """The last rows of a table, from its last few kB; [] if there are none."""
        columns = COLUMNS[table]
        try:
            with disk.open_regular(self.table(table), 'rb') as file:
                start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
                file.seek(start)
                text = file.read().decode(errors='replace')
        except OSError:
            return []
        lines = text[: text.rfind('\n') + 1].splitlines()[1:]  # The first is a header, or cut.
        rows = [dict(zip(columns, line.split(','))) for line in lines]
        return [row for row in rows if len(row) == len(columns)]

    def progress(self, num_iterations: int) -> float:
        """Share of `num_iterations` that is done, 0 to 1, as far as finished games tell."""
        frames = [row['frames'] for name in ('episodes', 'train') for row in self.last_rows(name)]
        bindings = self.bindings()
        steps = bindings.get('Runner.training_steps')
        per_step = bindings.get('make_atari.frame_skip', 1)
        if not (type(steps) is type(per_step) is int and all(map(str.isdecimal, frames))):
            return 0.0  # Missing or damaged.
        total = num_iterations * steps * per_step
        return min(1.0, max(map(int, frames), default=0) / total) if total else 0.0

    def newest_checkpoint(self) -> Path | None:
        """Path of the newest checkpoint, intact or not; None if no checkpoint can be listed."""
        try:
            return next(iter(checkpoints.newest_first(self.checkpoints)), None)
        except OSError:
            return None

    def num_iterations(self) -> int:
        """Number of logged iterations, up to the last one that the newest checkpoint contains."""
        newest = self.newest_checkpoint()
        saved = checkpoints.agent_steps(newest) if newest else -1
        rows = self.rows('train')
        while rows and not _reached(rows[-1], saved):  # The row comes before the checkpoint.
            rows.pop()
        return len(rows)

    def bindings(self) -> dict[str, Any]:
        """The bindings in config.gin, see `parse_config`; {} if it cannot be read."""
        try:
            return parse_config(self.read_config())
        except OSError:
            return {}

    def complete(self, num_iterations: int | None = None) -> bool:
        """Whether all iterations are logged, and the last one is saved.

        Args:
          num_iterations: Number of iterations; None: as many as config.gin asks for.
        """
        if num_iterations is None:
            num_iterations = self.bindings().get('Runner.num_iterations')
            if type(num_iterations) is not int:
                return False
        logged = len(self.rows('train'))
        return self.config.exists() and num_iterations <= logged == self.num_iterations()


def parse_config(text: str) -> dict[str, Any]:
    """{'Runner.seed': 0, 'Runner.update': '@EpisodicUpdate', ...} of a resolved config.gin.

    A value that is not a literal of Python, such as one with a reference, is its text.
    """
    bindings: dict[str, Any] = {}
    for line in text.splitlines():
        name, equals, value = line.partition(' = ')
        if equals:
            bindings[name] = value
            with contextlib.suppress(
                ValueError, TypeError, SyntaxError, MemoryError, RecursionError
            ):
                bindings[name] = ast.literal_eval(value)
    return bindings


def task_name(value: Callable[[str], Any]) -> str | None:
    """The task of a run in paths and reports.

    Args:
      value: Maps 'Name.parameter' to its value in the configuration, such as `config.value`.

    Returns:
      The name of the environment, or of the function that a user bound to Runner.environment; None
      if the configuration has neither.
    """
    maker = str(value('Runner.environment') or '@make_environment').strip('@()')
    maker = maker.rpartition('/')[2].rpartition('.')[2]  # Without scopes and modules.
    name = value('make_environment.name') if maker == 'make_environment' else maker
    return None if name is None else str(name)


def find_runs(path: str | Path, damaged: bool = False) -> list[Path]:
    """Run folders at or below `path`, each once, sorted.

    A folder that is also reached through links is listed by its path without links, if that is
    below `path`.

    Args:
      path: Folder to search.
      damaged: Whether to list folders without config.gin that have logged iterations or
        evaluations.
    """
    marks = {_CONFIG, *(f'{table}.csv' for table in ('train', 'eval') if damaged)}
    inside_a_run = {'checkpoints', 'replay', 'tensorboard'}
    found, seen, roots = [], set(), [path]
    for root in roots:  # The list grows: links are followed after all folders found without them.
        for folder, names, files in os.walk(root):
            real = os.path.realpath(folder)
            if real in seen:
                names.clear()
                continue
            seen.add(real)
            if not marks.isdisjoint(files):
                found.append(Path(folder))
                names[:] = [name for name in names if name not in inside_a_run]
            names.sort()
            roots += [link for name in names if os.path.islink(link := os.path.join(folder, name))]
    return sorted(found)


def _settings(text):
    """The lines of a configuration on which the numbers of a run depend."""
    return [
        line
        for line in text.splitlines()
        if line and not line.startswith('Runner.num_iterations =')
    ]


def _reached(row, saved):
    """Whether a row of train.csv is intact and not after `saved` agent steps."""
    steps = row.get('agent_steps') or ''
    return steps.isdecimal() and int(steps) <= saved


def git_commit(folder: Path) -> str | None:
    """Commit of a checkout, with '+' if tracked files were changed; None for any other folder."""
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
