"""A `Cohort` written as a MEDS folder, which other tools read, and `ghar.data.readers.meds` without any loss.

data/<n>.parquet, metadata/codes.parquet and dataset.json are MEDS 0.4's. What MEDS has no place for lies beside it: the
columns visit_id and recorded, visits.parquet, and ghar.json (generated, credentialed, stay, counts). Field types:
schema.py of the package meds 0.4.1; https://github.com/Medical-Event-Data-Standard/meds
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ghar.data.cohort import Cohort
from ghar.errors import BadInput
from ghar.progress import track
from ghar.provenance import Mark
from ghar.storage import new_folder

EVENT_TYPES = {
    "subject_id": pa.int64(),
    "time": pa.timestamp("us"),
    "code": pa.string(),
    "numeric_value": pa.float32(),
    "text_value": pa.large_string(),
    "visit_id": pa.int64(),
    "recorded": pa.timestamp("us"),
    "unit": pa.string(),
}
CODE_TYPES = {
    "code": pa.string(),
    "description": pa.string(),
    "parent_codes": pa.list_(pa.string()),
    "kind": pa.string(),
}
OURS = ("generated", "credentialed", "stay")


def write_meds(cohort: Cohort, root: Path, shard_size: int = 1000) -> None:
    """Write `cohort` to the new folder `root`, `shard_size` subjects a file, whole or not at all.

    Raises BadInput when `root` already holds something.
    """
    root = Path(root)
    if shard_size < 1:
        raise BadInput(f"shard_size={shard_size} is no number of subjects: choose 1 or more.")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise BadInput(f"{root} is not empty: name a new folder for the MEDS files, or empty that one.")
    with new_folder(root, Mark(cohort.generated, cohort.credentialed)) as half:
        (half / "data").mkdir()
        (half / "metadata").mkdir()
        subjects = cohort.events["subject_id"]
        firsts = subjects.unique().sort().gather_every(shard_size)
        cuts = [*subjects.search_sorted(firsts).to_list(), len(subjects)]
        for shard, (start, stop) in enumerate(track(list(pairwise(cuts)), "Write MEDS")):
            _write(cohort.events[start:stop], EVENT_TYPES, half / "data" / f"{shard}.parquet")
        codes = cohort.codes if "parents" in cohort.codes.columns else cohort.codes.with_columns(parents=pl.lit(None))
        _write(codes.rename({"parents": "parent_codes"}), CODE_TYPES, half / "metadata" / "codes.parquet")
        cohort.visits.write_parquet(half / "visits.parquet")
        (half / "metadata" / "dataset.json").write_text(json.dumps(_about(cohort), indent=1))
        ours = {key: getattr(cohort, key) for key in OURS} | {"counts": dict(cohort.counts)}
        (half / "ghar.json").write_text(json.dumps(ours, indent=1))


def _write(frame: pl.DataFrame, types: dict[str, pa.DataType], path: Path) -> None:
    schema = pa.schema([(name, kind) for name, kind in types.items() if name in frame.columns])
    columns = frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(columns.cast(schema), path, compression="zstd")


def _about(cohort: Cohort) -> dict[str, str | list[str]]:
    return {
        "dataset_name": cohort.name,
        "etl_name": "ghar",
        "etl_version": "2",
        "meds_version": "0.4.1",
        "raw_source_id_columns": ["visit_id"],
        "other_extension_columns": ["recorded"],
    }
