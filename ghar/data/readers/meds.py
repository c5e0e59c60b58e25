"""MEDS 0.3 and 0.4 folders: read into a `Cohort`, and a `Cohort` written as one.

A folder holds data/**/*.parquet (a subject in one file, contiguous, sorted by time), metadata/codes.parquet and, when
the data set comes with a split, metadata/subject_splits.parquet. `write_meds` adds what MEDS has no place for: the
columns visit_id and recorded, visits.parquet, and ghar.json (generated, credentialed, stay, counts). Reading keeps
every event but those of two counted rules ("dropped.meds.no_subject", "dropped.meds.no_code"), in the order of the
files; rows that are not sorted by time are sorted ("repaired.meds.out_of_order"), a subject spread over files is put
together ("repaired.meds.subject_in_several_files"). A column `unit` is kept beside the events.

Field types: schema.py of the package meds 0.4.1; https://github.com/Medical-Event-Data-Standard/meds
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ghar.data.cohort import Cohort, Stay
from ghar.data.readers.events import FoundLarge, in_order, through_cache
from ghar.data.readers.meds_visits import KEYS, place_events, tells_of_stays, visits_from_events
from ghar.data.readers.tables import Table, sift_large
from ghar.errors import BadInput
from ghar.progress import track
from ghar.provenance import Mark, signed_mark
from ghar.seal import SEAL
from ghar.storage import new_folder

VERSION = "meds-1"  # part of the cache key: raise it when a rule changes
TIME = pl.Datetime("us")
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
CODE_TYPES = {"code": pa.string(), "description": pa.string(), "parent_codes": pa.list_(pa.string())}
OURS = ("generated", "credentialed", "stay")
REQUIRED = {"subject_id": pl.Int64(), "time": TIME, "code": pl.String()}
OPTIONAL = {"numeric_value": pl.Float32(), "text_value": pl.String()}
VISIT_TYPES = {
    "subject_id": pl.Int64(),
    "visit_id": pl.Int64(),
    "start": TIME,
    "end": TIME,
    "died": pl.Boolean(),
    "death_time": TIME,
}
LABELS = {
    "boolean_value": pl.Boolean(),
    "integer_value": pl.Int64(),
    "float_value": pl.Float32(),
    "categorical_value": pl.String(),
}


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


def read_meds(root: Path, cache: Path | None = None) -> Cohort:
    """Read the MEDS folder `root`, or its copy under `cache` (keyed by the files' names, sizes and times).

    Visits come from visits.parquet where it lies there, else from admission and discharge events (the rules:
    ghar/data/readers/meds_visits.py). `recorded` equals `time` where there is no such column. The cohort counts
    as credentialed unless ghar.json says otherwise in a folder that this machine's GHAR has signed (write_meds).
    Raises BadInput for an absent folder, file or column, or one of another type.
    """
    root = Path(root)
    files = sorted((root / "data").rglob("*.parquet"))
    if not files:
        raise BadInput(f"{root} has no data/**/*.parquet: point data.root to the MEDS folder.")
    name = f"MEDS tables in {root}"
    beside = [root / "metadata" / "codes.parquet", root / "visits.parquet", root / "ghar.json", root / SEAL]
    return through_cache(lambda work: _read(root, name, files, work), name, cache, "meds", [*files, *beside], VERSION)


def read_labels(path: Path) -> pl.DataFrame:
    """Labels of a task (a Parquet file, or a folder of them): subject_id, prediction_time and the values they have.

    Value columns (boolean_value, integer_value, float_value, categorical_value) without any value are left out; data
    up to and including prediction_time may be used. Sorted by subject and time. Raises BadInput for an absent or
    unsuitable column, a missing subject or time, and a row without any value.
    """
    path = Path(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise BadInput(f"There is no label file {path}: name a MEDS label Parquet file, or a folder of them.")
    keys = {"subject_id": pl.Int64(), "prediction_time": TIME}
    parts = [_scan(file, keys, LABELS).collect() for file in files]
    labels = pl.concat(parts).sort("subject_id", "prediction_time", maintain_order=True)
    bad = labels.filter(
        pl.any_horizontal(pl.col(list(keys)).is_null()) | pl.all_horizontal(pl.col(list(LABELS)).is_null())
    )
    if bad.height:
        raise BadInput(f"{path} has {bad.height} rows without subject, time or value: correct the label file.")
    return labels.drop(name for name in LABELS if labels[name].null_count() == labels.height)


def read_subject_splits(root: Path) -> dict[int, str]:
    """The split of each subject ("train", "tuning", "held_out", ...) that comes with the folder; BadInput if none."""
    path = Path(root) / "metadata" / "subject_splits.parquet"
    if not path.exists():
        raise BadInput(f"{path} does not exist: this data set comes without a split, so make one by patient.")
    frame = _scan(path, {"subject_id": pl.Int64(), "split": pl.String()}, {}).collect()
    if frame["subject_id"].is_duplicated().any() or frame.null_count().sum_horizontal().item():
        raise BadInput(f"{path} names a subject twice, or without a split: correct that file.")
    return dict(frame.rows())


def _read(root: Path, name: str, files: list[Path], work: Path) -> Cohort:
    counts: dict[str, int] = {}
    ours = _ours(root)
    counts |= ours.pop("counts")
    rows, more = _rows(root, files, work)
    counts |= more
    columns = ["subject_id", "time", "code", "numeric_value", "text_value", "visit_id", "recorded"]
    columns += ["unit"] if "unit" in rows.collect_schema() else []
    if (root / "visits.parquet").exists():
        path = root / "visits.parquet"
        group = {"group": pl.Int64()} if "group" in _schema(path) else {}
        visits = (
            _scan(path, VISIT_TYPES, group).select(c for c in _schema(path) if c in {**VISIT_TYPES, **group}).collect()
        )
        events = in_order([rows], work, lambda some: some.select(columns))
    else:
        telling = rows.filter(tells_of_stays()).collect(engine="streaming")
        visits, more = visits_from_events(telling.sort("subject_id", "time", maintain_order=True))
        counts |= more | {"events_without_visit": 0}

        def placed(some: pl.DataFrame) -> pl.DataFrame:
            some, more = place_events(some, visits)
            counts["events_without_visit"] += more["events_without_visit"]
            return some.select(columns)

        events = in_order([rows], work, placed)
    codes, more = _codes(root, events)
    return Cohort(name, events, codes, visits, **ours, counts=counts | more)


def _ours(root: Path) -> dict[str, Any]:
    """What ghar.json says, as far as it can be believed: counts, what a stay is, whose patients these are.

    That they are generated or open stands in the folder's signature (ghar/provenance.py) or it is not so.
    """
    path, ours, counts = root / "ghar.json", {}, {}
    if path.exists():
        try:
            ours = json.loads(path.read_text())
            counts = {str(rule): int(n) for rule, n in ours.get("counts", {}).items()}
            if ours.get("stay", "hospital") not in get_args(Stay):
                raise ValueError(f"a stay is one of {', '.join(get_args(Stay))}, not {ours['stay']!r}")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{path} cannot be read ({error}): correct it, or delete it if it is not GHAR's.") from error
    said, signed = Mark.of(ours), signed_mark(root)
    return {
        "generated": said.generated and signed.generated,
        "credentialed": said.credentialed or signed.credentialed,
        "stay": ours.get("stay", "hospital"),
        "counts": counts,
    }


def _rows(root: Path, files: list[Path], work: Path) -> FoundLarge:
    """All events in the order of the files, with visit_id and recorded, and the columns that visits come from."""
    there = set.intersection(*(set(_schema(file)) for file in files))
    extra = {name: pl.Int64() for name in KEYS if name in there}
    extra |= {name: kind for name, kind in (("recorded", TIME), ("end", TIME), ("unit", pl.String())) if name in there}
    shards = [
        _scan(file, REQUIRED, OPTIONAL | extra).with_columns(_file=pl.lit(i, pl.Int32)) for i, file in enumerate(files)
    ]
    table = Table("meds", root / "data" / "**" / "*.parquet", REQUIRED, pl.concat(shards))
    drops = {"no_subject": pl.col("subject_id").is_null(), "no_code": pl.col("code").is_null()}
    rows, counts = sift_large(table, table.rows, drops, {}, [pl.all().exclude("_reason")], work)
    spread = rows.group_by("subject_id").agg(spread=pl.min("_file") < pl.max("_file")).select(pl.sum("spread"))
    time, before = pl.col("time"), pl.col("time").shift()
    late = (time < before).fill_null(time.is_null() & before.is_not_null())
    unsorted = rows.select((late & (pl.col("subject_id") == pl.col("subject_id").shift())).sum())
    found = {"repaired.meds.subject_in_several_files": spread, "repaired.meds.out_of_order": unsorted}
    counts |= {rule: n for rule, query in found.items() if (n := query.collect(engine="streaming").item())}
    if "recorded" not in there:
        rows = rows.with_columns(recorded=pl.col("time"))
    if "visit_id" not in there:
        rows = rows.with_columns(visit_id=pl.lit(None, pl.Int64))
    return rows.drop("_file"), counts


def _codes(root: Path, events: pl.LazyFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """The codes of metadata/codes.parquet (ancestors included) and those that only occur; without a name, its own."""
    path = root / "metadata" / "codes.parquet"
    wanted = {"description": pl.String(), "parent_codes": pl.List(pl.String())}
    if path.exists():
        listed = _scan(path, {"code": pl.String()}, wanted).collect().drop_nulls("code").unique("code", keep="first")
    else:
        listed = pl.DataFrame(schema={"code": pl.String()} | wanted)
    seen = events.select("code").unique().collect(engine="streaming")
    codes = seen.join(listed, on="code", how="full", coalesce=True).sort("code")
    nameless = codes.join(seen, on="code", how="semi")["description"].null_count()
    return codes.select(
        "code",
        pl.col("description").fill_null(pl.col("code").str.replace("^[^/]*/+", "")),
        parents=pl.col("parent_codes").fill_null([]),
    ), {"codes_without_name": nameless}


def _scan(path: Path, required: Mapping[str, pl.DataType], optional: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """The wanted columns in the wanted types; optional ones that are absent are null. BadInput for any other file."""
    schema = _schema(path)
    absent = [name for name in required if name not in schema]
    if absent:
        raise BadInput(f"{path} has no column {', '.join(absent)} (it has {', '.join(schema)}): is it MEDS 0.3 or 0.4?")
    columns = []
    for name, kind in {**required, **optional}.items():
        if name not in schema:
            columns.append(pl.lit(None, kind).alias(name))
        elif not _fits(schema[name], kind):
            raise BadInput(f"{path}: column {name} is {schema[name]}, MEDS wants {kind}: convert that column.")
        else:
            columns.append(pl.col(name).cast(kind))
    return pl.scan_parquet(path).select(columns)


def _schema(path: Path) -> Mapping[str, pl.DataType]:
    try:
        return pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{path} cannot be read ({str(error).splitlines()[0]}): copy the file again.") from error


def _fits(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether a column can be taken for the wanted type without changing what it says."""
    if given == pl.Null or given == wanted:
        return True
    if wanted.is_temporal():
        return given == pl.Date or (isinstance(given, pl.Datetime) and given.time_zone is None)
    if wanted.is_integer():
        return given.is_integer()
    if wanted.is_float():
        return given.is_numeric()
    return wanted == pl.String and isinstance(given, pl.Categorical | pl.Enum)


def _write(frame: pl.DataFrame, types: dict[str, pa.DataType], path: Path) -> None:
    schema = pa.schema([(name, kind) for name, kind in types.items() if name in frame.columns])
    columns = frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(columns.cast(schema), path, compression="zstd")


def _about(cohort: Cohort) -> dict[str, str | list[str]]:
    return {
        "dataset_name": cohort.name,
        "etl_name": "ghar",
        "etl_version": VERSION,
        "meds_version": "0.4.1",
        "raw_source_id_columns": ["visit_id"],
        "other_extension_columns": ["recorded"],
    }
