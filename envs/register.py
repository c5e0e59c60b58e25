"""The environments under the ids Gymnasium knows them by, once this module is imported.

`gymnasium.make("envs.register:ghar/GHAR-v0")` imports it by itself. Without arguments an environment plays on the demo
world's generated patients (envs/demo.py); give `scene` for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium

from envs.demo import SPEC, demo_scene
from envs.games import BYTES, Codec, Game, TextGame, TokenGame
from envs.gym_view import GymView
from envs.navigation import Chart, NavigationGame, navigation
from envs.scene import Scene


def ghar_game(
    scene: Scene | None = None, view: Literal["text", "tokens"] = "text", codec: Codec = BYTES, context: int = 4096
) -> Game:
    """GHAR as a game of texts, or of token ids by `codec` (bytes, or `envs.games.codec_of(tokenizer)`)."""
    scene = scene or demo_scene()[0]
    return TextGame(scene) if view == "text" else TokenGame(scene, codec, context)


def navigation_game(agents: Sequence[str] = ("top",), folder: str = ".cache/ghar") -> NavigationGame:
    """Navigation of the demo world; `agents`: ("top",) or ("top", "low")."""
    scene, knowledge = demo_scene(folder)
    menu = len(scene.episode.__self__.metapaths)  # type: ignore[attr-defined]
    return navigation(scene, knowledge, Chart(knowledge, SPEC.max_iterations, SPEC.max_paths, menu), agents)


def make_ghar(render_mode: str | None = None, **game: Any) -> GymView:
    """`game`: as for `ghar_game`."""
    return GymView(ghar_game(**game), render_mode)


def make_navigation(render_mode: str | None = None, **game: Any) -> GymView:
    """`game`: as for `navigation_game`."""
    return GymView(navigation_game(**game), render_mode)


gymnasium.register("ghar/GHAR-v0", entry_point=make_ghar)
gymnasium.register("ghar/Navigation-v0", entry_point=make_navigation)
