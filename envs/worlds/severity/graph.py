"""The demo world's knowledge graph, in the twelve columns of PrimeKG's kg.csv, and its ICD cross references.

What look-ups are meant to find (story.py): disease --phenotype present--> "grade 7 course"; drug --side
effect--> the same for common drugs, drug --target--> protein --associated with--> grade for rare ones. Beside every
grade of a course stands one of pain, which means nothing. Everything else distracts: other relations of the same
entities, look-alike diseases with other grades, genes with their tissues, processes and phenotypes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.story import Severities
from ghar.envs.worlds.severity.vocabulary import WorldVocabulary

KG_COLUMNS = (
    "relation", "display_relation",
    "x_index", "x_id", "x_type", "x_name", "x_source",
    "y_index", "y_id", "y_type", "y_name", "y_source",
)  # fmt: skip
LOOK_ALIKES = 300
FIRST_MONDO, FIRST_DRUGBANK, FIRST_GRADE, FIRST_PAIN = 9_100_000, 900_001, 9_900_000, 9_910_000
FILLER_TYPES = {  # kind in the vocabulary -> PrimeKG's node type and source
    "gene": ("gene/protein", "NCBI"),
    "anatomy": ("anatomy", "UBERON"),
    "exposure": ("exposure", "CTD"),
    "process": ("biological_process", "GO"),
    "phenotype": ("effect/phenotype", "HPO"),
}
QUALIFIERS = (
    "with renal involvement", "with cardiac involvement", "with ocular manifestations", "of late onset",
    "of juvenile onset", "in remission", "with skin manifestations", "familial form",
)  # fmt: skip
DISEASE_RELATIONS = ("disease_protein", "exposure_disease", "disease_disease", "indication", "contraindication")
DRUG_RELATIONS = ("drug_protein", "indication", "contraindication", "drug_drug")
DISPLAY = {
    "disease_phenotype_positive": "phenotype present", "disease_phenotype_negative": "phenotype absent",
    "drug_effect": "side effect",
    "disease_protein": "associated with", "exposure_disease": "linked to", "disease_disease": "parent-child",
    "indication": "indication", "contraindication": "contraindication", "drug_drug": "synergistic interaction",
    "anatomy_protein_present": "expression present", "bioprocess_protein": "interacts with",
    "phenotype_protein": "associated with",
}  # fmt: skip
TARGET, CARRIER = "target", "carrier"
DRUG_PROTEIN_DISPLAY = (TARGET, "enzyme", CARRIER, "transporter")


@dataclass
class _Draft:
    """Nodes and undirected edges while the graph is being drawn. An edge is (relation, display, x, y)."""

    nodes: list[tuple[str, str, str, str]] = field(default_factory=list)
    edges: dict[tuple[str, str, int, int], None] = field(default_factory=dict)

    def add_nodes(self, rows: list[tuple[str, str, str, str]]) -> list[int]:
        """Append (id, type, name, source) rows and return their indices."""
        start = len(self.nodes)
        self.nodes += rows
        return list(range(start, len(self.nodes)))

    def link(self, relation: str, x: int, y: int, display: str = "") -> None:
        """Add an edge unless it is a loop or there already, in either direction."""
        display = display or DISPLAY[relation]
        if x != y and (relation, display, y, x) not in self.edges:
            self.edges[(relation, display, int(x), int(y))] = None


@dataclass(frozen=True)
class _Nodes:
    """Indices of the nodes of each kind."""

    diseases: list[int]
    drugs: list[int]
    targets: list[int]
    look_alikes: list[int]
    grades: list[int]
    pains: list[int]
    fillers: dict[str, list[int]]


def build_graph(
    rng: np.random.Generator, vocabulary: WorldVocabulary, severities: Severities
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(kg with KG_COLUMNS, closed under reversal; references with those of ghar.kg.linking)."""
    draft, tail = _Draft(), vocabulary.tail
    bases = np.resize(rng.permutation(vocabulary.conditions.height), LOOK_ALIKES).tolist()
    true, textbook = severities.conditions.tolist(), severities.textbook_conditions.tolist()
    nodes = _add_nodes(rng, draft, vocabulary, bases)

    def state(relation: str, node: int, grade: int) -> None:
        """The grade of a course, and beside it that of a pain."""
        draft.link(relation, node, nodes.grades[grade])
        draft.link(relation, node, nodes.pains[int(rng.integers(1, story.GRADES))])

    for disease, grade in zip(nodes.diseases, textbook, strict=True):
        state("disease_phenotype_positive", disease, grade)
    for disease in (*nodes.diseases, *nodes.look_alikes):
        state("disease_phenotype_negative", disease, int(rng.integers(1, story.GRADES)))
    for drug, grade in zip(nodes.drugs, severities.textbook_drugs[: story.N_COMMON_DRUGS].tolist(), strict=False):
        state("drug_effect", drug, grade)
    for drug in nodes.drugs[-tail:]:
        decoys = nodes.grades if rng.random() < story.DECOY else nodes.pains
        draft.link("drug_effect", drug, decoys[int(rng.integers(1, story.GRADES))])
    _link_targets(rng, draft, nodes, severities.drugs[story.N_COMMON_DRUGS :].tolist(), state)
    for look_alike, base in zip(nodes.look_alikes, bases, strict=True):
        other = rng.choice([g for g in range(story.GRADES) if g not in (true[base], textbook[base])])
        state("disease_phenotype_positive", look_alike, other)
        draft.link("disease_disease", nodes.diseases[base], look_alike)
    for number, disease in enumerate(nodes.diseases):
        most = 5 if number < story.N_COMMON_CONDITIONS else 3
        for relation in rng.choice(DISEASE_RELATIONS, rng.integers(1, most), replace=False):
            _link_disease(rng, draft, nodes, disease, relation)
    for number, drug in enumerate(nodes.drugs):
        is_common = number < story.N_COMMON_DRUGS
        relations = DRUG_RELATIONS if is_common else DRUG_RELATIONS[1:]
        for relation in rng.choice(relations, rng.integers(1, 5 if is_common else 3), replace=False):
            _link_drug(rng, draft, nodes, drug, relation)
    _link_fillers(rng, draft, nodes.fillers)
    return _edge_table(rng, draft), _references(vocabulary)


