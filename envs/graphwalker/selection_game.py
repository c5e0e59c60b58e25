"""GraphWalker's search as numbers, and the walks it is registered with: generated, so no language model is needed.

Actions: 0 stops, 1 + i takes candidate i of the frontier, whose candidates stand in the order of their rows. A
generated walk is patients, a patient graph and an H(x | S) with diminishing gains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from ghar.arrays import unit_rows
from ghar.envs.generators import Returned, resume
from ghar.envs.graphwalker.selection import AGENTS, ScoredByFunction, WalkEpisodes, WalkSpec, WalkStart, walk_scene
from ghar.envs.graphwalker.selectors.graph import PatientGraph, build_graph
from ghar.envs.graphwalker.selectors.protocol import Selection, Shots, best, cosines
from ghar.envs.graphwalker.selectors.search import Measure
from ghar.envs.stepper import Scene, SteppedEpisode
from ghar.envs.views.games import only_waiting, within
from ghar.envs.views.spaces import Allowed, masked
from ghar.episode import Act, Completion
from ghar.errors import BadInput

WALK = ("picked", "earned", "candidates")  # what is told of the walk
CANDIDATE = ("likeness", "nearest", "gain", "waiting", "opens", "best")  # what is told of each candidate
LIMIT = 10.0  # nats
SPEC = WalkSpec(budget=3)  # the paper's K
PATIENTS, QUERIES, K_G = 120, 64, 6  # of the generated walks
DISTRACTION = 0.1  # nats an example may cost at most
WIDTH, TOPICS, STRENGTH = 8, 20, 0.35  # of vectors; that a patient has; with which an example explains one
K_C, K_A = 3, 3  # cohorts near a patient, and anchors in each


@dataclass(frozen=True)
class WalkGame:
    """The walk as a game (envs/views/games.py). slots: candidates an observation has room for."""

    scene: Scene
    budget: int
    slots: int = 64

    @property
    def agents(self) -> tuple[str, ...]:
        return AGENTS

    @property
    def width(self) -> int:
        return len(WALK) + self.slots * len(CANDIDATE)

    @property
    def actions(self) -> int:
        return 1 + self.slots

    def spaces(self) -> tuple[spaces.Dict, Allowed]:
        box = spaces.Box(-LIMIT, LIMIT, (self.width,), np.float32)
        return masked(box, self.actions), Allowed(self.actions)

    def start(self, case: Any, seed: int) -> WalkPlay:
        return WalkPlay(self, SteppedEpisode(self.scene, case, seed=seed))

    def observe(self, act: Act) -> np.ndarray:
        """float32 [width].

        Of the walk: share of the budget that is used, nats earned, share of the slots that is filled. Of each
        candidate: cosine to the patient, highest cosine to a chosen one, measured gain in nats (0 where no one
        measured), share of the budget it has waited, how many it would newly open (share of the slots) and the highest
        cosine of those to the patient. 0 where there is nothing.
        """
        facts = act.facts
        case, shots, frontier = facts["case"], list(facts["shots"]), facts["frontier"]
        if len(frontier) > self.slots:
            raise BadInput(f"A walk has {len(frontier)} candidates: make the game with at least as many slots.")
        table = np.zeros((self.slots, len(CANDIDATE)), np.float32)
        rows = list(frontier)
        seen = table[: len(rows)]
        seen[:, 0] = case.likeness[rows]
        if shots:
            seen[:, 1] = (case.unit[rows] @ case.unit[shots].T).max(axis=1)
        for i, row in enumerate(rows):
            new = [other for other in case.near(row) if other not in facts["entered"]]
            seen[i, 2] = facts["gains"].get(row, 0.0)
            seen[i, 3] = (len(shots) - facts["entered"][row]) / self.budget
            seen[i, 4] = len(new) / self.slots
            seen[i, 5] = max((case.likeness[other] for other in new), default=0.0)
        walk = np.array([len(shots) / self.budget, facts["earned"], len(rows) / self.slots], np.float32)
        return np.clip(np.concatenate([walk, table.ravel()]), -LIMIT, LIMIT)

    def mask(self, act: Act) -> np.ndarray:
        mask = np.zeros(self.actions, np.int8)
        mask[: len(act.choices)] = 1
        return mask

    def reply(self, act: Act, action: int) -> str:
        return act.choices[action]


class SelectionEncoding(Protocol):
    """A walk as numbers: what an act looks like, which actions it allows, and what each of them says."""

    @property
    def width(self) -> int: ...

    @property
    def actions(self) -> int: ...

    def observe(self, act: Act) -> np.ndarray: ...

    def mask(self, act: Act) -> np.ndarray: ...

    def reply(self, act: Act, action: int) -> str: ...


@dataclass(eq=False)
class WalkPlay:
    game: SelectionEncoding
    paused: SteppedEpisode

    def observe(self, place: int | None) -> dict[str, np.ndarray]:
        if place is None:
            nothing = np.zeros(self.game.width, np.float32)
            return {"observation": nothing, "action_mask": only_waiting(self.game.actions)}
        act = self.paused.acts[place]
        return {"observation": self.game.observe(act), "action_mask": self.game.mask(act)}

    def act(self, place: int, action: object) -> None:
        act = self.paused.acts[place]
        self.paused.answer(place, Completion(self.game.reply(act, within(action, self.game.mask(act)))))


def greedy_action(observation: dict[str, np.ndarray]) -> int:
    """Algorithm 1's rule on an observation with measured gains: the highest one, or to stop."""
    candidates = observation["observation"][len(WALK) :].reshape(-1, len(CANDIDATE))
    gains = np.where(observation["action_mask"][1:] == 1, candidates[:, CANDIDATE.index("gain")], -np.inf)
    return 1 + int(gains.argmax()) if gains.max() > 0 else 0


