"""What is freed is given back."""

from __future__ import annotations

import sys

import psutil
import pytest

from ghar.heap import release_memory


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc_trim")
def test_freed_pieces_do_not_stay_with_the_process() -> None:
    """256 MiB of pieces below the size that glibc maps apart, with one on top that stays."""
    process, size = psutil.Process(), 64 << 10
    held = [bytearray(size) for _ in range(4096)]
    last, full = bytearray(size), process.memory_info().rss
    del held
    release_memory()
    assert full - process.memory_info().rss > 4096 * size // 2 and len(last) == size
