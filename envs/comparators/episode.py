"""The comparators of GHAR's evaluation, each an episode over the same knowledge graph (our reading of each, in our
words; their own repositories differ in corpus and prompts).

direct      the label from the record alone ("LLM only")
cot         a chain of thought, then the label (Wei et al. 2022)
rag         one look-up with the record as the query in the whole graph, raw (classic RAG)
search_r1   think, search, answer: one agent searches as often as it likes, raw evidence (Jin et al. 2025)
lightrag    keywords of two levels: entities, asked in the whole graph, and relations, asked in those partitions whose
            name they share (Guo et al. 2024)
medrag      facts of the graph that set the patient's conditions apart from each other (Zhao et al. 2025)
pair        an extractor writes down what matters of one look-up, a responder predicts (as ER-MedRAG)
fixed_N     N searches, no more and no fewer (GHAR, Fig. 9b)
pruned_M    M where the agent wants a look-up, else the label from the record alone
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from ghar.envs.case import Case
from ghar.envs.comparators.settings import Method
from ghar.envs.system import Variant
from ghar.episode import (
    Act,
    EpisodeGenerator,
    Evidence,
    Options,
    Parsed,
    Passage,
    Prediction,
    ReasoningStep,
    Retrieve,
    as_text,
)
from ghar.llm.parsing import parse_choice, parse_label
from ghar.llm.prompts import load_prompts

AGENTS = ("agent",)
ROLES = ("think", "want", "search", "keywords", "extract", "predict")
DIRECT = "direct"  # the prompt of a prediction from the record alone, which names no further evidence
WANTS = ("yes", "no")
ASKED = re.compile(r"^\s*search\s*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
LEVELS = re.compile(r"(entities|relations)\s*:\s*([^|\n]*)", re.IGNORECASE)
SEARCH = Options(("search:", "answer"), head="", open=("search:",))
KEYWORDS = Options(("entities:",), head="", open=("entities:",))
EVIDENCE = 864  # words: six summaries of 192 tokens at most, on which an answer of GHAR stands (envs/ghar)
PAIR = 24  # words of a node and an edge together, about
ABOVE = "the text above"  # in place of a query that is the record itself
TOPICS = 4  # conditions and drugs that medrag sets apart, the newest visit's first


class PathPartition(Protocol):
    """A meta-path of the graph."""

    @property
    def index(self) -> int: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Spec:
    """What all methods share. words: of raw evidence that a look-up shows; None: a method's share of `EVIDENCE`.
    top_n: nodes and edges a look-up gives at least. wording: what full prompts call the text that is asked about."""

    prompts: Literal["full", "compact"]
    max_iterations: int
    words: int | None
    top_n: int
    wording: Literal["records", "questions", "summaries"] = "records"

    @property
    def templates(self) -> str:
        """The folder of the prompts. Compact ones name no patient, and serve questions too."""
        if self.wording == "summaries" or (self.wording == "questions" and self.prompts == "full"):
            return self.wording
        return self.prompts

    def words_of(self, method: Method) -> int:
        """Words that one look-up of a method shows: all methods may show alike before they answer."""
        return self.words or EVIDENCE // _lookups(method, self.max_iterations)

    def passages_of(self, method: Method) -> int:
        """Nodes, and edges, to ask for, so that there are words enough."""
        return max(self.top_n, -(-self.words_of(method) // PAIR))


def _lookups(method: Method, searches: int) -> int:
    if method.startswith("fixed_"):
        return int(method.removeprefix("fixed_"))
    return {"search_r1": searches, "lightrag": 2, "medrag": TOPICS}.get(method, 1)


@dataclass(frozen=True)
class ComparatorVariant:
    """`Variant.spec`: a method, and whether the agent may do without. direct: samples that are answered from the record
    alone, as SFT on pruned data has them."""

    method: Method
    pruned: bool = False
    direct: Container[str] = frozenset()


class Comparators:
    """Makes the episodes of every method."""

    def __init__(self, spec: Spec, partitions: Sequence[PathPartition]) -> None:
        self.spec = spec
        self.partitions = tuple(partitions)
        self.templates = load_prompts("ghar.envs.comparators", spec.templates, (*ROLES, DIRECT))

    def episode(self, case: Case, variant: Variant) -> EpisodeGenerator:
        """The label, and what was looked up on the way."""
        played: ComparatorVariant = variant.spec
        history: tuple[ReasoningStep, ...] = ()
        if case.sample_id not in played.direct and (not played.pruned or (yield from self._wants(case))):
            history = yield from self._gather_evidence(case, played.method)
        if self.spec.wording == "summaries":
            text = yield self._act(case, "predict", history)
            return Prediction(0 if text.value else None, history)
        labels = tuple(case.task.labels)
        parse = partial(parse_label, labels=labels)
        final = yield self._act(case, "predict", history, parse=parse, options=Options(labels))
        return Prediction(final.value, history)

    def _gather_evidence(self, case: Case, method: Method):
        """What a method adds to the record."""
        if method == "cot":
            thought = yield self._act(case, "think", ())
            return (ReasoningStep("think", thought.value or "", retrieved=False),)
        if method in ("rag", "pair"):
            evidence = yield Retrieve(case.text, None, self.spec.passages_of(method))
            if method == "rag":
                return (self._raw(method, case.text, evidence),)
            extraction = yield self._act(case, "extract", (), evidence=evidence)
            return (ReasoningStep(case.text, extraction.value or "", True, (), 0, 0, evidence.text),)
        if method == "lightrag":
            return (yield from self._two_levels(case))
        if method == "medrag":
            return (yield from self._apart(case))
        if method == "search_r1":
            return (yield from self._searches(case, method, 0, self.spec.max_iterations))
        if method.startswith("fixed_"):
            rounds = int(method.removeprefix("fixed_"))
            return (yield from self._searches(case, method, rounds, rounds))
        return ()  # direct

    def _wants(self, case: Case):
        reply = yield self._act(case, "want", (), choices=WANTS)
        return reply.value == "yes"

    def _searches(self, case: Case, method: Method, fewest: int, most: int):
        """Search until the agent is ready to answer; before `fewest` searches it is asked again by its record."""
        history: tuple[ReasoningStep, ...] = ()
        while len(history) < most:
            reply = yield self._act(case, "search", history, parse=parse_search, options=SEARCH)
            query = reply.value
            if not query and len(history) >= fewest:
                break
            evidence = yield Retrieve(query or case.text, None, self.spec.passages_of(method))
            history = (*history, self._raw(method, query or case.text, evidence))
        return history

    def _two_levels(self, case: Case):
        reply = yield self._act(case, "keywords", (), parse=parse_keywords, options=KEYWORDS)
        entities, relations = reply.value or ((), ())
        steps, passages = [], self.spec.passages_of("lightrag")
        if entities or not relations:
            query = "; ".join(entities) or case.text
            steps.append(self._raw("lightrag", query, (yield Retrieve(query, None, passages))))
        wanted = {word for relation in relations for word in relation.lower().split()}
        fitting = tuple(p.index for p in self.partitions if wanted & set(re.findall(r"[a-z]+", p.text.lower())))
        if fitting:
            query = "; ".join((*entities, *relations))
            steps.append(self._raw("lightrag", query, (yield Retrieve(query, fitting, passages)), fitting))
        return tuple(steps)

    def _apart(self, case: Case):
        """One look-up a condition or drug; what several of them are told is no difference and is left out."""
        evidence_by_topic = []
        for topic in case.topics[:TOPICS]:
            evidence_by_topic.append((topic, (yield Retrieve(topic, None, self.spec.passages_of("medrag")))))
        times = Counter(passage.ident for _, evidence in evidence_by_topic for passage in evidence.passages)
        return tuple(
            self._raw("medrag", topic, Evidence(tuple(p for p in evidence.passages if times[p.ident] == 1)))
            for topic, evidence in evidence_by_topic
        )

    def _raw(self, method: Method, query: str, evidence: Evidence, paths: tuple[int, ...] = ()) -> ReasoningStep:
        text = self._cut(evidence, self.spec.words_of(method))
        return ReasoningStep(query, text, True, paths, 0, 0, evidence.text)

    def _cut(self, evidence: Evidence, words: int) -> str:
        """The first words of what was found, whole passages."""
        kept: list[Passage] = []
        for passage in evidence.passages:
            if kept and sum(len(p.text.split()) for p in (*kept, passage)) > words:
                break
            kept.append(passage)
        return "; ".join(passage.text for passage in kept) or "nothing found"

    def _act(
        self,
        case: Case,
        role: str,
        history: tuple[ReasoningStep, ...],
        *,
        evidence: Evidence | None = None,
        choices: tuple[str, ...] = (),
        parse: Callable[[str], Parsed] = as_text,
        options: Options | None = None,
    ) -> Act:
        template = self.templates[DIRECT if role == "predict" and not history else role]
        evidence_text = "" if evidence is None else self._cut(evidence, self.spec.words_of("pair"))
        prompt = template.render(
            task=case.task.name, question=case.task.question, labels=", ".join(case.task.labels), patient=case.text,
            history=self._history(case, history), evidence=evidence_text,
        )  # fmt: skip
        if choices:
            parse = partial(parse_choice, choices=choices)
        facts = {"case": case, "history": history, "evidence": evidence, "shown": evidence_text}
        return Act("agent", role, prompt, choices, template.max_tokens, len(history), parse, facts, options)

    def _history(self, case: Case, history: tuple[ReasoningStep, ...]) -> str:
        if self.spec.prompts == "compact":
            return "known: " + ("; ".join(step.answer for step in history) or "nothing")
        asked = [(ABOVE if step.query == case.text else step.query, step.answer) for step in history]
        lines = [f"{i}. {query}\n   {answer}" for i, (query, answer) in enumerate(asked, 1)]
        return "\n".join(lines) or "(nothing yet)"


def parse_search(reply: str) -> Parsed:
    """The query after the last "search:", None for a reply that says "answer"; another reply is an error and ends the
    search."""
    asked = ASKED.findall(reply)
    if asked:
        return Parsed(asked[-1])
    return Parsed(None) if "answer" in reply.lower() else Parsed(None, "no_search" if reply.strip() else "empty")


def parse_keywords(reply: str) -> Parsed:
    """(entities, relations) of "entities: a; b | relations: c"; error "no_keywords" for a reply without any."""
    keywords: dict[str, tuple[str, ...]] = {}
    for level, words in LEVELS.findall(reply):
        keywords[level.lower()] = tuple(word.strip() for word in words.split(";") if word.strip())
    levels = keywords.get("entities", ()), keywords.get("relations", ())
    return Parsed(levels) if any(levels) else Parsed(None, "no_keywords" if reply.strip() else "empty")
