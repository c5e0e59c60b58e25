"""How GraphWalker's demo base learns to read examples: made-up cases in its own prompts, whose outcomes are redrawn.

A large language model brings the habit of reading a case by the cases shown before it. The demo model gets it here. An
exercise is one prompt with made-up cases, told from its first word to its last label. Its rare codes mean something
for this one exercise: each has a label drawn for it, and a case ends as the highest of its own. Nothing holds from one
exercise to the next, so no fact can be learned of any code: only to find, among the cases shown, those alike in what
counts, and to end as they did. Since the cases' words are told as well, H(x | S) falls with what S shares with x.

Cases are made of the training patients' newest visits without their outcomes: a few common codes are left out, and
other rare ones put in the places of the rare ones. Cases of an exercise share visits, so that some are alike in all
that does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np

from envs.graphwalker.react import AGENT
from envs.rollout import derive_seed
from envs.system import Exercises, Practice
from ghar.data.cohort import Sample, Visit
from ghar.episode import Act, Completion, Episode, Prediction, Record, Reply
from ghar.progress import track
from ghar.selectors.prompt import asked_text, example_text

FORMAT = 1  # raise it when the exercises change
ROLE = "recount"
RARE = 0.02  # share of the training patients that has a code which can count, at most
CASES = 4  # of an exercise
VISITS, COUNTING = 2, (1, 5)  # visits that its cases share; rare codes that they share, from and below
PASSES = 4  # times an exercise is seen
SHARED = 0.85  # of a case's visit and rare codes are among those shared
KEPT = 0.85  # of a visit's common codes

Codes = tuple[str | None, ...]  # None: the place of a rare code


@dataclass(frozen=True)
class Material:
    """visits: diagnoses and medications of the training patients' newest visits that have a rare code. rare: those
    codes, diagnoses and medications."""

    visits: tuple[tuple[Codes, Codes], ...]
    rare: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def codes(self) -> list[str]:
        """All there are, in order."""
        shown = {code for visit in self.visits for part in visit for code in part if code is not None}
        return sorted(shown.union(*self.rare))


def material_of(samples: Sequence[Sample]) -> Material:
    """What exercises are made of."""
    visits = [(sample.history[-1].diagnoses, sample.history[-1].medications) for sample in samples]
    held = Counter(code for visit in visits for code in {*visit[0], *visit[1]})
    rare = {code for code, count in held.items() if count <= RARE * len(visits)}
    kinds = tuple({code for visit in visits for code in visit[kind]} & rare for kind in (0, 1))
    cut = {tuple(tuple(None if code in rare else code for code in part) for part in visit) for visit in visits}
    kept = sorted((visit for visit in cut if any(None in part for part in visit)), key=repr)
    return Material(tuple((one, two) for one, two in kept), (tuple(sorted(kinds[0])), tuple(sorted(kinds[1]))))


def practice(
    task: tuple[str, str, tuple[str, ...]],
    head: str,
    samples: Sequence[Sample],
    names: Mapping[str, str],
    text: Callable[[Sample], str],
) -> Practice | None:
    """Exercises over the codes of the training `samples`; None where too few of them are rare.

    task: name, question and labels. text: of a sample as prompts show it, whatever its length.
    """
    found = material_of(samples)
    if len(found.visits) < VISITS or sum(map(len, found.rare)) < COUNTING[1]:
        return None
    known = [(code, names.get(code, code)) for code in found.codes]
    drugs = {code for sample in samples for code in sample.history[-1].medications}
    words = [f"{'drug' if code in drugs else 'disease'} {name}" for code, name in known]
    key = ("graphwalker", FORMAT, task, head, found.visits, found.rare, known)
    return Practice(key, partial(_exercises, found, task[2], head, words, text))


def _exercises(
    found: Material,
    labels: tuple[str, ...],
    head: str,
    words: Sequence[str],
    text: Callable[[Sample], str],
    total: int,
    seed: int,
) -> Exercises:
    rng = np.random.default_rng(derive_seed(seed, ROLE))
    count = max(64, -(-total // PASSES))
    episodes = [
        exercise(made_up(rng, found, len(labels)), labels, head, text, number)
        for number in track(range(count), "Making up cases")
    ]
    return Exercises(episodes, [*labels, *words], {ROLE: 1.0})


def made_up(rng: np.random.Generator, found: Material, labels: int) -> list[Sample]:
    """The cases of one exercise, with the outcomes that their rare codes have in it."""
    meaning = [rng.integers(0, labels, len(rare)) for rare in found.rare]
    visits = rng.integers(len(found.visits), size=VISITS)
    shared = [rng.permutation(len(rare))[: int(rng.integers(*COUNTING))] for rare in found.rare]
    cases = []
    for number in range(CASES):
        place = rng.choice(visits) if rng.random() < SHARED else rng.integers(len(found.visits))
        lists: list[tuple[str, ...]] = []
        outcome = 0
        for kind, part in enumerate(found.visits[int(place)]):
            codes: dict[str, None] = {}
            for code in part:
                if code is None:
                    own = shared[kind] if rng.random() < SHARED else np.arange(len(found.rare[kind]))
                    drawn = int(rng.choice(own))
                    outcome = max(outcome, int(meaning[kind][drawn]))
                    codes[found.rare[kind][drawn]] = None
                elif rng.random() < KEPT:
                    codes[code] = None
            lists.append(tuple(codes))
        visit = Visit(number, datetime(2100, 1, 1), lists[0], (), lists[1])
        cases.append(Sample(f"made-up-{number}", -1, number, visit.start, (visit,), outcome))
    return cases


def exercise(
    cases: Sequence[Sample], labels: tuple[str, ...], head: str, text: Callable[[Sample], str], number: int
) -> Episode:
    """One prompt as an episode: all behind the head is the reply."""
    *shown, asked = cases
    told = "".join(example_text(text(case), labels[case.label]) for case in shown)
    told += f"{asked_text(text(asked))} {labels[asked.label]}"
    record = Record(Act(AGENT, ROLE, head), Reply(Completion(told), asked.label))
    return Episode(f"exercise-{number}", 0, Prediction(asked.label), trace=(record,))
