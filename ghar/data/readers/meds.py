"""MEDS 0.3 and 0.4 folders, whoever wrote them, read into a `Cohort`.

A folder holds data/**/*.parquet (a subject in one file, contiguous, sorted by time), metadata/codes.parquet and, when
the data set comes with a split, metadata/subject_splits.parquet. Reading keeps every event but those of counted rules
("dropped.meds.no_subject", "no_code", "date_out_of_range", "drawing_of_a_result"), in the order of the files; where a
folder has the column of NUMBERS for a kind of codes, those of one time stand by it, then by code. Rows that are not
sorted by time are sorted ("repaired.meds.out_of_order"), a subject spread over files is put together
("repaired.meds.subject_in_several_files").

A folder with visits.parquet is one of `ghar.data.readers.meds_export` and is taken as it stands. In any other one codes
become those of the house by their shape and their parents (meds_codes.py), stays come from the events that open and
close them (meds_visits.py), a drawing and its result become one event (meds_times.py), units from the column unit or
from the code are kept, and what is coded when a stay is over (role "billed") is known from then on. `recorded` is what
a column of that purpose says, else `time`.

A fact without a time is known at no time. What is so from birth (gender, race) stays static; a coded diagnosis of a
known stay is dated to its end; any other clinical fact is dropped ("dropped.meds.fact_without_time"). A folder with
MEDS_BIRTH and without ages gets an event "AGE" at each admission ("added.meds.ages"), as the other readers write them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import polars as pl

from ghar.data.cohort import Cohort, Stay
from ghar.data.readers.deaths import DEATH, DEATHS_IN_STAYS
from ghar.data.readers.events import RANK, LazyRows, finite, in_order, rank, through_cache
from ghar.data.readers.layouts import MEDS, other_source
from ghar.data.readers.meds_charts import has_charts, vital_codes, with_vitals
from ghar.data.readers.meds_codes import (
    TABLE_COLUMNS,
    UNIT_CONCEPTS,
    CodeVocabulary,
    read_vocabulary,
    resolve_codes,
    shape_of,
)
from ghar.data.readers.meds_files import TIME, scan, schema_of
from ghar.data.readers.meds_times import CLINICAL, timed, true_deaths, with_ages, with_draws
from ghar.data.readers.meds_visits import KEYS, deaths_of, key_of, place_events, tells_of_stays, visits_from_events
from ghar.data.readers.mimic import COMMON_NAMES
from ghar.data.readers.tables import SourceTable, in_years, sift_large
from ghar.data.readers.units import in_house_unit
from ghar.data.readers.vessels import marked_counts, vessel_titles, with_vessels
from ghar.data.visit_codes import kinds_of
from ghar.errors import BadInput
from ghar.provenance import Provenance, signed_mark
from ghar.seal import SEAL

VERSION = "meds-11"  # part of the cache key: raise it when a rule changes
REQUIRED = {"subject_id": pl.Int64(), "time": TIME, "code": pl.String()}
OPTIONAL = {"numeric_value": pl.Float32(), "text_value": pl.String()}
RECORDED = ("recorded", "storetime", "result_time")  # columns that say when a fact became known
VISIT_TYPES = {
    "subject_id": pl.Int64(),
    "visit_id": pl.Int64(),
    "start": TIME,
    "end": TIME,
    "died": pl.Boolean(),
    "death_time": TIME,
}
NUMBERS = {"diagnoses": "seq_num", "procedures": "seq_num", "medications": "poe_id"}  # kind -> column of their order
LISTED = 8  # shapes of codes that a refusal names


def read_meds(root: Path, cache: Path | None = None, vocabulary: Path | None = None, *, charts: bool = True) -> Cohort:
    """Read the MEDS folder `root`, or its copy under `cache` (keyed by the files' names, sizes and times).

    vocabulary: further shapes of codes (`read_vocabulary`). `charts=False` leaves out what the other readers leave out
    then, where `write_meds` has marked it; any other folder is read whole. The cohort counts as credentialed unless
    ghar.json says otherwise in a folder that this machine's GHAR has signed (`write_meds`). Raises BadInput for an
    absent folder, file or column, one of another type, and a wrong vocabulary.
    """
    root = Path(root)
    files = sorted((root / "data").rglob("*.parquet"))
    if not files:
        mend = other_source(root, MEDS) or "point data.root to the MEDS folder"
        raise BadInput(f"{root} has no data/**/*.parquet: {mend}.")
    code_rules = read_vocabulary(vocabulary)
    name = f"MEDS tables in {root}"
    beside = [root / "metadata" / "codes.parquet", root / "visits.parquet", root / "ghar.json", root / SEAL, vocabulary]

    ours = (root / "visits.parquet").exists()

    def read(work: Path) -> Cohort:
        return _ours(root, name, files, charts, work) if ours else _foreign(root, name, files, code_rules, work)

    version = VERSION if charts or not ours else f"{VERSION}-False"
    return through_cache(read, name, cache, "meds", [*files, *beside], version)


def require_visit_codes(cohort: Cohort, vocabulary: Path | None = None) -> Cohort:
    """The cohort. BadInput where it has no visit, or most of its visits show neither diagnosis, procedure nor drug;
    then with the commonest shapes of codes that no one knew. A system that reads events needs no stay."""
    kinds = kinds_of(cohort.codes)
    n_coded = sum(bool(v.diagnoses or v.procedures or v.medications) for v in cohort.shown.visits.values())
    if 2 * n_coded > cohort.visits.height:
        return cohort
    has_rule = resolve_codes(_with_tables(cohort.codes), read_vocabulary(vocabulary))["known"]
    odd = cohort.codes.filter(~(has_rule | kinds.is_not_null())).select("code")
    counts = cohort.scan().join(odd.lazy(), on="code", how="semi").group_by("code").len().collect(engine="streaming")
    shapes = counts.group_by(shape=shape_of(pl.col("code"))).agg(
        pl.col("len").sum(), example=pl.col("code").sort_by("len", "code", descending=[True, False]).first()
    )
    listed = shapes.sort("len", "shape", descending=[True, False]).head(LISTED)
    seen = "; ".join(f"{shape}... ({n:,} events, as {example})" for shape, n, example in listed.iter_rows())
    count = cohort.visits.height
    what = f"{count - n_coded:,} of {count:,} visits of the {cohort.name} show no diagnosis, procedure or drug"
    if cohort.visits.is_empty():
        patients = cohort.scan().select(pl.col("subject_id").n_unique()).collect(engine="streaming").item()
        what = f"The {patients:,} patients of the {cohort.name} have no visit: no event begins a stay"
    unknown = f"Codes of unknown shape: {seen}" if seen else "All shapes of codes are known"
    raise BadInput(
        f"{what}. {unknown}. Say in a file data.vocabulary=FILE.yaml what your codes mean (docs/data.md), or use "
        "system=ehr_rag, which reads events and needs no stays."
    )


def _ours(root: Path, name: str, files: list[Path], charts: bool, work: Path) -> Cohort:
    """A folder that `write_meds` wrote. charts: whether measurements of charts and of data.more are wanted."""
    about = _about(root)
    counts, added = about.pop("counts"), about.pop("added")
    extra = {"visit_id": pl.Int64(), "recorded": TIME}
    extra |= {"unit": pl.String()} if all("unit" in schema_of(file) for file in files) else {}
    in_stay = (pl.col("code") == DEATH) & pl.col("visit_id").is_not_null()
    ours = pl.col("code").is_in(added) | (in_stay if DEATHS_IN_STAYS in added else pl.lit(False))
    drops = {"added_by_the_export": ours} if added else {}
    listed = _listed(root).filter(~pl.col("code").is_in(added))
    if not charts and "charted" in listed.columns:
        left_out = listed.filter("charted")["code"].implode()
        drops |= {"charts_not_wanted": pl.col("code").is_in(left_out)} if len(listed.filter("charted")) else {}
        listed = listed.filter(~pl.col("charted").fill_null(False))
    rows, more = _rows(root, files, extra, {}, drops, work)
    path = root / "visits.parquet"
    group = {"group": pl.Int64()} if "group" in schema_of(path) else {}
    names = [name for name in schema_of(path) if name in {**VISIT_TYPES, **group}]
    visits = scan(path, VISIT_TYPES, group).select(names).collect()
    columns = ["subject_id", "time", "code", "numeric_value", "text_value", *extra]
    events = in_order([rows], work, lambda some: some.select(columns))
    seen = events.select("code").unique().collect(engine="streaming")
    codes = seen.join(listed, on="code", how="full", coalesce=True).sort("code")
    nameless = codes.join(seen, on="code", how="semi")["description"].null_count()
    own = pl.col("code").str.replace("^[^/]*/+", "")
    parents = pl.col("parent_codes").fill_null([])
    codes = codes.select("code", pl.col("description").fill_null(own), parents, *_get_kind_column(listed)).rename(
        {"parent_codes": "parents"}
    )
    return Cohort(name, events, codes, visits, **about, counts=counts | more | {"codes_without_name": nameless})


def _about(root: Path) -> dict[str, Any]:
    """What ghar.json says, as far as it can be believed: counts, what a stay is, whose patients these are, and codes
    of events that the export added.

    That they are generated or open stands in the folder's signature (ghar/provenance.py) or it is not so.
    """
    path, ours, counts, added = root / "ghar.json", {}, {}, []
    if path.exists():
        try:
            ours = json.loads(path.read_text())
            counts = {str(rule): int(n) for rule, n in ours.get("counts", {}).items()}
            added = [str(code) for code in ours.get("added", [])]
            if ours.get("stay", "hospital") not in get_args(Stay):
                raise ValueError(f"a stay is one of {', '.join(get_args(Stay))}, not {ours['stay']!r}")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{path} cannot be read ({error}): correct it, or delete it if it is not GHAR's.") from error
    claim, signed = Provenance.of(ours), signed_mark(root)
    return {
        "generated": claim.generated and signed.generated,
        "credentialed": claim.credentialed or signed.credentialed,
        "stay": ours.get("stay", "hospital"),
        "counts": counts,
        "added": added,
    }


def _foreign(root: Path, name: str, files: list[Path], vocabulary: CodeVocabulary, work: Path) -> Cohort:
    """A folder that anyone else wrote."""
    there = {column for file in files for column in schema_of(file)}
    extra = {column: TIME for column in (*RECORDED, "end") if column in there}
    loose = {column: pl.Int64() for column in KEYS if column in there}
    loose |= {column: pl.String() for column in ("unit", *TABLE_COLUMNS, *NUMBERS.values()) if column in there}
    rows, counts = _rows(root, files, extra, loose, {}, work)
    meanings = _meanings(root, rows, vocabulary)
    telling = rows.filter(tells_of_stays(vocabulary.opens, vocabulary.closes)).collect(engine="streaming")
    telling = telling.sort("subject_id", "time", maintain_order=True)
    visits, more = visits_from_events(telling, vocabulary.opens, vocabulary.closes)
    deaths, against = deaths_of(telling, visits)
    more |= {"repaired.patients.dod_before_last_stay": against} if against else {}
    about = {name: value for name, value in _about(root).items() if name in ("generated", "credentialed", "stay")}
    tally: Counter[str] = Counter(more)
    charted = has_charts(meanings.filter("_seen")["code"])
    tally["events_without_visit"] = 0
    aged = "AGE" not in meanings.filter("_seen")["code"]

    def finish(some: pl.DataFrame) -> pl.DataFrame:
        some, drawings, converted = _understood(some, meanings)
        tally["repaired.meds.converted_unit"] += converted
        if charted:
            some, more = with_vitals(some)
            tally.update(more)
        some, more = place_events(some, visits)
        tally.update(more)
        tally["dropped.meds.drawing_of_a_result"] += drawings
        some, timeless = timed(_delay_billed_codes(some, visits))
        tally["dropped.meds.fact_without_time"] += timeless
        kept = true_deaths(some, deaths)
        tally["dropped.meds.other_death"] += some.height - kept.height
        some = kept
        if aged:
            some, ages = with_ages(some, visits)
            tally["added.meds.ages"] += ages
        some = with_vessels(some)
        tally.update(marked_counts(some["code"], "meds"))
        return some

    events = in_order([rows], work, finish)
    used = meanings.filter("_seen")
    tally["codes_of_unknown_shape"] = used.filter(~pl.col("known")).height
    tally["codes_without_name"] = used["description"].null_count()
    counts |= {rule: n for rule, n in tally.items() if n or rule in ("events_without_visit", "codes_without_name")}
    codes = _codes(meanings)
    more = [vital_codes()] if charted else []
    if any(rule.startswith("marked.meds.ve") for rule in tally):
        more.append(_vessel_codes(codes))
    if tally["added.meds.ages"]:
        no_parents, no_kind = pl.lit([], pl.List(pl.String)), pl.lit(None, pl.String)
        more.append(COMMON_NAMES.filter(code="AGE").with_columns(parents=no_parents, kind=no_kind))
    for table in more:
        codes = pl.concat([codes, table.join(codes, on="code", how="anti")], how="vertical").sort("code")
    return Cohort(name, events, codes, visits.drop("_key"), **about, counts=counts)


def _vessel_codes(codes: pl.DataFrame) -> pl.DataFrame:
    """The rows of `codes` for blood gases with a vessel (vessels.py), with the parents of their items."""
    titles = vessel_titles(codes.drop_nulls("description"))
    items = codes.select(pl.exclude("description")).rename({"code": "_item"})
    of_items = titles.with_columns(_item=pl.col("code").str.extract("^([^/]*/[^/]*)"))
    return of_items.join(items, on="_item", how="inner").select(codes.columns)


def _understood(some: pl.DataFrame, meanings: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Events with house codes, units, `recorded`, role and RANK, each result at the time of its drawing; how many
    drawings became part of a result, and how many numbers were converted to the unit of the house."""
    clinical = pl.col("kind").is_not_null() | (pl.col("role") != "plain") | pl.col("code").str.contains(CLINICAL)
    about = meanings.select("source", "role", _code="code", _unit="unit", _clinical=clinical, _kind="kind")
    some = some.join(about, left_on="code", right_on="source", how="left", maintain_order="left")
    written = [pl.col("unit").str.strip_chars()] if "unit" in some.columns else []
    unit = pl.coalesce(*(pl.when(u != "").then(u) for u in written), "_unit")
    recorded_columns = [pl.col(name) for name in RECORDED if name in some.columns]
    ordered = {kind: column for kind, column in NUMBERS.items() if column in some.columns}
    numbers = [pl.when(pl.col("_kind") == kind).then(rank(column)) for kind, column in ordered.items()]
    some = some.with_columns(
        code=pl.coalesce("_code", "code"),
        unit=unit.replace(UNIT_CONCEPTS),
        recorded=pl.coalesce(*recorded_columns, "time"),
        _key=key_of(some),
        **{RANK: pl.coalesce(*numbers, pl.lit(None, pl.Int64))},
    ).drop("_code", "_unit", "_kind")
    some, converted = in_house_unit(some)
    some, drawings = with_draws(some)
    some = some.drop("_key")
    return (some.sort("subject_id", "time", maintain_order=True) if drawings else some), drawings, converted


def _delay_billed_codes(some: pl.DataFrame, visits: pl.DataFrame) -> pl.DataFrame:
    """The columns of `Cohort.events`, _clinical, RANK; what is coded when a stay is over is known from its end on."""
    ends = visits.select("visit_id", _end="end")
    some = some.join(ends, on="visit_id", how="left", maintain_order="left")
    late = pl.when(pl.col("role") == "billed").then(pl.max_horizontal("recorded", "_end")).otherwise("recorded")
    names = ["subject_id", "time", "code", "numeric_value", "text_value", "visit_id"]
    return some.select(*names, late.alias("recorded"), "unit", "_clinical", RANK)


def _meanings(root: Path, rows: pl.LazyFrame, vocabulary: CodeVocabulary) -> pl.DataFrame:
    """`resolve_codes` of all codes that occur or are listed; _seen: those that occur.

    A drug that was given is a medication only where the folder has no orders.
    """
    tables = [name for name in TABLE_COLUMNS if name in rows.collect_schema()]
    table = pl.coalesce(tables) if tables else pl.lit(None, pl.String)
    counted = rows.group_by("code", table=table).len().collect(engine="streaming").sort("code", "len", "table")
    seen = counted.group_by("code", maintain_order=True).agg(pl.last("table")).with_columns(_seen=True)
    codes = seen.join(_listed(root), on="code", how="full", coalesce=True).sort("code")
    codes = codes.with_columns(pl.col("_seen").fill_null(False))
    meanings = resolve_codes(codes, vocabulary).with_columns(codes["_seen"])
    if "order" in meanings.filter("_seen")["role"]:
        given = pl.col("role") == "given"
        meanings = meanings.with_columns(
            code=pl.when(given).then(pl.col("code").str.replace("^DRUG/", "GIVEN/")).otherwise("code"),
            kind=pl.when(~given).then("kind"),
        )
    return meanings


def _codes(meanings: pl.DataFrame) -> pl.DataFrame:
    """`Cohort.codes`: one row a house code, with all its parents and the name that most of its sources agree on."""
    common = COMMON_NAMES.rename({"description": "_common"})
    own = pl.col("code").str.replace("^[^/]*/+", "").str.replace_all("/{2,}", ", ")
    plain = pl.col("code").str.contains("^(DRUG|GIVEN|ICU_ADMISSION)/")  # whose own text is their name
    codes = meanings.group_by("code").agg(
        pl.col("description").drop_nulls().mode().sort().first(),
        parents=pl.col("parents").list.explode().drop_nulls().unique().sort(),
        kind=pl.col("kind").drop_nulls().first(),
    )
    codes = codes.join(common, on="code", how="left").sort("code")
    named = pl.when(plain).then(own).otherwise(pl.coalesce("_common", "description", own))
    return codes.select("code", named.alias("description"), "parents", "kind")


def _rows(
    root: Path,
    files: list[Path],
    extra: Mapping[str, pl.DataType],
    loose: Mapping[str, pl.DataType],
    drops: Mapping[str, pl.Expr],
    work: Path,
) -> LazyRows:
    """All events in the order of the files, with the columns `extra` and `loose`."""
    shards = [
        scan(file, REQUIRED, {**OPTIONAL, **extra}, loose).with_columns(_file=pl.lit(i, pl.Int32))
        for i, file in enumerate(files)
    ]
    table = SourceTable("meds", root / "data" / "**" / "*.parquet", REQUIRED, pl.concat(shards))
    times = [name for name, kind in {**REQUIRED, **extra}.items() if kind == TIME]
    strange = [in_years(pl.col(name)).not_() for name in times]
    number = pl.col("numeric_value")
    drops = {
        "no_subject": pl.col("subject_id").is_null(),
        "no_code": pl.col("code").is_null(),
        "date_out_of_range": strange[0],  # without its time an event would count as known from birth on
        **drops,
    }
    repairs = {"not_finite": number.is_finite().not_(), "other_date_out_of_range": pl.any_horizontal(strange)}
    kept = [pl.all().exclude("_reason", "numeric_value", *times[1:]), finite(number).alias("numeric_value")]
    kept += [pl.when(in_years(pl.col(name))).then(name).alias(name) for name in times[1:]]
    rows, counts = sift_large(table, table.rows, drops, repairs, kept, work)
    spread = rows.group_by("subject_id").agg(spread=pl.min("_file") < pl.max("_file")).select(pl.sum("spread"))
    time, before = pl.col("time"), pl.col("time").shift()
    late = (time < before).fill_null(time.is_null() & before.is_not_null())
    unsorted = rows.select((late & (pl.col("subject_id") == pl.col("subject_id").shift())).sum())
    checks = {"repaired.meds.subject_in_several_files": spread, "repaired.meds.out_of_order": unsorted}
    counts |= {rule: n for rule, query in checks.items() if (n := query.collect(engine="streaming").item())}
    return rows.drop("_file"), counts


def _listed(root: Path) -> pl.DataFrame:
    """code, description, parent_codes and, where they are there, kind and charted of metadata/codes.parquet, each code
    once."""
    path = root / "metadata" / "codes.parquet"
    wanted = {"description": pl.String(), "parent_codes": pl.List(pl.String())}
    if not path.exists():
        return pl.DataFrame(schema={"code": pl.String()} | wanted)
    there, own = schema_of(path), {"kind": pl.String(), "charted": pl.Boolean()}
    listed = scan(path, {"code": pl.String()}, wanted, {c: kind for c, kind in own.items() if c in there}).collect()
    listed = listed.with_columns(pl.col("parent_codes").list.drop_nulls())  # MIMIC_IV_MEDS 0.0.1 writes [null]
    return listed.drop_nulls("code").unique("code", keep="first", maintain_order=True)


def _get_kind_column(listed: pl.DataFrame) -> list[str]:
    return ["kind"] if "kind" in listed.columns else []


def _with_tables(codes: pl.DataFrame) -> pl.DataFrame:
    """`Cohort.codes` as `resolve_codes` takes them."""
    return codes.select("code", "description", parent_codes="parents", table=pl.lit(None, pl.String))
