"""Navigation: Agent-Top's decisions as numbers, so that retrieval policies can be studied without a language model.

The episode is GHAR's own (envs/ghar/episode.py). What is said in words (sub-queries, recalled answers, follow-ups, the
prediction and, unless agent "low" plays too, summaries) follows the scripted teacher's rules without error. Decisions:

    retrieve    0 no, 1 yes                                          Agent-Top, Eq. 7
    metapaths   2 + i adds meta-path i, 0 is content with those      Agent-Top
    continue    0 terminate, 1 go on                                 Agent-Top, Eq. 13
    summarise   2 + i hands on passage i of the evidence, 0 none     Agent-Low
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from ghar.envs.ghar.teacher import NO_ERROR, Knowledge, ScriptedTeacher, believed, finding, grades_in, hop, open_topics
from ghar.envs.stepper import Scene, SteppedEpisode
from ghar.envs.views.games import only_waiting, within
from ghar.envs.views.spaces import Allowed, masked
from ghar.envs.worlds.severity.graph import TARGET
from ghar.episode import Act, Completion, Evidence, Passage, Retrieve
from ghar.llm.policy import Policy
from ghar.retrieval.partition import merge

DECISIONS = {"top": ("retrieve", "metapaths", "continue"), "low": ("summarise",)}
PHASES = ("retrieve", "metapaths", "continue", "summarise")
PASSAGES = 8  # of the evidence that Agent-Low can tell apart, the best first
CLUES = 4  # about each of them
QUANTITIES = ("iteration", "disease", "drug", "gene", "known", "grade", "unasked", "highest", "found", "picked")
REPLIES = {"retrieve": ("no", "yes"), "continue": ("terminate", "continue")}
UNUSED = np.random.default_rng(0)  # what rules without error draw from it changes nothing
FIRST = 2  # the action that names meta-path or passage 0


class CachedCorpus:
    """A corpus that looks up every query in every partition only once."""

    def __init__(self, corpus: Any):
        self.corpus = corpus
        self._passages: dict[tuple[str, int, int], Sequence[Passage]] = {}

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        return [self._one(request) for request in requests]

    def _one(self, request: Retrieve) -> Evidence:
        if request.partitions is None:
            return self.corpus.retrieve([request])[0]
        keys = [(request.query, partition, request.top_n) for partition in dict.fromkeys(request.partitions)]
        new = [key for key in keys if key not in self._passages]
        mark = request.credentialed
        asked = [Retrieve(query, (partition,), n, credentialed=mark) for query, partition, n in new]
        answers = self.corpus.retrieve(asked) if asked else []
        self._passages |= {key: evidence.passages for key, evidence in zip(new, answers, strict=True)}
        return merge([self._passages[key] for key in keys])


@dataclass(frozen=True)
class Chart:
    """What observations are made from. iterations, paths: the episode's limits; menu: number of meta-paths."""

    knowledge: Knowledge
    iterations: int
    paths: int
    menu: int

    @property
    def actions(self) -> int:
        return FIRST + max(self.menu, PASSAGES)

    @property
    def width(self) -> int:
        return len(PHASES) + len(QUANTITIES) + self.menu + CLUES * PASSAGES

    def observe(self, act: Act, picked: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
        """(float32 [width] in 0..1, int8 mask [actions]) of a decision; the label is no part of it.

        In order: phase (PHASES); QUANTITIES, which are the iteration, whether the query is a condition, a drug, a
        gene, known, and its known grade, unknown topics and named targets not asked about, the highest grade known or
        found, whether the last step found one, number of meta-paths picked; each meta-path, picked or not; and of each
        passage whether it is an edge, about the query itself, states a grade, and names a target.
        """
        grades, case, query = self.knowledge.grades, act.facts["case"], act.facts["query"]
        settled = {step.query: max(grades_in(step.answer), default=None) for step in act.facts["history"]}
        unasked = len(open_topics(self.knowledge, case, act.facts["history"]))
        beliefs = believed(self.knowledge, case, act.facts["history"])
        last = next(reversed(settled.values()), None)
        start, end = len(PHASES), len(PHASES) + len(QUANTITIES)
        seen = np.zeros(self.width, np.float32)
        seen[PHASES.index(act.role)] = 1
        seen[start:end] = (
            act.step / self.iterations,
            query.startswith("disease "),
            query.startswith("drug "),
            query.startswith("gene "),
            query in grades,
            grades.get(query, 0) / 9,
            min(unasked / 3, 1),
            max(beliefs, default=0) / 9,
            last is not None,
            len(picked) / self.paths,
        )
        seen[[end + i for i in picked]] = 1
        if act.role == "summarise":
            seen[end + self.menu :] = _passages(act)
        return seen, self.mask(act, picked)

    def mask(self, act: Act, picked: Sequence[int]) -> np.ndarray:
        mask = np.zeros(self.actions, np.int8)
        if act.role == "metapaths":
            mask[FIRST : FIRST + self.menu] = 1
            mask[[FIRST + i for i in picked]] = 0
            mask[0] = bool(picked)
        elif act.role == "summarise":
            mask[0] = 1
            mask[FIRST : FIRST + len(act.facts["evidence"].passages[:PASSAGES])] = 1
        else:
            mask[:FIRST] = 1
        return mask

    def reply(self, act: Act, action: int, picked: Sequence[int] = ()) -> tuple[str | None, tuple[int, ...]]:
        """(the reply, None while more meta-paths may follow; meta-paths picked so far)."""
        if act.role in REPLIES:
            return REPLIES[act.role][action], ()
        if act.role == "summarise":
            return _summary(act, action), ()
        picked = (*picked, action - FIRST) if action >= FIRST else tuple(picked)
        whole = action < FIRST or len(picked) == min(self.paths, self.menu)
        return " ".join(map(str, picked)) if whole else None, picked


def _passages(act: Act) -> np.ndarray:
    """float32 [CLUES * PASSAGES]: the clues of each passage."""
    features = np.zeros((PASSAGES, CLUES), np.float32)
    name = act.facts["query"].split(" ", 1)[-1]
    for row, passage in zip(features, act.facts["evidence"].passages, strict=False):
        ends = passage.text.split(" - ")
        row[:] = passage.kind == "edge", name in (ends[0], ends[-1]), bool(grades_in(passage.text)), TARGET in ends
    return features.ravel()


def _summary(act: Act, action: int) -> str:
    """Agent-Low's answer from the passage it chose, worded as the teacher words it."""
    query = act.facts["query"]
    if action < FIRST:
        return finding(query, None)
    text = act.facts["evidence"].passages[action - FIRST].text
    stated = grades_in(text)
    if stated:
        return finding(query, max(stated))
    last = text.rsplit(" - ", 1)[-1]
    return hop(query, last) if f" {TARGET} " in text else f"{query} {last}"


class ExactTeacher(ScriptedTeacher):
    """The teacher without error: no habit asks chance, so that no generator need be made for every reply."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._rules[act.role](act, UNUSED)) for act in acts]


@dataclass(frozen=True)
class NavigationGame:
    """GHAR's decisions as a game (envs/views/games.py); `agents`: who decides, ("top",) or ("top", "low")."""

    scene: Scene
    chart: Chart
    agents: tuple[str, ...]
    fixed: Mapping[str, Policy] = field(default_factory=dict)

    def spaces(self) -> tuple[spaces.Dict, Allowed]:
        box = spaces.Box(0, 1, (self.chart.width,), np.float32)
        return masked(box, self.chart.actions), Allowed(self.chart.actions)

    def start(self, case: Any, seed: int) -> NavigationPlay:
        return NavigationPlay(self.chart, SteppedEpisode(self.scene, case, self.fixed, seed))


def navigation(scene: Scene, knowledge: Knowledge, chart: Chart, agents: Sequence[str] = ("top",)) -> NavigationGame:
    """The game on GHAR's scene; a `knowledge` without errors makes the teacher's rules the best there are in words."""
    decided = {role for agent in agents for role in DECISIONS[agent]}
    words = ExactTeacher(knowledge, NO_ERROR)
    fixed: dict[str, Policy] = {role: words for role in scene.roles if role not in decided}
    remembered = replace(scene, name="Navigation", corpus=CachedCorpus(scene.corpus))
    return NavigationGame(remembered, chart, tuple(agents), fixed)


@dataclass(eq=False)
class NavigationPlay:
    """picked: meta-paths named so far in the open decision."""

    chart: Chart
    paused: SteppedEpisode
    picked: tuple[int, ...] = ()

    def observe(self, place: int | None) -> dict[str, np.ndarray]:
        if place is None:
            nothing = np.zeros(self.chart.width, np.float32)
            return {"observation": nothing, "action_mask": only_waiting(self.chart.actions)}
        seen, mask = self.chart.observe(self.paused.acts[place], self.picked)
        return {"observation": seen, "action_mask": mask}

    def act(self, place: int, action: object) -> None:
        act = self.paused.acts[place]
        chosen = within(action, self.chart.mask(act, self.picked))
        text, self.picked = self.chart.reply(act, chosen, self.picked)
        if text is not None:
            self.picked = ()
            self.paused.answer(place, Completion(text))
