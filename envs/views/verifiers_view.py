"""verifiers' MultiTurnEnv: a game of texts for its rollouts, evaluations and the trainers that play its environments.

    game = GAMES["GHAR"]()                                     # ghar.envs.register, or TextGame(scene_of(system))
    env = VerifiersEnvironment(game, cases=64)
    done = await env.generate(env.get_dataset(), client=vf.ClientConfig(api_base_url=...), model="NAME")

Each question is a message of the user, each reply one of the assistant; the reward is R_all of the episode. verifiers
sees one agent with one growing conversation, as TRL does. Needs verifiers 0.3 (`pip install 'ghar[verifiers]'`): 0.4
has no MultiTurnEnv.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import verifiers as vf
from datasets import Dataset
from gymnasium.error import InvalidAction
from verifiers.legacy.types import Messages, State, UserMessage

from ghar.envs.system import mark_of
from ghar.envs.views.games import TextGame, earned
from ghar.privacy import check_destination

ASK = "Answer each question about a patient. Where choices are given, answer with one of them and nothing else."
VERIFIERS = "verifiers"  # as privacy.allow names what it sends to
ENDED = "No question is left."


def rows(game: TextGame, cases: int | None = None) -> Dataset:
    """One row a case; verifiers plays a row as often as it is asked to."""
    count = len(game.scene.cases) if cases is None else min(cases, len(game.scene.cases))
    prompt = [{"role": "system", "content": ASK}]
    return Dataset.from_list([{"prompt": prompt, "info": {"case": case}} for case in range(count)])


def reward(state: State) -> float:
    """What the episode has earned; one that was not played to its end has earned what its scene pays on the way, which
    is nothing where rewards arrive at the end."""
    return earned(state["play"])


class VerifiersEnvironment(vf.MultiTurnEnv):
    """The episodes of a game. cases: how many of its cases, None: all. more: what MultiTurnEnv takes (max_turns).

    allow: as privacy.allow. verifiers sends the questions to whatever client it is given, which no gate of ours sees:
    BadInput before the first question about a credentialed patient unless "verifiers" is named.
    """

    def __init__(self, game: TextGame, cases: int | None = None, allow: Sequence[str] = (), **more: Any):
        self._game, self._allow = game, tuple(allow)
        super().__init__(dataset=rows(game, cases), rubric=vf.Rubric(funcs=[reward]), **more)

    async def setup_state(self, state: State) -> State:
        """Begin the episode of a row's case: its first question follows the instruction."""
        case = self._game.scene.cases[state["info"]["case"]]
        check_destination(mark_of(case), VERIFIERS, self._allow)
        state["play"] = self._game.start(case, seed=0)
        state["prompt"] = [*state["prompt"], UserMessage(content=self._question(state))]
        return state

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        """Give the newest reply to the question that was asked last; returns the next one."""
        play = state["play"]
        try:
            play.act(play.paused.waiting()[0][1], messages[-1].content or "")
        except InvalidAction as error:
            return [UserMessage(content=str(error))]
        return [UserMessage(content=self._question(state))]

    def _question(self, state: State) -> str:
        """The next question; none is left: the loop is to end."""
        paused = state["play"].paused
        if not (waiting := paused.waiting()):
            state["final_env_response"] = [UserMessage(content=ENDED)]
            return ENDED
        act = paused.acts[waiting[0][1]]
        return f"{act.prompt}\nChoices: {', '.join(act.choices)}" if act.choices else act.prompt
