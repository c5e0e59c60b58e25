"""PettingZoo: a game's agents one after the other (AEC) or all at every step (Parallel).

Agents are called top_0, low_0, ... An agent's reward is what R_all holds for it (everything, in the shared composition)
and arrives at the end, unless the scene says earlier. `aec` and `parallel` are what users call; both raise what
PettingZoo's own games raise: AssertionError for a step before reset and for an action outside the space,
gymnasium.error.InvalidAction for one outside the mask, gymnasium.error.Error for a seed that is not an integer.
"""

from __future__ import annotations

from typing import Any

from gymnasium.error import InvalidAction
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

from ghar.envs.stepper import transcript
from ghar.envs.views.games import Game, Play, about, begin, earned, ending
from ghar.envs.views.spaces import Unicode, show


def aec(game: Game, render_mode: str | None = None) -> OrderEnforcingWrapper:
    """The game as an AEC environment, with PettingZoo's checks of order and of actions around it."""
    return OrderEnforcingWrapper(AssertOutOfBoundsWrapper(AECView(game, render_mode)))


def parallel(game: Game, render_mode: str | None = None) -> ParallelView:
    """The game as a Parallel environment."""
    return ParallelView(game, render_mode)


class _Views:
    """What both views share: spaces, names, the play."""

    def __init__(self, game: Game, render_mode: str | None):
        self.game = game
        self.render_mode = render_mode
        self.metadata: dict[str, Any] = {"name": f"{game.scene.name.lower()}_v0", "render_modes": ["ansi"]}
        self.possible_agents = [f"{agent}_0" for agent in game.agents]
        made = {agent: game.spaces() for agent in self.possible_agents}
        self.observation_spaces = {agent: both[0] for agent, both in made.items()}
        self.action_spaces = {agent: both[1] for agent, both in made.items()}
        self.agents: list[str] = []
        self.play: Play | None = None
        self._given: dict[str, float] = {}
        self._rng = seeding.np_random()[0]

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def render(self) -> str | None:
        """The episode so far, as text."""
        return None if self.render_mode is None or self.play is None else transcript(self.play.paused)

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Play:
        if seed is not None:
            self._rng = seeding.np_random(seed)[0]
        self.agents = list(self.possible_agents)
        self.play = begin(self.game, self._rng, options)
        self._given = dict.fromkeys(self.possible_agents, 0.0)
        return self.play

    def decisions(self) -> dict[str, int]:
        """Agent -> place of its first open decision."""
        assert self.play is not None
        places: dict[str, int] = {}
        for agent, place in self.play.paused.waiting():
            places.setdefault(f"{agent}_0", place)
        return places

    def _rewards(self) -> dict[str, float]:
        """What each agent has earned since it was last asked for."""
        assert self.play is not None
        worth = {agent: earned(self.play, agent.removesuffix("_0")) for agent in self.possible_agents}
        new = {agent: value - self._given[agent] for agent, value in worth.items()}
        self._given = worth
        return new

    def _info(self, agent: str, places: dict[str, int]) -> dict[str, Any]:
        assert self.play is not None
        if agent in places:
            return about(self.play, places[agent])
        return {} if self.play.paused.episode is None else ending(self.play)


class AECView(_Views, AECEnv[str, Any, Any]):
    """One decision a step; `agent_selection` is whose it is."""

    def __init__(self, game: Game, render_mode: str | None = None):
        super().__init__(game, render_mode)
        self.metadata["is_parallelizable"] = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode of a case drawn with the seed; options {"case": index} names one instead."""
        self._begin(seed, options)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._skip_agent_selection = None
        self._look_around()

    def observe(self, agent: str) -> Any:
        assert self.play is not None
        return show(self.action_spaces[agent], self.play.observe(self.decisions().get(agent)))

    def step(self, action: object) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert self.play is not None
        self.play.act(self.decisions()[agent], action)
        self._cumulative_rewards[agent] = 0.0
        self._look_around()
        self._accumulate_rewards()

    def _look_around(self) -> None:
        """Whose turn it is and what everybody is told."""
        assert self.play is not None
        places, episode = self.decisions(), self.play.paused.episode
        failed = episode is not None and episode.failure is not None
        self.rewards = self._rewards()
        self.terminations = dict.fromkeys(self.agents, episode is not None and not failed)
        self.truncations = dict.fromkeys(self.agents, failed)
        self.infos = {agent: self._info(agent, places) for agent in self.agents}
        self.agent_selection = next(iter(places), self.agents[0])


class ParallelView(_Views, ParallelEnv[str, Any, Any]):
    """Every agent names an action at every step. One with nothing to decide (phase 0, or an empty prompt) may only name
    action 0, or the empty text, which does nothing; agents that are asked at the same time act at the same step."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Begin an episode of a case drawn with the seed; options {"case": index} names one instead."""
        self._begin(seed, options)
        return self._seen()

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        if self.play is None:
            raise AssertionError("reset() needs to be called before step.")
        if not self.agents:
            return {}, {}, {}, {}, {}
        places = self.decisions()
        if missing := sorted(set(places) - set(actions)):
            raise KeyError(f"step() got no action for {missing[0]}, whose turn it is")
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), "action is not in action space"
            waiting = "" if isinstance(self.action_space(agent), Unicode) else 0
            if agent not in places and action != waiting:
                words = f"Action {action!r} of {agent} is outside the action mask"
                raise InvalidAction(f"{words}: it may only wait ({waiting!r}).")
        for agent, place in places.items():
            self.play.act(place, actions[agent])
        episode, agents = self.play.paused.episode, self.agents
        failed = episode is not None and episode.failure is not None
        terminated = dict.fromkeys(agents, episode is not None and not failed)
        truncated = dict.fromkeys(agents, failed)
        seen, infos = self._seen()
        if episode is not None:
            self.agents = []
        return seen, self._rewards(), terminated, truncated, infos

    def _seen(self) -> tuple[dict, dict]:
        assert self.play is not None
        places = self.decisions()
        spaces, play = self.action_spaces, self.play
        observed = {agent: show(spaces[agent], play.observe(places.get(agent))) for agent in self.agents}
        return observed, {agent: self._info(agent, places) for agent in self.agents}
