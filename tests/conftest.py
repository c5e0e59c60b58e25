"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from ghar.scratch import use_own_folder
from tests.selection import may_select, refuse_borrowed_marks

if TYPE_CHECKING:  # the fixtures import what they need: most tests need none of it
    from ghar.config import Config
    from ghar.envs.records import Records
    from ghar.envs.system import System

# Many containers set it, and then each command that a test starts compiles Hydra and Transformers anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")

ROOT = Path(__file__).resolve().parents[1]
ROOM = 8 << 30  # bytes that must be free there


def temporary_root() -> str:
    """Return where tmp_path lies: in memory where that has room, for tests that write are slow on a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:  # tests start programs there
        return tempfile.gettempdir()
    room = min(shutil.disk_usage(memory).free, psutil.virtual_memory().available)
    return str(memory) if room > ROOM else tempfile.gettempdir()


os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", temporary_root())
use_own_folder()  # for what libraries leave behind
os.environ.setdefault("GHAR_CACHE", str(ROOT / ".cache" / "ghar"))  # tests leave nothing in the user's own

# The same examples everywhere, judged by what they show and not by how fast; `make explore` draws others.
settings.register_profile("suite", derandomize=True, deadline=None, database=None,
                          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
settings.register_profile("explore", parent=settings.get_profile("suite"), derandomize=False, print_blob=True)
settings.load_profile("suite")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file unread where -m asks for no test of it: what it would import takes longer than some parts' tests."""
    if collection_path.suffix != ".py" or may_select(config.option.markexpr, collection_path.read_text()):
        return None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector wait until all files are read: what they import stays, and looking through it again and
    again takes seconds, then and while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    refuse_borrowed_marks(items)


@pytest.fixture(autouse=True)
def numbers_as_they_are() -> Iterator[None]:
    """Training counts denormals as zero (`models.use_cores`), which hypothesis refuses to work with."""
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


@pytest.fixture(scope="session")
def world_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small generated world of many tests is made, once."""
    return tmp_path_factory.mktemp("small-world")


@pytest.fixture(scope="session")
def small_config(world_cache: Path) -> Callable[..., Config]:
    """A configuration of the small world, with further overrides."""
    from ghar.launch.entry import load

    small = ("data.patients=150", "trainer.warmup.samples=60", "env.in_flight=32")
    return lambda *overrides: load([*small, f"data.cache={world_cache}", *overrides])


@pytest.fixture(scope="session")
def small_records(small_config: Callable[..., Config]) -> Records:
    from ghar.envs.records import Records

    return Records(small_config())


@pytest.fixture(scope="session")
def small_system(small_records: Records) -> System[Any]:
    """GHAR on the small world, as one that counts words reads it."""
    from ghar.envs.system import build

    return build(small_records)
