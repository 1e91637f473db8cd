"""Command lines in separate processes, which do not each import TensorFlow anew."""

import multiprocessing
import os
import resource
import signal
import sys

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
