"""Are sub-queries grounded? Which of them name a condition, procedure or drug that no one has spoken of.

A sub-query is grounded when every entity it names stands in the record, in the question, or in the evidence found so
far (an interaction may lead to a drug that the patient does not take). Names are compared as words; nothing is known of
synonyms, so what a record calls by another name counts as ungrounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ghar.envs.case import NOT_SHOWN, Case
from ghar.envs.records import Records
from ghar.episode import Act, ReasoningStep, Reply
from ghar.kg.mentions import NameMatcher
from ghar.kg.names import plain

KINDS = ("disease", "drug")  # of nodes that a patient has: a gene or a phenotype may be asked about without it
ITEM = re.compile(r"[;\n]")  # between names of a record


def names_of(records: Records) -> NameMatcher:
    """The graph's diseases and drugs, and whatever codes the records show."""
    graph, kinds = records.primekg, set(KINDS)
    nodes = (name for name, kind in zip(graph.names, graph.type.tolist(), strict=True) if graph.types[kind] in kinds)
    codes = (name for code, name in records.names.items() if not code.startswith(NOT_SHOWN))
    return NameMatcher(frozenset(filter(None, map(plain, (*nodes, *codes)))) - {*KINDS, "disorder"})


def ungrounded(names: NameMatcher, act: Act, reply: Reply) -> list[str]:
    """The sub-queries of a reply to "rewrite" or "followup" that name what no one has spoken of by then."""
    written = queries(reply)
    if not written:
        return []
    spoken, ungrounded_queries = _spoken(act.facts["case"], act.facts["history"]), []
    for query in written:
        if any(f" {name} " not in spoken for name in names.named(query)):
            ungrounded_queries.append(query)
    return ungrounded_queries


def queries(reply: Reply) -> tuple[str, ...]:
    """The sub-queries of a reply: several of "rewrite", at most one of "followup"."""
    return ((reply.value,) if reply.value else ()) if isinstance(reply.value, str) else tuple(reply.value)


def counted(names: NameMatcher, act: Act, reply: Reply) -> tuple[int, int]:
    """(ungrounded sub-queries, all of them) of a reply, as rewards have it."""
    return len(ungrounded(names, act, reply)), len(queries(reply))


def _spoken(case: Case, history: Sequence[ReasoningStep]) -> str:
    """What names may come from, as words; " | " between items, over which no name reaches."""
    texts: Iterable[str] = (case.text, *case.topics, case.task.question, *(step.evidence for step in history))
    items = (plain(item) for text in texts for item in ITEM.split(text))
    return f" {' | '.join(items)} "
