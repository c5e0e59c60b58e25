"""Memory that was freed and is still the process's."""

from __future__ import annotations

import ctypes
import gc
import sys


def release_memory() -> None:
    """Collect reference cycles and give freed pages back to the operating system."""
    gc.collect()
    trim()


def trim() -> None:
    """Give freed pages back to the operating system.

    glibc keeps what smaller tensors leave (keys and values that are kept by pieces, say) for the next of their size;
    another phase takes other sizes, and would stand on top of them.
    """
    if sys.platform != "linux":
        return
    of_glibc = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
    if of_glibc is not None:
        of_glibc(0)
