"""How GraphWalker's demo base learns to read examples: made-up cases in its own prompts, whose outcomes are redrawn.

A large language model brings the habit of reading a case by the cases shown before it. The demo model gets it here. An
exercise is one prompt with made-up cases, told from its first word to its last label. Its rare codes mean something
for this one exercise: each has a label drawn for it, and a case ends as the highest of its own. Nothing holds from one
exercise to the next, so no fact can be learned of any code: only to find, among the cases shown, those alike in what
counts, and to end as they did. Since the cases' words are told as well, H(x | S) falls with what S shares with x.
Where the system compares before it answers, most of what is imitated is that comparison, after one to three examples:
which rare codes the last case shares with which of them, and how that one ended.

Cases are made of the newest visits of the pool's patients without their outcomes: a few common codes are left out, and
other rare ones put in the places of the rare ones. Cases of an exercise share visits, so that some are alike in all
that does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np

from ghar.data.cohort import Sample, Visit
from ghar.envs.graphwalker.episode import compare_prompt, compared_prompt, comparison
from ghar.envs.graphwalker.react import AGENT
from ghar.envs.graphwalker.selectors.prompt import asked_text, example_text
from ghar.envs.graphwalker.selectors.rare_items import RARE, items_in, items_of
from ghar.envs.rollout import derive_seed
from ghar.envs.system import DemoPretraining, PretrainingTasks
from ghar.episode import Act, AuditRecord, Completion, Episode, Prediction, Reply
from ghar.progress import track

FORMAT = 1  # raise it when the exercises change
ROLE = "recount"
CASES = 4  # of an exercise, at most
# Of what is imitated, where the system compares. A case written whole has twenty times the tokens of a comparison, and
# nothing foretells most of them: at a quarter of the exercises they drowned it.
SHARES = {ROLE: 0.04, "compare": 0.66, "predict": 0.3}
VISITS, COUNTING = 2, (1, 5)  # visits that its cases share; rare codes that they share, from and below
PASSES = 4  # times an exercise is seen
SHARED = 0.85  # of a case's visit and rare codes are among those shared
KEPT = 0.85  # of a visit's common codes

Codes = tuple[str | None, ...]  # None: the place of a rare code


@dataclass(frozen=True)
class PretrainingPool:
    """visits: diagnoses and medications of the newest visits of those in the pool that have a rare code. rare: those
    codes, diagnoses and medications."""

    visits: tuple[tuple[Codes, Codes], ...]
    rare: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def codes(self) -> list[str]:
        """All there are, in order."""
        codes = {code for visit in self.visits for part in visit for code in part if code is not None}
        return sorted(codes.union(*self.rare))


def material_of(samples: Sequence[Sample]) -> PretrainingPool:
    """What exercises are made of."""
    visits = [(sample.history[-1].diagnoses, sample.history[-1].medications) for sample in samples]
    held = Counter(code for visit in visits for code in {*visit[0], *visit[1]})
    rare = {code for code, count in held.items() if count <= RARE * len(visits)}
    kinds = tuple({code for visit in visits for code in visit[kind]} & rare for kind in (0, 1))
    cut = {tuple(tuple(None if code in rare else code for code in part) for part in visit) for visit in visits}
    kept = sorted((visit for visit in cut if any(None in part for part in visit)), key=repr)
    return PretrainingPool(tuple((one, two) for one, two in kept), (tuple(sorted(kinds[0])), tuple(sorted(kinds[1]))))


def practice(
    task: tuple[str, str, tuple[str, ...]],
    head: str,
    samples: Sequence[Sample],
    names: Mapping[str, str],
    text: Callable[[Sample], str],
    compare: bool,
) -> DemoPretraining | None:
    """Exercises over the codes of the pool's `samples`; None where too few of them are rare.

    task: name, question and labels. text: of a sample as prompts show it, whatever its length. compare: whether the
    system compares before it answers.
    """
    pool = material_of(samples)
    if len(pool.visits) < VISITS or sum(map(len, pool.rare)) < COUNTING[1]:
        return None
    code_names = [(code, names.get(code, code)) for code in pool.codes]
    drugs = {code for sample in samples for code in sample.history[-1].medications}
    words = [f"{'drug' if code in drugs else 'disease'} {name}" for code, name in code_names]
    compared = (SHARES, "copying") if compare else ()
    key = ("graphwalker", FORMAT, task, head, pool.visits, pool.rare, code_names, *compared)
    return DemoPretraining(key, partial(_exercises, pool, task[2], head, words, text, compare))


def _exercises(
    pool: PretrainingPool,
    labels: tuple[str, ...],
    head: str,
    words: Sequence[str],
    text: Callable[[Sample], str],
    compare: bool,
    total: int,
    seed: int,
) -> PretrainingTasks:
    rng = np.random.default_rng(derive_seed(seed, ROLE))
    rare = set(pool.rare[0]).union(pool.rare[1])
    items = {word for code, word in zip(pool.codes, words, strict=True) if code in rare}

    def made(number: int) -> Episode:
        count = int(rng.integers(2, CASES + 1)) if compare else CASES
        cases = made_up(rng, pool, len(labels), count, seen=compare)
        return exercise(cases, labels, head, text, number, items if compare else None)

    count = max(64, -(-total // PASSES))
    episodes = [made(number) for number in track(range(count), "Making up cases")]
    return PretrainingTasks(episodes, [*labels, *words], SHARES if compare else {ROLE: 1.0}, copying=compare)


def made_up(
    rng: np.random.Generator, pool: PretrainingPool, labels: int, count: int = CASES, seen: bool = False
) -> list[Sample]:
    """`count` cases of one exercise, with the outcomes that their rare codes have in it.

    seen: the last one's rare codes are mostly such as the others have.
    """
    meaning = [rng.integers(0, labels, len(rare)) for rare in pool.rare]
    visits = rng.integers(len(pool.visits), size=VISITS)
    shared = [rng.permutation(len(rare))[: int(rng.integers(*COUNTING))] for rare in pool.rare]
    cases: list[Sample] = []
    for number in range(count):
        place = rng.choice(visits) if rng.random() < SHARED else rng.integers(len(pool.visits))
        lists: list[tuple[str, ...]] = []
        outcome = 0
        last = seen and number == count - 1
        seen_codes = {code for case in cases for code in _codes(case)} if last else set[str]()
        for kind, part in enumerate(pool.visits[int(place)]):
            codes: dict[str, None] = {}
            repeats = [i for i, rare in enumerate(pool.rare[kind]) if rare in seen_codes] if seen_codes else []
            for code in part:
                if code is None:
                    own = shared[kind] if rng.random() < SHARED else np.arange(len(pool.rare[kind]))
                    if repeats:
                        own = repeats if rng.random() < SHARED else own
                    drawn = int(rng.choice(own))
                    outcome = max(outcome, int(meaning[kind][drawn]))
                    codes[pool.rare[kind][drawn]] = None
                elif rng.random() < KEPT:
                    codes[code] = None
            lists.append(tuple(codes))
        visit = Visit(number, datetime(2100, 1, 1), lists[0], (), lists[1])
        cases.append(Sample(f"made-up-{number}", -1, number, visit.start, (visit,), outcome))
    return cases


def _codes(case: Sample) -> tuple[str, ...]:
    """Conditions and drugs of a made-up case's one visit."""
    return (*case.history[0].diagnoses, *case.history[0].medications)


def exercise(
    cases: Sequence[Sample],
    labels: tuple[str, ...],
    head: str,
    text: Callable[[Sample], str],
    number: int,
    rare: Collection[str] | None = None,
) -> Episode:
    """One prompt as an episode: all behind the head is the reply. rare: items that count, to be compared as well."""
    *examples, asked = cases
    examples_text = "".join(example_text(text(case), labels[case.label]) for case in examples)
    prompt, answer = f"{examples_text}{asked_text(text(asked))}", labels[asked.label]
    records = [AuditRecord(Act(AGENT, ROLE, head), Reply(Completion(f"{prompt} {answer}"), asked.label))]
    if rare is not None:
        own = [item for item in items_in(text(asked)) if item in rare]
        alike = [([item for item in own if item in items_of(text(case))], labels[case.label]) for case in examples]
        seen, whole = comparison(alike), head + prompt
        records.append(AuditRecord(Act(AGENT, "compare", compare_prompt(whole)), Reply(Completion(seen), seen)))
        ask = Act(AGENT, "predict", compared_prompt(whole, seen), labels)
        records.append(AuditRecord(ask, Reply(Completion(answer), asked.label)))
    return Episode(f"exercise-{number}", 0, Prediction(asked.label), trace=tuple(records))
