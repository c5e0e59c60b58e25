"""Fixtures of the tests of training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray on this machine, started once for all tests that need it."""
    import ray

    from ghar.trainers.ray.start import start_ray

    start_ray(2)
    yield
    ray.shutdown()
