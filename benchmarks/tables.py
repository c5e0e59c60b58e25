"""Tables in MIMIC-IV's layout of any size, for measurements: the demo world with more prescriptions and lab results.

The world brings patients, admissions, codes and dictionaries; its prescriptions and labs are replaced by rows that are
as wide and as dirty as its own, but tell nothing. Both are sorted by patient, as MIMIC-IV's are.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import generate_world
from ghar.progress import track

CHUNK = 1_000_000  # rows in memory at once
FORMS = ("", " (Bulk)", " XR", " ODT", " Oral Solution", " Desensitization", " 0.5%", " Inhalation", " IV", " Patch")


def write_tables(root: Path, *, patients: int, prescriptions: int, labs: int, seed: int = 0) -> int:
    """Write hosp/ and icu/ under `root`, whole or not at all, with so many rows an admission; returns admissions."""
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(dir=root.parent))
        try:
            generate_world(half / "world", seed=seed, patients=patients, labs_per_visit=1)
            rng = np.random.default_rng(np.random.SeedSequence(seed))
            for name, count in (("prescriptions", prescriptions), ("labevents", labs)):
                _multiply(half / "world" / "hosp", name, count, rng)
            os.replace(half / "world", root)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return pl.scan_csv(root / "hosp" / "admissions.csv.gz").select(pl.len()).collect().item()


def _multiply(folder: Path, name: str, count: int, rng: np.random.Generator) -> None:
    """Replace a table by `count` rows an admission; each takes its other fields from a row of the table."""
    path = folder / f"{name}.csv.gz"
    rows = pl.read_csv(path, infer_schema=False)
    stays = pl.read_csv(folder / "admissions.csv.gz", columns=["subject_id", "hadm_id", "admittime", "dischtime"])
    stays = stays.with_columns(pl.col("admittime", "dischtime").str.to_datetime(time_unit="us"))
    half = path.with_suffix(".tmp")
    step = max(CHUNK // count, 1)
    with half.open("wb") as file, ThreadPoolExecutor(1) as packer:
        packed = packer.submit(bytes)  # the rows before, packed while the next ones are made
        for first in track(range(0, stays.height, step), f"Write {name}"):
            some = stays[first : first + step]
            own = some[np.repeat(np.arange(some.height), count)]
            other = rows[rng.integers(0, rows.height, own.height)]
            text = BytesIO()
            _fill(name, own, other, rng).select(rows.columns).write_csv(
                text, include_header=first == 0, datetime_format="%Y-%m-%d %H:%M:%S"
            )
            file.write(packed.result())
            packed = packer.submit(gzip.compress, text.getbuffer(), compresslevel=1, mtime=0)
        file.write(packed.result())
    os.replace(half, path)


def _fill(name: str, own: pl.DataFrame, other: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """The rows `other` with patient, admission and times of the rows `own`."""
    n = own.height
    length = (own["dischtime"] - own["admittime"]).to_physical().to_numpy()
    at = own["admittime"] + pl.Series((length * rng.random(n)).astype(np.int64)).cast(pl.Duration("us"))
    at = at.dt.truncate("1m")
    rows = other.with_columns(own["subject_id"])
    if name == "prescriptions":
        drug = pl.concat_str("drug", pl.Series(FORMS).gather(rng.integers(0, len(FORMS), n)))
        return rows.with_columns(own["hadm_id"], starttime=at, stoptime=own["dischtime"], drug=drug)
    stored = at + pl.Series(rng.integers(1, 300, n) * 60_000_000).cast(pl.Duration("us"))
    blank = pl.col("hadm_id").is_null()  # some results are of no admission
    hadm_id = pl.when(~blank).then(own["hadm_id"])
    return rows.with_columns(hadm_id.alias("hadm_id"), charttime=at, storetime=stored)
