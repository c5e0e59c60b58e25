"""How fast and how large: reading MIMIC-IV, GHAR's three tasks and their text views, cold and from the cache.

Every measurement is a fresh process (python -m benchmarks.data ROOT CACHE OUT), timed from its start to its end by
the process that waits for it; memory is its largest resident set. Processor seconds are given beside the clock's,
because a machine that does other work stretches the latter. The yardstick is benchmarks/plain.py on the same files.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
BUDGET = 4096  # tokens of a text view, counted as a fourth of its characters
TASKS = ("los", "read", "dec")
PRESCRIPTIONS = 37  # an admission of MIMIC-IV 3.1: 20.3 million of 546,028
SIZES = (30_000, 100_000, 300_000)  # patients of `large`
Numbers = dict[str, Any]


def data(folder: Path, *, runs: int, timeout: float, patients: int = 8_900, rows: int = 60) -> Numbers:
    """Cold, cached and plain, `runs` times in turn, on `rows` prescriptions and lab results an admission (goals: below
    2.5 times the plain script and 1 GB cold, 2 s cached). Raises RuntimeError when the two disagree on a label."""
    from benchmarks.tables import write_tables

    root = folder / f"mimic4-{patients}-{rows}"
    admissions = write_tables(root, patients=patients, prescriptions=rows, labs=rows)
    trials: dict[str, list[Numbers]] = {"cold": [], "cached": [], "plain": []}
    for _ in range(runs):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        for name in trials:
            out = folder / name
            out.mkdir(exist_ok=True)
            script = ["benchmarks.plain", str(root), str(out)]
            if name != "plain":
                script = ["benchmarks.data", str(root), str(folder / "cache"), str(out)]
            trials[name].append(measure([sys.executable, "-m", *script], timeout, folder))
    _agree(folder)
    result: Numbers = {
        "admissions": admissions,
        "rows": {"prescriptions": admissions * rows, "labs": admissions * rows},
    }
    result |= {name: _medians(each) for name, each in trials.items()} | {"runs": runs, "load": os.getloadavg()[0]}
    for what in ("seconds", "processor seconds"):
        result[f"cold / plain, {what}"] = result["cold"][what] / result["plain"][what]
    return result


def large(folder: Path, *, timeout: float, labs: int, share: float = 1.0) -> Numbers:
    """Reading alone at several numbers of patients, once each; the tables are deleted after their turn."""
    from benchmarks.tables import write_tables
    from ghar.metrics.runfolder import write_whole

    result: Numbers = {"prescriptions an admission": PRESCRIPTIONS, "load": os.getloadavg()[0]}
    for patients in (round(share * size) for size in SIZES):
        root, cache, out = folder / f"large-{patients}", folder / "large-cache", folder / "large"
        out.mkdir(exist_ok=True)
        began = time.monotonic()
        admissions = write_tables(root, patients=patients, prescriptions=PRESCRIPTIONS, labs=labs)
        written = time.monotonic() - began
        shutil.rmtree(cache, ignore_errors=True)
        command = [sys.executable, "-m", "benchmarks.data", str(root), str(cache), str(out)]
        cold = measure([*command, "read"], timeout, folder)
        tasks = measure(command, timeout, folder)
        result[f"{patients} patients"] = {
            "admissions": admissions,
            "prescriptions": admissions * PRESCRIPTIONS,
            "lab rows": admissions * labs,
            "seconds to write": round(written, 1),
            "read": cold,
            "rows a processor second": round(admissions * (PRESCRIPTIONS + labs) / cold["processor seconds"]),
            "from the cache: tasks and views": tasks,
        }
        write_whole(folder / "large.json", json.dumps(result, indent=1) + "\n")  # the next size takes an hour
        shutil.rmtree(root)
        shutil.rmtree(cache)
    return result


def measure(command: list[str], timeout: float, folder: Path) -> Numbers:
    """Run a command and say how long it took, on the clock and on the processors, and how large it was.

    Compiled modules are kept in `folder`, as an ordinary installation keeps them, whatever this machine is told.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    # A child of a child is waited for by its own parent, which is how one process's largest size can be told apart.
    meter = "import resource as r, subprocess as s, sys; c = s.run(sys.argv[1:]).returncode; "
    meter += "print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss); sys.exit(c)"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept["PYTHONPYCACHEPREFIX"] = str((folder / "compiled").resolve())
    done = subprocess.run(
        [sys.executable, "-S", "-c", meter, *command],
        cwd=HERE,
        env=kept,
        stdout=subprocess.PIPE,
        check=True,
        timeout=timeout,
    )
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    *report, largest = done.stdout.decode().split("\n")[:-1]
    numbers = {"seconds": seconds, "processor seconds": used, "GB": int(largest) / 1e6}
    return numbers | {name: value for line in report for name, value in json.loads(line).items()}


