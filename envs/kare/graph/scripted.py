"""The demo world's extractor: what a model would be asked to do, done by rule.

From an abstract it takes the sentences of one fact that name a listed concept, as any reader could. Asked for its own
knowledge it recites the configured graph: facts between listed concepts, facts that join two of them over another
entity, and effects; of a generated graph, where all of it is GENERATED, also courses, for a drug those behind the
proteins that it meets. It knows no patient and no world, so it extracts from a real graph for real patients, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable

from ghar.envs.kare.graph.triples import Triple, concept_name, make_triple
from ghar.envs.worlds.severity.graph import CARRIER, TARGET
from ghar.kg.graph import KnowledgeGraph

VERBS = (
    "takes a", "leads to a", "is given for", "should be avoided in", "is associated with", "is linked to",
    "is a target of", "is an? enzyme of", "is a carrier of", "is a transporter of",
)  # fmt: skip
FACT = re.compile(rf"^(.+?) ({'|'.join(VERBS)}) (.+?)\.?$")
COURSE = re.compile(r"grade \d+ course")
MEETS = (TARGET, CARRIER)  # a drug's proteins behind which a course can stand
MOST = re.compile(r"At most (\d+) facts")


def scripted_extractor(graph: KnowledgeGraph) -> Callable[[str], str]:
    """The reply to a prompt of prompts/triples; ValueError for another prompt."""
    facts, phenotypes = _facts(graph)

    def reply(prompt: str) -> str:
        _, marker, listed = prompt.rpartition("Concepts:\n")
        if not marker:
            raise ValueError("the scripted extractor was asked something else than triples")
        concepts = set(listed.split("\n", 1)[0].split("; "))
        most = MOST.search(prompt)
        if most is None:
            triples = _select_triples(concepts, facts, phenotypes)
        else:
            text = prompt.partition("\nText:\n")[2].partition("\n\nConcepts:\n")[0]
            triples = _read(text, concepts)[: int(most[1])]
        return json.dumps(triples)

    return reply


def _facts(graph: KnowledgeGraph) -> tuple[dict[str, list[Triple]], set[str]]:
    """Entity -> the facts it is part of, and the names of the graph's phenotypes."""
    names = [concept_name(name) for name in graph.names]
    facts: dict[str, list[Triple]] = {}
    columns = (graph.head.tolist(), graph.display.tolist(), graph.tail.tolist())
    for head, display, tail in zip(*columns, strict=True):
        triple = make_triple(names[head], graph.displays[display], names[tail])
        if triple is not None:
            facts.setdefault(triple.head, []).append(triple)
            facts.setdefault(triple.tail, []).append(triple)
    phenotype = graph.types.index("effect/phenotype") if "effect/phenotype" in graph.types else -1
    return facts, {name for name, kind in zip(names, graph.type.tolist(), strict=True) if kind == phenotype}


def _select_triples(concepts: set[str], facts: dict[str, list[Triple]], phenotypes: set[str]) -> list[Triple]:
    own = {concept: facts.get(concept, []) for concept in sorted(concepts)}
    ends = {concept: {_other(triple, concept) for triple in triples} for concept, triples in own.items()}
    shared = Counter(end for neighbours in ends.values() for end in neighbours)
    wanted = concepts | phenotypes | {end for end, count in shared.items() if count > 1}
    answer: list[Triple] = []
    for concept, triples in own.items():
        for triple in triples:
            other = _other(triple, concept)
            behind = _courses(facts, other) if triple.relation in MEETS else []
            if other in wanted or behind:
                answer += [_course(triple, concept), *behind]
    return list(dict.fromkeys(answer))


def _courses(facts: dict[str, list[Triple]], entity: str) -> list[Triple]:
    """What the graph says of an entity's course."""
    return [_course(triple, entity) for triple in facts.get(entity, []) if COURSE.fullmatch(_other(triple, entity))]


def _course(triple: Triple, entity: str) -> Triple:
    """A course as the entity's own, "grade 7 course of gout": all that share a grade are no community, and would part
    a disease from what it is like."""
    other = _other(triple, entity)
    return Triple(entity, triple.relation, f"{other} of {entity}") if COURSE.fullmatch(other) else triple


def _other(triple: Triple, entity: str) -> str:
    return triple.tail if triple.head == entity else triple.head


def _read(text: str, concepts: set[str]) -> list[Triple]:
    triples = []
    for sentence in re.split(r"(?<=\.)\s+", text):
        fact = FACT.match(sentence)
        triple = make_triple(fact[1], re.sub(r" an?$", "", fact[2]), fact[3]) if fact else None
        if triple is not None and (triple.head in concepts or triple.tail in concepts):
            triples.append(triple)
    return triples