def _link_targets(
    rng: np.random.Generator, draft: _Draft, nodes: _Nodes, severity: list[int], state: Callable[[str, int, int], None]
) -> None:
    """Rare drugs to their targets and, every other one, to a carrier; targets to the drugs' grades and to a process."""
    tail = len(nodes.targets)
    for number, (drug, target) in enumerate(zip(nodes.drugs[-tail:], nodes.targets, strict=True)):
        draft.link("drug_protein", drug, target, TARGET)
        if tail > 1 and rng.random() < story.CARRIED:
            other = (number + int(rng.integers(1, tail))) % tail
            draft.link("drug_protein", drug, nodes.targets[other], CARRIER)
        state("phenotype_protein", target, severity[number])
        draft.link("bioprocess_protein", rng.choice(nodes.fillers["process"]), target)


def _add_nodes(rng: np.random.Generator, draft: _Draft, vocabulary: WorldVocabulary, bases: list[int]) -> _Nodes:
    names = vocabulary.conditions["name"].str.to_lowercase().to_list()
    diseases = [(str(FIRST_MONDO + i), "disease", name, "MONDO") for i, name in enumerate(names)]
    drugs = [
        (f"DB{FIRST_DRUGBANK + i}", "drug", name, "DrugBank")
        for i, name in enumerate(vocabulary.drugs["name"].str.to_lowercase())
    ]
    first_look_alike = FIRST_MONDO + len(names)
    used: dict[int, int] = {}
    look_alikes = []
    offset = rng.integers(0, len(QUALIFIERS), len(names))
    for i, base in enumerate(bases):
        used[base] = used.get(base, -1) + 1  # a second variant of the same disease takes the next qualifier
        qualifier = QUALIFIERS[(offset[base] + used[base]) % len(QUALIFIERS)]
        look_alikes.append((str(first_look_alike + i), "disease", f"{names[base]} {qualifier}", "MONDO"))
    kind, source = FILLER_TYPES["gene"]
    targets = [(code, kind, name, source) for code, name in vocabulary.targets.select("code", "name").iter_rows()]
    grades, pains = (
        [(str(first + grade), "effect/phenotype", f"grade {grade} {what}", "HPO") for grade in range(story.GRADES)]
        for first, what in ((FIRST_GRADE, "course"), (FIRST_PAIN, "pain"))
    )
    return _Nodes(
        diseases=draft.add_nodes(diseases),
        drugs=draft.add_nodes(drugs),
        targets=draft.add_nodes(targets),
        look_alikes=draft.add_nodes(look_alikes),
        grades=draft.add_nodes(grades),
        pains=draft.add_nodes(pains),
        fillers={
            kind: draft.add_nodes(
                [(row["code"], node_type, row["name"], source) for row in vocabulary.filler(kind).rows(named=True)]
            )
            for kind, (node_type, source) in FILLER_TYPES.items()
        },
    )


