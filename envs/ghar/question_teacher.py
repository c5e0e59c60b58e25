"""A scripted reader of the graph that teaches medical questions. It knows no answer: it looks for the option that facts
about the question's entities name, so the warm-up keeps the episodes in which this led to the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ghar.envs.case import Case
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Act, Completion, Evidence, ReasoningStep
from ghar.kg.mentions import KINDS
from ghar.kg.names import FILLERS, plain

WORDS_OF = {word: kind for kind, word in KINDS.items()}  # word before a topic's name -> type of node
NOTHING = "nothing found"


class QuestionTeacher:
    """Policy that retrieves facts about what a question mentions, in its order, until one names an option."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        """One reply an act; seeds decide between options that facts name equally often."""
        return [Completion(self._reply(act, seed)) for act, seed in zip(acts, seeds, strict=True)]

    def _reply(self, act: Act, seed: int) -> str:
        case: Case = act.facts["case"]
        history: tuple[ReasoningStep, ...] = act.facts["history"]
        if act.role == "rewrite":
            return "\n".join(case.topics[:3]) or _last_sentence(case)
        if act.role == "retrieve":
            return "yes" if act.facts["query"] in case.topics else "no"
        if act.role == "metapaths":
            return " ".join(map(str, _paths(case, act.facts["query"], act.facts["metapaths"])))
        if act.role == "summarise":
            return _finding(case, act.facts["query"], act.facts["evidence"] or Evidence())
        if act.role == "answer":
            return NOTHING
        left = [topic for topic in case.topics if topic not in [step.query for step in history]]
        if act.role == "continue":
            return "terminate" if not left or max(named_options(case, history)) > 0 else "continue"
        if act.role == "followup":
            return (left or [_last_sentence(case)])[0]
        chosen = _chosen(case, history, seed)
        return chosen if act.prompt.rstrip().endswith("answer:") else f"answer: {chosen}"


def with_question_teacher(made: System[None]) -> System[None]:
    """GHAR whose teacher reads questions; fitted baselines on codes do not stand beside it."""
    return made.adapt(_taught)


def _taught(made: System[None]) -> System[None]:
    return replace(
        made,
        fixed={"teacher": QuestionTeacher},
        training=replace(made.training, pretraining=None),
        report=replace(made.report, baselines=None),
        truth=replace(made.truth, decisions=None),
    )


def named_options(case: Case, history: Sequence[ReasoningStep]) -> list[int]:
    """How many telling words of each option the findings have, of those that the question itself has not."""
    stem, options = _parts(case)
    words = {word for step in history for word in plain(step.answer).split()} - set(plain(stem).split()) - FILLERS
    return [len(words & set(plain(option).split())) for option in options]


def _chosen(case: Case, history: Sequence[ReasoningStep], seed: int) -> str:
    named = named_options(case, history)
    best = [i for i, count in enumerate(named) if count == max(named)]
    return case.task.labels[best[derive_seed(seed, case.sample_id) % len(best)]]


def _finding(case: Case, query: str, evidence: Evidence) -> str:
    """Of the facts about the query's entity the one that names most of an option."""
    name = f" {plain(query.partition(' ')[2])} "
    own = [passage.text for passage in evidence.passages if name in f" {plain(passage.text)} "]
    return max(own, key=lambda text: max(named_options(case, [ReasoningStep("", text, True)])), default=NOTHING)


def _paths(case: Case, query: str, menu: Sequence[Any]) -> list[int]:
    """Meta-paths from the kind of the query's entity, first those that lead to the kinds that options are of."""
    kind = WORDS_OF.get(query.split(" ", 1)[0], "")
    options = "\n".join(_parts(case)[1])
    wanted = [WORDS_OF[word] for topic in case.topics if (word := topic.split(" ", 1)[0]) in WORDS_OF
              and plain(topic.split(" ", 1)[1]) in plain(options)]  # fmt: skip
    own = [path for path in menu if getattr(path, "head_type", kind) == kind]
    own.sort(key=lambda path: getattr(path, "tail_type", "") not in wanted)
    return [path.index for path in own[:3]]


def _parts(case: Case) -> tuple[str, list[str]]:
    """The question without its options, and the options without their letters."""
    lines = case.text.split("\n")
    size = len(case.task.labels)
    return "\n".join(lines[:-size]), [line.partition(". ")[2] for line in lines[-size:]]


def _last_sentence(case: Case) -> str:
    return _parts(case)[0].rstrip().split("\n")[-1].split(". ")[-1]
