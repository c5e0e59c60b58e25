"""Which samples a run is of: their hashes in its ledger, so that it does not go on with other data unseen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from ghar import ledger
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.privacy import plain_values
from ghar.seal import files_below

PARTS = {"train": "training", "valid": "validation", "test": "test"}
Print = dict[str, Any]


def data_print(system: System[Any], records: Records) -> Print:
    """What tells this data from others, as short texts.

    samples: part -> number; labels, records: part -> hash of ids and labels, of what the records show; tables: name ->
    hash of what was read of the source, in any order of rows.
    """
    uncut = getattr(system.cases, "uncut", system.cases)
    parts = {name: getattr(uncut, part) for part, name in PARTS.items()}
    return {
        "samples": {name: len(cases) for name, cases in parts.items()},
        "labels": {name: _digest((c.sample_id, c.subject_id, c.label) for c in cases) for name, cases in parts.items()},
        "records": {name: _digest(map(_render_record, cases)) for name, cases in parts.items()},
        "tables": _tables(records) | _files(records),
    }


def hold_data(folder: RunFolder, fingerprint: Print) -> None:
    """Note in the ledger which data a run is of. BadInput, naming what differs, where it began with other data."""
    kept = data_of(folder)
    if kept is None:
        ledger.append(folder.path, {"what": "data", **fingerprint})
    elif wrong := differences(kept, fingerprint):
        raise BadInput(
            f"{folder.path} holds a run of other data ({'; '.join(wrong)}): put the data back as they were, or choose "
            "another run_dir."
        )


def data_of(folder: RunFolder) -> Print | None:
    """The data that a run's ledger tells of; None where it tells nothing."""
    rows = [row for row in ledger.read(folder.path) or () if row["what"] == "data"]
    return rows[-1] if rows else None


def differences(there: Mapping[str, Any], here: Mapping[str, Any], texts: bool = True) -> list[str]:
    """What differs, in words; of samples that are others nothing more is said. texts: compare what records show."""
    wrong = []
    for name in PARTS.values():
        numbers = there["samples"][name], here["samples"][name]
        if numbers[0] != numbers[1]:
            wrong.append(f"{numbers[0]} {name} samples there and {numbers[1]} here")
        elif there["labels"][name] != here["labels"][name]:
            wrong.append(f"other {name} samples or labels")
        elif texts and there["records"][name] != here["records"][name]:
            wrong.append(f"other records of the {name} samples")
    before, now = there["tables"], here["tables"]
    both = [name for name in before if name in now]  # a variant may read what another one does not
    return wrong + [f"another content of {name.partition(' (')[0]}" for name in both if before[name] != now[name]]


def name_of(fingerprint: Print) -> str:
    """A short name of the data, for a folder."""
    return _digest(sorted({**fingerprint["samples"], **fingerprint["labels"], **fingerprint["tables"]}.items()))[:12]


def _tables(records: Records) -> dict[str, str]:
    """Hashes of the parts of the source that a system has read."""
    read = vars(records)  # what was asked for is kept there (cached properties)
    hashes = {}
    for name in ("source", "charted"):
        if name in read:
            cohort = read[name]
            parts = {"events": cohort.scan(), "codes": cohort.codes.lazy(), "visits": cohort.visits.lazy()}
            # another version may hash in another way: its sums are not compared
            hashes |= {f"{part} ({name}, polars {pl.__version__})": _table(frame) for part, frame in parts.items()}
    if hasattr(read.get("graph"), "fingerprint"):
        hashes["kg.path"] = read["graph"].fingerprint
    return hashes


def _files(records: Records) -> dict[str, str]:
    """Hashes of the files that the configuration names (a label file, a map of codes, cross-references), and of all in
    the folders of texts beside the tables. The graph has its own."""
    config = records.config
    parts = {"data": asdict(config.data), "task": asdict(config.task), "kg": asdict(config.kg)}
    named = {key: Path(value) for key, value in plain_values(parts) if isinstance(value, str) and key != "kg.path"}
    hashes = {key: _file(path) for key, path in named.items() if path.is_file()}
    for folder in map(Path, getattr(config.system, "patient_text", ())):
        names = [name for name in sorted(files_below(folder)) if (folder / name).is_file()]
        hashes[f"{folder}"] = _digest((name, _file(folder / name)) for name in names)
    return hashes


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return ledger.sha256(file)[:32]


def _table(frame: pl.LazyFrame) -> str:
    """The sum of the hashes of all rows, and their number."""
    rows = frame.select(pl.struct(pl.all()).hash(0).alias("row"))
    total = rows.select(pl.col("row").sum(), pl.len().alias("rows"))
    return "-".join(map(str, total.collect(engine="streaming").row(0)))


def _render_record(case: Any) -> str:
    text = getattr(case, "text", None)
    return repr(case.history) if text is None else text


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]
