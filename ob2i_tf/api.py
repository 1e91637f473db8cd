"""Trains and loads agents from Python, as in a notebook; `ob2i_tf.load` and `ob2i_tf.train`.

Both leave gin's state as it was. Errors are those of the command line, as exceptions of
`ob2i_tf.errors`. Importing this module does not import TensorFlow.
"""

import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ob2i_tf import cli, config, errors
from ob2i_tf.errors import UserError, missing_extra
from ob2i_tf.training import main
from ob2i_tf.training.run_folder import COLUMNS, RunFolder

if TYPE_CHECKING:  # One of them imports TensorFlow, and the other may be missing.
    import pandas as pd

    from ob2i_tf.training.restore import TrainedAgent


class Run(NamedTuple):
    """A run, by its folder.

    Attributes:
      folder: Run folder.
    """

    folder: Path

    @property
    def train(self) -> 'pd.DataFrame':
        """train.csv, a row per iteration; UserError if pandas is missing."""
        return self.table('train')

    @property
    def eval(self) -> 'pd.DataFrame':
        """eval.csv, a row per evaluation; UserError if pandas is missing."""
        return self.table('eval')

    def table(self, name: str) -> 'pd.DataFrame':
        """Reads a table of the run folder.

        Args:
          name: Name of the CSV file, such as 'episodes' or 'bonus'.

        Raises:
          UserError: The table cannot be read, or pandas is missing.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UserError(missing_extra(error, 'analysis')) from None
        table = pd.DataFrame(RunFolder(self.folder).read_rows(name), columns=COLUMNS[name])
        return table.apply(pd.to_numeric, errors='coerce')  # 'nan' is not measured.


def train(
    gin_files: str | os.PathLike | Iterable[str | os.PathLike],
    bindings: Mapping[str, Any] | Iterable[str] = (),
    base_dir: str | os.PathLike | None = None,
) -> Run:
    """Trains like `run_experiment.py` and returns when the run is complete.

    A run that was interrupted resumes, and a complete one returns at once. Ctrl-C saves, then
    raises a KeyboardInterrupt; a second one raises it at once, without saving. TensorFlow keeps
    about 20 MB per run, and freed memory stays with the process. Call it from the main thread.

    Args:
      gin_files: Gin files, found as given or in the project's folder gin/; later ones override.
      bindings: {name: value}, such as {'Runner.seed': 3, 'Agent.preferences': '@ucb_preferences'},
        where a string that starts with @ or % is a reference or a macro; or bindings in gin syntax.
      base_dir: Run folder; None: `runs/<last gin file>/<task>/seed<seed>`.

    Returns:
      The run.

    Raises:
      ConfigError: The configuration is wrong.
      UserError: The run cannot start or continue.
    """
    if isinstance(gin_files, (str, os.PathLike)):
        gin_files = [gin_files]
    if isinstance(bindings, Mapping):
        bindings = config.as_flags(bindings)
    files = [os.fspath(file) for file in gin_files]
    try:
        with _errors_in_one_line(), _no_retracing_warnings(), config.GinState().entered():
            return Run(main.train(files, list(bindings), base_dir))
    except SystemExit as stopped:
        if stopped.code == 128 + signal.SIGINT:
            raise KeyboardInterrupt('saved; the same call resumes') from None
        raise


def load(
    run: str | os.PathLike, seed: int = 0, allow_imports: Iterable[str] = ()
) -> 'TrainedAgent':
    """Loads the trained agent of a run, from its newest intact checkpoint.

    Nothing is written into the folder, so that the run may continue meanwhile.

    Args:
      run: Run folder, or the name of an agent that comes with the package, 'ob2i_deep_sea' or
        'ob2i_breakout'.
      seed: Seed of the agent's random choices.
      allow_imports: Modules and packages that the configuration of the run may import besides those
        of installed distributions.

    Raises:
      UserError: It is not a run folder.
      CheckpointError: It has no intact checkpoint of this version.
      ConfigError: Its configuration does not fit this version, or has a forbidden import.
    """
    main.start_tensorflow()
    from ob2i_tf.training.restore import restore

    with _errors_in_one_line():
        return restore(os.path.expanduser(run), allow_imports, seed)


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Context whose UserErrors have the text of the command line, without gin's lines."""
    try:
        yield
    except UserError as error:
        # Gin raises subclasses, and classes of other modules may take other arguments.
        kind = next(kind for kind in type(error).__mro__ if kind in vars(errors).values())
        raise kind(cli.one_line(error)) from error.__cause__


@contextlib.contextmanager
def _no_retracing_warnings() -> Iterator[None]:
    """Context without TensorFlow's warnings that runs trace their functions, each its own."""

    def allowed(record):
        return 'triggered tf.function retracing' not in record.getMessage()

    logger = logging.getLogger('tensorflow')
    logger.addFilter(allowed)
    try:
        yield
    finally:
        logger.removeFilter(allowed)
