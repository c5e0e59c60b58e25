"""A sixth system in one file: think, search, answer, in the manner of Search-R1. No file of GHAR was edited for it.

cd docs/examples && python ../../launch/train.py system=mine.searcher task=read system.searches=2
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ghar.config import Count
from ghar.data.cohort import Sample, Task
from ghar.data.tasks.splits import Splits
from ghar.data.views.visits import visit_list
from ghar.envs.records import Records
from ghar.envs.system import WORDS, Reader, System, Variant
from ghar.episode import Act, Completion, EpisodeGenerator, Prediction, ReasoningStep, Retrieve
from ghar.llm.parsing import parse_label
from ghar.retrieval.build import build_retriever
from ghar.rewards.outcome import score_outcome


@dataclass(frozen=True)
class Settings:
    name: str = "mine.searcher"
    searches: Count = 2  # at most, for a patient


@dataclass(frozen=True)
class Patient:
    sample_id: str
    subject_id: int
    text: str
    task: Task
    label: int


def episode(case: Patient, variant: Variant) -> EpisodeGenerator:
    """Think whether to search; search; answer."""
    history: tuple[ReasoningStep, ...] = ()
    for step in range(variant.spec):
        seen = f"{case.text}\nfound: {'; '.join(s.evidence for s in history) or 'nothing'}"
        move = yield Act("searcher", "think", f"think\n{seen}\nnext:", ("search", "answer"), step=step)
        if move.value != "search":
            break
        query = yield Act("searcher", "search", f"search\n{seen}\nquery:", max_tokens=12, step=step)
        evidence = yield Retrieve(query.value or case.text, None, 2)
        history = (*history, ReasoningStep(query.value, evidence.text, True, evidence=evidence.text))
    seen = f"{case.text}\nfound: {'; '.join(s.evidence for s in history) or 'nothing'}"
    prompt = f"{case.task.question}\n{seen}\nanswer, one of {', '.join(case.task.labels)}:"
    parse = partial(parse_label, labels=case.task.labels)
    reply = yield Act("searcher", "answer", prompt, max_tokens=6, step=len(history), parse=parse)
    return Prediction(reply.value, history)


@dataclass(frozen=True)
class Rule:
    """Searches once for the whole record, then gives the usual answer of the training patients."""

    usual: str

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._reply(act)) for act in acts]

    def _reply(self, act: Act) -> str:
        if act.role == "think":
            return "search" if act.step == 0 else "answer"
        return act.prompt.splitlines()[1] if act.role == "search" else self.usual


def build(records: Records, settings: Settings) -> System[Patient]:
    task, config = records.task, records.config

    def cut(reader: Reader) -> Splits[Patient]:
        env, parts = config.env, records.splits

        def case(s: Sample) -> Patient:
            view = visit_list(s, records.name_of, style=env.prompts, budget=env.history_tokens, count=reader.count)
            return Patient(s.sample_id, s.subject_id, view.text, task, s.label)

        return Splits(*(tuple(map(case, some)) for some in (parts.train, parts.valid, parts.test)))

    usual = task.labels[Counter(sample.label for sample in records.splits.train).most_common(1)[0][0]]
    searches = settings.searches
    known = [Variant("searcher", spec=searches), Variant("scripted", spec=searches, who="rule")]
    corpus = build_retriever(records.primekg, config.retriever.kind, cache=Path(config.data.cache) / "indexes")
    made = System(
        "mine.searcher", task, ("searcher",), ("think", "search", "answer"), cut(WORDS), episode, corpus,
        lambda done, case: score_outcome(done, case.label, config.reward.eta),
        {variant.name: variant for variant in known}, "searcher", ("searcher", "scripted"),
        lambda reader: replace(made, cases=cut(reader)), {"rule": lambda: Rule(usual)}, ("answer",), "rule",
        texts=lambda: [f"{task.question} think search answer found nothing next query one of", *task.labels]
        + [case.text for case in made.cases.train[:200]],
        generated=records.cohort.generated, credentialed=records.credentialed(records.cohort),
    )  # fmt: skip
    return made
