"""A cohort in other code systems (CCS, ATC), and the report of what did not map and how often.

`read_code_map` is what a run uses: labels are made from the source's own codes, and whatever a model is shown, links to
a graph or counts as a feature from the mapped ones (`CodeMap`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import polars as pl

from ghar.data.codes import CodeSystems, gsn, map_codes, ndc, read_code_systems
from ghar.data.cohort import Cohort, Sample
from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import columns_of, find_table
from ghar.data.visit_codes import KIND_NAMES, Visit
from ghar.errors import BadInput

TOP = 10  # unmapped codes listed for each vocabulary
TEXT = pl.String()
MIMIC = {"drug": "drug", "gsn": "gsn", "ndc": "ndc"}
ORDERS = {  # table of orders -> its source and its columns
    "hosp/prescriptions": (MIMIC4, MIMIC),
    "prescriptions": (MIMIC3, MIMIC),
    "medication": (EICU, {"drug": "drugname", "route": "routeadmin"}),
}
KEYS = ("gsn", "ndc", "route")


Mapped = Literal["all", "drugs"]
VOCABULARIES: Mapping[Mapped, tuple[str, ...] | None] = {"all": None, "drugs": ("DRUG",)}


@dataclass(frozen=True, eq=False)
class CodeMap:
    """Codes and what they become. rows: code, target, rule, as `map_codes` makes them. which: "all", or "drugs" and
    codes of other kinds as they are (GHAR's Table III)."""

    rows: pl.DataFrame
    systems: CodeSystems
    which: Mapped

    @cached_property
    def swap(self) -> Mapping[str, str]:
        """Code -> target, of the codes that change."""
        return dict(_used(self.rows, VOCABULARIES[self.which]).iter_rows())

    def cohort(self, cohort: Cohort) -> Cohort:
        """`map_cohort`, with names for codes that had none, and a key where the cohort has one."""
        mapped = map_cohort(add_names(cohort, self.systems), self.rows, self.systems, VOCABULARIES[self.which])
        if cohort.key is not None:
            digest = hashlib.sha256(repr((sorted(self.swap.items()), mapped.codes.rows())).encode()).hexdigest()[:16]
            object.__setattr__(mapped, "key", f"{cohort.key}-{digest}")  # a frozen dataclass has no other way
        return mapped

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples, with the visits they show in mapped codes; a code that several become stands once, first."""
        cache: dict[int, tuple[Visit, Visit]] = {}  # by id(); the visit is kept, so that its id stays its own

        def mapped(visit: Visit) -> Visit:
            entry = cache.get(id(visit))
            if entry is None:
                codes = {k: tuple(dict.fromkeys(self.swap.get(c, c) for c in getattr(visit, k))) for k in KIND_NAMES}
                entry = cache[id(visit)] = visit, replace(visit, **codes)
            return entry[1]

        return [replace(sample, history=tuple(map(mapped, sample.history))) for sample in samples]

    def members(self, cohort: Cohort) -> pl.DataFrame:
        """code, target, events: what became each target, the commonest first. cohort: in its own codes."""
        used = pl.DataFrame(list(self.swap.items()), {"code": TEXT, "target": TEXT}, orient="row")
        uses = cohort.scan().group_by("code").agg(pl.len().alias("events")).collect(engine="streaming")
        return used.join(uses, on="code").sort("target", "events", "code", descending=[False, True, False])


def read_code_map(cohort: Cohort, folder: Path, root: Path, which: Mapped) -> CodeMap:
    """How the codes of `cohort` map with the code tables of `folder`; GSN and NDC are those of the tables in `root`.

    Raises BadInput for a folder without code tables, and for generated patients, whose story is told in codes.
    """
    if cohort.generated:
        raise BadInput("The outcomes of generated patients hang on their own codes: leave data.codes out for them.")
    systems = read_code_systems(folder)
    return CodeMap(map_codes(cohort.codes["code"], systems, _keys_in(root)), systems, which)


@dataclass(frozen=True)
class MappingReport:
    """by_rule: vocabulary, rule (null: unmapped), codes, events. unmapped: vocabulary, code, description, events.

    keys: prescriptions with a name, and how many of them have no usable GSN or NDC ("0" is none); empty without them.
    """

    by_rule: pl.DataFrame
    unmapped: pl.DataFrame
    keys: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """For reading: shares of codes and of events by rule, and the commonest unmapped codes."""
        lines = []
        for (vocabulary,), part in self.by_rule.group_by("vocabulary", maintain_order=True):
            codes, events = part["codes"].sum(), part["events"].sum()
            lines.append(f"{vocabulary}: {codes:,} codes, {events:,} events")
            for rule, c, e in part.select("rule", "codes", "events").iter_rows():
                share = f"{c:>8,} codes ({c / codes:6.1%}) {e:>10,} events ({e / events:6.1%})"
                lines.append(f"  {rule or 'unmapped':<13}{share}")
            worst = self.unmapped.filter(pl.col("vocabulary") == vocabulary)
            for code, name, e in worst.select("code", "description", "events").iter_rows():
                lines.append(f"    {e:>8,} x {code} {name}")
        lines += [f"{rule}: {rows:,}" for rule, rows in self.keys.items()]
        return "\n".join(lines)


def mapping_report(cohort: Cohort, mapping: pl.DataFrame, keys: pl.DataFrame | None = None) -> MappingReport:
    """What `map_codes` did to the codes of a cohort, counted in codes and in events; `keys` are those it was given."""
    uses = cohort.scan().group_by("code").agg(pl.len().alias("events")).collect(engine="streaming")
    rows = mapping.join(uses, on="code").with_columns(vocabulary=pl.col("code").str.extract("^([^/]*)/"))
    by_rule = (
        rows.group_by("vocabulary", "rule")
        .agg(pl.len().alias("codes"), pl.sum("events").cast(pl.Int64))
        .with_columns(pl.col("codes").cast(pl.Int64))
        .sort("vocabulary", "events", "rule", descending=[False, True, False])
    )
    worst = (
        rows.filter(pl.col("target").is_null())
        .join(cohort.codes.select("code", "description"), on="code", how="left")
        .sort("vocabulary", "events", "code", descending=[False, True, False])
        .group_by("vocabulary", maintain_order=True)
        .head(TOP)
        .select("vocabulary", "code", "description", pl.col("events").cast(pl.Int64))
    )
    return MappingReport(by_rule, worst, {} if keys is None else _unusable(keys))


def map_cohort(
    cohort: Cohort, mapping: pl.DataFrame, systems: CodeSystems, vocabularies: Collection[str] | None = None
) -> Cohort:
    """The cohort with mapped codes in place of its own; every event stays, an unmapped code keeps its own.

    vocabularies: only these (("DRUG",) is GHAR's Table III: ICD as it is, drugs as ATC level 3), None for all.
    """
    used = _used(mapping, vocabularies)
    swap = pl.col("code").replace(used["code"], used["target"])
    kept = cohort.codes.join(used, on="code", how="anti")
    targets = used["target"].unique().sort()
    names = [systems.names.get(target, target.partition("/")[2]) for target in targets]
    added = pl.DataFrame({"code": targets, "description": names}, {"code": TEXT, "description": TEXT})
    added = added.with_columns(parents=pl.lit([], pl.List(TEXT)))
    codes = pl.concat([kept, added], how="diagonal").unique("code", keep="first").sort("code")
    return replace(cohort, table=cohort.table.with_columns(swap), codes=codes)


def _used(mapping: pl.DataFrame, vocabularies: Collection[str] | None) -> pl.DataFrame:
    """code, target of the codes that change."""
    used = mapping.drop_nulls("target").select("code", "target")
    if vocabularies is None:
        return used
    return used.filter(pl.col("code").str.extract("^([^/]*)/").is_in(list(vocabularies)))


def add_names(cohort: Cohort, systems: CodeSystems) -> Cohort:
    """The cohort with names for codes that had none but their own (ICD codes missing from a source's dictionary)."""
    own = pl.col("code").str.replace("^[^/]*/", "")
    system_name = pl.col("code").replace_strict(systems.names, default=None, return_dtype=TEXT)
    nameless = pl.col("description").is_null() | (pl.col("description") == own)
    named = pl.when(nameless).then(pl.coalesce(system_name, "description")).otherwise("description")
    return replace(cohort, codes=cohort.codes.with_columns(description=named))


def map_source(cohort: Cohort, folder: Path, root: str | None) -> tuple[MappingReport, dict[str, Cohort]]:
    """Report on mapping `cohort` with the code tables of `folder`, and the cohort as the papers map it.

    GHAR keeps ICD codes and maps drugs; KARE maps everything. root: the MIMIC folder with GSN and NDC, which are used
    where it has prescriptions.
    """
    systems = read_code_systems(folder)
    keys = _keys_in(Path(root)) if root is not None else None
    mapping = map_codes(cohort.codes["code"], systems, keys)
    whole, drugs = map_cohort(cohort, mapping, systems), map_cohort(cohort, mapping, systems, ("DRUG",))
    return mapping_report(cohort, mapping, keys), {"as in GHAR": drugs, "as in KARE": whole}


def _keys_in(root: Path) -> pl.DataFrame | None:
    """`drug_keys` where there are orders in MIMIC's or eICU's form."""
    return drug_keys(root) if any(find_table(root, table) for table in ORDERS) else None


def _unusable(keys: pl.DataFrame) -> dict[str, int]:
    """Prescriptions, and those whose GSN or NDC says nothing."""
    rows = keys["rows"].to_list()
    if all(keys[name].null_count() == keys.height for name in ("gsn", "ndc")):
        return {}  # eICU, whose orders have neither
    counts = {"prescriptions": sum(rows)}
    for name, clean in (("gsn", lambda text: "".join(map(gsn, text.split()))), ("ndc", ndc)):
        useless = [not clean(text or "") for text in keys[name]]
        counts[f"prescriptions.no_{name}"] = sum(n for n, none in zip(rows, useless, strict=True) if none)
    return counts


def drug_keys(root: Path) -> pl.DataFrame:
    """GSN, NDC and route of each drug name in a folder of MIMIC or eICU: code ("DRUG/..."), gsn, ndc, route, rows.

    These are texts and may be null; eICU has routes alone. A `Cohort` holds names only, so this reads four columns of
    the orders again, once, streaming.
    """
    name = next((table for table in ORDERS if find_table(Path(root), table)), None)
    if name is None:
        raise BadInput(f"{root} has no prescriptions table, where GSN and NDC stand: leave drugs to their names.")
    (source, needed), further = ORDERS[name], columns_of(Path(root), name)
    optional = [column for column in ("route", "drug_type") if column in further and column not in needed.values()]
    rows = open_declared(Path(root), source, name, [*needed.values(), *optional]).rows
    if "drug_type" in optional:
        rows = rows.filter(pl.col("drug_type").str.strip_chars().str.to_uppercase().ne_missing("BASE"))
    drug = pl.col(needed["drug"]).str.strip_chars().str.to_lowercase()
    there = {**needed, **{column: column for column in optional}}
    key_columns = {key: pl.col(there[key]) if key in there else pl.lit(None, TEXT) for key in KEYS}
    keys = rows.filter(drug.is_not_null() & (drug != "")).select(
        pl.concat_str(pl.lit("DRUG/"), drug).alias("code"), **key_columns
    )
    counted = keys.group_by("code", *KEYS).agg(pl.len().cast(pl.Int64).alias("rows"))
    return counted.collect(engine="streaming").sort("code", *KEYS)
