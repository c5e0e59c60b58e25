"""Critic-free advantages against loops over plain lists."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.estimators import EPSILON, estimate, grpo, reinforce_pp, rloo, turn_group
from ghar.trainers.rl.trajectory import Trajectories
from tests.trainers.tiny import build

ROLES = {"top": ("retrieve", "predict"), "low": ("summarise",)}


@dataclass(frozen=True)
class Said:
    """A turn: top's and low's terms arrive at its end."""

    role: str
    reply: int
    top: float = 0.0
    low: float = 0.0
    trainable: bool = True

    @property
    def agent(self) -> str:
        return "low" if self.role in ROLES["low"] else "top"

    @property
    def learns(self) -> bool:
        return self.trainable and self.reply > 0


@dataclass(frozen=True)
class Attempt:
    sample: str
    turns: tuple[Said, ...]
    cut: bool = False


def table(attempts: list[Attempt], composition: str = "shared") -> Trajectories:
    episodes, rewards = [], []
    for i, attempt in enumerate(attempts):
        turns = tuple(
            Turn(s.agent, s.role, k, 0, Completion("x", (1, 1), (2,) * s.reply, (-1.0,) * s.reply), True, s.trainable)
            for k, s in enumerate(attempt.turns)
        )
        episodes.append(Episode(attempt.sample, i, Prediction(1), turns, cut=attempt.cut))
        terms = tuple({"orm": s.top, "relevance": s.low} for s in attempt.turns)
        rewards.append(EpisodeReward({}, 0.0, terms, composition))
    return build(episodes, rewards)


def earned(attempt: Attempt, agent: str, composition: str, first: int = 0) -> float:
    """What `agent` sees arrive from turn `first` on."""
    turns = attempt.turns[first:]
    if composition == "shared":
        return sum(s.top + s.low for s in turns)
    return sum(s.top if agent == "top" else s.low for s in turns)


def spread(attempts: list[Attempt], values: dict[tuple[int, int], float]) -> list[float]:
    """A value of each turn (attempt, place) on its tokens, 0 on prompts and wherever none is given."""
    out: list[float] = []
    for i, attempt in enumerate(attempts):
        for k, s in enumerate(attempt.turns):
            out += [0.0] * 2 + [values.get((i, k), 0.0)] * s.reply
    return out


def learning(attempts: list[Attempt]) -> list[tuple[int, int, Said]]:
    return [
        (i, k, s)
        for i, attempt in enumerate(attempts)
        for k, s in enumerate(attempt.turns)
        if s.learns and not attempt.cut
    ]


def slow_groups(attempts: list[Attempt], composition: str, name: str) -> dict[tuple[int, int], float]:
    out = {}
    for i, k, s in learning(attempts):
        peers = [
            j
            for j, other in enumerate(attempts)
            if other.sample == attempts[i].sample
            and any(t[0] == j and (composition == "shared" or t[2].agent == s.agent) for t in learning(attempts))
        ]
        own = earned(attempts[i], s.agent, composition)
        every = [earned(attempts[j], s.agent, composition) for j in peers]
        others = [earned(attempts[j], s.agent, composition) for j in peers if j != i]
        if not others:
            out[i, k] = 0.0
        elif name == "grpo":
            out[i, k] = (own - statistics.fmean(every)) / (statistics.pstdev(every) + EPSILON)
        else:
            out[i, k] = own - statistics.fmean(others)
    return out


def slow_turns(attempts: list[Attempt], composition: str) -> dict[tuple[int, int], float]:
    def place(i: int, k: int) -> tuple[str, str, int]:
        before = attempts[i].turns[:k]
        said = attempts[i].turns[k]
        return attempts[i].sample, said.role, sum(s.role == said.role and s.learns for s in before)

    out = {}
    for i, k, s in learning(attempts):
        same = [(j, m) for j, m, _ in learning(attempts) if place(j, m) == place(i, k) and j != i]
        others = [earned(attempts[j], s.agent, composition, m) for j, m in same]
        out[i, k] = earned(attempts[i], s.agent, composition, k) - statistics.fmean(others) if others else 0.0
    return out


def slow_whitened(attempts: list[Attempt], composition: str) -> dict[tuple[int, int], float]:
    out = {}
    for agents in (("top", "low"),) if composition == "shared" else (("top",), ("low",)):
        turns = [(i, k, s) for i, k, s in learning(attempts) if s.agent in agents]
        to_go = {(i, k): earned(attempts[i], s.agent, composition, k) for i, k, s in turns}
        tokens = [to_go[i, k] for i, k, s in turns for _ in range(s.reply)]
        for i, k, _ in turns:
            variance = statistics.pvariance(tokens)
            out[i, k] = (to_go[i, k] - statistics.fmean(tokens)) / (variance + 1e-8) ** 0.5
    return out


unit = st.floats(-3, 3, width=16)
said = st.builds(
    Said, st.sampled_from(["retrieve", "summarise", "predict"]), st.integers(0, 3), unit, unit, st.booleans()
)
attempt = st.builds(Attempt, st.sampled_from("ab"), st.lists(said, min_size=1, max_size=4).map(tuple), st.booleans())
PAIR = [Attempt("p", (Said("predict", 1, 0.5),)), Attempt("p", (Said("predict", 2, 2.0),))]  # a group in every batch
compositions = st.sampled_from(["shared", "separate"])


@settings(max_examples=80)
@given(st.lists(attempt, max_size=6), compositions)
def test_against_slow_direct_evaluations(some: list[Attempt], composition: str) -> None:
    attempts = [*PAIR, *some]
    traj = table(attempts, composition)
    expected = {
        "grpo": (grpo, slow_groups(attempts, composition, "grpo")),
        "rloo": (rloo, slow_groups(attempts, composition, "rloo")),
        "turn_group": (turn_group, slow_turns(attempts, composition)),
        "reinforce_pp": (reinforce_pp, slow_whitened(attempts, composition)),
    }
    whole = {(i, k): earned(attempts[i], s.agent, composition) for i, k, s in learning(attempts)}
    to_go = {(i, k): earned(attempts[i], s.agent, composition, k) for i, k, s in learning(attempts)}
    for name, (function, values) in expected.items():
        advantages, returns = function(traj)
        assert advantages.dtype == returns.dtype == np.float32 and advantages.shape == traj.tokens.shape
        np.testing.assert_allclose(advantages, spread(attempts, values), atol=2e-4, rtol=1e-5, err_msg=name)
        left = whole if name in ("grpo", "rloo") else to_go
        np.testing.assert_allclose(returns, spread(attempts, left), atol=1e-5, err_msg=name)


@settings(max_examples=30)
@given(st.lists(attempt, max_size=6), compositions, st.integers(0, 8))
def test_attempts_may_lie_in_several_processes(some: list[Attempt], composition: str, cut: int) -> None:
    """Each process has its part, and is handed the lists (or sums) of all."""
    attempts = [*PAIR, *some]
    parts = [table(part, composition) for part in (attempts[:cut], attempts[cut:])]
    whole = table(attempts, composition)
    for name in ("grpo", "rloo", "turn_group", "reinforce_pp"):
        seen: list = []

        def note(x, seen: list = seen):
            seen.append(x)
            return x

        expected, _ = estimate(whole, name, note, note)  # type: ignore[arg-type]
        found = []
        for part in parts:
            answers = iter(seen)
            found.append(estimate(part, name, lambda _, it=answers: next(it), lambda _, it=answers: next(it))[0])
        np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-6)


def test_nothing_to_compare_is_an_error() -> None:
    alone = table([Attempt(name, (Said("predict", 2, 1.0),)) for name in "abc"])
    for function in (grpo, rloo, turn_group):
        with pytest.raises(ValueError, match="played once"):
            function(alone)
    assert not reinforce_pp(alone)[0].any()  # all earned the same
    for function in (grpo, rloo, turn_group, reinforce_pp):
        assert not function(table([]))[0].size


def test_attempts_that_agree_teach_nothing() -> None:
    same = table([Attempt("a", (Said("retrieve", 1, 0.1), Said("predict", 2, 0.7)))] * 3)
    for function in (grpo, rloo, turn_group):
        np.testing.assert_allclose(function(same)[0], 0.0, atol=1e-6)


def test_an_endless_answer_is_worth_what_it_earned() -> None:
    """It is no cut, so it is compared like any other attempt; a cut one is nobody's baseline."""
    right, endless, cut = (
        Attempt("a", (Said("predict", 2, 15.0),)),
        Attempt("a", (Said("predict", 9, 4.0),)),
        Attempt("a", (Said("predict", 2, -50.0),), cut=True),
    )
    advantages, _ = rloo(table([right, endless, cut]))
    assert advantages[2] == 11.0 and advantages[6] == -11.0 and advantages[-1] == 0.0


def test_the_turn_baseline_compares_what_is_left_and_not_what_is_past() -> None:
    """Both retrieved at a cost of their own; what came after is the same, and so is its advantage."""
    dear = Attempt("a", (Said("retrieve", 1, -1.0), Said("predict", 1, 3.0)))
    cheap = Attempt("a", (Said("retrieve", 1, 0.0), Said("predict", 1, 3.0)))
    advantages, _ = turn_group(table([dear, cheap]))
    assert advantages[[2, 5, 8, 11]].tolist() == [-1.0, 0.0, 1.0, 0.0]
