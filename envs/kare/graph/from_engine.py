"""Sources (b), a corpus, and (c), a language model: triples that an engine writes down (Appendices B.2 and B.3, KARE).

Differences from the paper are of wording alone: prompts are ours, and lists are asked for in JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ghar.envs.kare.graph.abstracts import Abstracts
from ghar.envs.kare.graph.answers import Extracted, read_triples
from ghar.envs.kare.graph.concepts import ConceptSets
from ghar.envs.kare.graph.triples import Triple, concept_name
from ghar.llm.cached_llm import CachedQuestion, LlmAnswers, LlmCost, ask
from ghar.llm.engine import Engine
from ghar.llm.prompts import load_prompts
from ghar.progress import track

VISITS, QUESTIONS, TEXTS = "triples", "questions", "texts"  # sets of prompts
KINDS = ("abstract", "concepts")  # their roles
ABSTRACTS, MOST, HOPS, TRIES = 3, 10, 3, 3  # n = 3, at most 10 triples a text (B.2), 3 hops (B.3); tries are ours
CHUNK = 1_024  # concept sets whose abstracts are looked for at once


class AbstractSearch(Protocol):
    """Abstracts that can be asked for the nearest ones, as envs/kare/retrieval/abstract_corpus.py has them."""

    @property
    def abstracts(self) -> Abstracts: ...

    def nearest(self, queries: Sequence[str], n: int) -> list[list[tuple[int, float]]]: ...


@dataclass(frozen=True)
class EnginePart:
    """of: concept -> triples of its graph. failed: question -> why its last answer could not be read. dropped: items of
    readable lists that are no triples; surplus: triples beyond the limit of a text; without: readable answers without a
    triple."""

    of: dict[str, set[Triple]]
    cost: LlmCost
    failed: dict[str, str]
    dropped: int
    surplus: int
    without: int


def corpus_part(
    sets: ConceptSets,
    about: Sequence[Sequence[str]],
    corpus: AbstractSearch,
    engine: Engine,
    store: Path,
    seed: int,
    prompts: str = VISITS,
) -> EnginePart:
    """Source (b): triples of the `ABSTRACTS` abstracts nearest to each of the lists of concepts `about`.

    A question is one abstract with the concepts of one list. A triple goes to the graph of every concept of the cohort
    that the abstract mentions: by name, or because a triple of the answer names it.

    prompts: VISITS, QUESTIONS or TEXTS, which the lists are of.
    """
    template = load_prompts("ghar.envs.kare", prompts, KINDS)["abstract"]
    row_of: dict[str, int] = {}
    questions = []
    for names, rows in _nearest(about, corpus):
        for row in rows:
            key = f"{corpus.abstracts.ids[row]}/{_digest(names)}"
            prompt = template.render(text=corpus.abstracts.texts[row], concepts="; ".join(names), most=MOST)
            row_of[key] = row
            questions.append(CachedQuestion(key, prompt, template.max_tokens))
    answers = ask(
        engine, questions, store, read_triples, seed=seed, tries=TRIES, title="Extract triples from abstracts"
    )
    mentions = NameFinder(sets.names)
    in_text = {row: mentions.of(corpus.abstracts.texts[row]) for row in set(row_of.values())}

    def owners(key: str, triples: Sequence[Triple]) -> dict[str, Iterable[Triple]]:
        named = {entity for triple in triples for entity in (triple.head, triple.tail) if entity in sets.number}
        return dict.fromkeys(in_text[row_of[key]] | named, triples)

    return _part(answers, owners, MOST)


def model_part(
    about: Sequence[Sequence[str]], engine: Engine, store: Path, seed: int, prompts: str = VISITS
) -> EnginePart:
    """Source (c): what the engine knows of each of the lists of concepts `about`; a concept of the list gets the
    triples within `HOPS` hops of it in that answer. prompts: as in `corpus_part`."""
    template = load_prompts("ghar.envs.kare", prompts, KINDS)["concepts"]
    concepts_of = {_digest(names): names for names in about}
    questions = [
        CachedQuestion(key, template.render(concepts="; ".join(names)), template.max_tokens)
        for key, names in concepts_of.items()
    ]
    answers = ask(
        engine, questions, store, read_triples, seed=seed, tries=TRIES, title="Extract triples from the model"
    )

    def owners(key: str, triples: Sequence[Triple]) -> dict[str, Iterable[Triple]]:
        return {concept: around(concept, triples, HOPS) for concept in concepts_of[key]}

    return _part(answers, owners, None)


def around(concept: str, triples: Iterable[Triple], hops: int) -> list[Triple]:
    """The triples that can be reached from an entity within `hops` hops, in either direction."""
    left, reachable, reached = list(triples), [], {concept}
    for _ in range(hops):
        here = [triple for triple in left if triple.head in reached or triple.tail in reached]
        if not here:
            break
        left = [triple for triple in left if triple.head not in reached and triple.tail not in reached]
        reachable += here
        reached = {entity for triple in here for entity in (triple.head, triple.tail)}
    return reachable


class NameFinder:
    """Finds the names of concepts in a text: whole words, longer names as well as those inside them."""

    def __init__(self, names: Iterable[str]):
        self.names = {tuple(name.split()): name for name in names}
        self.lengths = sorted({len(words) for words in self.names})

    def of(self, text: str) -> set[str]:
        words = concept_name(text).split()
        spans = (tuple(words[i : i + n]) for n in self.lengths for i in range(len(words) - n + 1))
        return {self.names[span] for span in spans if span in self.names}


def _nearest(about: Sequence[Sequence[str]], corpus: AbstractSearch) -> Iterable[tuple[Sequence[str], list[int]]]:
    """Each list of concepts and the rows of its nearest abstracts."""
    for begin in track(range(0, len(about), CHUNK), "Find abstracts of concept sets"):
        names = about[begin : begin + CHUNK]
        hits = corpus.nearest([", ".join(concepts) for concepts in names], ABSTRACTS)
        yield from ((concepts, [row for row, _ in near]) for concepts, near in zip(names, hits, strict=True))


def _part(
    answers: LlmAnswers[Extracted],
    owners: Callable[[str, Sequence[Triple]], dict[str, Iterable[Triple]]],
    most: int | None,
) -> EnginePart:
    """The triples of all answers by the concept that `owners` gives them to, at most `most` of an answer."""
    of: dict[str, set[Triple]] = {}
    surplus = 0
    for key, extracted in answers.values.items():
        triples = extracted.triples[:most]
        surplus += len(extracted.triples) - len(triples)
        for concept, own in owners(key, triples).items():
            of.setdefault(concept, set()).update(own)
    dropped = sum(extracted.dropped for extracted in answers.values.values())
    without = sum(not extracted.triples for extracted in answers.values.values())
    return EnginePart(of, answers.cost, answers.failed, dropped, surplus, without)


def _digest(names: Sequence[str]) -> str:
    return hashlib.blake2b("; ".join(names).encode(), digest_size=12).hexdigest()
