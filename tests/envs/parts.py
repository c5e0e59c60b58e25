"""Cases, meta-paths, policies and corpora that the tests of this folder make episodes of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.ghar.episode import Ablation, GharEpisodes, GharSpec
from ghar.episode import Act, Completion, Evidence, Passage, Prediction, Reply, Retrieve
from ghar.kg.metapaths import MetaPath

LABELS = ("lowish", "midway", "topmost")
TASK = Task("stay", "How long will this stay last?", LABELS)
METAPATHS = tuple(MetaPath(i, f"head{i}", f"rel_{i}", f"tail{i}", f"relates {i} to") for i in range(5))


def make_case(number: int = 0, label: int = 0) -> Case:
    topics = (f"disease d{number}", f"drug m{number}")
    return Case(f"s{number}", number, number, f"conditions: d{number} | drugs: m{number}", topics, TASK, label)


def make_episodes(
    ablation: Ablation = "none", prompts: str = "compact", iterations: int = 4, paths: int = 3, rewrites: int = 3
) -> GharEpisodes:
    spec = GharSpec(prompts, rewrites, iterations, paths, top_n=1, ablation=ablation)  # type: ignore[arg-type]
    return GharEpisodes(spec, METAPATHS)


def evidence_for(request: Retrieve) -> Evidence:
    """Two passages that can be recognised anywhere."""
    where = "all" if request.partitions is None else "+".join(map(str, request.partitions))
    texts = (f"<found node {request.query} in {where}>", f"<found edge {request.query} in {where}>")
    return Evidence((Passage(texts[0], "node", -1, 1.0, 0), Passage(texts[1], "edge", -1, 1.0, 1)))


def drive(generator: Any, say: Callable[[Act], str]) -> tuple[list[Any], Prediction]:
    """Drive an episode by hand: its effects in order, and what it returns. say: the reply to an act."""
    effects, value = [], None
    while True:
        try:
            effect = generator.send(value)
        except StopIteration as stop:
            return effects, stop.value
        effects.append(effect)
        if isinstance(effect, Act):
            text = say(effect)
            parsed = effect.parse(text)
            value = Reply(Completion(text), parsed.value, parsed.error)
        else:
            value = evidence_for(effect)


@dataclass
class Corpus:
    """Answers everything with `evidence_for` and remembers the batches."""

    batches: list[list[Retrieve]] = field(default_factory=list)

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        self.batches.append(list(requests))
        return [evidence_for(request) for request in requests]


REPLIES = {
    "rewrite": ("a; b; c", "a", "", "b; b; d; e", "c\na"),
    "retrieve": ("yes", "no", "yes", "perhaps"),
    "metapaths": ("0 1", "4 4 9", "none", "9", "3 2 1 0"),
    "summarise": ("it is bad", "", "nothing new"),
    "answer": ("I know", "no idea"),
    "continue": ("continue", "terminate", "continue", "hm"),
    "followup": ("a", "f", "g\nh", "", "i"),
    "predict": (*LABELS, "answer: midway", "cannot say"),
}


class Drawn:
    """A policy whose every reply is drawn with the act's seed alone. Remembers the sizes of its batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        self.sizes.append(len(acts))
        return [self._one(act, seed) for act, seed in zip(acts, seeds, strict=True)]

    def _one(self, act: Act, seed: int) -> Completion:
        said = REPLIES[act.role]
        return Completion(said[int(np.random.default_rng(seed).integers(len(said)))], (1,), (2, 3), (-0.5, -0.5))
