r"""Trains an agent as configured by gin.

  python run_experiment.py --gin_files=ob2i_atari.gin
  python run_experiment.py --gin_files=ob2i_atari.gin --game=Pong --seed=3 \
      --gin_bindings='Runner.num_iterations = 20'

`ob2i-tf` does the same, from any folder. Gin files are found as given, or in the project's folder
gin/. The same command resumes a run from its newest checkpoint; with --dry_run it writes nothing
and prints the configuration of the run, as a gin file, and what the run needs. Exit status: 0 if
the run is complete; 1 if it could not continue; 2 if its configuration or the command line is
wrong; 128 + signal (143, 130, 129) if SIGTERM, Ctrl-C or a closed terminal stopped it and
everything is saved.
"""

import contextlib
import logging as python_logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, cast

import tqdm
from absl import flags, logging

from ob2i_tf import cli, config
from ob2i_tf.config.reading import Binding
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
        'game', None, "Short for the binding make_environment.name = 'GAME'.", flag_values=values
    )
    flags.DEFINE_integer(
        'seed', None, 'Short for the binding Runner.seed = SEED.', flag_values=values
    )
    flags.DEFINE_string(
        'base_dir',
        None,
        'Run folder; by default runs/<last gin file>/<task>/seed<seed>.',
        flag_values=values,
    )
    flags.DEFINE_boolean(
        'dry_run',
        False,
        'Print the configuration and what the run needs; write nothing.',
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
    return values


def _shorthands(values):
    """The bindings that flags stand for; those of --gin_bindings override them."""
    named = (('game', 'make_environment', 'name'), ('seed', 'Runner', 'seed'))
    return [
        Binding('', name, parameter, values[flag].value, f'--{flag}={values[flag].value}')
        for flag, name, parameter in named
        if values[flag].value is not None
    ]


def _check_shorthands(shorthands):
    """Raises a ConfigError if another binding has overridden the one of a flag."""
    for binding in shorthands:
        value = config.value(str(binding))
        if value != binding.value:
            raise ConfigError(f'{binding.where}, but {binding} = {value!r} is bound too')


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


def start_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages, and registers all configurables."""
    cli.import_tensorflow()
    from ob2i_tf.training import runner  # noqa: F401


def train(
    gin_files: Sequence[str],
    bindings: Sequence[str] = (),
    base_dir: str | os.PathLike | None = None,
    shorthands: Sequence[Binding] = (),
    dry_run: bool = False,
) -> Path:
    """Trains a run to its end; its configuration becomes gin's.

    Args:
      gin_files: Names of files.
      bindings: Bindings in gin syntax.
      base_dir: Run folder; None: `default_base_dir`.
      shorthands: Bindings that `bindings` must not contradict.
      dry_run: Whether only the configuration and what the run needs are printed.

    Returns:
      The run folder.

    Raises:
      ConfigError: The configuration is wrong.
      UserError: The run cannot start or continue.
      SystemExit: A signal stopped it, see `Runner.run`.
    """
    if not gin_files:
        raise ConfigError(f'no --gin_files given; available: {", ".join(config.available())}')
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # Gin files may import modules from there.
    layers = config.read(gin_files, bindings)  # Before imports, which take long.
    layers[-1][:0] = shorthands
    system.keep_freed_memory()
    start_tensorflow()
    from ob2i_tf.training import runner

    config.apply(layers)
    _check_shorthands(shorthands)
    base_dir = base_dir or default_base_dir(
        gin_files[-1], str(task_name(config.value)), config.value('Runner.seed')
    )
    with system.tensor_float_32(False):  # Which the run sets.
        with config.construction_errors():
            run = runner.Runner(base_dir=os.path.expanduser(base_dir), dry_run=dry_run)
        if dry_run:
            comments = ''.join(f'# {line}\n' for line in run.needs())
            print(f'{comments}\n{config.resolved_config()}', end='')
        else:
            run.run()
    return run.folder.path


def _run(argv):
    values = _parse_flags(argv)
    if values.help:
        print(__doc__, values.get_help(), sep='\n')
        return
    _set_up_logging()
    train(
        values.gin_files, values.gin_bindings, values.base_dir, _shorthands(values), values.dry_run
    )


@cli.command(expected=UserError)
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    if not isinstance(sys.stderr, _LossyStream):
        sys.stderr = cast(TextIO, _LossyStream(sys.stderr))
    _run(sys.argv if argv is None else argv)
    return 0


if __name__ == '__main__':
    sys.exit(main())
