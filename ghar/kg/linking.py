"""Link the codes of patient records to nodes: cross-references first, then names.

Most codes of real records have no node (docs/data.md), so an unlinked code is counted and is no error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.errors import BadInput
from ghar.kg.drug_names import ingredient
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.names import (
    diagnosis_key,
    diagnosis_parts,
    disease_key,
    drug_candidates,
    names_organ,
    names_severity,
    plain,
    without_stage,
)
from ghar.kg.paths import PathGraph

RULES = ("reference_exact", "reference_parent", "name", "drug_exact", "drug_stripped")
PARTS = ("name_part", "drug_ingredient")  # further rules, for what charts write beside a name
MEMBER = "member"  # a group of codes leads to the node of its members
GROUPED = "MONDO_grouped"  # source of nodes that hold several diseases under the name of one

# Vocabulary of our codes -> ontology of the references. Procedures have none.
ONTOLOGIES = {"ICD9CM": "ICD9", "ICD10CM": "ICD10"}
DIAGNOSES = (*ONTOLOGIES, "EICU_DIAGNOSIS")
TREATMENTS = "EICU_TREATMENT"  # paths whose last parts often name a drug
# Codes that describe a circumstance ("personal history of", "place of occurrence") and no present disease.
CIRCUMSTANCES = re.compile("^(ICD9CM/[EV]|ICD10CM/[V-Z])")
# Words that make a disease a special one; a node with such a word needs it in the description.
NARROWING = frozenset(
    "anaplastic autosomal childhood congenital dominant familial febrile hereditary inborn inclusion inherited "
    "infantile juvenile linked medullary neonatal newborn recessive recurrent sporadic susceptibility viral bacterial "
    "maturation young".split()
)
# A code of what its siblings do not name ("Other specified diseases of pancreas"): its reference is any one of these.
RESIDUAL = re.compile("^other (?!.*unspecified)", re.IGNORECASE)
REFERENCE_COLUMNS = ("ontology_id", "ontology", "mondo_id")

OPPOSITES = ("acute", "chronic")
ACTS_ON = re.compile(r"\b(antagonist|agonist|blocker|inhibitor)s?\b", re.IGNORECASE)  # of a class of drugs
ROOT = 6  # letters of a word that two words have in common when they mean the same thing
HALF = 0.5  # of the words of a node's name, which a code whose parent leads to it has at least, and a residual code
THIRD = 1 / 3  # of them, which a code has at least that leads to several nodes

References = Mapping[tuple[str, str], tuple[int, ...]]


@dataclass(frozen=True)
class Links:
    """nodes: code -> node; rules: code -> the rule of `RULES` that linked it; counts: rule -> codes, and "unlinked"."""

    nodes: Mapping[str, int]
    rules: Mapping[str, str]
    counts: Mapping[str, int]

    def respelled(self, described: Mapping[str, str], graph: KnowledgeGraph | PathGraph) -> dict[str, str]:
        """Text of every code as a chart describes it, in the node's letter case where only the case differs.

        For generated worlds, whose rules read names letter by letter.
        """
        texts = chart_names(described)
        own = {code: graph.names[node] for code, node in self.nodes.items() if code in texts}
        return texts | {code: name for code, name in own.items() if name.lower() == texts[code].lower()}

    def node_names(self, described: Mapping[str, str], graph: KnowledgeGraph | PathGraph) -> dict[str, str]:
        """Chart text -> name of the linked node, where the two differ: for retrieval only.

        Codes of one text may lead to several nodes; the first code in the alphabet decides.
        """
        names: dict[str, str] = {}
        for code, text in sorted(chart_names(described).items()):
            node = self.nodes.get(code)
            if node is not None and graph.names[node].lower() != text.lower():
                names.setdefault(text, graph.names[node])
        return names


def chart_names(described: Mapping[str, str]) -> dict[str, str]:
    """Text of every code as the chart has it, without ";", which separates names of a list in prompts."""
    return {code: text.replace(";", ",") for code, text in described.items()}


def link_codes(codes: pl.DataFrame, graph: KnowledgeGraph, references: Path | None) -> Links:
    """Link each code to at most one node.

    codes: columns code ("ICD10CM/I509", "DRUG/metoprolol tartrate") and description. references: csv with ontology_id,
    ontology, mondo_id, or None. In order: an ICD code by its own cross-reference, then by that of its nearest parent;
    any code but a drug by a disease's or phenotype's name; a drug by name, as written, then without strength, form
    and salt. Where a reference names several nodes, the one whose name is likest the description is taken. A choice
    among several, a parent's reference and a grouped node count only when the names share a word: a residual code
    ("other specified ...") would otherwise become some rare disease, and PrimeKG's node "hemoglobinopathy" holds acute
    myocardial infarction. Of real charts also by a part of the name ("name_part": `diagnosis_parts`), by the
    ingredient that an order names ("drug_ingredient"), and of a treatment's path by the drug at its end.
    `BadInput` when a table lacks a column.
    """
    missing = [c for c in ("code", "description") if c not in codes.columns]
    if missing:
        raise BadInput(f"the table of codes lacks the column {missing[0]}; it needs code and description.")
    crossed = _references(references, graph) if references is not None else {}
    kinds = ("disease", "effect/phenotype")
    diseases, drugs = _names(graph, kinds, disease_key), _names(graph, ("drug",), plain)
    parts = _names(graph, kinds, diagnosis_key)
    nodes: dict[str, int] = {}
    rules: dict[str, str] = {}
    for code, description in codes.select("code", "description").unique("code", maintain_order=True).rows():
        vocabulary, _, local = code.partition("/")
        if vocabulary == "DRUG":
            hit = _link_drug(local, drugs) or _link_ingredient(local, drugs)
        elif vocabulary == TREATMENTS:
            hit = _link_name(description or "", diseases) or _link_treatment(local, drugs)
        else:
            hit = _link_reference(vocabulary, local, description or "", crossed, graph)
            hit = hit or _link_name(description or "", diseases)
            if vocabulary in DIAGNOSES and not CIRCUMSTANCES.match(code):
                hit = _by_words(hit, _link_part(description or "", parts), description or "", graph)
        if hit is not None:
            rules[code], nodes[code] = hit
    counts = Counter(rules.values())
    total = codes["code"].n_unique()
    more = {rule: counts[rule] for rule in PARTS if counts[rule]}
    return Links(nodes, rules, {rule: counts[rule] for rule in RULES} | more | {"unlinked": total - len(nodes)})


def link_groups(links: Links, members: pl.DataFrame, own: Links) -> Links:
    """Link groups of codes (CCS, ATC), of which graphs have few, to the node that most of their events lead to.

    links: of the groups themselves, which stay. members: code, target (the group), events. own: links of the members.
    Ties go to the lower node; a group whose members have no node stays unlinked.
    """
    ballots: dict[str, Counter[int]] = defaultdict(Counter)
    for code, group, events in members.select("code", "target", "events").iter_rows():
        if code in own.nodes and group not in links.nodes:
            ballots[group][own.nodes[code]] += events
    group_nodes = {group: min(votes, key=lambda node: (-votes[node], node)) for group, votes in ballots.items()}
    counts = {**links.counts, MEMBER: len(group_nodes), "unlinked": links.counts["unlinked"] - len(group_nodes)}
    return Links({**links.nodes, **group_nodes}, {**links.rules, **dict.fromkeys(group_nodes, MEMBER)}, counts)


def _references(path: Path, graph: KnowledgeGraph) -> References:
    """(ontology, code without dots) -> the nodes of the graph it refers to, ascending."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; kg.references must name a csv with {', '.join(REFERENCE_COLUMNS)}.")
    try:
        table = pl.read_csv(path, infer_schema=False, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason, columns = str(error).splitlines()[0], ", ".join(REFERENCE_COLUMNS)
        raise BadInput(
            f"{path} is not a readable csv or csv.gz file ({reason}): kg.references must name one with {columns}."
        ) from None
    missing = [c for c in REFERENCE_COLUMNS if c not in table.columns]
    if missing:
        raise BadInput(f"{path} lacks the column {missing[0]}; it needs {', '.join(REFERENCE_COLUMNS)}.")
    mondo = _mondo_nodes(graph)
    references: dict[tuple[str, str], set[int]] = defaultdict(set)
    rows = table.filter(pl.col.ontology.is_in(list(ONTOLOGIES.values()))).select(REFERENCE_COLUMNS).drop_nulls()
    for code, ontology, number in rows.rows():
        # Ranges such as "A00-A09" are chapters; "+" and "*" mark the two sides of a dagger pair.
        if "-" not in code and (node := mondo.get(number.lstrip("0"))) is not None:
            references[ontology, re.sub(r"[^A-Z0-9]", "", code.upper())].add(node)
    return {key: tuple(sorted(nodes)) for key, nodes in references.items()}


def _mondo_nodes(graph: KnowledgeGraph) -> dict[str, int]:
    """MONDO number -> node. PrimeKG groups some diseases into one node with the id "1_2_3"; a node of its own wins."""
    single, grouped = {}, {}
    for node, (identity, source) in enumerate(zip(graph.ids, graph.source.tolist(), strict=True)):
        if graph.sources[source] == "MONDO":
            single[identity.lstrip("0")] = node
        elif graph.sources[source] == GROUPED:
            grouped.update({part.lstrip("0"): node for part in identity.split("_")})
    return grouped | single


def _names(graph: KnowledgeGraph, types: Iterable[str], key: Callable[[str], str]) -> dict[str, int]:
    """Normalised name -> node; among equals the earlier type wins, then the lower node."""
    names: dict[str, int] = {}
    for kind in types:
        if kind in graph.types:
            for node in (graph.type == graph.types.index(kind)).nonzero()[0].tolist():
                names.setdefault(key(graph.names[node]), node)
    names.pop("", None)
    return names


def _link_reference(
    vocabulary: str, local: str, description: str, references: References, graph: KnowledgeGraph
) -> tuple[str, int] | None:
    ontology = ONTOLOGIES.get(vocabulary)
    if ontology is None:
        return None
    code = re.sub(r"[^A-Z0-9]", "", local.upper())
    # A category has three characters, in ICD-9's chapter E four.
    shortest = 4 if ontology == "ICD9" and code.startswith("E") else 3
    for length in range(len(code), min(shortest, len(code)) - 1, -1):
        nodes = references.get((ontology, code[:length]))
        nodes = tuple(node for node in nodes or () if not _is_narrower(node, description, graph))
        if nodes:
            exact = length == len(code)
            node, shared = _closest(description, nodes, graph)
            alone = exact and len(nodes) == 1 and not _is_grouped(node, graph) and _alike(description, node, graph)
            if RESIDUAL.match(description) and _shared_roots(description, node, graph) < HALF:
                continue
            if alone or shared >= (THIRD if exact else HALF):
                return ("reference_exact" if exact else "reference_parent"), node
    return None


def _alike(description: str, node: int, graph: KnowledgeGraph) -> bool:
    """Whether a description has a word or a part of one in common with a node's name, or says nothing but its code.

    "Hypopotassemia" and "potassium deficiency disease" have; "GI bleeding" and "active peptic ulcer disease" have not.
    """
    words, named = (diagnosis_key(text).split() for text in (description, graph.names[node]))
    roots = {word[i : i + ROOT] for word in named for i in range(len(word) - ROOT + 1)}
    if description.isdigit() or set(words) & set(named):
        return True
    return any(root in word for root in roots for word in words)


def _shared_roots(description: str, node: int, graph: KnowledgeGraph) -> float:
    """Which share of the words of a node's name the description has, or a part of them."""
    words, named = (diagnosis_key(text).split() for text in (description, graph.names[node]))
    roots = [{word[i : i + ROOT] for i in range(max(len(word) - ROOT, 0) + 1)} for word in named]
    alike = sum(any(root in word for root in own for word in words) for own in roots)
    return alike / max(len(named), 1)


def _is_narrower(node: int, description: str, graph: KnowledgeGraph) -> bool:
    """Whether a node is a special form of a disease ("familial atrial fibrillation") of which a description says
    nothing, one with a number ("multinodular goiter 1"), the acute form of a chronic one, or what a description says
    that it is not ("non-infectious")."""
    name, words = set(plain(graph.names[node]).split()), set(plain(description).split())
    opposite = any(one in name - words and other in words for one, other in (OPPOSITES, OPPOSITES[::-1]))
    if "non" not in name:
        opposite |= any(f"non {word}" in plain(description) or f"non{word}" in words for word in name)
    return opposite or any(word in NARROWING or word.isdigit() for word in name - words)


def _is_grouped(node: int, graph: KnowledgeGraph) -> bool:
    return graph.sources[int(graph.source[node])] == GROUPED


def _closest(description: str, nodes: tuple[int, ...], graph: KnowledgeGraph) -> tuple[int, float]:
    """The node whose name is likest the description (Jaccard of words, ties to the lowest), and which share of the
    words of its name the description has."""
    wanted = set(disease_key(description).split())

    def likeness(node: int) -> float:
        words = set(disease_key(graph.names[node]).split())
        return len(words & wanted) / max(len(words | wanted), 1)

    node = max(nodes, key=lambda node: (likeness(node), -node))
    words = set(disease_key(graph.names[node]).split())
    return node, len(words & wanted) / max(len(words), 1)


def _link_name(description: str, diseases: Mapping[str, int]) -> tuple[str, int] | None:
    node = diseases.get(disease_key(description))
    return None if node is None else ("name", node)


def _link_drug(name: str, drugs: Mapping[str, int]) -> tuple[str, int] | None:
    for i, reading in enumerate(drug_candidates(name)):
        if reading in drugs:
            return ("drug_stripped" if i else "drug_exact"), drugs[reading]
    return None


def _link_part(description: str, diseases: Mapping[str, int]) -> tuple[str, int] | None:
    """By the first reading of a diagnosis that is a node's name, as it stands or without words of stage or side."""
    for part in diagnosis_parts(description):
        if names_severity(part, description):
            continue
        key = diagnosis_key(part)
        for reading in (key, without_stage(key)):
            if reading in diseases and not names_organ(reading):
                return "name_part", diseases[reading]
    return None


def _by_words(
    hit: tuple[str, int] | None, part: tuple[str, int] | None, description: str, graph: KnowledgeGraph
) -> tuple[str, int] | None:
    """The link by a chart's words in place of a parent's reference, or of one that shares no word with them."""
    if hit is None or part is None or hit[0] == "name":
        return hit or part
    words, text_words = set(diagnosis_key(graph.names[hit[1]]).split()), set(diagnosis_key(description).split())
    written = set(diagnosis_key(graph.names[part[1]]).split())
    if not words & text_words or written == text_words != words:
        return part
    last = set(diagnosis_key(description.rpartition(",")[2]).split())  # of a path, which says most
    if written == last and not words & last:
        return part
    whole = words <= text_words and len(words) >= len(written)
    return part if hit[0] == "reference_parent" and not whole else hit


def _link_ingredient(text: str, drugs: Mapping[str, int]) -> tuple[str, int] | None:
    """By the ingredient that a text names."""
    match = ingredient(text, drugs.__contains__)
    return None if match is None else ("drug_ingredient", drugs[match[1]])


def _link_treatment(path: str, drugs: Mapping[str, int]) -> tuple[str, int] | None:
    """By the drug in the last parts of a path, below its organ system and category. A part that names what drugs act
    on, as "thrombin inhibitor" or "serotonin antagonist", names none."""
    parts = [part for part in reversed(path.split("|")[2:]) if not ACTS_ON.search(part)]
    hits = (_link_ingredient(part, drugs) for part in parts)
    return next((hit for hit in hits if hit is not None), None)
