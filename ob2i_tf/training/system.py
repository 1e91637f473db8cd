"""The machine that a run computes on: its memory, its GPUs, its allocator.

TensorFlow is imported only within functions, since `keep_freed_memory` must be called before.
"""

import contextlib
import ctypes
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from absl import logging

from ob2i_tf.errors import UserError, install_command

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def list_gpus() -> list:
    """TensorFlow's physical GPUs."""
    import tensorflow as tf

    return tf.config.list_physical_devices('GPU')


def set_up(tf32: bool, deterministic: bool) -> None:
    """Sets TF32, and on GPUs whether kernels are deterministic; call before anything is traced.

    TensorFlow cannot turn determinism off again in this process.
    """
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    if deterministic and list_gpus():
        tf.config.experimental.enable_op_determinism()


@contextlib.contextmanager
def tensor_float_32(enabled: bool) -> Iterator[None]:
    """Context with TF32 on or off; it belongs to the process, and is restored afterwards."""
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(enabled)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def report(require_gpu: bool) -> None:
    """Logs the devices that a run trains on.

    Raises:
      UserError: A GPU is required and TensorFlow sees none.
    """
    gpus = list_gpus()
    if gpus:
        logging.info('Training on %s', ', '.join(gpu.name for gpu in gpus))
        return
    unused = ''
    if _has_nvidia_gpu():
        unused = (
            '; there is an NVIDIA GPU, but TensorFlow cannot use it. The CUDA libraries that it '
            f'needs: {install_command("cuda")}'
        )
    if require_gpu:
        raise UserError(f'Runner.require_gpu = True, but TensorFlow sees no GPU{unused}')
    logging.warning('No GPU: training on the CPU (%s cores)%s', os.cpu_count(), unused or '.')


def _has_nvidia_gpu():
    """Whether the machine seems to have one that the user does not hide."""
    if os.environ.get('CUDA_VISIBLE_DEVICES') in ('', '-1'):
        return False
    return bool(glob.glob('/dev/nvidia[0-9]*') or shutil.which('nvidia-smi'))


def keep_freed_memory() -> None:
    """Keeps glibc malloc from returning freed memory to the OS; does nothing with another libc.

    Otherwise a gradient of 64 MB would be unmapped and faulted in again at every learner step,
    which takes a third of the step on a CPU. The setting does not affect blocks that are already
    mapped, so call it before TensorFlow is imported.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Not glibc.
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)
    mallopt(_M_TOP_PAD, 256 << 20)
    # Other arenas are heaps of at most 64 MB and would map larger blocks regardless of M_MMAP_MAX.
    mallopt(_M_ARENA_MAX, 1)


def memory_bytes(groups: str = '/proc/self/cgroup', root: str | Path = '/sys/fs/cgroup') -> int:
    """Physical memory, or the lowest limit of the control groups of this process if lower."""
    sizes = [os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')]
    for path in _memory_limits(groups, Path(root)):
        try:
            sizes.append(int(path.read_text()))
        except (OSError, ValueError):  # ValueError: 'max'.
            continue
    return min(sizes)


def _memory_limits(groups, root):
    """Files that may hold a memory limit of this process's control group or of a parent group."""
    own = {'': '/', 'memory': '/'}  # {controller: group}; version 2 has one tree without a name.
    with contextlib.suppress(OSError):  # Not Linux.
        for line in Path(groups).read_text().splitlines():
            _, controllers, group = line.split(':', 2)
            own |= dict.fromkeys(own.keys() & set(controllers.split(',')), group)
    for controller, name in (('', 'memory.max'), ('memory', 'memory.limit_in_bytes')):
        group = PurePosixPath(own[controller])
        for folder in (group, *group.parents):
            yield root / controller / str(folder).lstrip('/') / name
