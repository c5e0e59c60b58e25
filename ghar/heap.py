"""Memory that was freed and is still the process's."""

from __future__ import annotations

import ctypes
import gc
import sys


def release_memory() -> None:
    """Collect reference cycles and give freed pages back to the operating system.

    glibc keeps what smaller tensors leave (keys and values that are kept by pieces, say) for the next of their size;
    another phase takes other sizes, and would stand on top of them.
    """
    gc.collect()
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
