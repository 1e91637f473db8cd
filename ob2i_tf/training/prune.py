"""Frees the disk space of the replay of complete runs.

  python -m ob2i_tf.training.prune runs           # lists what could be freed
  python -m ob2i_tf.training.prune runs --delete  # frees it

A run is complete if its last iteration is logged and in its newest checkpoint, which must be
intact. Its trained agent can still be loaded, evaluated and shown in the viewer, and its tables
stay; but it cannot be continued with more iterations.
Exit status: 0 done, 1 a run could not be freed, 2 wrong command line.
"""

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from ob2i_tf import cli
from ob2i_tf.errors import UserError
from ob2i_tf.training import checkpoints, disk
from ob2i_tf.training.run_folder import RunFolder, find_runs


def replay_files(folder: RunFolder) -> list[Path]:
    """The files of replay that the checkpoints of a run refer to.

    Raises:
      UserError: The run is in progress or not complete, its newest checkpoint is damaged, or its
        replay is behind a symbolic link.
    """
    folder.check_unlinked()
    saved = checkpoints.newest_first(folder.checkpoints)
    if not (saved and folder.complete()):
        raise UserError('not complete')
    if fault := checkpoints.find_damage(saved[0]):
        raise UserError(f'{saved[0]} is damaged: {fault}')
    names = set()
    for checkpoint in saved:
        if not checkpoints.find_damage(checkpoint):
            state = checkpoints.read_state(checkpoint)
            names |= {segment['file'] for segment in state['replay']['segments']}
    paths = (folder.replay / name for name in sorted(names) if name == os.path.basename(name))
    return [path for path in paths if path.exists() and stat.S_ISREG(path.lstat().st_mode)]


def free(folder: RunFolder, delete: bool) -> int:
    """Frees the replay of one run, if `delete`; returns its bytes on disk.

    Raises:
      UserError: See `replay_files`.
      OSError: A file cannot be deleted.
    """
    lock = disk.Lock(folder.path) if delete else None
    try:
        files = replay_files(folder)
        size = sum(path.stat().st_size for path in files)
        if delete and files:
            disk.write_text(  # First, so that no run resumes from a part of its replay.
                folder.freed,
                'The replay was freed by ob2i_tf.training.prune: the run cannot be continued.\n',
            )
            for path in files:
                path.unlink()
        return size
    finally:
        if lock:
            lock.close()


@cli.command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = cli.parser('ob2i_tf.training.prune', __doc__)
    parser.add_argument('runs', nargs='+', type=os.path.expanduser, metavar='RUNS')
    parser.add_argument('--delete', action='store_true', help='free it; without, only list it')
    arguments = parser.parse_args(argv)
    total, failed = 0, 0
    for path in dict.fromkeys(found for runs in arguments.runs for found in find_runs(runs)):
        try:
            size = free(RunFolder(path), arguments.delete)
        except UserError as error:
            print(f'{path}: kept, {error}')
        except OSError as error:
            cli.print_error(f'{path}: {error}')
            failed += 1
        else:
            total += size
            print(f'{path}: {size:,} bytes')
    print(f'{total:,} bytes {"freed" if arguments.delete else "to be freed with --delete"}')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
