"""Policies that decide on navigation's observations, for the rollout: so they are evaluated beside all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ghar.envs.ghar.navigation import CLUES, DECISIONS, FIRST, PASSAGES, PHASES, QUANTITIES, Chart
from ghar.episode import Act, Completion
from ghar.kg.metapaths import MetaPath
from ghar.llm.policy import Policy

Decide = Callable[[np.ndarray, np.ndarray, Sequence[str]], Sequence[int]]


class Navigator:
    """A policy of the rollout whose decisions are made on navigation's observations, as `decide(observations
    [n, width], masks [n, actions], agents) -> actions` says; whatever else is asked, `words` answers."""

    def __init__(self, chart: Chart, decide: Decide, words: Policy, agents: Sequence[str]):
        self.chart, self.decide, self.words = chart, decide, words
        self.roles = {role for agent in agents for role in DECISIONS[agent]}

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        replies: dict[int, str] = {}
        picked: dict[int, tuple[int, ...]] = {i: () for i, act in enumerate(acts) if act.role in self.roles}
        while waiting := [i for i in picked if i not in replies]:
            both = [self.chart.observe(acts[i], picked[i]) for i in waiting]
            seen, masks = np.stack([b[0] for b in both]), np.stack([b[1] for b in both])
            for i, action in zip(waiting, self.decide(seen, masks, [acts[i].agent for i in waiting]), strict=True):
                text, picked[i] = self.chart.reply(acts[i], int(action), picked[i])
                if text is not None:
                    replies[i] = text
        others = [i for i in range(len(acts)) if i not in picked]
        words = self.words.answer([acts[i] for i in others], [seeds[i] for i in others]) if others else []
        answered = dict(zip(others, words, strict=True))
        return [answered[i] if i in answered else Completion(replies[i]) for i in range(len(acts))]


@dataclass(frozen=True)
class NavigationRule:
    """Decisions by hand: look up what is unknown, on the right meta-path and `fillers` others (R_path pays for every
    valid one); stop once no unknown topic is left or a grade of `enough` is known.

    right: meta-path of a condition, of a drug and of a protein.
    """

    chart: Chart
    right: tuple[int, int, int]
    fillers: int
    enough: int

    def __call__(self, seen: np.ndarray, masks: np.ndarray, agents: Sequence[str]) -> list[int]:
        return [self._one(row, mask) for row, mask in zip(seen, masks, strict=True)]

    def _one(self, row: np.ndarray, mask: np.ndarray) -> int:
        phase = PHASES[int(row[: len(PHASES)].argmax())]
        is_ = dict(zip(QUANTITIES, row[len(PHASES) :], strict=False))
        if phase == "retrieve":
            return int(not is_["known"])
        if phase == "continue":
            return int(is_["unasked"] > 0 and round(9 * is_["highest"]) < self.enough)
        if phase == "summarise":
            edge, own, stated, target = row[-CLUES * PASSAGES :].reshape(PASSAGES, CLUES).T.astype(bool)
            wanted = edge & own & (stated | target)
            return FIRST + int(wanted.argmax()) if wanted.any() else 0
        right = FIRST + self.right[int(is_["drug"] + 2 * is_["gene"])]
        if mask[right]:
            return right
        enough = round(is_["picked"] * self.chart.paths) > self.fillers
        return 0 if enough else FIRST + int(mask[FIRST:].argmax())


def rules(chart: Chart, metapaths: Sequence[MetaPath]) -> list[NavigationRule]:
    """The rules worth comparing; the best of them is the scripted optimum."""
    relations = chart.knowledge.relations
    ids = {path.relation: path.index for path in metapaths}
    right = ids[relations["disease"]], ids[relations["drug"]], ids[relations["gene"]]
    return [NavigationRule(chart, right, fillers, enough) for fillers in range(chart.paths) for enough in (7, 8, 9, 10)]
