"""GraphWalker's search with prompts to spend: Agent-Selector also decides what is measured, and may not measure all.

Algorithm 1 has the gain of every candidate measured before each pick, a scored prompt each. Here a walk may have a
given number of prompts scored. A candidate that is named is measured for the examples chosen so far; one whose gain is
known for just these is taken. A gain of an earlier step stays in sight: under diminishing gains it is an upper bound.
What is learned is what to look at; the fixed policy to beat is Appendix J's lazy search within the same prompts
(`frugal`, envs/graphwalker/selectors/search.py), and Algorithm 1 itself, which spends twice as many.

As numbers (`FrugalGame`): 0 stops; then come the `TRIED` candidates of the highest gain that was measured, at whatever
step, and the `NEW` nearest ones that no one has measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ghar.envs.graphwalker.selection import AGENTS, STOP, MeasureSets, WalkStart
from ghar.envs.graphwalker.selection_game import SPEC, WalkPlay, demo_walks
from ghar.envs.graphwalker.selectors.protocol import Shots
from ghar.envs.graphwalker.selectors.search import DIGITS, gain_of
from ghar.envs.stepper import Scene, SteppedEpisode
from ghar.envs.views.spaces import Allowed, masked
from ghar.episode import Act, Episode, EpisodeGenerator, Parsed, Prediction, Reply
from ghar.errors import BadInput
from ghar.llm.prompts import load_prompts
from ghar.rewards.compose import EpisodeReward

TRIED, NEW = 6, 10  # candidates that the numbers show
ABOUT = ("picked", "left", "looked", "waiting", "earned")  # of the walk
CANDIDATE = ("there", "gain", "fresh", "likeness", "opens")  # of each candidate
PROMPTS = 20  # half of the 40 that Algorithm 1 takes on the generated walks


@dataclass(frozen=True)
class FrugalPrediction(Prediction):
    """The examples that were chosen; there is no label. gains: by turn, 0 where something was measured or the walk
    ended. scored: prompts."""

    shots: Shots = ()
    gains: tuple[float, ...] = ()
    scored: int = 1


@dataclass
class Walk:
    """A walk under way. gains: of candidates, with as many examples as `at` says. looked: prompts since a pick."""

    frontier: dict[int, None]
    shots: Shots = ()
    scored: int = 1
    looked: int = 0
    earned: float = 0.0

    def __post_init__(self) -> None:
        self.gains: dict[int, float] = {}
        self.at: dict[int, int] = {}

    def fresh(self, row: int) -> bool:
        """Whether the gain of a candidate is known for the examples chosen so far."""
        return self.at.get(row) == len(self.shots)

    def take(self, case: WalkStart, row: int) -> float:
        """Choose a candidate whose gain is known, open its neighbours, and say what it gained."""
        gain = self.gains.pop(row)
        del self.frontier[row]
        self.shots, self.looked = (*self.shots, row), 0
        self.earned = round(self.earned + gain, DIGITS)
        new = [int(other) for other in case.near(row) if int(other) not in (*self.shots, *self.frontier)]
        self.frontier |= dict.fromkeys(new)
        return gain


@dataclass(frozen=True)
class FrugalEpisodes:
    """Makes episodes. budget: examples at most. prompts: that a walk may have scored, the one without examples too;
    BadInput for fewer than two, with which nothing can be measured."""

    budget: int
    prompts: int

    def __post_init__(self) -> None:
        if self.prompts < 2:
            raise BadInput(f"prompts={self.prompts} leaves none to measure a candidate with: give 2 or more.")

    def episode(self, case: WalkStart) -> EpisodeGenerator:
        """The chosen examples; a reply that is no candidate ends the walk as "stop" does."""
        template = load_prompts("ghar.envs.graphwalker", "walk", ("look",))["look"]
        walk, gains = Walk(dict.fromkeys(int(row) for row in case.anchors)), []
        start = yield MeasureSets(case.sample_id, None, 1, sets=((),))
        start = round(start.passages[0].score, DIGITS)
        while len(walk.shots) < self.budget:
            open_ = [row for row in sorted(walk.frontier) if walk.fresh(row) or walk.scored < self.prompts]
            if not open_:
                break
            reply: Reply = yield self._ask(template, case, walk, open_)
            row: int | None = reply.value
            if row is None:
                break
            if walk.fresh(row):
                gains.append(walk.take(case, row))
                continue
            evidence = yield MeasureSets(case.sample_id, None, 1, sets=((*walk.shots, row),))
            walk.gains[row] = gain_of(round(start - walk.earned, DIGITS), evidence.passages[0].score)
            walk.at[row] = len(walk.shots)
            walk.scored, walk.looked = walk.scored + 1, walk.looked + 1
            gains.append(0.0)
        return FrugalPrediction(None, shots=walk.shots, gains=tuple(gains), scored=walk.scored)

    def _ask(self, template: Any, case: WalkStart, walk: Walk, rows: Sequence[int]) -> Act:
        notes = {row: f", {walk.gains[row]:.4f} with {walk.at[row]} examples" for row in walk.gains}
        prompt = template.render(
            patient=case.sample_id, budget=self.budget, left=self.prompts - walk.scored,
            chosen=", ".join(map(str, walk.shots)) or "(none)", count=len(walk.shots),
            candidates="\n".join(f"{row}: {case.likeness[row]:.3f}{notes.get(row, '')}" for row in rows),
        )  # fmt: skip
        choices = (STOP, *map(str, rows))
        facts = {"case": case, "walk": walk, "rows": tuple(rows), "left": self.prompts - walk.scored,
                 "budget": self.budget, "earned": walk.earned}  # fmt: skip
        parse = partial(_read, choices)
        return Act("selector", "look", prompt, choices, template.max_tokens, walk.scored, parse, facts)


def _read(choices: Sequence[str], reply: str) -> Parsed:
    choice = reply.strip()
    if choice not in choices:
        return Parsed(None, "no_candidate")
    return Parsed(None if choice == STOP else int(choice))


def _reward(episode: Episode, case: WalkStart) -> EpisodeReward:
    prediction = episode.prediction
    gains = prediction.gains if isinstance(prediction, FrugalPrediction) else ()
    per_turn = tuple({"gain": gain} for gain in gains) + tuple({} for _ in episode.turns[len(gains) :])
    return EpisodeReward({"gain": sum(gains)}, sum(gains), per_turn, "shared")


def ranked(act: Act) -> list[int | None]:
    """The candidate behind each action but stop, None where there is none: known ones by gain, then new ones by
    likeness; the lower row among equals."""
    walk, case, rows = act.facts["walk"], act.facts["case"], act.facts["rows"]
    old = sorted((row for row in rows if row in walk.gains), key=lambda row: (-walk.gains[row], row))[:TRIED]
    new = sorted((row for row in rows if row not in walk.gains), key=lambda row: (-case.likeness[row], row))[:NEW]
    return [*old, *[None] * (TRIED - len(old)), *new, *[None] * (NEW - len(new))]


@dataclass(frozen=True)
class FrugalGame:
    """The walk as a game (envs/views/games.py)."""

    scene: Scene
    agents: tuple[str, ...] = AGENTS
    actions: int = 1 + TRIED + NEW
    width: int = len(ABOUT) + (TRIED + NEW) * len(CANDIDATE)

    def spaces(self) -> tuple[spaces.Dict, Allowed]:
        return masked(spaces.Box(-10, 10, (self.width,), np.float32), self.actions), Allowed(self.actions)

    def start(self, case: Any, seed: int) -> WalkPlay:
        return WalkPlay(self, SteppedEpisode(self.scene, case, seed=seed))

    def observe(self, act: Act) -> np.ndarray:
        return seen(act)

    def mask(self, act: Act) -> np.ndarray:
        return np.array([1, *(row is not None for row in ranked(act))], np.int8)

    def reply(self, act: Act, action: int) -> str:
        return STOP if action == 0 else str(ranked(act)[action - 1])


def seen(act: Act) -> np.ndarray:
    """float32 [width]: of the walk shares of examples, prompts left in tens, prompts since the last pick in tens, new
    candidates in tens, nats earned; of each candidate, in order, whether there is one, its gain in nats (0 where not
    known), whether that is fresh, cosine to the patient, and the highest cosine of a neighbour that it would open."""
    walk, case = act.facts["walk"], act.facts["case"]
    taken = {*walk.shots, *walk.frontier}
    rows = ranked(act)
    table = np.zeros((len(rows), len(CANDIDATE)), np.float32)
    for i, row in enumerate(rows):
        if row is None:
            continue
        opens = max((case.likeness[other] for other in case.near(row) if int(other) not in taken), default=0.0)
        table[i] = 1, walk.gains.get(row, 0.0), walk.fresh(row), case.likeness[row], opens
    new = sum(row not in walk.gains for row in act.facts["rows"])
    about = (len(walk.shots) / act.facts["budget"], act.facts["left"] / 10, walk.looked / 10, new / 10, walk.earned)
    return np.concatenate([np.array(about, np.float32), table.ravel()])


def frugal(seen: dict[str, np.ndarray]) -> int:
    """Appendix J's rule on an observation: new candidates first, as many as their share of the prompts allows, the
    nearest first; then whoever has the highest gain, measured or not, is measured or taken."""
    about = seen["observation"][: len(ABOUT)]
    left, looked, picked = round(about[1] * 10), round(about[2] * 10), round(float(about[0]) * SPEC.budget)
    share = left + looked if picked == 0 else (left + looked) // (1 + SPEC.budget - picked)
    if seen["action_mask"][1 + TRIED] and looked < share and left:
        return 1 + TRIED
    table = seen["observation"][len(ABOUT) :].reshape(-1, len(CANDIDATE))[:TRIED]
    open_ = np.flatnonzero(seen["action_mask"][1 : 1 + TRIED])
    return 1 + int(open_[0]) if len(open_) and table[open_[0], CANDIDATE.index("gain")] > 0 else 0


@cache
def demo_frugal(budget: int = SPEC.budget, prompts: int = PROMPTS, seed: int = 0) -> Scene:
    """The generated walks of ghar/GraphWalker-v0 with prompts to spend."""
    scene = demo_walks(budget, seed=seed)
    episodes = FrugalEpisodes(budget, prompts)
    return Scene("GraphWalker", AGENTS, ("look",), scene.cases, episodes.episode, scene.corpus, _reward, _earned)


def _earned(act: Act) -> float:
    return act.facts["earned"]
