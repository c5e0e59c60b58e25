"""Read UMLS's release files into a graph for the path search: MRCONSO.RRF (names and codes), MRREL.RRF (relations);
MRSTY.RRF (types) where the graph becomes a table for other systems (convert.py).

Columns are those of the UMLS Reference Manual, tables "Concept Names and Sources", "Related Concepts" and "Semantic
Types"; rows have no header, fields end with "|". A row of MRREL says which relation its *second* concept has to its
first, so the triple is (second, relation, first). UMLS states most facts twice, once each way; the way that the source
did not assert (DIR = N) is left out, and so are suppressed rows and relations of a concept to itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ghar.errors import BadInput
from ghar.kg.names import disease_key, drug_candidates, plain
from ghar.kg.paths import PathGraph, make_path_graph

# fields we read, by their place in a row
NAMES = {
    0: "cui", 1: "language", 2: "status", 4: "form", 6: "preferred", 11: "source", 13: "code", 14: "name",
    16: "suppress",
}  # fmt: skip
RELATIONS = {0: "first", 3: "rel", 4: "second", 7: "rela", 13: "direction", 14: "suppress"}
KINDS = {0: "cui", 1: "tui", 3: "kind"}
FIELDS = {"MRCONSO.RRF": 18, "MRREL.RRF": 16, "MRSTY.RRF": 6}
NEEDED = ("MRCONSO.RRF", "MRREL.RRF")
TYPES = {  # a semantic type -> PrimeKG's name of what it is
    "disease or syndrome": "disease", "neoplastic process": "disease", "injury or poisoning": "disease",
    "mental or behavioral dysfunction": "disease", "congenital abnormality": "disease",
    "acquired abnormality": "disease", "anatomical abnormality": "disease", "pathologic function": "disease",
    "sign or symptom": "effect/phenotype", "finding": "effect/phenotype", "clinical drug": "drug",
    "pharmacologic substance": "drug", "antibiotic": "drug", "gene or genome": "gene/protein",
    "amino acid, peptide, or protein": "gene/protein", "biologic function": "biological_process",
    "molecular function": "molecular_function", "cell component": "cellular_component",
}  # fmt: skip
# The general relations of the manual, for rows without a relation of their own: what the second is to the first.
GENERAL = {
    "PAR": "is parent of", "CHD": "is child of", "RB": "is broader than", "RN": "is narrower than",
    "RO": "is related to", "RQ": "is possibly the same as", "RL": "is like", "SY": "is the same as",
    "SIB": "is sibling of", "RU": "is related to", "AQ": "may qualify", "QB": "may be qualified by",
}  # fmt: skip
# Vocabulary of our codes -> source of UMLS.
SOURCES = {"ICD9CM": "ICD9CM", "ICD9PROC": "ICD9CM", "ICD10CM": "ICD10CM", "ICD10PCS": "ICD10PCS", "ATC": "ATC"}
ONTOLOGIES = frozenset(SOURCES.values())


@dataclass(frozen=True, eq=False)
class Umls:
    """graph: its nodes are the concepts, ascending by CUI. cuis: of the nodes. by_code: (source, code without dots) ->
    node; by_name, by_words: an English name, and its sorted words, -> node; among several the lowest."""

    graph: PathGraph
    cuis: Sequence[str]
    by_code: Mapping[tuple[str, str], int]
    by_name: Mapping[str, int]
    by_words: Mapping[str, int]

    def link(self, codes: pl.DataFrame) -> dict[str, int]:
        """Code -> node, for codes that have one. codes: columns code and description, as in a cohort. By the code, else
        a drug by its name as written, then without strength, form and salt; anything else by its description."""
        nodes = {}
        for code, description in codes.select("code", "description").unique("code").rows():
            vocabulary, _, local = code.partition("/")
            node = self.by_code.get((SOURCES.get(vocabulary, ""), _bare(local)))
            if node is None and vocabulary == "DRUG":
                node = next((self.by_name[name] for name in drug_candidates(local) if name in self.by_name), None)
            elif node is None:
                node = self.by_words.get(disease_key(description or ""))
            if node is not None:
                nodes[code] = node
        return nodes


def read_umls(folder: Path) -> Umls:
    """Read the two files of `folder`; a concept without an English name is left out with its relations. BadInput names
    a file that is missing, cannot be read or has other fields."""
    names, relations = folder / "MRCONSO.RRF", folder / "MRREL.RRF"
    is_current = pl.col("suppress") != "Y"
    named = _collect(_read(names, NAMES).filter(is_current, pl.col("language") == "ENG"), names)
    if named.is_empty():
        raise BadInput(f"{names} has no English name that is not suppressed; give another subset.")
    # the preferred form of the preferred name comes first
    rank = 4 * (pl.col("status") == "P") + 2 * (pl.col("form") == "PF") + (pl.col("preferred") == "Y")
    named = named.sort("cui", rank, "name", descending=[False, True, False])
    best = named.unique("cui", keep="first", maintain_order=True)
    number = pl.DataFrame({"cui": best["cui"], "node": np.arange(best.height, dtype=np.int32)})
    proper = is_current & (pl.col("direction") != "N") & (pl.col("first") != pl.col("second"))
    facts, spoken = _facts(_collect(_read(relations, RELATIONS).filter(proper), relations), number)
    columns = (facts["head"], facts["tail"], facts["relation"].to_physical())
    graph = make_path_graph(best["name"].to_list(), spoken, *(column.to_numpy() for column in columns))
    return Umls(graph, best["cui"].to_list(), *_keys(named.join(number, on="cui", maintain_order="left")))


def read_types(folder: Path) -> pl.DataFrame:
    """cui and type of every concept in MRSTY.RRF; of several types the first of TYPES, else the first."""
    rows = _collect(_read(folder / "MRSTY.RRF", KINDS), folder / "MRSTY.RRF")
    kind = pl.col("kind").str.to_lowercase()
    rank = kind.replace_strict(list(TYPES), range(len(TYPES)), default=len(TYPES))
    ranked = rows.with_columns(rank=rank, type=kind.replace(TYPES)).sort("cui", "rank", "tui")
    return ranked.unique("cui", keep="first", maintain_order=True).select("cui", "type")


def _facts(rows: pl.DataFrame, number: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """head, tail (nodes) and relation (Enum) of each fact, once, and the relations' words."""
    spoken = pl.when(pl.col("rela") != "").then(pl.col("rela").str.replace_all("_", " "))
    rows = rows.select("first", "second", relation=spoken.otherwise(pl.col("rel").replace(GENERAL)))
    words = rows["relation"].unique().sort().to_list()
    facts = (
        rows.cast({"relation": pl.Enum(words)})
        .join(number.rename({"cui": "first", "node": "tail"}), on="first")
        .join(number.rename({"cui": "second", "node": "head"}), on="second")
        .select("head", "tail", "relation")
        .unique()
        .sort("head", "tail", "relation")
    )
    return facts, words


