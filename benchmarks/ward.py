"""A generated world in which the outlook differs much from patient to patient and from turn to turn: a ward round.

A patient has something at stake (1 to 20) and `OPEN` open findings, each of which is as often high as not; who has
`NEEDED` high ones or more is unstable. Each finding is known to one source. A request costs `PRICE` and fails, visibly,
with a chance that the source has; who asks again finds the source's next answer. No more than `LIMIT` requests can be
made. The right answer earns what is at stake, a wrong one nothing. So the best policy asks the surer source first,
goes on while the answer may still change for less than it is worth, and asks nothing where little is at stake.

Every patient, word and number here is generated: `system=benchmarks.ward`, `seed` is the world's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from ghar.data.cohort import NO_VISIT, Task
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.records import Records
from ghar.envs.system import System, Training, Variant
from ghar.episode import Act, Episode, EpisodeGenerator, Evidence, Passage, Prediction, ReasoningStep, Retrieve
from ghar.llm.policy import FunctionPolicy
from ghar.provenance import GENERATED
from ghar.rewards.compose import EpisodeReward

SILENT = {  # source -> chance of no answer
    "chart": 0.1, "monitor": 0.2, "laboratory": 0.3, "radiology": 0.4, "ward": 0.5, "family": 0.6, "archive": 0.7,
    "clinic": 0.8,
}  # fmt: skip
SOURCE_OF = {
    "weight": "chart", "rhythm": "monitor", "culture": "laboratory", "shadow": "radiology", "pain": "ward",
    "habit": "family", "allergy": "archive", "scar": "clinic",
}  # fmt: skip
OPEN, NEEDED = 5, 3
STAKES = (1, 2, 5, 10, 20)
PRICE = 0.3
LIMIT = 11  # requests of a round
SPLITS = {"train": 6000, "valid": 400, "test": 1000}
TASK = Task("ward_round", "Is this patient unstable?", ("stable", "unstable"))
MOVES = (*(f"ask {source}" for source in SILENT), "answer")


@dataclass(frozen=True)
class Settings:
    name: str = "benchmarks.ward"


@dataclass(frozen=True)
class Bed:
    """What the ward knows of a patient and no prompt shows: what a case reads.

    findings: name -> whether it is high. answers: for each source of `SILENT`, whether its n-th answer comes.
    """

    stake: int
    findings: tuple[tuple[str, bool], ...]
    answers: tuple[tuple[bool, ...], ...]

    @property
    def text(self) -> str:
        """What is known before anything is asked."""
        return Round(self.stake, 0, 0, tuple(name for name, _ in self.findings), LIMIT).text


@dataclass(frozen=True)
class Round:
    """What is known at a decision. open: findings not known yet; high, low: how many are known; left: requests."""

    stake: int
    high: int
    low: int
    open: tuple[str, ...]
    left: int

    @property
    def tally(self) -> str:
        return f"high {self.high} low {self.low}"

    @property
    def text(self) -> str:
        still = " ".join(self.open) or "nothing"
        return f"open {still} left {self.left} stake {self.stake} {self.tally}"


def patients(seed: int, part: str) -> tuple[Case[Bed], ...]:
    """Those of one split of the seed's world."""
    rng = np.random.default_rng([seed, list(SPLITS).index(part)])
    cases: list[Case[Bed]] = []
    for i in range(SPLITS[part]):
        names = rng.permutation(list(SOURCE_OF))[:OPEN]
        findings = tuple((str(name), bool(rng.random() < 0.5)) for name in names)
        answers = tuple(tuple((rng.random(LIMIT) >= silent).tolist()) for silent in SILENT.values())
        bed = Bed(int(rng.choice(STAKES)), findings, answers)
        label = int(sum(high for _, high in findings) >= NEEDED)
        cases.append(Case(f"{part}-{i}", i, NO_VISIT, bed.text, (), TASK, label, bed, credentialed=False))
    return tuple(cases)


class Ward:
    """The corpus: what the n-th request to a source finds at a patient."""

    def __init__(self, cases: Splits[Case[Bed]]):
        self.cases = {case.sample_id: case for part in (cases.train, cases.valid, cases.test) for case in part}

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Retrieve) -> Evidence:
        patient, source, times = request.query.split()
        case, number = self.cases[patient], list(SILENT).index(source)
        findings = [
            f"{name} {'high' if high else 'low'}" for name, high in case.reads.findings if SOURCE_OF[name] == source
        ]
        text = "silent" if not case.reads.answers[number][int(times)] else findings[0] if findings else "unknown"
        return Evidence((Passage(text, "node", number, 1.0, number),))


