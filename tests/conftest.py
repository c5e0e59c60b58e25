"""Fixtures shared by all tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def numbers_as_they_are() -> Iterator[None]:
    """Training counts denormals as zero (`trainers.runs.models.use_cores`), which hypothesis refuses to work with."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real demo tables, named by GHAR_SHARED (default ../shared); skips where it is absent."""
    folder = Path(os.environ.get("GHAR_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (set GHAR_SHARED)")
    return folder
