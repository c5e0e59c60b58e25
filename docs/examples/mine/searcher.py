"""A sixth system in one file: think, search, answer, in the manner of Search-R1. No file of GHAR was edited for it.

cd docs/examples && python ../../launch/train.py system=mine.searcher task=read system.searches=2
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ghar.config import Count
from ghar.envs.case import Case
from ghar.envs.graph_system import graph_system, usual_label
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.episode import Act, EpisodeGenerator, Prediction, ReasoningStep, Retrieve
from ghar.llm.parsing import parse_label


@dataclass(frozen=True)
class Settings:
    name: str = "mine.searcher"
    searches: Count = 2  # at most, for a patient


def episode(case: Case, settings: Settings) -> EpisodeGenerator:
    """Think whether to search; search; answer."""
    history: tuple[ReasoningStep, ...] = ()
    for step in range(settings.searches):
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


def rule(act: Act, usual: str) -> str:
    """Search once for the whole record, then give the usual answer of the training patients."""
    if act.role == "think":
        return "search" if act.step == 0 else "answer"
    return act.prompt.splitlines()[1] if act.role == "search" else usual


def build(records: Records, settings: Settings) -> System:
    known = partial(rule, usual=usual_label(records))
    return graph_system(records, settings, episode, known, agents=("searcher",), roles=("think", "search", "answer"))
