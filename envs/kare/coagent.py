"""EHR-CoAgent (Cui et al. 2024) as KARE's authors rebuilt it for their Table 2 (Appendix C of KARE).

A predictor answers training cases; a critic reads its wrong answers in batches and rewrites the guidelines, one list a
batch; the lists are consolidated, again and again, until one is left that is shorter than ten; the next round predicts
with it. After five rounds the guidelines are used at test time. With a regulator, the predictor reads throughout how
often each outcome occurs here, without which it chases the rare one (Table 5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.episode import NOTHING, KarePrediction, KareReading
from ghar.episode import Episode
from ghar.llm.cached_llm import LONGEST, CachedQuestion, LlmCost, UnreadableAnswer, ask
from ghar.llm.engine import Engine
from ghar.llm.prompts import Template, load_prompts

ROLES = ("critic", "consolidate")
MOST = 10  # the final list is shorter than this (Appendix C)
MARKER = re.compile(r"(?:\d{1,4}[.)]|[-*])\s+")  # of a point
TRUTH = re.compile(r"ground[\s-]*truth|\b(?:true|real|correct|actual) (?:label|outcome|answer)|really happened", re.I)

Play = Callable[[Sequence[Case[KareReading]], str, int], list[Episode]]
Points = tuple[str, ...]
Wrong = tuple[Case[KareReading], Episode]


@dataclass(frozen=True)
class CoagentSpec:
    """rounds: the paper's five. cases: training cases a round, drawn anew for each. batch: wrong predictions that the
    critic reads at once. merged: lists consolidated at once. The paper leaves the last three open."""

    rounds: int = 5
    cases: int = 200
    batch: int = 10
    merged: int = 8


@dataclass(frozen=True)
class CoagentRound:
    """One round: how the predictor did with the guidelines it began with, and what became of them.

    right, wrong, unreadable: answers of the predictor. lists: how many the critic wrote; failed: question -> why it has
    no usable answer after all tries. points: the guidelines it ended with.
    """

    right: int
    wrong: int
    unreadable: int
    lists: int
    failed: Mapping[str, str]
    points: Points


@dataclass(frozen=True)
class Guidelines:
    """What was learned. advice: the last guidelines as prompts show them, with the regulator. cost: of the critic."""

    advice: str
    rounds: tuple[CoagentRound, ...]
    cost: LlmCost


def learn_guidelines(
    play: Play,
    critic: Engine,
    cases: Sequence[Case[KareReading]],
    first: Points,
    store: Path,
    spec: CoagentSpec,
    *,
    regulated: bool,
    seed: int,
) -> Guidelines:
    """Guidelines from the wrong predictions on `cases`, which must be training cases.

    play: plays cases with an advice and a seed. first: the guidelines to begin with, those of the other methods.
    store: file of the critic's answers (`ghar.llm.cached_llm`). A round without a wrong answer is the last one.
    """
    task, points, rounds, total = cases[0].task, first, [], LlmCost()
    rule = regulator(task, [case.label for case in cases]) if regulated else ""
    for number in range(spec.rounds):
        drawn = _draw(cases, spec.cases, seed, number)
        episodes = play(drawn, advise(points, rule), number)
        asked = _Critic(critic, task, store, seed, f"round {number + 1}")
        wrong = [(case, episode) for case, episode in zip(drawn, episodes, strict=True) if _is_wrong(case, episode)]
        batches = [wrong[i : i + spec.batch] for i in range(0, len(wrong), spec.batch)]
        lists = asked.criticise(points, batches)
        points = asked.consolidate(lists, spec.merged) if lists else points
        unreadable = sum(episode.prediction.label is None for episode in episodes)
        right = len(drawn) - len(wrong) - unreadable
        rounds.append(CoagentRound(right, len(wrong), unreadable, len(lists), asked.failed, points))
        total += asked.cost
        if not wrong:
            break
    return Guidelines(advise(points, rule), tuple(rounds), total)


def advise(points: Points, rule: str) -> str:
    """The guidelines, and the regulator if there is one, as prompts show them."""
    listed = _numbered(points)
    return "\n".join(part for part in ("Guidelines:" if listed else "", listed, rule) if part)


def regulator(task: Task, labels: Sequence[int]) -> str:
    """Prior knowledge of the outcome: its shares among the training labels, and what follows for rare ones."""
    counts = Counter(labels)
    shares = ", ".join(f"{label} {counts[i] / len(labels):.0%}" for i, label in enumerate(task.labels))
    return f"Keep in mind how often each answer is right here: {shares}. Give a rare one only when its risk is extreme."


def _draw(cases: Sequence[Case[KareReading]], count: int, seed: int, number: int) -> list[Case[KareReading]]:
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    return [cases[i] for i in np.sort(rng.permutation(len(cases))[:count])]


def _is_wrong(case: Case[KareReading], episode: Episode) -> bool:
    return episode.prediction.label is not None and episode.prediction.label != case.label


class _Critic:
    """One round's questions to the critic; `failed` and `cost` tell how they went."""

    def __init__(self, engine: Engine, task: Task, store: Path, seed: int, name: str):
        self.engine, self.task, self.store, self.seed, self.name = engine, task, store, seed, name
        self.templates = load_prompts("ghar.envs.kare", "coagent", ROLES)
        self.failed: dict[str, str] = {}
        self.cost = LlmCost()

    def criticise(self, points: Points, batches: Sequence[Sequence[Wrong]]) -> list[Points]:
        """New guidelines from each batch of wrong predictions; a batch whose answers cannot be used has none."""
        fields = [
            {
                "guidelines": _numbered(points) or "(none)",
                "cases": "\n\n".join(map(_describe_error, range(1, 1 + len(b)), b)),
            }
            for b in batches
        ]
        return [points for points in self._ask("critic", "critic", fields) if points]

    def consolidate(self, lists: Sequence[Points], merged: int) -> Points:
        """One list shorter than `MOST`. It is cut to that where the critic fails, or does not shorten a single list."""
        depth = 0
        while len(lists) > 1 or len(lists[0]) >= MOST:
            depth += 1
            groups = [lists[i : i + merged] for i in range(0, len(lists), merged)]
            joined = [tuple(dict.fromkeys(point for points in group for point in points)) for group in groups]
            fields = [{"most": MOST, "lists": "\n\n".join(map(_numbered, group))} for group in groups]
            replies = self._ask("consolidate", f"consolidation {depth}", fields)
            if len(groups) == 1 and len(replies[0]) >= len(joined[0]):
                replies = [replies[0][: MOST - 1]]
            lists = [new or old[: MOST - 1] for new, old in zip(replies, joined, strict=True)]
        return lists[0]

    def _ask(self, role: str, step: str, fields: Sequence[Mapping[str, object]]) -> list[Points]:
        """One list for each question, () for one that failed."""
        template: Template = self.templates[role]
        given = {"question": self.task.question, "labels": ", ".join(self.task.labels)}
        questions = [
            CachedQuestion(f"{self.name}, {step}, {i}", template.render(**given, **field), template.max_tokens)
            for i, field in enumerate(fields, 1)
        ]
        title = f"EHR-CoAgent {self.name}, {step}"
        answers = ask(self.engine, questions, self.store, read_guidelines, seed=self.seed, title=title)
        self.failed |= answers.failed
        self.cost += answers.cost
        return [answers.values.get(question.key, ()) for question in questions]