def _keys(named: pl.DataFrame) -> tuple[dict[tuple[str, str], int], dict[str, int], dict[str, int]]:
    """Node by code, by name and by sorted words; among several the lowest node."""
    by_code: dict[tuple[str, str], int] = {}
    by_name: dict[str, int] = {}
    by_words: dict[str, int] = {}
    for source, code, name, node in named.select("source", "code", "name", "node").rows():
        if source in ONTOLOGIES:
            by_code.setdefault((source, _bare(code)), node)
        by_name.setdefault(plain(name), node)
        by_words.setdefault(disease_key(name), node)
    by_name.pop("", None)
    by_words.pop("", None)
    return by_code, by_name, by_words


def _bare(code: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", code.upper())


def _read(path: Path, fields: Mapping[int, str]) -> pl.LazyFrame:
    """The wanted fields of a file as text, "" where nothing stands; read when collected."""
    if not path.is_file():
        files = " and ".join(NEEDED)
        raise BadInput(f"{path}: no such file; kg.path must name a graph's table, or a folder of UMLS with {files}.")
    try:
        rows = pl.scan_csv(path, separator="|", has_header=False, infer_schema=False, quote_char=None, glob=False)
        columns = rows.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None
    wanted = FIELDS[path.name]
    if len(columns) not in (wanted, wanted + 1):  # a row ends with "|", after which an empty field is seen
        raise BadInput(f"{path} has {len(columns)} fields a row where the UMLS has {wanted}; is it another file?")
    return rows.select(pl.col(columns[place]).fill_null("").alias(name) for place, name in fields.items())


def _collect(rows: pl.LazyFrame, path: Path) -> pl.DataFrame:
    try:
        return rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> BadInput:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return BadInput(f"{path} cannot be read ({reason}); extract the release again.")
