"""What this machine's processors are quick at, told without a model library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

QUICK = {"amx_bf16", "avx512_bf16"}  # flags of x86 processors that multiply in bfloat16


@cache
def quick_dtype() -> str:
    """bfloat16 where a GPU or the processor computes in it, else float32."""
    if Path("/proc/driver/nvidia/version").exists():
        return "bfloat16"
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "float32"
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return "bfloat16" if QUICK & set(flags.split()) else "float32"
