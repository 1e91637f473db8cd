"""Command lines and code in separate processes, which do not each import TensorFlow anew."""

import contextlib
import functools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from ob2i_tf import sweep
from ob2i_tf.training import main

# Each process is forked from one that has imported TensorFlow but not used it.
_PROCESSES = multiprocessing.get_context('forkserver')
_PROCESSES.set_forkserver_preload(['ob2i_tf.training.runner', 'tests.frozen'])


def _in_process(argv, output, cwd, largest_file_bytes, stop_at, before):
    """Runs in the fresh process: the command line, with stderr in a file."""
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.chdir(cwd)
    if largest_file_bytes is not None:  # Files beyond it fail as they do on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))
    if stop_at is not None:
        _terminate_at(stop_at)
    for prepare in before:
        prepare()
    sys.exit(main.main(argv))


def _terminate_at(agent_steps):
    """SIGTERM arrives within the very agent step."""
    from ob2i_tf.agent import Agent

    observe = Agent.observe

    def observe_and_stop(self, *args):
        observe(self, *args)
        if self.agent_steps == agent_steps:
            os.kill(os.getpid(), signal.SIGTERM)

    Agent.observe = observe_and_stop


def start(argv, output=os.devnull, cwd=os.curdir, largest_file_bytes=None, stop_at=None, before=()):
    """Starts `run_experiment.py` with argv[1:]; its stderr goes to the file `output`.

    `before` is called in the process, one after another: picklable functions without arguments.
    """
    process = _PROCESSES.Process(
        target=_in_process,
        args=(argv, str(output), str(cwd), largest_file_bytes, stop_at, tuple(before)),
    )
    process.start()
    return process


def _code_in_process(code, cwd, environment, outputs):
    for number, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY), number)
    os.chdir(cwd)
    sys.path.insert(0, '')
    os.environ.update(environment)
    exec(compile(code, '<code>', 'exec'), {'__name__': '__main__'})


def run_code(code, cwd, environment=()):
    """Like `subprocess.run` of `python -c code`, with more environment variables."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ('stdout', 'stderr')]
        for output in outputs:
            output.touch()
        process = _PROCESSES.Process(
            target=_code_in_process, args=(code, str(cwd), dict(environment), outputs)
        )
        process.start()
        process.join()
        printed = [output.read_text() for output in outputs]
    return subprocess.CompletedProcess(code, process.exitcode, *printed)


class _Forked:
    """In the place of `subprocess.Popen`, for attempts of sweeps."""

    _lock = threading.Lock()  # `multiprocessing` polls all processes as it starts one.

    def __init__(self, command, stdout, cwd, **keywords):
        before = (functools.partial(_write_to, stdout.name),)
        with self._lock:
            self._process = start(command[2:], cwd=cwd, before=before)

    def poll(self):
        with self._lock:
            return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def wait(self, seconds):
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return self.poll()


def _write_to(log):
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)


@contextlib.contextmanager
def forked():
    """Context in which the attempts of sweeps do not import TensorFlow anew."""
    stand_in = SimpleNamespace(Popen=_Forked, DEVNULL=subprocess.DEVNULL)
    with mock.patch.object(sweep, 'subprocess', stand_in):
        yield
