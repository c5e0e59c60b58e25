"""Waiting for other processes: as long as they get on, and no longer."""

from __future__ import annotations

import sys

import pytest

from tests import running
from tests.running import ends, started, wait_until

SLEEPS, SPINS = "import time; time.sleep(1e6)", "while True: pass"


def nothing() -> None:
    """Never anything to see."""


def test_what_is_seen_is_returned() -> None:
    looks = iter([None, None, "there"])
    with started([sys.executable, "-c", SLEEPS]) as process:
        assert wait_until(lambda: next(looks), process, "sight") == "there"


def test_a_process_that_ended_sleeps_or_spins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with started([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        with pytest.raises(AssertionError, match="no sight: the process has ended with exit code 3"):
            wait_until(nothing, process, "sight")
    monkeypatch.setattr(running, "SHARE", 0.1)  # of an idle time so short that starting Python counts
    with started([sys.executable, "-c", SLEEPS]) as process:
        with pytest.raises(AssertionError, match=r"made no progress for 0\.5 s"):
            wait_until(nothing, process, "sight", idle=0.5)
        assert not ends(process.pid, lambda: process.poll() is None, idle=0.5)
    monkeypatch.setattr(running, "SHARE", 0.0)
    monkeypatch.setattr(running, "SPENT", 0.2)
    with started([sys.executable, "-c", SPINS]) as process:
        with pytest.raises(AssertionError, match=r"no sight after 0\.2 s of processor time"):
            wait_until(nothing, process, "sight", idle=0.05)
