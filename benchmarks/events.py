"""EHR-RAG's event store at size: 10,000 generated patients with 5,000 events each (benchmarks/run.py events).

Half of the events are numbers of 300 indicators, the others rows of 3,000 codes with names of four words, some with a
text value and a unit, all over ten years. The store is built with the hashing encoder in a process of its own, whose
peak memory counts; generating the events does not. "every event a row" is the baselines' layout, on a tenth of the
patients. Then 300 patients are asked once each at a random time: indicators by name and chunks by Eq. 3 together are
one ETHER query, its texts included, without a language model; the record is opened within the time.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort
from ghar.envs.ehr_rag.ether import EtherSpec, EventCorpus, EventQuery
from ghar.progress import track
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout, to_datetime, to_micros

PATIENTS, EVENTS, PART = 10_000, 5_000, 100  # patients a file
INDICATORS, CODES = 300, 3_000
START, YEARS = datetime(2015, 1, 1), 10
QUERIES = 300
SPEC = EtherSpec(alpha=0.75, recent_days=180, early_days=3650, candidates=100, values=5)
WORDS = (
    "acute chronic left right upper lower renal hepatic cardiac pulmonary failure infection tablet injection oral "
    "sodium chloride blood pressure rate panel culture care visit consult imaging lesion repair graft severe mild"
).split()


def events(folder: Path, *, share: float, seed: int, timeout: float) -> dict[str, Any]:
    """Numbers of `share` of 10,000 patients."""
    patients = max(round(PATIENTS * share), 10)
    root, cache = folder / f"events-{share:g}-seed{seed}", folder / "stores"
    write_events(root, patients, seed)
    shutil.rmtree(cache, ignore_errors=True)
    result: dict[str, Any] = {"patients": patients, "events a patient": EVENTS, "seed": seed}
    for name, apart, some in (("store", True, patients), ("every event a row", False, max(patients // 10, 10))):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            numbers = pool.submit(_build, root, cache, some, apart).result(timeout=timeout)
        result |= {f"{name}: {what}": value for what, value in numbers.items()}
    times = _ask(root, cache, patients, seed)
    for i, clock in enumerate(("ms", "processor ms")):
        result |= {f"one ETHER query, p{q} {clock}": float(np.percentile(times[:, i], q)) for q in (50, 90, 99)}
    result |= {"queries": len(times), "load average": os.getloadavg()[0]}
    return result


def write_events(root: Path, patients: int, seed: int) -> None:
    """Events as Parquet files of `PART` patients each, whole or not at all."""
    if root.exists():
        return
    half = root.with_name(f".{root.name}.partial")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    for first in track(range(0, patients, PART), "Generate events"):
        rng = np.random.default_rng(np.random.SeedSequence([seed, first]))
        _part(rng, first, min(PART, patients - first)).write_parquet(half / f"{first:06}.parquet", compression="lz4")
    os.replace(half, root)


def _part(rng: np.random.Generator, first: int, patients: int) -> pl.DataFrame:
    n = patients * EVENTS
    numeric = rng.random(n) < 0.5
    code = np.where(numeric, rng.zipf(1.3, n) % INDICATORS, INDICATORS + rng.zipf(1.2, n) % CODES)
    minute = rng.integers(0, YEARS * 365 * 24 * 60, n)
    at = to_micros(START) + minute * 60_000_000
    frame = pl.DataFrame({
        "subject_id": np.repeat(np.arange(first, first + patients), EVENTS),
        "time": pl.Series(at).cast(pl.Datetime("us")),
        "code": pl.Series([f"X/{i:04}" for i in range(INDICATORS + CODES)]).gather(code),
        "numeric_value": np.where(numeric, rng.normal(100, 20, n).round(1), np.nan).astype(np.float32),
        "text_value": pl.Series(["positive", "negative", None, None, None]).gather(rng.integers(0, 5, n)),
        "unit": pl.Series(["mg/dL", None]).gather(rng.integers(0, 2, n)),
    })  # fmt: skip
    frame = frame.with_columns(
        numeric_value=pl.col("numeric_value").fill_nan(None),
        visit_id=pl.lit(None, pl.Int64),
        recorded=pl.col("time"),
    )
    return frame.sort("subject_id", "time", maintain_order=True)


def cohort_of(root: Path, patients: int) -> Cohort:
    """The first patients of the generated files, unread."""
    rng = np.random.default_rng(0)
    names = [" ".join(rng.choice(WORDS, 4)) + f" {i}" for i in range(INDICATORS + CODES)]
    codes = pl.DataFrame({"code": [f"X/{i:04}" for i in range(len(names))], "description": names})
    files = sorted(root.glob("*.parquet"))[: -(-patients // PART)]
    rows = pl.scan_parquet(files).filter(pl.col("subject_id") < patients)
    visits = pl.DataFrame(schema={"subject_id": pl.Int64, "visit_id": pl.Int64})
    cohort = Cohort(f"{patients} generated patients", rows, codes.with_columns(parents=pl.lit(None)), visits)
    object.__setattr__(cohort, "key", f"{root.name}-first-{patients}")  # names the store
    return cohort


def _layout(apart: bool) -> StoreLayout:
    return StoreLayout(100, 5, apart, "time")


def _build(root: Path, cache: Path, patients: int, apart: bool) -> dict[str, float]:
    cohort, encoder = cohort_of(root, patients), HashingEncoder()
    encoder.passages(["ready"])  # imports scikit-learn
    start, worked = time.perf_counter(), time.process_time()
    store = build_event_store(cohort, cache, encoder, _layout(apart))
    seconds, processor = time.perf_counter() - start, time.process_time() - worked
    n = patients * EVENTS
    return {
        "events per second": n / seconds,
        "events per processor second": n / processor,
        "seconds": seconds,
        "peak memory in GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "rows": len(store.row_code),
        "numbers": len(store.number_value),
        "chunks": len(store.vectors),
    }


def _ask(root: Path, cache: Path, patients: int, seed: int) -> np.ndarray:
    """Milliseconds of each query, and of the processor; the first is left out, for it reads the files' headers."""
    encoder = HashingEncoder()
    store = build_event_store(cohort_of(root, patients), cache, encoder, _layout(True))
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    subjects = rng.integers(0, patients, QUERIES + 1)
    end = to_micros(START + timedelta(days=365 * YEARS))
    at = [to_datetime(end - int(before)) for before in rng.integers(0, 10**14, QUERIES + 1)]  # within three years
    corpus = EventCorpus(list(zip(subjects.tolist(), at, strict=True)), SPEC, encoder, store, None, seed)
    times = []
    for place in range(QUERIES + 1):
        asked = [EventQuery("acute renal failure", top_n=30, place=place, view="indicators")]
        asked.append(EventQuery("severe infection care", top_n=5, place=place, view="chunks"))
        start, worked = time.perf_counter(), time.process_time()
        corpus.retrieve(asked)
        times.append((time.perf_counter() - start, time.process_time() - worked))
    return 1000 * np.array(times[1:])
