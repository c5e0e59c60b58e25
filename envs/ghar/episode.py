"""GHAR's episode: Algorithm 1 of the paper as one generator.

Agent-Top rewrites the question into sub-queries, decides for each whether to retrieve and over which meta-paths,
and whether to go on; Agent-Low summarises what was found. Both share the model and are trained as one MDP.

Ablations of Table VII are switches of the same text: "ni" (one round on the original query), "nt" (no Agent-Top:
always retrieve, from the whole graph, never decide), "nl" (no Agent-Low: raw evidence is the answer, as much of it as
a summary could have been long), "nm" (whole graph instead of meta-paths).
"ns" (separate rewards) is a matter of rewards, not of the episode.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar

from ghar.envs.case import Case
from ghar.envs.ghar.joined_sources import MenuPart
from ghar.envs.system import Variant
from ghar.episode import (
    Act,
    EpisodeGenerator,
    Evidence,
    Options,
    Prediction,
    ReasoningStep,
    Reply,
    Retrieve,
    RetrieveFor,
    as_text,
)
from ghar.llm.parsing import (
    PathChoice,
    parse_choice,
    parse_label,
    parse_path_ids,
    parse_queries,
    parse_query,
    parse_summary,
)
from ghar.llm.prompts import load_prompts

AGENTS = ("top", "low")
ROLES = ("rewrite", "retrieve", "metapaths", "summarise", "answer", "continue", "followup", "predict")
DIRECT = "direct"  # the full prompts' prediction from the record alone, which speaks of nothing that was worked out
Ablation = Literal["none", "ni", "nt", "nl", "nm"]
Decision = Literal["learned", "always", "never", "everyone"]
Wording = Literal["records", "questions", "summaries"]  # what full prompts call the text that is asked about


class Partition(Protocol):
    """What Agent-Top chooses among: a `MetaPath`, or a `CommunityPart` where the corpus is communities (KARE)."""

    @property
    def index(self) -> int: ...

    @property
    def text(self) -> str: ...


P = TypeVar("P", bound=Partition)
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class GharSpec:
    """The paper sets K=3 rewrites, at most 3 meta-paths and N=1 per partition, and leaves the iterations I open.

    decision: whether to retrieve is asked of Agent-Top, or fixed, in training too: baselines of "when to retrieve".
        "everyone": always, and of every source a line.
    wording: see `Wording`; a summary is a text and names no label.
    fixed: exactly `max_iterations` retrievals, in place of both decisions of Agent-Top (Fig. 9b). Where no sub-query is
        left, the original query is asked.
    summary_tokens: of a summary, None as its prompt file has it. It bounds what NL passes on without one."""

    prompts: Literal["full", "compact"]
    rewrites: int
    max_iterations: int
    max_paths: int
    top_n: int
    ablation: Ablation
    decision: Decision = "learned"
    wording: Wording = field(default="records", repr=False)  # repr() names the packaged base model's recipe
    fixed: bool = field(default=False, repr=False)
    summary_tokens: int | None = field(default=None, repr=False)

    @property
    def templates(self) -> str:
        """The folder of the prompts. Compact ones name no patient, and serve questions too."""
        if self.wording == "summaries" or (self.wording == "questions" and self.prompts == "full"):
            return self.wording
        return self.prompts

    @property
    def before_label(self) -> str:
        """What the prompts ask to be written before a label."""
        return "answer: " if self.prompts == "full" and self.wording != "summaries" else ""


class GharEpisodes(Generic[P]):
    """Makes episodes over one set of meta-paths (O_meta), or of other partitions of a corpus.

    whom: in place of the decision to retrieve and of a free choice of partitions, groups of ids for a case: of each
    group Agent-Top chooses one (envs/ghar/routing.py). No groups: nothing is retrieved."""

    def __init__(self, spec: GharSpec, metapaths: Sequence[P], whom: Callable[[Case], Groups] | None = None):
        self.spec = spec
        self.whom = whom
        self.metapaths = tuple(metapaths)
        self.personal = any(isinstance(part, MenuPart) for part in self.metapaths)
        self.templates = load_prompts("ghar.envs.ghar", spec.templates, roles_of(spec.templates))
        self._menu = "\n".join(f"{path.index} {path.text}" for path in self.metapaths)

    def episode(self, case: Case) -> EpisodeGenerator:
        """Algorithm 1: returns the predicted label and the reasoning history H_rea."""
        spec, history = self.spec, ()
        queries = deque((yield from self._queries(case)))  # Eq. 5
        asked = set(queries)
        while (queries or spec.fixed) and len(history) < spec.max_iterations:
            query = queries.popleft() if queries else case.text
            if (yield from self._wants_retrieval(case, query, history)):  # a^{T,1}, Eq. 7
                step = yield from self._retrieve(case, query, history)
            else:
                answer = yield self._act(case, "top", "answer", history, query=query, parse=parse_summary)
                step = ReasoningStep(query, answer.value, retrieved=False)
            history = (*history, step)
            if spec.ablation == "nt" or len(history) == spec.max_iterations:
                continue
            if (yield from self._enough(case, query, history)):  # a^{T,2}, Eqs. 7 and 13
                break
            follow_up = yield self._act(case, "top", "followup", history, query=query, parse=parse_query)
            if follow_up.value and follow_up.value not in asked:
                asked.add(follow_up.value)
                queries.append(follow_up.value)
        final = yield self._predict(case, history)
        truncated = len(history) == spec.max_iterations and not spec.fixed
        return Prediction(self._label(final), history, truncated=truncated)

    def direct(self, case: Case) -> EpisodeGenerator:
        """The prediction from the record alone."""
        final = yield self._predict(case, ())
        return Prediction(self._label(final))

    def _label(self, final: Reply) -> int | None:
        """The label that a reply names; 0 for a summary that was written."""
        if self.spec.wording == "summaries":
            return 0 if final.value else None
        return final.value

    def _predict(self, case: Case, history: tuple[ReasoningStep, ...]) -> Act:
        if self.spec.wording == "summaries":
            return self._act(case, "top", "predict", history)
        labels = case.task.labels
        options = Options(tuple(labels))
        parse = partial(parse_label, labels=labels)
        return self._act(case, "top", "predict", history, options=options, parse=parse)

    def _queries(self, case: Case):
        if self.spec.ablation == "ni":
            return (case.text,)
        limit = self.spec.rewrites
        reply = yield self._act(case, "top", "rewrite", (), parse=lambda text: parse_queries(text, limit))
        return reply.value or (case.text,)  # unreadable: the original query q^0 stands alone

    def _wants_retrieval(self, case: Case, query: str, history: tuple[ReasoningStep, ...]):
        if self.whom is not None:
            return bool(self.whom(case))
        if self.spec.fixed or self.spec.ablation == "nt" or self.spec.decision != "learned":
            return self.spec.decision != "never"
        choices = ("yes", "no")
        decision: Reply = yield self._act(case, "top", "retrieve", history, query=query, choices=choices)
        return decision.value == "yes"

    def _retrieve(self, case: Case, query: str, history: tuple[ReasoningStep, ...]):
        spec = self.spec
        if spec.ablation in ("nt", "nm"):
            chosen, partitions = PathChoice(()), None
        elif self.whom is not None:
            chosen = yield from self._one_of_each(case, query, history, self.whom(case))
            partitions = chosen.ids
        else:
            n, most = len(self.metapaths), spec.max_paths
            reply = yield self._act(
                case, "top", "metapaths", history, query=query, parse=lambda text: parse_path_ids(text, n, most),
                options=Options(tuple(map(str, range(n))), most, "", " ", alone=True),
            )  # fmt: skip
            chosen: PathChoice = reply.value
            partitions = chosen.ids
        evidence = Evidence()
        if partitions is None or partitions:
            # who is asked about matters to some sources; a graph answers everyone alike
            evidence = yield (
                RetrieveFor(query, partitions, spec.top_n, case.sample_id)
                if self.personal
                else Retrieve(query, partitions, spec.top_n)
            )  # Eq. 10
        if spec.ablation == "nl":
            answer = first_words(evidence.text, room_of_summary(self))
        else:
            summary = yield self._act(
                case, "low", "summarise", history, query=query, evidence=evidence, parse=parse_summary
            )  # Eq. 11
            answer = summary.value
        return ReasoningStep(query, answer, True, chosen.ids, chosen.errors, chosen.duplicates, evidence.text)

    def _one_of_each(self, case: Case, query: str, history: tuple[ReasoningStep, ...], groups: Groups):
        """One id of each group, as engines choose among given replies; what is none of them is an error."""
        ids, errors = [], 0
        for group in groups:
            choices = tuple(map(str, group))
            reply = yield self._act(case, "top", "metapaths", history, query=query, choices=choices)
            errors += reply.value is None
            ids += [] if reply.value is None else [int(reply.value)]
        return PathChoice(tuple(ids), errors)

    def _enough(self, case: Case, query: str, history: tuple[ReasoningStep, ...]):
        if self.spec.fixed:
            return False
        if self.spec.ablation == "ni":
            return True
        choices = ("terminate", "continue")
        decision: Reply = yield self._act(case, "top", "continue", history, query=query, choices=choices)
        return decision.value == "terminate"

    def _act(
        self,
        case: Case,
        agent: str,
        role: str,
        history: tuple[ReasoningStep, ...],
        *,
        query: str = "",
        evidence: Evidence | None = None,
        choices: tuple[str, ...] = (),
        parse: Any = as_text,
        options: Options | None = None,
    ) -> Act:
        template = self.templates[DIRECT if role == "predict" and not history and DIRECT in self.templates else role]
        prompt = template.render(
            task=case.task.name,
            question=case.task.question,
            labels=", ".join(case.task.labels),
            patient=case.text,
            history=self._history(history),
            query=query,
            metapaths=self._menu,
            max_paths=self.spec.max_paths,
            rewrites=self.spec.rewrites,
            evidence=self._evidence(evidence or Evidence()),
        )
        if choices:
            parse = _one_of(choices)
        facts = {"case": case, "query": query, "history": history, "evidence": evidence, "metapaths": self.metapaths}
        return Act(agent, role, prompt, choices, template.max_tokens, len(history), parse, facts, options)

    def _evidence(self, evidence: Evidence) -> str:
        lines = "\n".join(f" {passage.text}" for passage in evidence.passages)
        return lines or ("" if self.spec.prompts == "compact" else "(nothing found)")

    def _history(self, history: tuple[ReasoningStep, ...]) -> str:
        if self.spec.prompts == "compact":
            return "known: " + ("; ".join(step.answer for step in history) or "nothing")
        lines = [f"{i}. {step.query}\n   {step.answer}" for i, step in enumerate(history, 1)]
        return "\n".join(lines) or "(nothing yet)"


def roles_of(templates: str) -> tuple[str, ...]:
    """What a set of prompts holds: compact ones show an empty history in a word."""
    return ROLES if templates == "compact" else (*ROLES, DIRECT)


def room_of_summary(episodes: GharEpisodes[Any]) -> int:
    """Words of raw evidence that NL passes on: as many as a summary may have tokens."""
    return episodes.spec.summary_tokens or episodes.templates["summarise"].max_tokens


def first_words(text: str, most: int) -> str:
    """The beginning of a text, up to the end of its word number `most`."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    return text if len(ends) <= most else text[: ends[most - 1]]


def play_ghar(case: Case, variant: Variant) -> EpisodeGenerator:
    """A case as a variant plays it, whose spec is a `GharEpisodes`."""
    return variant.spec.episode(case)


def _one_of(choices: tuple[str, ...]):
    return lambda reply: parse_choice(reply, choices)
