"""Which code is at work."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """The code's commit, where it is a git checkout."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
