"""A `Cohort` written as a MEDS folder, which other tools read, and `ghar.data.readers.meds` without any loss.

data/<n>.parquet, metadata/codes.parquet and dataset.json are MEDS 0.4's. What MEDS has no place for lies beside it: the
columns visit_id and recorded, visits.parquet, what records say beside codes (items.parquet, admissions.parquet), the
column charted of codes.parquet (read with the charts alone), and ghar.json (generated, credentialed, stay, counts,
added). Stays are written as events too (HOSPITAL_ADMISSION, HOSPITAL_DISCHARGE//ALIVE or //DIED, MEDS_DEATH; for a
cohort of ICU stays ICU_STAY_START, ICU_STAY_END//...), where the cohort has none of its own: tools such as ACES know of
nothing else. Our reader leaves them out again. Field types: schema.py of the package meds 0.4.1;
https://github.com/Medical-Event-Data-Standard/meds
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ghar.data.cohort import Cohort
from ghar.data.readers.deaths import DEATH, DEATHS_IN_STAYS
from ghar.errors import BadInput
from ghar.progress import track
from ghar.provenance import Provenance
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
    "charted": pa.bool_(),
}
STAYS = {  # what a stay is -> codes of its beginning and its end
    "hospital": ("HOSPITAL_ADMISSION", "HOSPITAL_DISCHARGE"),
    "ICU": ("ICU_STAY_START", "ICU_STAY_END"),
}
ADDED = {
    "HOSPITAL_ADMISSION": "admission to hospital",
    "HOSPITAL_DISCHARGE//ALIVE": "discharge from hospital",
    "HOSPITAL_DISCHARGE//DIED": "end of the hospital stay by death",
    "ICU_STAY_START": "beginning of the ICU stay",
    "ICU_STAY_END//ALIVE": "end of the ICU stay",
    "ICU_STAY_END//DIED": "end of the ICU stay by death",
    "MEDS_DEATH": "death",
}
OURS = ("generated", "credentialed", "stay")


def write_meds(
    cohort: Cohort,
    root: Path,
    shard_size: int = 1000,
    labels: Mapping[str, pl.DataFrame] | None = None,
    splits: Mapping[int, str] | None = None,
    facts: Mapping[str, pl.DataFrame] | None = None,
    charted: pl.Series | None = None,
) -> None:
    """Write `cohort` to the new folder `root`, `shard_size` subjects a file, whole or not at all.

    labels: of tasks, by name, in the columns of MEDS. splits: of patients. facts: `ghar.data.findings.record_facts` of
    the source's tables. charted: codes that come with the charts alone. Raises BadInput when `root` already holds
    something.
    """
    root = Path(root)
    if shard_size < 1:
        raise BadInput(f"shard_size={shard_size} is no number of subjects: choose 1 or more.")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise BadInput(f"{root} is not empty: name a new folder for the MEDS files, or empty that one.")
    with new_folder(root, Provenance(cohort.generated, cohort.credentialed)) as half:
        (half / "data").mkdir()
        (half / "metadata").mkdir()
        more = _stays(cohort)
        people = pl.concat([cohort.scan().select("subject_id"), more.lazy().select("subject_id")])
        subjects = people.unique().collect(engine="streaming")["subject_id"].sort()
        cuts = range(0, len(subjects), shard_size)
        for shard, start in enumerate(track(cuts, "Write MEDS", unit="files")):
            own = subjects[start : start + shard_size]
            inside = pl.col("subject_id").is_between(own[0], own[-1])
            events = cohort.scan().filter(inside).collect(engine="streaming")
            rows = pl.concat([events, more.filter(inside)], how="diagonal")
            rows = rows.sort("subject_id", "time", maintain_order=True)
            _write(rows, EVENT_TYPES, half / "data" / f"{shard}.parquet")
        codes = cohort.codes if "parents" in cohort.codes.columns else cohort.codes.with_columns(parents=pl.lit(None))
        added = more.select(pl.col("code").unique().sort())
        fresh = added.join(codes, on="code", how="anti", maintain_order="left")
        named = fresh.with_columns(description=pl.col("code").replace(ADDED), parents=pl.lit([], pl.List(pl.String)))
        codes = pl.concat([codes, named], how="diagonal_relaxed")
        if charted is not None:
            codes = codes.with_columns(charted=pl.col("code").is_in(charted.implode()))
        _write(codes.rename({"parents": "parent_codes"}), CODE_TYPES, half / "metadata" / "codes.parquet")
        for name, frame in (labels or {}).items():
            (half / "labels").mkdir(exist_ok=True)
            frame.write_parquet(half / "labels" / f"{name}.parquet")
        if splits is not None:
            people = {"subject_id": sorted(splits), "split": [splits[subject] for subject in sorted(splits)]}
            frame = pl.DataFrame(people, {"subject_id": pl.Int64, "split": pl.String})
            frame.write_parquet(half / "metadata" / "subject_splits.parquet")
        cohort.visits.write_parquet(half / "visits.parquet")
        for name, frame in (facts or {}).items():
            frame.write_parquet(half / f"{name}.parquet")
        (half / "metadata" / "dataset.json").write_text(json.dumps(_about(cohort), indent=1))
        ours = {key: getattr(cohort, key) for key in OURS} | {"counts": dict(cohort.counts)}
        own = cohort.codes["code"].str.starts_with(DEATH).any()
        ours["added"] = [DEATHS_IN_STAYS if own and code == DEATH else code for code in added["code"]]
        (half / "ghar.json").write_text(json.dumps(ours, indent=1))


def _stays(cohort: Cohort) -> pl.DataFrame:
    """Beginnings, ends and deaths of the visits as events, of those kinds that the cohort has not."""
    opens, closes = STAYS[cohort.stay]
    visits, stay = cohort.visits, {"visit_id": pl.col("visit_id")}
    how = pl.when(pl.col("died")).then(pl.lit(f"{closes}//DIED")).otherwise(pl.lit(f"{closes}//ALIVE"))
    dead = visits.drop_nulls("death_time").sort("subject_id", "death_time").unique("subject_id", maintain_order=True)
    deaths = cohort.scan().filter(pl.col("code").str.starts_with(DEATH)).select("subject_id", "visit_id").collect()
    outside = not deaths.is_empty() and deaths["visit_id"].null_count() == deaths.height
    where = stay if outside else {}
    parts = {
        opens: visits.select("subject_id", time="start", code=pl.lit(opens), **stay),
        closes: visits.drop_nulls("end").select("subject_id", time="end", code=how, **stay),
        DEATH: dead.select("subject_id", time="death_time", code=pl.lit(DEATH), **where),
    }
    own = cohort.codes["code"]
    parts[DEATH] = parts[DEATH].join(deaths, on="subject_id", how="anti", maintain_order="left")
    kept = [part for code, part in parts.items() if not own.str.starts_with(code).any() or (code == DEATH and outside)]
    columns = {"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "visit_id": pl.Int64}
    rows = pl.concat([pl.DataFrame(schema=columns), *kept], how="diagonal")
    return rows.with_columns(recorded="time")


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