def prepare(root: Path, cache: Path, out: Path, *, only_read: bool) -> Numbers:
    """What is measured: read, make the samples of three tasks, render each; returns processor seconds by step."""
    began = time.process_time()
    import polars as pl

    from ghar.data.readers.mimic4 import read_mimic4
    from ghar.data.tasks.stays import make_samples
    from ghar.data.views.visits import visit_lists
    from ghar.data.visit_codes import KIND_NAMES

    marks = {"import": time.process_time() - began}

    def mark(step: str) -> None:
        marks[step] = time.process_time() - began - sum(marks.values())

    cohort = read_mimic4(root, cache, charts=False)
    mark("read")
    if only_read:
        return {"steps": marks}
    made = {task: make_samples(cohort, task)[1] for task in TASKS}  # type: ignore[arg-type]
    mark("tasks")
    samples = [sample for each in made.values() for sample in each]
    name_of = cohort.names().__getitem__
    views = list(visit_lists(samples, name_of, style="full", budget=BUDGET, count=lambda text: len(text) // 4))
    mark("views")
    labels = {
        "task": [task for task, each in made.items() for _ in each],
        "visit_id": [sample.visit_id for sample in samples],
        "label": [sample.label for sample in samples],
    }
    pl.DataFrame(labels).write_parquet(out / "labels.parquet")
    visits = cohort.shown.visits
    lists = {kind: [len(getattr(visit, kind)) for visit in visits.values()] for kind in KIND_NAMES}
    pl.DataFrame({"visit_id": list(visits), **lists}).write_parquet(out / "visits.parquet")
    mark("check")
    return {"steps": marks, "views": len(views), "characters": sum(len(view.text) for view in views)}


def _agree(folder: Path) -> None:
    """The labels and the numbers of codes a visit are those of the plain script."""
    import polars as pl
    from polars.testing import assert_frame_equal

    for name in ("labels", "visits"):
        plain, *ours = (pl.read_parquet(folder / kind / f"{name}.parquet") for kind in ("plain", "cold", "cached"))
        for frame in ours:
            try:
                columns = sorted(plain.columns)
                assert_frame_equal(
                    frame.select(columns), plain.select(columns), check_row_order=False, check_dtypes=False
                )
            except AssertionError as error:
                raise RuntimeError(f"The {name} of GHAR and of the plain script differ: {error}") from error


def _medians(runs: list[Numbers]) -> Numbers:
    """Median of every number over the runs; `GB` is the largest."""
    numbers: Numbers = {name: statistics.median(run[name] for run in runs) for name in ("seconds", "processor seconds")}
    numbers["GB"] = max(run["GB"] for run in runs)
    numbers["seconds of each"] = [round(run["seconds"], 2) for run in runs]
    if "steps" in runs[0]:
        steps = {step: statistics.median(run["steps"][step] for run in runs) for step in runs[0]["steps"]}
        numbers |= {"processor seconds by step": steps} | {k: runs[0][k] for k in ("views", "characters")}
    return numbers


if __name__ == "__main__":
    source, store, target = (Path(argument) for argument in sys.argv[1:4])
    print(json.dumps(prepare(source, store, target, only_read=sys.argv[4:] == ["read"])))