def read_guidelines(reply: str) -> Points:
    """The points of a list, numbered or with dashes.

    Unreadable: "too_long", "no_list", and "speaks_of_truth" for points that send the predictor to a label he does not
    have.
    """
    if len(reply) > LONGEST:
        raise UnreadableAnswer("too_long")
    lines = [line.strip() for line in reply.splitlines()]
    marked = [(line, MARKER.match(line)) for line in lines]
    points = tuple(dict.fromkeys(line[marker.end() :].strip() for line, marker in marked if marker))
    if not points:
        raise UnreadableAnswer("no_list")
    if any(TRUTH.search(point) for point in points):
        raise UnreadableAnswer("speaks_of_truth")
    return points


def _numbered(points: Points) -> str:
    return "\n".join(f"{i}. {point}" for i, point in enumerate(points, 1))


def _describe_error(number: int, wrong: Wrong) -> str:
    """A wrong prediction as the critic sees it: the record, what was reasoned, and both answers."""
    case, episode = wrong
    labels, prediction = case.task.labels, episode.prediction
    assert prediction.label is not None  # an unreadable reply is no wrong prediction
    chain = prediction.chain if isinstance(prediction, KarePrediction) else ""
    return (
        f"## Case {number}\nRecord:\n{case.text or NOTHING}\nReasoning: {chain or NOTHING}\n"
        f"Predicted: {labels[prediction.label]}\nWhat happened: {labels[case.label]}"
    )
