"""glibc's allocator, told to keep what it has."""

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory():
    """Stops glibc from giving large blocks back to the kernel at each free; elsewhere does nothing.

    A gradient of 64 MB would otherwise be unmapped and faulted in again at every learner step, a
    third of the step on CPU. Blocks that were mapped before stay so: call it early, before
    TensorFlow is imported.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Not glibc.
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)
    mallopt(_M_TOP_PAD, 256 << 20)
    # Other arenas are heaps of at most 64 MB and would map larger blocks whatever M_MMAP_MAX says.
    mallopt(_M_ARENA_MAX, 1)
