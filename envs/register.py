"""The environments under the ids Gymnasium knows them by, once this module is imported.

`gymnasium.make("ghar.envs.register:ghar/GHAR-v0")` imports it by itself, in a clone and where GHAR is installed
(Gymnasium 1.0 gave up the entry points that did without the prefix). Without arguments an environment plays on
generated patients, which are made on first use; give `scene` for others. `split="train"`, "valid" or "test" plays on
one part of the patients. `GAMES` makes what pettingzoo_view.aec and parallel play.

    id                    system                                     agents           views
    ghar/GHAR-v0          retrieve before predicting                 top, low         text, tokens
    ghar/GraphWalker-v0   choosing examples                          selector         numbers, text, tokens
    ghar/EHRRAG-v0        events, for and against                    top, low         text, tokens
    ghar/EXPRAG-v0        similar patients' reports                  top              text, tokens
    ghar/KARE-v0          communities of a graph                     top              text, tokens
    ghar/Navigation-v0    GHAR's decisions without the words         top (and low)    numbers
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import gymnasium

from ghar.envs.demo import ETA
from ghar.envs.ehr_rag.demo import demo_events
from ghar.envs.exprag.demo import demo_questions
from ghar.envs.ghar.demo import SPEC, demo_scene
from ghar.envs.ghar.navigation import Chart, NavigationGame, navigation
from ghar.envs.grading import Score, Split, balanced, best_constant, cases_of, graded, right_label
from ghar.envs.graphwalker.frugal import FrugalGame, demo_frugal
from ghar.envs.graphwalker.selection_game import SPEC as WALK
from ghar.envs.graphwalker.selection_game import WalkGame, demo_walks
from ghar.envs.kare.demo import demo_communities
from ghar.envs.stepper import Scene
from ghar.envs.views.games import BYTES, Codec, Game, TextGame, TokenGame
from ghar.envs.views.gym_view import GymView, Illegal
from ghar.metrics.scores import set_scores

View = Literal["text", "tokens"]
Pay = Literal["graded", "paper"]
PAYS: tuple[Pay, ...] = ("graded", "paper")
SCORES = Path(__file__).with_name("scores.json")
ANSWERS = range(256)  # labels, or sets of up to eight options


def _system(
    demo: Callable[..., Scene],
    score: Score = right_label,
    scene: Scene | None = None,
    view: View = "text",
    codec: Codec = BYTES,
    context: int = 4096,
    folder: str | None = None,
    split: Split | None = None,
    reward: Pay = "graded",
) -> Game:
    """A system as a game of texts, or of token ids by `codec` (bytes, or `ghar.envs.views.games.codec_of(tokenizer)`).

    folder: where generated patients are kept; None is the user's cache folder (ghar.disk.user_cache). split: the part
    of the cases, by patient; None is all. reward: of generated patients, "graded" (envs/grading.py: a constant reply
    earns nothing, and each label comes as often) or "paper" (the system's own R_all, cases as they come).
    """
    scene = _paid(demo(folder), score, split, reward) if scene is None else cases_of(scene, split)
    return TextGame(scene) if view == "text" else TokenGame(scene, codec, context)


def _paid(scene: Scene, score: Score, split: Split | None, reward: Pay) -> Scene:
    """A generated scene with one part of its cases and the reward that is asked for."""
    if reward not in PAYS:
        raise ValueError(f"reward={reward!r}: choose among {', '.join(PAYS)}.")
    scene = cases_of(scene, split)
    if reward == "paper":
        return scene
    cases = balanced(scene.cases) if score is right_label else scene.cases
    return graded(replace(scene, cases=cases), score, best_constant(cases, ANSWERS, score), ETA)


def _f1(case: Any, answer: int | None) -> float:
    """F1 of the options chosen."""
    return set_scores(case.label, answer)["f1"]


def walk_game(
    scene: Scene | None = None,
    view: Literal["numbers", "text", "tokens"] = "numbers",
    codec: Codec = BYTES,
    context: int = 4096,
    budget: int = WALK.budget,
    measured: bool = WALK.measured,
    slots: int = 64,
    prompts: int | None = None,
    split: Split | None = None,
) -> Game:
    """GraphWalker's search; `budget`, `measured`: as for WalkSpec, `slots`: as for WalkGame. prompts: that a walk may
    have scored, where the agent chooses what is measured as well (envs/graphwalker/frugal.py)."""
    scene = scene or (demo_walks(budget, measured) if prompts is None else demo_frugal(budget, prompts))
    scene = cases_of(scene, split)
    if view == "numbers":
        return WalkGame(scene, budget, slots) if prompts is None else FrugalGame(scene)
    return TextGame(scene) if view == "text" else TokenGame(scene, codec, context)


def navigation_game(
    agents: Sequence[str] = ("top",), folder: str | None = None, split: Split | None = None, reward: Pay = "graded"
) -> NavigationGame:
    """Navigation of the demo world; `agents`: ("top",) or ("top", "low"); the others as of a system."""
    made, knowledge = demo_scene(folder)
    menu = len(made.episode.__self__.metapaths)  # type: ignore[attr-defined]
    scene = _paid(made, right_label, split, reward)
    return navigation(scene, knowledge, Chart(knowledge, SPEC.max_iterations, SPEC.max_paths, menu), agents)


GAMES: Mapping[str, Callable[..., Game]] = {
    "GHAR": partial(_system, lambda folder: demo_scene(folder)[0]),
    "GraphWalker": walk_game,
    "EHRRAG": partial(_system, demo_events),
    "EXPRAG": partial(_system, demo_questions, _f1),
    "KARE": partial(_system, demo_communities, context=8192),  # communities are long
    "Navigation": navigation_game,
}


def make(name: str, render_mode: str | None = None, illegal: Illegal = "raise", **arguments: Any) -> GymView:
    """The Gymnasium environment of GAMES[name]; `arguments` are the game's, `illegal`: see GymView.

    Its metadata hold what is known of the id: range of the reward, and what simple policies earn (envs/scores.json).
    """
    env = GymView(GAMES[name](**arguments), render_mode, illegal)
    vars(env)["metadata"] = {**GymView.metadata, **load_scores().get(f"ghar/{name}-v0", {})}  # of this id alone
    return env


@cache
def load_scores() -> Mapping[str, Any]:
    """Load what each id pays, as `python benchmarks/run.py environments` measured it."""
    return json.loads(SCORES.read_text())


for _name in GAMES:
    gymnasium.register(f"ghar/{_name}-v0", entry_point="ghar.envs.register:make", kwargs={"name": _name})