@cache
def demo_walks(budget: int = SPEC.budget, measured: bool = SPEC.measured, seed: int = 0) -> Scene:
    """Walks over generated patients, with an H whose gains diminish and may be negative: an example explains some of
    what there is to know of a patient, the more the nearer it lies, and distracts a little from it."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, PATIENTS, K_G)
    unit = unit_rows(graph.vectors)
    near = {row: tuple(graph.neighbours_of(row).tolist()) for row in range(PATIENTS)}
    cases, entropies = [], {}
    for number in range(QUERIES):
        query = rng.normal(size=WIDTH)
        explained, costs = coverage(rng, graph, query), DISTRACTION * rng.random(PATIENTS)
        name, start = f"generated-{number}", tuple(anchors_near(query, graph))
        likeness = cosines(graph.vectors, query)
        cases.append(WalkStart(name, start, near.__getitem__, likeness, unit, credentialed=False))
        entropies[name] = partial(_entropy, explained, costs)
    return walk_scene(WalkEpisodes(WalkSpec(budget, measured)), ScoredByFunction(entropies), cases)


def _entropy(explained: Callable[[Shots], float], costs: np.ndarray, shots: Shots) -> float:
    return explained(shots) + float(costs[list(shots)].sum())


def random_graph(rng: np.random.Generator, patients: int, k: int) -> PatientGraph:
    """Random patients and their graph."""
    vectors = rng.normal(size=(patients, WIDTH)).astype(np.float32)
    return build_graph(vectors, [str(i) for i in range(patients)], k=k, seed=0)


def anchors_near(query: np.ndarray, graph: PatientGraph) -> list[int]:
    """Nine anchors near a patient with the vector `query`: three in each of three cohorts."""
    near, everyone = cosines(graph.vectors, query), np.ones(len(graph.ids), bool)
    sizes = np.bincount(graph.cohorts) >= K_A  # so that there are nine
    cohorts = best(cosines(graph.prototypes, query), sizes, K_C)
    return [row for c in cohorts for row in best(near, everyone & (graph.cohorts == c), K_A)]


def coverage(
    rng: np.random.Generator, graph: PatientGraph, query: np.ndarray | None = None
) -> Callable[[Shots], float]:
    """H(x | S), its gains diminishing: each topic of the patient is explained by an example with a probability that
    depends on where the example lies and how telling it is; topics left unexplained add up.

    query: the patient's vector, around which its topics then lie; None: anywhere.
    """
    directions = rng.normal(size=(TOPICS, WIDTH)) + (0 if query is None else query)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    unit = graph.vectors / np.linalg.norm(graph.vectors, axis=1, keepdims=True)
    telling = 2 * rng.random((len(graph.ids), 1))
    explains = np.clip(np.clip(unit @ directions.T, 0, 1) * STRENGTH * telling, 0, 1)
    weights = rng.random(TOPICS)
    return lambda shots: 3.0 + float((weights * np.prod(1 - explains[list(shots)], axis=0)).sum())


def play(search: Measure, entropy: Callable[[Shots], float]) -> Selection:
    """A search on a function instead of a model."""
    sets = resume(search, None)
    while not isinstance(sets, Returned):
        sets = resume(search, [entropy(shots) for shots in sets])
    return sets.value
