r"""Trains an agent as configured by gin.

  python run_experiment.py --gin_files=ob2i_atari.gin
  python run_experiment.py --gin_files=ob2i_atari.gin \
      --gin_bindings="make_environment.name = 'Pong'" --gin_bindings='Runner.seed = 3'

Gin files are found as given, or in the project's folder gin/. The same command resumes a run from
its newest checkpoint. Exit status: 0 if the run is complete; 1 if it could not continue; 2 if its
configuration or the command line is wrong; 128 + signal (143, 130, 129) if SIGTERM, Ctrl-C or a
closed terminal stopped it and everything is saved.
"""

import contextlib
import logging as python_logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import TextIO, cast

import tqdm
from absl import flags, logging

from ob2i_tf import cli, config
from ob2i_tf.errors import ConfigError, UserError
from ob2i_tf.training import system
from ob2i_tf.training.run_folder import task_name


def _flag_values():
    values = flags.FlagValues()
    flags.DEFINE_multi_string(
        'gin_files',
        [],
        'Gin file; may be repeated, later files override earlier ones.',
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        'gin_bindings',
        [],
        'Binding in gin syntax; overrides the files; may be repeated.',
        flag_values=values,
    )
    flags.DEFINE_string(
        'base_dir',
        None,
        'Run folder; by default runs/<last gin file>/<task>/seed<seed>.',
        flag_values=values,
    )
    flags.DEFINE_boolean('help', False, 'Show this help.', flag_values=values)
    return values


def _parse_flags(argv):
    values = _flag_values()
    try:
        rest = values(argv)[1:]
    except flags.Error as error:
        raise ConfigError(error) from None
    if values.help:
        return values
    if rest:
        raise ConfigError(
            f'unexpected argument {rest[0]!r}: gin files are given as --gin_files=FILE'
        )
    if not values.gin_files:
        raise ConfigError(f'no --gin_files given; available: {", ".join(config.available())}')
    return values


def default_base_dir(gin_file: str, task: str, seed: int) -> str:
    """runs/<config>/<task>/seed<seed>, with names that any file system accepts."""
    name = os.path.splitext(os.path.basename(gin_file))[0]
    return os.path.join('runs', name, re.sub(r'[^A-Za-z0-9_-]+', '_', task), f'seed{seed}')


class _LossyStream:
    """A text stream that drops text it cannot write, so that a run survives a full log."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name):
        return getattr(self._stream, name)


class _AboveProgress(python_logging.Handler):
    """Writes log lines above the progress bar, not into it."""

    def emit(self, record: python_logging.LogRecord) -> None:
        tqdm.tqdm.write(self.format(record), file=sys.stderr)


def _set_up_logging():
    handler = _AboveProgress()
    handler.setFormatter(logging.PythonFormatter())
    handler.addFilter(lambda record: record.module != 'functional_saver')  # TensorFlow's timings.
    python_logging.getLogger().handlers = [handler]
    logging.set_verbosity(logging.INFO)


@contextlib.contextmanager
def stderr_held_back() -> Iterator[None]:
    """Hides TensorFlow's start-up messages, which no setting turns off, unless an error occurs."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        try:
            yield
        except BaseException:
            notes.seek(0)
            os.write(stderr, notes.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _run(argv):
    values = _parse_flags(argv)
    if values.help:
        print(__doc__, values.get_help(), sep='\n')
        return
    sys.path.append(os.getcwd())  # Gin files may import modules from there.
    layers = config.read(values.gin_files, values.gin_bindings)  # Before imports, which take long.
    system.keep_freed_memory()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')  # TensorFlow's warnings still show.
    _set_up_logging()

    with stderr_held_back():
        from ob2i_tf.training import runner  # Also registers all configurables.

        system.list_gpus()  # Without a GPU the first call prints an error.

    config.apply(layers)
    base_dir = values.base_dir or default_base_dir(
        values.gin_files[-1], str(task_name(config.value)), config.value('Runner.seed')
    )
    with config.construction_errors():
        run = runner.Runner(base_dir=os.path.expanduser(base_dir))
    run.run()


@cli.command(expected=UserError)
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    if not isinstance(sys.stderr, _LossyStream):
        sys.stderr = cast(TextIO, _LossyStream(sys.stderr))
    _run(sys.argv if argv is None else argv)
    return 0


if __name__ == '__main__':
    sys.exit(main())
