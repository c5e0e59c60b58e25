"""The environments under the ids Gymnasium knows them by, once this module is imported.

`gymnasium.make("ghar.envs.register:ghar/GHAR-v0")` imports it by itself, in a clone and where GHAR is installed
(Gymnasium 1.0 gave up the entry points that did without the prefix). Without arguments an environment plays on
generated patients, which are made on first use; give `scene` for others. `game` makes what pettingzoo_view.aec and
parallel play.

    id                    system                                     agents           views
    ghar/GHAR-v0          retrieve before predicting                 top, low         text, tokens
    ghar/GraphWalker-v0   choosing examples                          selector         numbers, text, tokens
    ghar/EHRRAG-v0        events, for and against                    top, low         text, tokens
    ghar/EXPRAG-v0        similar patients' reports                  top              text, tokens
    ghar/KARE-v0          communities of a graph                     top              text, tokens
    ghar/Navigation-v0    GHAR's decisions without the words         top (and low)    numbers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium

from ghar.envs.ehr_rag.demo import demo_events
from ghar.envs.exprag.demo import demo_questions
from ghar.envs.ghar.demo import SPEC, demo_scene
from ghar.envs.ghar.navigation import Chart, NavigationGame, navigation
from ghar.envs.graphwalker.frugal import FrugalGame, demo_frugal
from ghar.envs.graphwalker.selection_game import SPEC as WALK
from ghar.envs.graphwalker.selection_game import WalkGame, demo_walks
from ghar.envs.kare.demo import demo_communities
from ghar.envs.stepper import Scene
from ghar.envs.views.games import BYTES, Codec, Game, TextGame, TokenGame
from ghar.envs.views.gym_view import GymView, Illegal

View = Literal["text", "tokens"]


def _system(
    demo: Callable[..., Scene],
    scene: Scene | None = None,
    view: View = "text",
    codec: Codec = BYTES,
    context: int = 4096,
    folder: str | None = None,
) -> Game:
    """A system as a game of texts, or of token ids by `codec` (bytes, or `ghar.envs.views.games.codec_of(tokenizer)`).

    folder: where generated patients are kept; None is the user's cache folder (ghar.disk.user_cache).
    """
    scene = scene or demo(folder)
    return TextGame(scene) if view == "text" else TokenGame(scene, codec, context)


def walk_game(
    scene: Scene | None = None,
    view: Literal["numbers", "text", "tokens"] = "numbers",
    codec: Codec = BYTES,
    context: int = 4096,
    budget: int = WALK.budget,
    measured: bool = WALK.measured,
    slots: int = 64,
    prompts: int | None = None,
) -> Game:
    """GraphWalker's search; `budget`, `measured`: as for WalkSpec, `slots`: as for WalkGame. prompts: that a walk may
    have scored, where the agent chooses what is measured as well (envs/graphwalker/frugal.py)."""
    scene = scene or (demo_walks(budget, measured) if prompts is None else demo_frugal(budget, prompts))
    if view == "numbers":
        return WalkGame(scene, budget, slots) if prompts is None else FrugalGame(scene)
    return TextGame(scene) if view == "text" else TokenGame(scene, codec, context)


def navigation_game(agents: Sequence[str] = ("top",), folder: str | None = None) -> NavigationGame:
    """Navigation of the demo world; `agents`: ("top",) or ("top", "low")."""
    scene, knowledge = demo_scene(folder)
    menu = len(scene.episode.__self__.metapaths)  # type: ignore[attr-defined]
    return navigation(scene, knowledge, Chart(knowledge, SPEC.max_iterations, SPEC.max_paths, menu), agents)


GAMES: Mapping[str, Callable[..., Game]] = {
    "GHAR": partial(_system, lambda folder: demo_scene(folder)[0]),
    "GraphWalker": walk_game,
    "EHRRAG": partial(_system, demo_events),
    "EXPRAG": partial(_system, demo_questions),
    "KARE": partial(_system, demo_communities),
    "Navigation": navigation_game,
}


def make(name: str, render_mode: str | None = None, illegal: Illegal = "raise", **arguments: Any) -> GymView:
    """The Gymnasium environment of GAMES[name]; `arguments` are the game's, `illegal`: see GymView."""
    return GymView(GAMES[name](**arguments), render_mode, illegal)


for _name in GAMES:
    gymnasium.register(f"ghar/{_name}-v0", entry_point=partial(make, _name))  # type: ignore[arg-type]
