"""The cohort that data=... names, through the cache: all its patients, or data.take of them for a quick look."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from ghar.config import DataConfig
from ghar.data.cohort import Cohort
from ghar.data.readers import eicu, mimic3, mimic4
from ghar.data.readers.database import is_database, with_tables
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds import read_meds, require_visit_codes
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.mimic4_more import MORE as MIMIC4_MORE
from ghar.data.readers.omop import read_omop, require_inpatients
from ghar.data.readers.open_demos import DEMOS, is_open_demo, is_open_file
from ghar.data.readers.own_source import CODES, EVENTS, VISITS, read_own
from ghar.errors import BadInput
from ghar.extensions import is_module
from ghar.provenance import GENERATED, UNKNOWN, Provenance, signed_mark

MORE = {"mimic4": MIMIC4_MORE, "mimic3": mimic3.MORE, "eicu": eicu.MORE}  # data.more -> tables, by source
SEED = 0  # of data.take: one draw for everyone, so that a quick look is the same look tomorrow


def origin(data: DataConfig) -> Provenance:
    """Whose patients data.root holds, told from its files without reading them into a cohort."""
    if data.root is None:
        return GENERATED if data.name.startswith("demo") or data.name == "mimic4" else UNKNOWN
    root = Path(data.root)
    if is_database(root):
        return UNKNOWN
    if data.name in ("medqa", "summary"):
        return Provenance(credentialed=not is_open_file(root))
    signed = signed_mark(root)
    if data.name not in DEMOS or not signed.credentialed:
        return signed
    tables = {"mimic4": mimic4.tables_read, "mimic3": mimic3.tables_read, "eicu": eicu.tables_read}[data.name]
    more = [part for part in data.more or () if part in MORE[data.name]]
    return Provenance(credentialed=not is_open_demo(data.name, root, tables(charts=True, more=more)))


def no_patients(data: DataConfig) -> Cohort:
    """The cohort behind questions and other texts: no events, codes or visits, as open as the texts are."""
    whose = origin(data)
    events, codes, visits = (pl.DataFrame(schema=columns) for columns in (EVENTS, CODES, VISITS))
    return Cohort(data.name, events, codes, visits, whose.generated, whose.credentialed)


def read_source(data: DataConfig, *, charts: bool = True, stays: bool = True) -> Cohort:
    """Read the tables under data.root, a folder or a DuckDB file, with the reader of data.name: all patients, or
    data.take of them.

    `charts=False` leaves out chart measurements, where the source keeps them in tables of their own. What data.more
    names comes with the charts. `stays=False` takes a MEDS folder whose events begin no stay, as those of OMOP without
    inpatients, for whoever reads events alone.
    Raises BadInput for data.root=null where real tables are wanted, and whatever the reader says.
    """
    cohort = _read(with_tables(data, charts=charts), charts=charts, stays=stays)
    return cohort if data.take is None else take_patients(cohort, data.take)


def _read(data: DataConfig, *, charts: bool, stays: bool) -> Cohort:
    cache = Path(data.cache)
    there = MORE.get(data.name, {}) if data.name != "demo" else MORE["mimic4"]
    if absent := [part for part in data.more if part not in there]:
        raise BadInput(
            f"data.more={absent} has no tables in data={data.name}, which has {', '.join(there) or 'none of them'}: "
            "leave it out."
        )
    if data.root is None:
        raise BadInput(f"data={data.name} reads real tables: set data.root to their folder, or choose data=demo.")
    if is_module(data.name):
        return read_own(data.name, Path(data.root))
    readers = {"mimic4": read_mimic4, "mimic3": read_mimic3, "eicu": read_eicu}
    if data.name == "meds":
        vocabulary = None if data.vocabulary is None else Path(data.vocabulary)
        cohort = read_meds(Path(data.root), cache / "cohorts", vocabulary, charts=charts)
        return require_visit_codes(cohort, vocabulary) if stays else cohort
    if data.name == "omop":
        cohort = read_omop(Path(data.root), cache / "cohorts", charts=charts)
        return require_inpatients(cohort, Path(data.root)) if stays else cohort
    readers = {name: partial(read, charts=charts, more=data.more if charts else ()) for name, read in readers.items()}
    if data.name not in readers:
        others = ", ".join([*readers, "meds", "omop"])
        raise BadInput(f"data={data.name} has no reader for data.root={data.root}: choose {others}.")
    return readers[data.name](Path(data.root), cache / "cohorts")
    if data.name == "omop":
        cohort = read_omop(Path(data.root), cache / "cohorts", charts=charts)
        return require_inpatients(cohort, Path(data.root)) if stays else cohort


def take_patients(cohort: Cohort, count: int) -> Cohort:
    """`count` of the cohort's patients, drawn by chance, with all that is theirs; the cohort where it has no more.

    The patients of a smaller count are among those of a larger one.
    """
    everyone = cohort.scan().select("subject_id").unique().sort("subject_id").collect()["subject_id"]
    if count >= len(everyone):
        return cohort
    order = np.random.default_rng(SEED).permutation(len(everyone))[:count]
    theirs = pl.col("subject_id").is_in(everyone.gather(np.sort(order)).implode())
    counts = {**cohort.counts, "patients left out, data.take": len(everyone) - count}
    some = replace(
        cohort, table=cohort.scan().filter(theirs).collect(), visits=cohort.visits.filter(theirs), counts=counts
    )
    if cohort.key is not None:
        object.__setattr__(some, "key", f"{cohort.key}-take{count}")  # a frozen dataclass has no other way
    return some
