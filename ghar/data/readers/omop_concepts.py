"""Concepts of the OMOP CDM as codes of the house.

concept                                       code
ICD9CM, ICD10CM, ICD9Proc, ICD10PCS           "ICD10CM/I214", of a source concept too, in whatever table it stands
of a drug                                     "DRUG/<its name>", which links and maps as the drug of any source
of a measurement: LOINC                       "VITAL/<variable>" for those of vitals.py, else "LOINC/718-7"
of a measurement: MIMIC's own items           "LAB/51222"; any other: "LAB/<vocabulary> <its code>"
any other                                     "<vocabulary>/<its code>"
none (0, null, or not among the concepts)     the source's value: "CONDITION/...", "PROCEDURE/...", "DRUG/...",
                                              "LAB/..."

An ICD code of the source goes before the standard concept it was mapped to: labels, classes and cross-references are
made from ICD, and several ICD codes share a concept of SNOMED. Of codes of SNOMED and LOINC the ancestors are parents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.omop_columns import OMOP
from ghar.data.readers.tables import columns_of, explain, find_table, sift
from ghar.errors import BadInput

ICD = {"ICD9CM": "ICD9CM", "ICD10CM": "ICD10CM", "ICD9Proc": "ICD9PROC", "ICD10PCS": "ICD10PCS"}
OWN = 2_000_000_000  # from here on, and below 0, concepts are the source's own
HIERARCHIES, OF_VISITS = ("SNOMED", "LOINC"), ("Visit", "CMS Place of Service")
VITALS = {  # LOINC -> variable of vitals.py
    **dict.fromkeys(("8867-4", "76282-3"), "heart rate"),
    **dict.fromkeys(("8480-6", "76534-7", "76215-3"), "systolic blood pressure"),
    **dict.fromkeys(("8462-4", "76535-4", "76213-8"), "diastolic blood pressure"),
    **dict.fromkeys(("8478-0", "76536-2", "76214-6"), "mean blood pressure"),
    **dict.fromkeys(("9279-1", "76270-8"), "respiratory rate"),
    **dict.fromkeys(("8310-5", "8329-5", "8331-1"), "temperature"),
    **dict.fromkeys(("59408-5", "2708-6"), "oxygen saturation"),
    **dict.fromkeys(("3150-6", "19994-3"), "fraction inspired oxygen"),
    **dict.fromkeys(("29463-7", "3141-9"), "weight"),
    **dict.fromkeys(("8302-2", "3137-7"), "height"),
    "9269-2": "glasgow coma scale total",
    "9267-6": "glasgow coma scale eye opening",
    "9268-4": "glasgow coma scale motor response",
    "9270-0": "glasgow coma scale verbal response",
}
KINDS = {  # table -> beginning of a code without a concept, kind of its codes
    "condition_occurrence": ("CONDITION", "diagnoses"),
    "procedure_occurrence": ("PROCEDURE", "procedures"),
    "drug_exposure": ("DRUG", "medications"),
    "measurement": ("LAB", None),
    "observation": ("OBSERVATION", None),
}


def read_concepts(root: Path) -> tuple[pl.DataFrame, dict[str, int]]:
    """concept_id, name, vocabulary, local (its code) of every concept that a table of the folder names.

    Raises BadInput where a folder has none of them: without its vocabulary no number says anything.
    """
    table = open_declared(root, OMOP, "concept")
    used = used_concepts(root)
    rows = table.rows.join(used.lazy(), on="concept_id", how="left", maintain_order="left")
    drops = {"unused": pl.col("used").is_null(), "repeated": ~pl.col("concept_id").is_first_distinct()}
    name, vocabulary, local = (pl.col(c).str.strip_chars() for c in ("concept_name", "vocabulary_id", "concept_code"))
    result = [pl.col("concept_id"), name.alias("name"), vocabulary.alias("vocabulary"), local.alias("local")]
    concepts, counts = sift(table, rows, drops, {}, result)
    counts.pop("dropped.concept.unused", None)  # a vocabulary holds millions, of which a data set uses a few
    counts["rows.concept"] = concepts.height + counts.get("dropped.concept.repeated", 0)
    if concepts.is_empty() and used.height:
        raise BadInput(
            f"{table.path} names none of the {used.height:,} concepts that the other tables use: copy the vocabulary "
            "with which they were made."
        )
    missing = used.height - concepts.height
    return concepts, counts | ({"concepts_not_listed": missing} if missing else {})


def used_concepts(root: Path) -> pl.DataFrame:
    """concept_id of whatever the tables name, each once, and the column `used`; 0 stands for none."""
    seen: set[int] = set()
    for name, about in OMOP.tables.items():
        if name.startswith("concept") or find_table(root, name) is None:
            continue
        there = columns_of(root, name)
        wanted = [c for c in {**about.read, **about.optional} if c.endswith("concept_id") and c in there]
        if not wanted:
            continue
        table = open_declared(root, OMOP, name, wanted)
        ids = pl.concat([table.rows.select(concept_id=column).unique() for column in wanted]).unique()
        try:
            seen.update(ids.drop_nulls().collect(engine="streaming")["concept_id"])
        except (pl.exceptions.PolarsError, OSError) as error:
            raise explain(table, error) from error
    return pl.DataFrame({"concept_id": sorted(seen - {0})}, {"concept_id": pl.Int64}).with_columns(used=pl.lit(True))


def ancestors(root: Path, concepts: pl.DataFrame) -> pl.DataFrame:
    """concept_id and above, the number of a concept above it; of those with a hierarchy. None without the table."""
    if find_table(root, "concept_ancestor") is None:
        return pl.DataFrame(schema={"concept_id": pl.Int64, "above": pl.Int64})
    targets = concepts.filter(pl.col("vocabulary").is_in([*HIERARCHIES, *OF_VISITS]))
    pair = open_declared(root, OMOP, "concept_ancestor").rows.select(
        concept_id="descendant_concept_id", above="ancestor_concept_id"
    )
    pair = pair.filter(pl.col("concept_id") != pl.col("above"))
    return pair.join(targets.select("concept_id").lazy(), on="concept_id", how="semi").unique().collect(
        engine="streaming"
    ).sort("concept_id", "above")  # fmt: skip


def codes_of(concepts: pl.DataFrame, table: str) -> pl.DataFrame:
    """concept_id, code, first: the house code of each concept in a table, and whether it goes before others (ICD)."""
    vocabulary, local, name = pl.col("vocabulary"), pl.col("local"), pl.col("name")
    icd = vocabulary.replace_strict(ICD, default=None, return_dtype=pl.String)
    plain = local.str.replace_all(".", "", literal=True).str.to_uppercase()
    own = (pl.col("concept_id") >= OWN) | (pl.col("concept_id") < 0)
    other = pl.concat_str(vocabulary, pl.lit("/"), local)
    if table == "drug_exposure":
        other = pl.concat_str(pl.lit("DRUG/"), name.str.to_lowercase())
    elif table == "measurement":
        vital = local.replace_strict(VITALS, default=None, return_dtype=pl.String)
        loinc = pl.coalesce(pl.concat_str(pl.lit("VITAL/"), vital), pl.concat_str(pl.lit("LOINC/"), local))
        own &= vocabulary.str.contains("(?i)mimic")  # whose items the house knows by number
        theirs = pl.when(own).then(local).otherwise(pl.concat_str(vocabulary, pl.lit(" "), local))
        other = pl.when(vocabulary == "LOINC").then(loinc).otherwise(pl.concat_str(pl.lit("LAB/"), theirs))
    code = pl.coalesce(pl.concat_str(icd, pl.lit("/"), plain), other)
    return concepts.select("concept_id", code=code, first=icd.is_not_null()).drop_nulls("code")


def concept_names(concepts: pl.DataFrame, tables: Sequence[str]) -> pl.DataFrame:
    """Names (code, description) of the codes that concepts become in `tables`."""
    rows = [codes_of(concepts, table).join(concepts, on="concept_id", how="left") for table in tables]
    names = pl.concat(rows).select("code", description="name").drop_nulls()
    return names.filter(~pl.col("code").str.contains("^(DRUG|VITAL)/"))  # whose own text is their name


def parents_of(root: Path, concepts: pl.DataFrame, above: pl.DataFrame) -> pl.DataFrame:
    """code, parents: the ancestors of codes of SNOMED and LOINC, in the same vocabulary."""
    hierarchy = concepts.filter(pl.col("vocabulary").is_in(HIERARCHIES))
    wanted = above.select(concept_id="above").unique()
    rows = open_declared(root, OMOP, "concept").rows.filter(pl.col("vocabulary_id").is_in(HIERARCHIES))
    rows = rows.join(wanted.lazy(), on="concept_id", how="semi").select("concept_id", "vocabulary_id", "concept_code")
    upper = rows.collect(engine="streaming").unique("concept_id")
    parent = pl.concat_str(pl.col("vocabulary_id"), pl.lit("/"), pl.col("concept_code"))
    pairs = (
        above.join(hierarchy, on="concept_id")
        .join(upper, left_on="above", right_on="concept_id")
        .filter(pl.col("vocabulary") == pl.col("vocabulary_id"))
        .select(code=pl.concat_str("vocabulary", pl.lit("/"), "local"), parent=parent)
    )
    return pairs.group_by("code").agg(parents=pl.col("parent").unique().sort()).sort("code")


def below(above: pl.DataFrame, roots: Mapping[int, str] | Sequence[int]) -> list[int]:
    """The concepts `roots`, and those that stand below one of them."""
    descendants = above.filter(pl.col("above").is_in(list(roots)))["concept_id"]
    return sorted({*roots, *descendants})