def episode(case: Case[Bed], variant: Variant) -> EpisodeGenerator:
    """Ask a source, or go on to the answer, until no request is left; then answer."""
    asked: list[str] = []
    levels: dict[str, str] = {}
    steps: list[ReasoningStep] = []
    while len(asked) < LIMIT:
        state = _build_round(case, levels, len(asked))
        move = yield Act("round", "move", f"{state.text} next :", MOVES, step=len(asked), facts={"round": state})
        if move.value == "answer":
            break
        source = str(move.value).removeprefix("ask ")
        evidence = yield Retrieve(f"{case.sample_id} {source} {asked.count(source)}", (0,), 1)
        asked.append(source)
        steps.append(ReasoningStep(source, evidence.text, True, evidence=evidence.text))
        if " " in evidence.text:
            levels |= [evidence.text.split()]
    state = _build_round(case, levels, len(asked))
    reply = yield Act("round", "predict", f"{state.tally} so :", TASK.labels, step=len(asked), facts={"round": state})
    return Prediction(TASK.labels.index(str(reply.value)), tuple(steps))


def _build_round(case: Case[Bed], levels: dict[str, str], asked: int) -> Round:
    values = list(levels.values())
    names = tuple(name for name, _ in case.reads.findings if name not in levels)
    return Round(case.reads.stake, values.count("high"), values.count("low"), names, LIMIT - asked)


def reward(done: Episode, case: Case[Bed]) -> EpisodeReward:
    """What is at stake for a right answer, at the last turn; the price of each request at its own."""
    if done.failure is not None or done.cut or not done.turns:
        return EpisodeReward({"outcome": 0.0, "price": 0.0}, 0.0, tuple({} for _ in done.turns), "shared")
    asked = len(done.prediction.history)
    outcome = float(case.reads.stake * (done.prediction.label == case.label))
    turns: list[dict[str, float]] = [{"price": -PRICE} if i < asked else {} for i in range(len(done.turns))]
    turns[-1] = {"outcome": outcome}
    return EpisodeReward({"outcome": outcome, "price": -PRICE * asked}, outcome - PRICE * asked, tuple(turns), "shared")


def wanderer(act: Act) -> str:
    """The teacher: asks the source of any open finding, whatever is at stake, whether the answer can still change and
    however often a source is silent; goes on to the answer at any time; answers with what most known findings say."""
    state: Round = act.facts["round"]
    if act.role == "predict":
        return TASK.labels[int(state.high > state.low)]
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(act.prompt.encode()).digest()[:6], "big"))
    if not state.open or rng.random() < 0.12:
        return "answer"
    return f"ask {SOURCE_OF[rng.choice(state.open)]}"


def at_once(act: Act) -> str:
    """Never asks."""
    return "answer" if act.role == "move" else TASK.labels[0]


def best(act: Act) -> str:
    """The policy of `worth`, which knows the world's law."""
    state: Round = act.facts["round"]
    if act.role == "predict":
        return TASK.labels[int(unstable(state.high, len(state.open)) > 0.5)]
    return worth(state.stake, frozenset(state.open), state.high, state.low, state.left)[1]


def unstable(high: int, left: int) -> float:
    """The chance that `NEEDED` findings are high where `high` are known to be and `left` are open."""
    return sum(comb(left, k) for k in range(left + 1) if high + k >= NEEDED) / 2**left


@cache
def worth(stake: int, left: frozenset[str], high: int, low: int, requests: int) -> tuple[float, str]:
    """The most that can be earned from here on average, and the move that does (dynamic programming)."""
    chance = unstable(high, len(left))
    most = (stake * max(chance, 1 - chance), "answer")
    for name in sorted(left) if requests else ():
        silent, rest = SILENT[SOURCE_OF[name]], left - {name}
        again = worth(stake, left, high, low, requests - 1)[0]
        then = [worth(stake, rest, high + more, low + 1 - more, requests - 1)[0] for more in (0, 1)]
        value = -PRICE + silent * again + (1 - silent) * sum(then) / 2
        if value > most[0] + 1e-12:
            most = (value, f"ask {SOURCE_OF[name]}")
    return most


def build(records: Records, settings: Settings) -> System[Bed]:
    """The world of the configuration's seed."""
    cases = Splits(*(patients(records.config.seed, part) for part in SPLITS))
    rules = {"wanderer": wanderer, "best": best, "at_once": at_once}
    variants = {name: Variant(name) for name in ("ward",)} | {"ward_sft": Variant("ward_sft", who="sft")}
    variants |= {name: Variant(name, who=name) for name in rules}
    made = System(
        settings.name, TASK, ("round",), ("move", "predict"), cases, episode, Ward(cases), reward, variants, "ward",
        read_by=lambda reader: made,
        fixed={name: lambda rule=rule: FunctionPolicy(rule) for name, rule in rules.items()},
        origin=GENERATED, training=Training(teacher="wanderer", texts=texts),
    )  # fmt: skip
    return made


def texts() -> list[str]:
    """Every word of prompts and replies, for the vocabulary."""
    numbers = map(str, range(max(LIMIT, *STAKES) + 1))
    words = " ".join(
        [*SILENT, *SOURCE_OF, *TASK.labels, *numbers, *"stake high low left open nothing next so : ask answer".split()]
    )
    return [words] * 4
