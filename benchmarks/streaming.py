"""Largest memory of what reads all events of a cohort in the cache (benchmarks/run.py streaming), a process a step.

Generated tables of 2,500 patients, with MIMIC-IV 3.1's prescriptions and lab results an admission, are read once; their
1.8 million events stand in the cohort as often as `share` of 186 million asks for, with patients of other numbers. No
step may hold all events: the goal is 2 GB for the whole. Steps: EHRSHOT's labels, GraphWalker's labels, the event store
of EHR-RAG without vectors, the MEDS export.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import Numbers, measure

if TYPE_CHECKING:
    from ghar.data.cohort import Cohort

FULL = 186_000_000  # events of MIMIC-IV 3.1 without charts
PATIENTS, PRESCRIPTIONS, LABS = 2_500, 37, 290
RENUMBERED = 10**10  # between the patients of one copy and the next
EHRSHOT = ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")
SERIES = ("mortality", "readmission", "los")


def streaming(folder: Path, *, share: float, timeout: float) -> Numbers:
    """Events of the cohort, and of each step its largest memory in GB, seconds and processor seconds."""
    cohort = folder / f"streaming-{share:g}"
    events = _many(folder / "streaming", cohort, round(FULL * share))
    numbers: Numbers = {"events": events, "load average": os.getloadavg()[0]}
    for step in ("open", *EHRSHOT, *SERIES, "store", "export"):
        command = [sys.executable, "-m", "benchmarks.streaming", str(cohort), str(folder / f"streamed-{share:g}"), step]
        numbers[step] = measure(command, timeout, folder)
    return numbers


def _many(source: Path, target: Path, wanted: int) -> int:
    """Write the cohort, unless it is there; returns its events."""
    import polars as pl

    from benchmarks.tables import write_tables
    from ghar.data.cohort import Cohort
    from ghar.data.readers.cache import EVENTS, load_cohort, scan_events, store_cohort
    from ghar.data.readers.mimic4 import read_mimic4
    from ghar.data.readers.tables import ROW_GROUP
    from ghar.seal import sound

    write_tables(source, patients=PATIENTS, prescriptions=PRESCRIPTIONS, labs=LABS)
    small = read_mimic4(source, source.with_name("streaming-cache"), charts=False)
    one = small.scan().select(pl.len()).collect().item()
    copies = max(round(wanted / one), 1)

    def copy(frame: pl.DataFrame, i: int) -> pl.DataFrame:
        return frame.with_columns(pl.col("subject_id", "visit_id") + i * RENUMBERED)

    def build(work: Path) -> Cohort:
        events = small.scan().collect(engine="streaming")
        for i in range(copies):
            path = work / EVENTS.format(i)
            copy(events, i).write_parquet(path, compression="lz4", row_group_size=ROW_GROUP)
        visits = pl.concat([copy(small.visits, i) for i in range(copies)])
        return Cohort(small.name, scan_events(work, copies), small.codes, visits, True, False, small.counts)

    if not sound(target):
        store_cohort(build, target)
    return load_cohort(target).scan().select(pl.len()).collect(engine="streaming").item()


def _steps(cohort: Cohort, out: Path) -> Mapping[str, Callable[[], int]]:
    """Name of each step -> what does it, and says how many rows, files or arrays came of it."""
    from functools import partial

    from ghar.data.readers.meds_export import write_meds
    from ghar.data.tasks.ehrshot import ehrshot_labels
    from ghar.data.tasks.series import series_labels
    from ghar.retrieval.event_build import build_event_store
    from ghar.retrieval.event_store import StoreLayout

    def export() -> int:
        write_meds(cohort, out / "meds")
        return sum(1 for _ in (out / "meds" / "data").iterdir())

    steps: dict[str, Callable[[], int]] = {"open": lambda: cohort.visits.height, "export": export}
    steps |= {task: partial(lambda task: ehrshot_labels(cohort, task)[0].height, task) for task in EHRSHOT}
    steps |= {task: partial(lambda task: series_labels(cohort, task).height, task) for task in SERIES}
    layout = StoreLayout(100, 5, True, "known")
    steps["store"] = lambda: len(build_event_store(cohort, out / "stores", None, layout).row_code)
    return steps


def main(folder: Path, out: Path, step: str) -> None:
    """One step on the cohort in `folder`; what it writes is removed."""
    import shutil

    from ghar.data.readers.cache import load_cohort

    shutil.rmtree(out, ignore_errors=True)
    print(json.dumps({"rows": _steps(load_cohort(folder), out)[step]()}))
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
