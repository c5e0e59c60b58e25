"""`ghar.envs.check(env)`: does an environment keep the promises of this house? For a sixth system's author.

The libraries' own checks (gymnasium's check_env, PettingZoo's api_test) know spaces and signatures; this one knows
episodes. It takes any view of a game: gym_view.GymView (or what gymnasium.make returns), pettingzoo_view.aec, parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.stepper import Scene, SteppedEpisode
from ghar.envs.views.spaces import Unicode
from ghar.episode import Act, AuditRecord, Completion, Episode
from ghar.rewards.compose import EpisodeReward

LONGEST = 100_000  # decisions of an episode


@dataclass
class _Log:
    """One episode as its player saw it: every (act, observation, action), and the rewards of each agent ("": all)."""

    decisions: list[tuple[Act, Any, Any]] = field(default_factory=list)
    rewards: dict[str, float] = field(default_factory=dict)
    record: Any = None


def check(env: Any, *, seed: int = 0, episodes: int = 3) -> None:
    """Play `episodes` random ones and raise AssertionError, in one sentence, for the first promise that is broken.

    Determinism: the same seed and actions give the same observations, rewards and text. Masks: observations lie in
    their space, some action is allowed, one outside the mask is refused and changes nothing. Segments: every act that
    was asked is one turn, in order, of a declared agent and role, and every turn's reward is accounted for. Text: the
    rollout asks for exactly the prompts the player was shown, and ends with the same episode.
    """
    core = env.unwrapped
    wrap = "wrap yours in ghar.envs.views.gym_view.GymView"
    _require(hasattr(core, "game"), f"{type(core).__name__} is no view of a game: {wrap}")
    for number in range(episodes):
        first = _play(env, seed + number, probe=True)
        second = _play(env, seed + number, probe=False)
        _same(first, second)
        play = core.play.paused
        _segments(play.episode, core.game.scene)
        _rewards(play.scene.reward(play.episode, play.case), play.episode, first)
        _text(first, first.record)
        _replayed(play)


def _require(holds: object, sentence: str) -> None:
    if not holds:
        raise AssertionError(f"ghar.envs.check: {sentence}.")


def _play(env: Any, seed: int, probe: bool) -> _Log:
    """A random episode; with `probe`, actions outside the mask are tried too."""
    rng, log, core = np.random.default_rng(seed), _Log(), env.unwrapped
    for observation, place, space in _decisions(env, seed, log):
        act = core.play.paused.acts[place]
        action = _choose(observation, act, space, rng)
        if probe and isinstance(observation, dict):
            _refused(core, place, observation)
        log.decisions.append((act, observation, action))
        _require(len(log.decisions) < LONGEST, f"an episode did not end within {LONGEST} decisions")
    log.record = core.play.paused.episode
    return log


def _decisions(env: Any, seed: int, log: _Log) -> Iterator[tuple[Any, int, Any]]:
    """(observation, place, action space) of each decision; the caller adds its action to `log.decisions` meanwhile."""
    core = env.unwrapped
    if hasattr(env, "agent_iter"):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, _ = env.last()
            log.rewards[agent.removesuffix("_0")] = log.rewards.get(agent.removesuffix("_0"), 0.0) + reward
            if terminated or truncated:
                env.step(None)
                continue
            yield _contained(observation, env.observation_space(agent)), _place(core), env.action_space(agent)
            env.step(log.decisions[-1][2])
    elif hasattr(core, "possible_agents"):
        observed, _ = env.reset(seed=seed)
        while env.agents:
            actions: dict[str, Any] = {
                agent: "" if isinstance(env.action_space(agent), Unicode) else 0 for agent in env.agents
            }
            for agent, place in core.decisions().items():
                space = env.observation_space(agent)
                yield _contained(observed[agent], space), place, env.action_space(agent)
                actions[agent] = log.decisions[-1][2]
            observed, rewards, _, _, _ = env.step(actions)
            for agent, reward in rewards.items():
                log.rewards[agent.removesuffix("_0")] = log.rewards.get(agent.removesuffix("_0"), 0.0) + reward
    else:
        observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            yield _contained(observation, env.observation_space), _place(core), env.action_space
            observation, reward, terminated, truncated, _ = env.step(log.decisions[-1][2])
            log.rewards[""] = log.rewards.get("", 0.0) + float(reward)
            ended = terminated or truncated


def _place(core: Any) -> int:
    return core.play.paused.waiting()[0][1]


def _contained(observation: Any, space: Any) -> Any:
    _require(space.contains(observation), f"an observation lies outside its space {space}")
    if isinstance(observation, dict):
        _require(observation["action_mask"].any(), "an action mask allows nothing")
    return observation


def _choose(observation: Any, act: Act, space: Any, rng: np.random.Generator) -> Any:
    if isinstance(observation, dict):
        return int(rng.choice(np.flatnonzero(observation["action_mask"])))
    if act.choices:
        return act.choices[int(rng.integers(len(act.choices)))]
    space.seed(int(rng.integers(2**31)))
    return space.sample()


def _refused(core: Any, place: int, observation: dict[str, np.ndarray]) -> None:
    """An action outside the mask raises InvalidAction and leaves the decision as it was."""
    from gymnasium.error import InvalidAction

    for action in np.flatnonzero(observation["action_mask"] == 0)[:2]:
        try:
            core.play.act(place, int(action))
        except InvalidAction:
            _require(_equal(core.play.observe(place), observation), "a refused action changed the observation")
        else:
            _require(False, f"action {action} is outside the mask and was taken")


def _equal(a: object, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


def _same(first: _Log, second: _Log) -> None:
    _require(len(first.decisions) == len(second.decisions), "the same seed led to episodes of different length")
    for (act, seen, did), (other, also_seen, also_did) in zip(first.decisions, second.decisions, strict=True):
        _require(act.prompt == other.prompt, "the same seed led to different prompts")
        _require(_equal(seen, also_seen) and did == also_did, "the same seed led to different observations")
    _require(first.rewards == second.rewards, "the same seed led to different rewards")
    _require(replace(first.record, seconds=0) == replace(second.record, seconds=0), "the same seed, another episode")


def _segments(episode: Episode, scene: Scene) -> None:
    """One turn for every act of the trace, in order, by agents and in roles that the scene declares."""
    asked: list[AuditRecord] = [record for record in episode.trace if isinstance(record.effect, Act)]
    left = list(episode.turns)
    _require(
        episode.failure or len(asked) == len(left), f"{len(asked)} acts were asked, but there are {len(left)} turns"
    )
    _require([turn.index for turn in left] == list(range(len(left))), "turns are not numbered in order")
    for record in asked:
        act: Any = record.effect
        completion = record.result.completion  # type: ignore[union-attr]
        who = (act.agent, act.role, act.step)
        mine = [i for i, t in enumerate(left) if t.completion is completion and (t.agent, t.role, t.step) == who]
        _require(mine, f"the answer of {act.agent} as {act.role} is in no turn")
        del left[mine[0]]
        _require(act.agent in scene.agents, f"agent {act.agent} is not among the scene's {scene.agents}")
        _require(act.role in scene.roles, f"role {act.role} is not among the scene's {scene.roles}")


def _rewards(worth: EpisodeReward, episode: Episode, log: _Log) -> None:
    _require(len(worth.per_turn) == len(episode.turns), "rewards are not given turn by turn")
    total = sum(value for turn in worth.per_turn for value in turn.values())
    _require(abs(total - worth.total) < 1e-6, f"the turns' rewards add up to {total}, the episode's is {worth.total}")
    for agent, received in log.rewards.items():
        due = worth.total if agent == "" else sum(worth.arriving(agent))
        _require(abs(received - due) < 1e-6, f"{agent or 'the learner'} was given {received}, but {due} is due")


def _text(log: _Log, episode: Episode) -> None:
    """Where prompts or token ids were observed, they are those of the turns."""
    prompts = [record.effect.prompt for record in episode.trace if isinstance(record.effect, Act)]
    for act, seen, _ in log.decisions:
        _require(not isinstance(seen, str) or seen == act.prompt, "the player was shown another text than the prompt")
        _require(episode.failure or act.prompt in prompts, "a prompt that was shown is not part of the episode")
    for record in episode.trace:
        if isinstance(record.effect, Act) and not record.effect.choices:
            token_ids: tuple[int, ...] = record.result.completion.token_ids  # type: ignore[union-attr]
            chosen = tuple(action for act, _, action in log.decisions if act is record.effect)
            _require(not token_ids or token_ids == chosen, "the tokens of a turn are not those that were chosen")


class _Replay:
    """A policy of the rollout that answers what was answered before, where it is asked the same."""

    def __init__(self, episode: Episode):
        self.records = [record for record in episode.trace if isinstance(record.effect, Act)]

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        answers = []
        for act in acts:
            same = [r for r in self.records if r.effect == act]
            _require(same, f"the rollout asks {act.agent} as {act.role} for another prompt than the player was shown")
            self.records.remove(same[0])
            answers.append(same[0].result.completion)  # type: ignore[union-attr]
        return answers


def _replayed(play: SteppedEpisode) -> None:
    """The rollout, given the same answers, plays the same episode."""
    episode = play.episode
    assert episode is not None  # it has been played
    if episode.failure is not None:
        return
    job = EpisodeJob(episode.sample_id, 0, lambda: play.scene.episode(play.case))
    policy = _Replay(episode)
    policies = dict.fromkeys(play.scene.agents, policy)
    again = rollout([job], policies, play.scene.corpus, seed=0, in_flight=1)[0]
    _require(again.trace == episode.trace, "the rollout's trace differs from the view's")
    _require(again.prediction == episode.prediction, "the rollout's prediction differs from the view's")
