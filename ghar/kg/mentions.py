"""Names of a graph's nodes in free text, as whole words, the longest first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ghar.kg.graph import KnowledgeGraph
from ghar.kg.names import plain

OWN_FORM = re.compile(r"(?:disease|drug|gene)\s+(.+)", re.DOTALL)  # how compact prompts word a sub-query
KINDS = {"disease": "disease", "drug": "drug", "effect/phenotype": "phenotype"}  # type of nodes -> word before a name
SHORTEST = 4  # letters of a name that stands for itself in a text: "all" and "mi" do not
NO_NAMES = frozenset({"disease", "drug", "disorder", "syndrome", "pain", "death", "water", "oxygen"})


@dataclass(frozen=True, eq=False)
class NameMatcher:
    """Match `names` in texts as whole words, the longest first."""

    names: frozenset[str]
    longest: dict[str, int] = field(default_factory=dict)  # first word -> most words of a name that begins with it

    def __post_init__(self) -> None:
        for name in self.names:
            words = name.split()
            self.longest[words[0]] = max(len(words), self.longest.get(words[0], 0))

    def named(self, query: str) -> tuple[str, ...]:
        """The names in a sub-query, from left to right. Of "disease NAME" it is NAME, though no one knows it."""
        mentions = self.mentioned(query)
        own = OWN_FORM.fullmatch(query.strip())
        return mentions if mentions or own is None else (plain(own[1]),)

    def mentioned(self, text: str) -> tuple[str, ...]:
        """The names in a text, from left to right."""
        words, mentions, at = plain(text).split(), [], 0
        while at < len(words):
            most = min(self.longest.get(words[at], 0), len(words) - at)
            size = next((n for n in range(most, 0, -1) if " ".join(words[at : at + n]) in self.names), 0)
            mentions += [" ".join(words[at : at + size])] if size else []
            at += size or 1
        return tuple(mentions)


@dataclass(frozen=True, eq=False)
class Mentions:
    """Diseases, drugs and phenotypes of a graph, as a text mentions them.

    topics: plain name -> the word of its kind and the node's name, "disease Heart failure".
    """

    topics: Mapping[str, str]
    matcher: NameMatcher

    def topics_in(self, text: str) -> tuple[str, ...]:
        """What a text mentions, from left to right, each once."""
        return tuple(dict.fromkeys(self.topics[name] for name in self.matcher.mentioned(text)))


def mentions_of(graph: KnowledgeGraph) -> Mentions:
    """The names to look for; of nodes with one name the first of the kinds above is meant."""
    kinds = [KINDS.get(kind) for kind in graph.types]
    named = sorted(
        (list(KINDS.values()).index(kind), plain(name), f"{kind} {name}")
        for name, number in zip(graph.names, graph.type.tolist(), strict=True)
        if (kind := kinds[number]) is not None
    )
    topics: dict[str, str] = {}
    for _, name, topic in named:
        if len(name) >= SHORTEST and name not in NO_NAMES:
            topics.setdefault(name, topic)
    return Mentions(topics, NameMatcher(frozenset(topics)))
