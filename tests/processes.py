"""Command lines in processes of their own, which do not each import TensorFlow anew."""

import multiprocessing
import os
import resource
import sys

from ob2i_tf import main

# Each process is forked from one that has imported TensorFlow but not used it.
_PROCESSES = multiprocessing.get_context('forkserver')
_PROCESSES.set_forkserver_preload(['ob2i_tf.runner'])


def _in_process(argv, output, cwd, largest_file_bytes):
    """What a fresh process does: the command line, with stderr in a file."""
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.chdir(cwd)
    if largest_file_bytes is not None:  # Files beyond it fail as they do on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))
    sys.exit(main.main(argv))


def start(argv, output=os.devnull, cwd=os.curdir, largest_file_bytes=None):
    """Starts `run_experiment.py` with argv[1:]; its stderr goes to the file `output`."""
    process = _PROCESSES.Process(
        target=_in_process, args=(argv, str(output), str(cwd), largest_file_bytes)
    )
    process.start()
    return process
