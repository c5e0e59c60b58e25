"""The cohort that data=... names, generated patients included."""

from __future__ import annotations

from pathlib import Path

from ghar.config import DataConfig
from ghar.data.cohort import Cohort
from ghar.data.readers import source
from ghar.data.readers.mimic4 import read_mimic4
from ghar.envs.worlds.severity.charts import charted_world
from ghar.envs.worlds.severity.world import configured_world


def read_source(data: DataConfig, *, charts: bool = True, stays: bool = True) -> Cohort:
    """Read the tables under data.root (`ghar.data.readers.source.read_source`); data=demo generates them first.

    The demo world gets chart measurements only when they are asked for. Raises BadInput as the reader does.
    """
    if data.root is not None or data.name != "demo":
        return source.read_source(data, charts=charts, stays=stays)
    cache = Path(data.cache)
    root = configured_world(data).root
    more = data.more if charts else ()
    return read_mimic4(charted_world(root) if charts else root, cache / "cohorts", charts=charts, more=more)
