"""Games for the tests of the views: GHAR on a made-up corpus, and navigation of a little world with a known optimum."""

from __future__ import annotations

from dataclasses import replace

from ghar.envs.ghar.demo import REWARDS, ghar_scene
from ghar.envs.ghar.episode import GharEpisodes, GharSpec
from ghar.envs.ghar.navigation import Chart, NavigationGame, navigation
from ghar.envs.ghar.teacher import Knowledge
from ghar.envs.stepper import Scene
from ghar.envs.views.games import TextGame, TokenGame
from ghar.episode import Evidence, Passage, Retrieve
from ghar.kg.metapaths import MetaPath
from ghar.retrieval.partition import merge
from tests.envs.parts import Corpus, make_case, make_episodes

RARE = {"disease rare0": 9, "disease rare1": 0, "drug rare2": 5}  # grades that only the graph states
PATHS = (("disease", "other"), ("disease", "signs"), ("drug", "effects"), ("drug", "x"))
MENU = tuple(MetaPath(i, head, relation, "x", relation) for i, (head, relation) in enumerate(PATHS))
ANSWERS = {"disease": "signs", "drug": "effects", "gene": "x"}
KNOWLEDGE = Knowledge({"disease d": 1, "drug m": 2}, ANSWERS, lambda g: min(g // 4, 2))


class Graph:
    """States the grade of a rare topic on its right meta-path, as one node and one edge a partition."""

    def retrieve(self, requests: list[Retrieve]) -> list[Evidence]:
        return [merge([self._found(r.query, i) for i in r.partitions or ()]) for r in requests]

    def _found(self, query: str, partition: int) -> list[Passage]:
        kind, name = query.split(" ", 1)
        right = MENU[partition].relation == KNOWLEDGE.relations[kind]
        tail = f"grade {RARE[query]} course" if right and query in RARE else "nothing of note"
        edge = Passage(f"{name} - is - {tail}", "edge", partition, 1.0, 10 + partition)
        return [Passage(f"{name} ({kind})", "node", partition, 0.5, partition), edge]


def ghar_scene_small() -> Scene:
    episodes = make_episodes(iterations=3)
    return ghar_scene(episodes, Corpus(), [make_case(n, n % 3) for n in range(5)], REWARDS)  # type: ignore[arg-type]


def text_game() -> TextGame:
    return TextGame(ghar_scene_small())


def token_game() -> TokenGame:
    return TokenGame(ghar_scene_small(), context=2048)


def navigation_scene() -> Scene:
    topics = [("disease d", "drug m"), *((topic, "disease d") for topic in RARE)]
    grades = [max([RARE.get(t, KNOWLEDGE.grades.get(t, 0)) for t in pair]) for pair in topics]
    cases = [
        replace(make_case(n, KNOWLEDGE.label_of(grade)), topics=pair)
        for n, (pair, grade) in enumerate(zip(topics, grades, strict=True))
    ]
    spec = GharSpec("compact", rewrites=3, max_iterations=3, max_paths=3, top_n=1, ablation="none")
    return ghar_scene(GharEpisodes(spec, MENU), Graph(), cases, REWARDS)  # type: ignore[arg-type]


def navigation_game(agents: tuple[str, ...] = ("top", "low")) -> NavigationGame:
    return navigation(navigation_scene(), KNOWLEDGE, Chart(KNOWLEDGE, 3, 3, len(MENU)), agents)


GAMES = {"text": text_game, "tokens": token_game, "navigation": navigation_game}
