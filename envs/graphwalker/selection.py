"""GraphWalker's search (Algorithm 1) as an episode: Agent-Selector picks the examples, and earns what they inform.

The frontier starts with a patient's anchors. At each step the agent names one of its candidates, or stops; the
candidate joins the examples S and its neighbours join the frontier. A pick is worth its information gain, by how much
it lowers H(x | S) in nats. The paper's rule takes the highest gain: the fixed policy to beat, since a pick of less gain
may open the way to better ones.

H comes from a scorer of sets, which may be any function of a patient and examples (`ScoredByFunction`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import (
    Selection,
    Shots,
    WalkStep,
)
from ghar.envs.graphwalker.selectors.search import DIGITS, gain_of
from ghar.envs.rollout import Corpus
from ghar.envs.stepper import Scene
from ghar.episode import (
    Act,
    Episode,
    EpisodeGenerator,
    Evidence,
    Parsed,
    Passage,
    Prediction,
    Reply,
    Retrieve,
)
from ghar.llm.prompts import load_prompts
from ghar.rewards.compose import EpisodeReward

AGENTS, ROLES = ("selector",), ("pick",)
STOP = "stop"


@dataclass(frozen=True, eq=False)
class WalkStart:
    """Where a walk begins: the patient to choose examples for.

    anchors: rows of the pool. near: the neighbours of a row that may be shown to the patient. likeness: float64 [n],
    cosine of each row to the patient. unit: float32 [n, d], the rows at length 1.
    """

    sample_id: str
    anchors: Shots
    near: Callable[[int], Iterable[int]]
    likeness: np.ndarray
    unit: np.ndarray
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class MeasureSets(Retrieve):
    """Ask for H(x | S) of each of `sets`, x being the patient with the sample_id `query`."""

    sets: tuple[Shots, ...]


@dataclass(frozen=True)
class WalkPrediction(Prediction):
    """The examples that were chosen; there is no label."""

    selection: Selection = field(default_factory=lambda: Selection(()))


@dataclass(frozen=True)
class WalkSpec:
    """budget: examples at most, the paper's K. measured: whether every candidate's gain is measured before a pick and
    shown, as the paper's search does; otherwise only what is picked is measured."""

    budget: int
    measured: bool = True


class WalkEpisodes:
    """Makes episodes."""

    def __init__(self, spec: WalkSpec):
        self.spec = spec
        self.template = load_prompts("ghar.envs.graphwalker", "walk", ROLES)["pick"]

    def episode(self, case: WalkStart) -> EpisodeGenerator:
        """The chosen examples; a reply that is no candidate ends the walk as "stop" does."""
        shots, steps, scored = (), [], 1
        entered = {int(row): 0 for row in case.anchors}
        [start] = yield from _measure(case, ((),))
        start = current = round(start, DIGITS)
        while len(shots) < self.spec.budget and (frontier := tuple(sorted(entered.keys() - set(shots)))):
            gains: dict[int, float] = {}
            if self.spec.measured:
                gains = yield from self._gains(case, current, shots, frontier)
            facts = {"case": case, "shots": shots, "frontier": frontier, "gains": gains, "entered": dict(entered)}
            reply: Reply = yield self._pick(facts | {"earned": gain_of(start, current)})
            row: int | None = reply.value
            if row is not None and not self.spec.measured:
                gains = yield from self._gains(case, current, shots, (row,))
            scored += len(gains)
            if row is None:
                break
            steps.append(WalkStep(row, gains[row], frontier))
            current, shots = gain_of(current, gains[row]), (*shots, row)
            for other in case.near(row):
                entered.setdefault(int(other), len(shots))
        selection = Selection(shots, tuple(step.gain for step in steps), scored, case.anchors, tuple(steps))
        return WalkPrediction(None, selection=selection)

    def _gains(
        self, case: WalkStart, current: float, shots: Shots, rows: Shots
    ) -> Generator[MeasureSets, Evidence, dict[int, float]]:
        values = yield from _measure(case, tuple((*shots, row) for row in rows))
        return {row: gain_of(current, value) for row, value in zip(rows, values, strict=True)}

    def _pick(self, facts: Mapping[str, Any]) -> Act:
        case, frontier, gains = facts["case"], facts["frontier"], facts["gains"]
        notes = {row: f", {gain:.4f}" for row, gain in gains.items()}
        lines = [f"{row}: {case.likeness[row]:.3f}{notes.get(row, '')}" for row in frontier]
        prompt = self.template.render(
            patient=case.sample_id,
            budget=self.spec.budget,
            chosen=", ".join(map(str, facts["shots"])) or "(none)",
            columns="likeness to the patient" + (", information gain in nats" if gains else ""),
            candidates="\n".join(lines),
        )
        choices = (STOP, *map(str, frontier))
        parse = partial(_read, choices)
        return Act("selector", "pick", prompt, choices, self.template.max_tokens, len(facts["shots"]), parse, facts)


def _read(choices: Sequence[str], reply: str) -> Parsed:
    choice = reply.strip()
    if choice not in choices:
        return Parsed(None, "no_candidate")
    return Parsed(None if choice == STOP else int(choice))


def _measure(case: WalkStart, sets: tuple[Shots, ...]) -> Generator[MeasureSets, Evidence, list[float]]:
    evidence = yield MeasureSets(case.sample_id, None, len(sets), sets=sets)
    return [passage.score for passage in evidence.passages]


def walk_scene(episodes: WalkEpisodes, corpus: Corpus, cases: Sequence[WalkStart]) -> Scene:
    """The walk on `cases`; a pick is rewarded at once."""
    return Scene("GraphWalker", AGENTS, ROLES, cases, episodes.episode, corpus, _reward, _earned)


def _earned(act: Act) -> float:
    return act.facts["earned"]


def _reward(episode: Episode, case: WalkStart) -> EpisodeReward:
    prediction = episode.prediction
    gains = prediction.selection.gains if isinstance(prediction, WalkPrediction) else ()
    per_turn = tuple({"gain": gain} for gain in gains) + tuple({} for _ in episode.turns[len(gains) :])
    return EpisodeReward({"gain": sum(gains)}, sum(gains), per_turn, "shared")


@dataclass(frozen=True)
class ScoredByFunction:
    """A corpus that knows H(x | S) of each patient as a function of S."""

    entropies: Mapping[str, Callable[[Shots], float]]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        return [evidence_of(r, [self.entropies[r.query](shots) for shots in sets_of(r)]) for r in requests]


def sets_of(request: Retrieve) -> tuple[Shots, ...]:
    if not isinstance(request, MeasureSets):
        raise TypeError(f"a scorer of examples answers MeasureSets, not {request!r}")
    return request.sets


def evidence_of(request: Retrieve, values: Sequence[float]) -> Evidence:
    passages = []
    for shots, value in zip(sets_of(request), values, strict=True):
        label = " ".join(map(str, shots)) or "no example"
        passages.append(Passage(f"{label}: {value:.4f} nats", "set", -1, float(value), shots[-1] if shots else -1))
    return Evidence(tuple(passages))