def _link_disease(rng: np.random.Generator, draft: _Draft, nodes: _Nodes, disease: int, relation: str) -> None:
    if relation == "disease_protein":
        draft.link(relation, disease, rng.choice(nodes.fillers["gene"]))
    elif relation == "exposure_disease":
        draft.link(relation, rng.choice(nodes.fillers["exposure"]), disease)
    elif relation == "disease_disease":
        draft.link(relation, disease, rng.choice(nodes.diseases))
    else:
        draft.link(relation, rng.choice(nodes.drugs), disease)


def _link_drug(rng: np.random.Generator, draft: _Draft, nodes: _Nodes, drug: int, relation: str) -> None:
    if relation == "drug_protein":
        draft.link(relation, drug, rng.choice(nodes.fillers["gene"]), str(rng.choice(DRUG_PROTEIN_DISPLAY)))
    elif relation == "drug_drug":
        draft.link(relation, drug, rng.choice(nodes.drugs))
    else:
        draft.link(relation, drug, rng.choice(nodes.diseases))


def _link_fillers(rng: np.random.Generator, draft: _Draft, fillers: dict[str, list[int]]) -> None:
    for gene in fillers["gene"]:
        for relation, kind in (
            ("anatomy_protein_present", "anatomy"),
            ("bioprocess_protein", "process"),
            ("phenotype_protein", "phenotype"),
        ):
            for other in rng.choice(fillers[kind], 2, replace=False):
                draft.link(relation, other, gene)


def _edge_table(rng: np.random.Generator, draft: _Draft) -> pl.DataFrame:
    """Every edge in both directions, rows shuffled, as PrimeKG has them."""
    nodes = pl.DataFrame(draft.nodes, schema=["id", "type", "name", "source"], orient="row").with_row_index("index")
    forward = pl.DataFrame(list(draft.edges), schema=["relation", "display_relation", "x", "y"], orient="row")
    backward = forward.rename({"x": "y", "y": "x"}).select(forward.columns)
    both = pl.concat([forward, backward])
    table = both.select("relation", "display_relation").hstack(
        nodes.select(pl.all().name.prefix("x_"))[both["x"]].hstack(nodes.select(pl.all().name.prefix("y_"))[both["y"]])
    )
    return table[rng.permutation(table.height)].select(KG_COLUMNS)


def _references(vocabulary: WorldVocabulary) -> pl.DataFrame:
    """Dotted ICD-10-CM code -> disease id, in the format of TxGNN's mondo_references."""
    code = pl.col("code")
    dotted = pl.when(code.str.len_chars() > 3).then(code.str.head(3) + "." + code.str.slice(3)).otherwise(code)
    return vocabulary.conditions.select(
        ontology_id=dotted,
        ontology=pl.lit("ICD10"),  # as the real file names ICD-10-CM codes too
        mondo_id=pl.Series([str(FIRST_MONDO + i) for i in range(vocabulary.conditions.height)]),
    )
