"""The small run of the campaign, and checks after it was disturbed."""

import re
import shutil
import tempfile
from pathlib import Path

from ob2i_tf.training.checkpoints import find_damage
from tests import processes

BINDINGS = (
    'Runner.num_iterations = 6',
    'Runner.training_steps = 24',
    'Runner.evaluation_steps = 12',
    'Runner.checkpoint_steps = 10',
    'EpisodeReplay.capacity_transitions = 30',
    'horizon = 4',
)
GIN_FILE = 'lsvi_epsilon_linear_mdp.gin'
UNSOUND = (
    'import campaigns.unsound',
    "make_environment.name = 'Unsound'",
    'Agent.train_period = 8',
    'Agent.learning_starts = 16',
    'MultiHeadQNetwork.conv_layers = ()',
    'MultiHeadQNetwork.hidden_units = 4',
    'MultiHeadQNetwork.num_heads = 2',
    'EpisodeReplay.capacity_transitions = 30',
    *BINDINGS[:4],
)
TABLES = ('train', 'eval', 'episodes', 'eval_episodes', 'bonus')


class Started:
    """A process of the program.

    Args:
      base_dir: Run folder.
      bindings: Bindings of the run.
      before: See `processes.start`.
      gin_file: Gin file of the run.
      output: File for its output; by default beside the run folder.
      largest_file_bytes: See `processes.start`.
    """

    def __init__(
        self,
        base_dir,
        bindings=BINDINGS,
        before=(),
        gin_file=GIN_FILE,
        output=None,
        largest_file_bytes=None,
    ):
        self._output = Path(output or f'{base_dir}.stderr')
        arguments = ['run', f'--gin_files={gin_file}', f'--base_dir={base_dir}']
        arguments += [f'--gin_bindings={binding}' for binding in bindings]
        self.process = processes.start(
            arguments, self._output, largest_file_bytes=largest_file_bytes, before=before
        )

    def end(self, timeout_seconds=600):
        """(exit status, complete output); a process that does not end is killed."""
        self.process.join(timeout_seconds)
        hangs = self.process.is_alive()
        self.process.kill()
        self.process.join()
        return 'hangs' if hangs else self.process.exitcode, self.printed()

    def printed(self):
        return self._output.read_text(errors='replace') if self._output.exists() else ''


def run(*arguments, **keywords):
    """(exit status, complete output) of a process, see `Started`."""
    return Started(*arguments, **keywords).end()


def last_line(printed):
    """The last line, without the path of installed packages."""
    line = (printed.strip().splitlines() or [''])[-1].strip()
    return re.sub(r'/\S*/site-packages/', 'SITE-PACKAGES/', line)


def rows(base_dir):
    """{table: its lines}; train.csv without its last column, a rate."""
    tables = {name: (Path(base_dir) / f'{name}.csv').read_text().splitlines() for name in TABLES}
    tables['train'] = [line.rpartition(',')[0] for line in tables['train']]
    return tables


def checkpoints(base_dir):
    """Names of the checkpoints, oldest first."""
    folder = Path(base_dir) / 'checkpoints'
    names = [p.name for p in folder.iterdir() if p.name[0].isdigit()] if folder.exists() else []
    return sorted(names)


def damaged(base_dir):
    folder = Path(base_dir) / 'checkpoints'
    return [name for name in checkpoints(base_dir) if find_damage(folder / name)]


def one_line(status, printed):
    """The fault in how a rejected or broken run ended; '' if it ended with one clear line."""
    if status not in (1, 2):
        return f'status {status}'
    last = last_line(printed)
    clear = last.startswith('error: ') and 'unexpected' not in last
    return '' if clear else f'ended with {last!r}'


def scratch_copy(base_dir):
    """A copy of a run in a new temporary folder."""
    target = Path(tempfile.mkdtemp(prefix='faults-')) / 'run'
    shutil.copytree(base_dir, target)
    return target
