"""Small graphs in PrimeKG's columns for the tests."""

from pathlib import Path

import polars as pl

from ghar.kg.graph import KnowledgeGraph
from ghar.kg.primekg import COLUMNS, read_primekg

Node = tuple[int, str, str]  # index, type, name
Edge = tuple[Node, str, str, Node]  # head, relation, display relation, tail


def frame(edges: list[Edge], closed: bool = True) -> pl.DataFrame:
    """One row per edge, and one for its reverse when `closed`, as PrimeKG has it."""
    directed = edges + ([(tail, relation, shown, head) for head, relation, shown, tail in edges] if closed else [])
    rows = []
    for head, relation, shown, tail in directed:
        row = {"relation": relation, "display_relation": shown}
        for end, (index, kind, name) in (("x", head), ("y", tail)):
            source = {"disease": "MONDO", "drug": "DrugBank"}.get(kind, "NCBI")
            values = {"index": index, "id": str(index), "type": kind, "name": name, "source": source}
            row |= {f"{end}_{column}": value for column, value in values.items()}
        rows.append(row)
    return pl.DataFrame(rows).select(COLUMNS)


def graph_of(folder: Path, edges: list[Edge], closed: bool = True) -> KnowledgeGraph:
    """Write the edges to a csv file and read it back."""
    path = folder / "kg.csv"
    frame(edges, closed).write_csv(path)
    return read_primekg(path)


ALS = (10, "disease", "amyotrophic lateral sclerosis")
DIABETES = (11, "disease", "type 2 diabetes mellitus")
DEMENTIA = (12, "disease", "dementia")
METFORMIN = (20, "drug", "Metformin")
RILUZOLE = (21, "drug", "Riluzole")
WEAKNESS = (30, "effect/phenotype", "Muscle weakness")
SOD1 = (40, "gene/protein", "SOD1")

TINY: list[Edge] = [
    (METFORMIN, "indication", "indication", DIABETES),
    (RILUZOLE, "indication", "indication", ALS),
    (ALS, "disease_phenotype_positive", "phenotype present", WEAKNESS),
    (DIABETES, "disease_phenotype_positive", "phenotype present", WEAKNESS),
    (ALS, "disease_protein", "associated with", SOD1),
    (RILUZOLE, "drug_protein", "target", SOD1),
    (METFORMIN, "drug_protein", "enzyme", SOD1),
    (METFORMIN, "drug_protein", "target", SOD1),
    (DEMENTIA, "disease_disease", "parent-child", ALS),
]
