"""Faults, injected into a process of the program before it starts; see `processes.start`."""

import ctypes
import os
import random
import resource
import signal
import stat
import sys
import threading
import time

import numpy as np

PHASES = ('train', 'evaluate', 'save')
_OPERATIONS = {
    f'os.{name}' for name in ('link', 'mkdir', 'remove', 'rename', 'rmdir', 'symlink', 'truncate')
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE


def after_steps(agent_steps, call):
    """Calls `call(agent)` once, within the given agent step."""
    from ob2i_tf.agent import Agent

    observe = Agent.observe

    def observe_and_call(self, *args):
        reports = observe(self, *args)
        if self.agent_steps == agent_steps:
            call(self)
        return reports

    Agent.observe = observe_and_call


def kill_in(phase, entry, fraction):
    """SIGKILL in the `entry`-th such phase of a run, at a fraction of the previous one's duration.

    The first phase of a kind takes the longest, since TensorFlow traces there. Durations are
    measured in the process itself; before the first phase, half a second is assumed.
    """
    from ob2i_tf.training.evaluation import Evaluation
    from ob2i_tf.training.runner import Runner

    owner, name = (Evaluation, 'play') if phase == 'evaluate' else (Runner, f'_{phase}')
    run_phase = getattr(owner, name)
    durations = [0.5]

    def run_and_die(self, *args):
        if len(durations) == entry:
            seconds = fraction * durations[-1]
            threading.Thread(target=lambda: (time.sleep(seconds), _kill()), daemon=True).start()
        started = time.perf_counter()
        result = run_phase(self, *args)
        durations.append(time.perf_counter() - started)
        return result

    setattr(owner, name, run_and_die)


def before_operations(call, folder='/'):
    """Calls `call(operation, path or descriptor)` before each change that Python makes to files.

    Args:
      call: Function that does not itself change files.
      folder: Only changes in or below it count, and changes of paths relative to a descriptor, such
        as those of rmtree.
    """
    fsync, opened = os.fsync, None

    def counts(path):
        if isinstance(path, int):
            path = os.readlink(f'/proc/self/fd/{path}')
        path = os.fsdecode(path)
        return not os.path.isabs(path) or os.path.join(path, '').startswith(f'{folder}'.rstrip('/'))

    def audit(event, arguments):
        nonlocal opened
        path = arguments[0] if event == 'open' or event in _OPERATIONS else None
        if path is None or event == 'open' and not arguments[2] & _WRITING or not counts(path):
            return
        again, opened = opened, event == 'open' and arguments[1] and path
        if event == 'open' and not arguments[1] and again == path:
            return  # os.open, called as the opener of the preceding `open`.
        truncates = event == 'open' and arguments[2] & os.O_TRUNC
        call('open to truncate' if truncates else event.removeprefix('os.'), path)

    def audited_fsync(descriptor):
        if counts(descriptor):
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            call('fsync of a folder' if folder else 'fsync', descriptor)
        return fsync(descriptor)

    sys.addaudithook(audit)
    os.fsync = audited_fsync  # Python audits all other operations.


def kill_before_operation(number, folder='/', only=None):
    """SIGKILL before the `number`-th operation of `before_operations`, named `only` if given."""
    left = number

    def count(operation, _):
        nonlocal left
        left -= only in (None, operation)
        if not left:
            _kill()

    before_operations(count, folder)


def kill_in_save(number):
    """SIGKILL in the `number`-th save, when its files are written but not yet synced."""
    from ob2i_tf.training.checkpoints import Checkpoints

    save, left = Checkpoints.save, number

    def save_and_die(self, agent_steps, write):
        nonlocal left
        left -= 1
        save(self, agent_steps, write if left else lambda folder: (write(folder), _kill()))

    Checkpoints.save = save_and_die


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def spoil_weights(part, agent_steps):
    """NaN in one element of the first variable of the 'online' or 'target' network."""

    def spoil(agent):
        networks = {'online': agent.learner.network, 'target': agent.learner.target_network}
        variable = networks[part].trainable_variables[0]
        values = variable.numpy()
        values.flat[0] = np.nan
        variable.assign(values)

    after_steps(agent_steps, spoil)


def run_out_of_memory(agent_steps, more_bytes):
    """After the given agent step, the process can map only `more_bytes` more."""

    def limit(agent):
        del agent
        with open('/proc/self/statm') as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + more_bytes, size + more_bytes))

    after_steps(agent_steps, limit)


def jump_clock(seed):
    """The time of day jumps back or forth by up to a year whenever it is read."""
    rng, real = random.Random(seed), time.time
    time.time = lambda: real() + rng.uniform(-3e7, 3e7)


def hide_folder(path):
    """Mounts an empty folder at `path`, for this process alone; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = os.fsencode(path)
    if (
        libc.unshare(_NEW_NAMESPACE)
        or libc.mount(b'none', b'/', None, _PRIVATE, None)
        or libc.mount(b'tmpfs', path, b'tmpfs', 0, None)
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def limit_steps_of_environments(seconds):
    from ob2i_tf.environments import checked_env

    checked_env.LIMIT_SECONDS = seconds
