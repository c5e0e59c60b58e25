"""A study of a small generated world, made once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ghar.config import Config
from launch.entry import load
from trainers.study import Study, prepare

SMALL = ("data.patients=150", "trainer.warmup.samples=60", "env.in_flight=32")


@pytest.fixture(scope="session")
def world_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small-world")


@pytest.fixture(scope="session")
def small_config(world_cache: Path) -> Callable[..., Config]:
    """A configuration of the small world, with further overrides."""
    return lambda *overrides: load([*SMALL, f"data.cache={world_cache}", *overrides])


@pytest.fixture(scope="session")
def small_study(small_config: Callable[..., Config]) -> Study:
    return prepare(small_config())
