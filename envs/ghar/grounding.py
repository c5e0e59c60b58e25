"""Are sub-queries grounded? Which of them name a condition, procedure or drug that no one has spoken of.

A sub-query is grounded when every entity it names stands in the record, in the question, or in the evidence found so
far (an interaction may lead to a drug that the patient does not take). Names are compared as words; nothing is known of
synonyms, so what a record calls by another name counts as ungrounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ghar.envs.case import NOT_SHOWN, Case
from ghar.envs.records import Records
from ghar.episode import Act, ReasoningStep, Reply
from ghar.kg.names import plain

KINDS = ("disease", "drug")  # of nodes that a patient has: a gene or a phenotype may be asked about without it
OWN_FORM = re.compile(r"(?:disease|drug|gene)\s+(.+)", re.DOTALL)  # how compact prompts word a sub-query
ITEM = re.compile(r"[;\n]")  # between names of a record


@dataclass(frozen=True, eq=False)
class NameMatcher:
    """Known names, found in texts as whole words, the longest first."""

    known: frozenset[str]
    longest: dict[str, int] = field(default_factory=dict)  # first word -> most words of a name that begins with it

    def __post_init__(self) -> None:
        for name in self.known:
            words = name.split()
            self.longest[words[0]] = max(len(words), self.longest.get(words[0], 0))

    def named(self, query: str) -> tuple[str, ...]:
        """The names in a sub-query, from left to right. Of "disease NAME" it is NAME, though no one knows it."""
        words, found, at = plain(query).split(), [], 0
        while at < len(words):
            most = min(self.longest.get(words[at], 0), len(words) - at)
            size = next((n for n in range(most, 0, -1) if " ".join(words[at : at + n]) in self.known), 0)
            found += [" ".join(words[at : at + size])] if size else []
            at += size or 1
        own = OWN_FORM.fullmatch(query.strip())
        return tuple(found) if found or own is None else (plain(own[1]),)


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
    spoken = _spoken(act.facts["case"], act.facts["history"])
    return [query for query in written if not all(f" {name} " in spoken for name in names.named(query))]


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
