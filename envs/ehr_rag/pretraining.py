"""How the demo's base model learns to read EHR-RAG's prompts, on made-up patients and from a teacher who cannot decide.

The made-up patients are others of the same generated world: the same story, every fact of a patient drawn anew. The
teacher reads as the fixed rule does, fitted to those patients: what speaks for a side, what follows from the evidence,
which row a shown one leads to. A large language model would bring that. When to search and for what is drawn at
random, and which measurements to look at half of the time: that is what the warm-up and RL have to teach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ghar.config import TaskConfig
from ghar.envs.ehr_rag.context import APART
from ghar.envs.ehr_rag.rule import RuleReader, filled, query_of
from ghar.envs.ehr_rag.rule_fit import EventRules, fit_rules
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.rollout import derive_seed
from ghar.envs.system import DemoPretraining, PretrainingTasks, System, build
from ghar.episode import Act, Completion, Episode

BASE_FORMAT = 3  # raise it when the exercises change
MADE_UP, FEWEST = 1000, 64  # made-up patients at most and at least
STOPS, LED = 0.2, 0.8  # shares of its searches that the teacher leaves; of the others that follow a shown row
BLIND = 0.5  # share of its choices of measurements that are drawn; of eight, two by chance would show little to read
SHARES = {  # of the exercises, by decision: what has to be copied or combined needs the most practice
    "weigh": 0.2, "refine": 0.25, "support": 0.22, "oppose": 0.14, "predict": 0.1, "indicators": 0.05, "react": 0.04,
}  # fmt: skip
PLAYED = {  # method -> share of the made-up patients that an attempt plays it with
    "ehr_rag": 1.0, "no_ether": 0.1, "no_der": 0.2, "direct": 0.1, "rag": 0.1, "uniform": 0.1, "react": 0.1,
}  # fmt: skip
PASSES = 3  # times a weighing is seen


@dataclass(frozen=True, eq=False)
class RandomDecider(RuleReader):
    """The rule as a reader, by chance as a decider. `seeds` are its only source of randomness."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [self._drawn(act, np.random.default_rng(seed)) for act, seed in zip(acts, seeds, strict=True)]

    def _drawn(self, act: Act, rng: np.random.Generator) -> Completion:
        if act.role == "indicators" and rng.random() < BLIND:
            names = list(act.facts["names"])
            order = rng.permutation(len(names))[: act.facts["keep"]]
            return Completion(APART.join(names[int(i)] for i in order))
        if act.role == "refine":
            return Completion(self._search(act, rng))
        [completion] = super().answer([act], [0])
        return completion

    def _search(self, act: Act, rng: np.random.Generator) -> str:
        if rng.random() < STOPS:
            return "ENOUGH"
        row_names = {piece.name for piece in self.pieces(act.facts["shown"]) if piece.row}
        asked = {query.casefold() for query in act.facts["asked"]}
        searches = [(feature, query_of(name)) for feature, name in self.searches(row_names) if name not in row_names]
        led = [query for feature, query in searches if feature in self.rules.links and query.casefold() not in asked]
        others = [query for feature, query in searches if feature not in self.rules.links]
        others = [query for query in (*others, *sorted(row_names)[:1]) if query.casefold() not in asked]
        pool = led if led and (not others or rng.random() < LED) else others
        return pool[int(rng.integers(len(pool)))] if pool else "ENOUGH"


def practice(records: Records, spec: object) -> DemoPretraining | None:
    """Exercises on other patients of the generated world; None for real patients, of whom there are no others.

    spec: all of the system's own keys that prompts depend on.
    """
    config = records.config
    if not records.cohort.generated or config.data.root is not None or config.env.prompts != "compact":
        return None
    data = config.data
    key = (
        BASE_FORMAT, (data.name, data.world_seed, data.mix, data.leakage), asdict(_whole(config.task)),
        config.retriever.kind, repr(spec), sorted(SHARES.items()), sorted(PLAYED.items()),
        (STOPS, LED, BLIND, MADE_UP, PASSES),
    )  # fmt: skip
    return DemoPretraining(key, partial(_exercises, records))


def _exercises(records: Records, total: int, seed: int) -> PretrainingTasks:
    wanted = max(FEWEST, int(total * SHARES["weigh"] / PASSES))
    made, rules, names = made_up(records, min(wanted, MADE_UP))
    cases = cases_of(made)
    teacher, played = RandomDecider(rules), list[Episode]()
    for attempt in range(-(-wanted // len(cases))):
        for method, share in PLAYED.items():
            some = cases[: max(1, round(share * len(cases)))]
            stage = stage_of(made, made.variants[method], records.config)
            own = derive_seed(seed, "exercises", method)
            played += play(stage, some, teacher, seed=own, title=f"Base exercises, {method}", attempt=attempt)
    return PretrainingTasks(played, token_names(rules, names), SHARES, copying=True)


def made_up(records: Records, patients: int) -> tuple[System[Any], EventRules, Mapping[str, str]]:
    """The system on made-up patients, what is true of them, and the names of codes."""
    config = records.config
    seed = derive_seed(config.data.world_seed, "made-up") % 2**31
    data = replace(config.data, world_seed=seed, patients=patients)
    other = Records(replace(config, data=data, task=_whole(config.task)))
    made, names = build(other), other.charted.names()
    corpus: Any = made.corpus
    cases = cases_of(made)
    event_records, labels = corpus.stores.records(cases, apart=True), [case.label for case in cases]
    return made, fit_rules(event_records, labels, len(made.task.labels), names, corpus.spec.values), names


def cases_of(made: System[Any]) -> list[Any]:
    """All of them: on made-up patients no one is tested, and half of them show too few of a link."""
    return [*made.cases.train, *made.cases.valid, *made.cases.test]


def _whole(task: TaskConfig) -> TaskConfig:
    """The task without what a run cuts of its patients."""
    return replace(task, max_train=None, max_valid=None, max_test=None)


def token_names(rules: EventRules, names: Mapping[str, str]) -> list[str]:
    """Names worth a token of their own. Of those that a link leads to the words, which others share: they are spelled,
    so that a search can take a word from a row."""
    patterns = [pattern for pair in rules.links.values() for pattern in pair]
    whole, words = list[str](), dict[str, None]()
    for name in names.values():
        inside = [term for pattern in patterns if (term := filled(pattern, name)) is not None]
        if inside:
            words |= dict.fromkeys(inside)
        else:
            whole.append(name)
    return [*words, *rules.cuts, *whole]
