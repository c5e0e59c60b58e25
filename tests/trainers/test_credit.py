"""Credit assignment against a double loop that knows nothing of arrays, tables or recursions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.episode import Completion, Episode, Prediction, ReasoningStep, Turn
from ghar.rewards.compose import EpisodeReward, RewardSpec, score_episode
from ghar.trainers.rl.credit import credit, episode_rewards, whiten
from ghar.trainers.rl.trajectory import Trajectories
from tests.growth import TENFOLD, times_as_long
from tests.trainers.minibatch import select, token_index
from tests.trainers.tiny import build

MODES = ("token", "turn", "bilevel")


@dataclass(frozen=True)
class Said:
    """One turn of a made-up episode: top's and low's terms arrive at its end."""

    agent: str
    prompt: int
    reply: int
    top: float = 0.0
    low: float = 0.0
    trainable: bool = True


@dataclass(frozen=True)
class Played:
    turns: tuple[Said, ...]
    cut: bool = False


def table(episodes: list[Played], composition: str = "shared") -> Trajectories:
    built, rewards = [], []
    for i, e in enumerate(episodes):
        turns = []
        for k, s in enumerate(e.turns):
            ids = Completion("x", (1,) * s.prompt, (2,) * s.reply, (-1.0,) * s.reply)
            turns.append(Turn(s.agent, "answer", k, 0, ids, True, s.trainable))
        built.append(Episode(str(i), 0, Prediction(None if e.cut else 1), tuple(turns), cut=e.cut))
        terms = tuple({"orm": s.top, "relevance": s.low} for s in e.turns)
        rewards.append(EpisodeReward({}, 0.0, terms, composition))
    return build(built, rewards)


def discounted(values: list[float], rewards: list[float], after: float, gamma: float, lam: float) -> list[float]:
    """A_t as the sum over k of (γλ)^(k-t) δ_k, each written out."""
    follow = [*values[1:], after]
    n = len(values)
    return [
        sum((gamma * lam) ** (k - t) * (rewards[k] + gamma * follow[k] - values[k]) for k in range(t, n))
        for t in range(n)
    ]


def slow_credit(episodes, composition, values, mode, per_agent, gamma, lam, bootstrap):
    advantages, returns = np.zeros(len(values)), np.zeros(len(values))
    offset = 0
    for e, played in enumerate(episodes):
        places = []
        for s in played.turns:
            offset += s.prompt
            places.append(list(range(offset, offset + s.reply)))
            offset += s.reply
        for agent in ("top", "low") if per_agent or composition == "separate" else (None,):
            turns: list[list[int]] = []
            rewards: list[float] = []
            acted = None
            for s, place in zip(played.turns, places, strict=True):
                mine = s.trainable and s.reply > 0 and agent in (None, s.agent)
                if mine:
                    turns.append(place)
                    rewards.append(0.0)
                    acted = s.agent
                if turns and agent is not None and composition == "separate":
                    rewards[-1] += s.top if agent == "top" else s.low
                elif turns:
                    rewards[-1] += s.top + s.low
            after = float(bootstrap[e, ("top", "low").index(acted)]) if played.cut and acted else 0.0
            v = [float(x) for x in values]
            if mode == "token":
                flat = [t for turn in turns for t in turn]
                r = dict.fromkeys(flat, 0.0)
                for turn, reward in zip(turns, rewards, strict=True):
                    r[turn[-1]] = reward
                for t, a in zip(
                    flat, discounted([v[t] for t in flat], [r[t] for t in flat], after, gamma, lam), strict=True
                ):
                    advantages[t], returns[t] = a, a + v[t]
            elif mode == "turn":
                whole = discounted([v[turn[0]] for turn in turns], rewards, after, gamma, lam)
                for turn, a in zip(turns, whole, strict=True):
                    for t in turn:
                        advantages[t], returns[t] = a, a + v[turn[0]]
            else:
                whole = discounted([v[turn[-1]] for turn in turns], rewards, after, gamma, lam)
                for turn, end in zip(turns, whole, strict=True):
                    for k, t in enumerate(turn):
                        inner = sum(
                            (gamma * lam) ** (j - k) * (gamma * v[turn[j + 1]] - v[turn[j]])
                            for j in range(k, len(turn) - 1)
                        )
                        advantages[t] = inner + (gamma * lam) ** (len(turn) - 1 - k) * end
                        returns[t] = advantages[t] + v[t]
    return advantages, returns


def check(episodes: list[Played], composition: str = "shared", gamma: float = 0.97, lam: float = 0.9) -> None:
    traj = table(episodes, composition)
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, len(traj.tokens)).astype(np.float32)
    bootstrap = rng.uniform(-1, 1, (len(episodes), 2))
    for mode in MODES:
        for per_agent in (False, True):
            got = credit(traj, values, mode=mode, per_agent=per_agent, gamma=gamma, lam=lam, bootstrap=bootstrap)
            want = slow_credit(episodes, composition, values, mode, per_agent, gamma, lam, bootstrap)
            for g, w in zip(got, want, strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6, err_msg=f"{mode} {per_agent}")
                assert g.dtype == np.float32 and not g[~traj.mask].any()


CASES = {
    "single turn": [Played((Said("top", 3, 4, 1.0),))],
    "single token": [Played((Said("top", 1, 1, 1.0),))],
    "two turns with retrieved text between": [Played((Said("top", 3, 4), Said("low", 9, 3, 1.0, 0.5)))],
    "failed attempt, every reward zero": [Played((Said("top", 3, 4), Said("low", 5, 3), Said("top", 2, 2)))],
    "one turn with reward zero": [Played((Said("top", 2, 3, 0.7), Said("top", 2, 3), Said("low", 2, 2, 1.0)))],
    "end on retrieved text": [Played((Said("top", 2, 3, 0.7), Said("low", 8, 0, 1.0)))],
    "end on a fixed policy": [Played((Said("top", 2, 3), Said("low", 2, 2), Said("top", 2, 5, 3.0, 0.5, False)))],
    "begin on a fixed policy": [Played((Said("top", 2, 3, 9.0, 1.0, False), Said("low", 2, 2, 1.0)))],
    "truncation": [Played((Said("top", 2, 3, 0.7), Said("low", 8, 2)), cut=True)],
    "truncation beside termination": [Played((Said("top", 2, 3, 0.7),), cut=True), Played((Said("top", 2, 3, 0.7),))],
    "nothing trainable": [Played((Said("top", 2, 3, 0.7, 0.1, False),)), Played((Said("low", 1, 2, 0.5),))],
    "no episode": [],
}


@pytest.mark.parametrize("composition", ["shared", "separate"])
@pytest.mark.parametrize("name", CASES)
def test_cases(name: str, composition: str) -> None:
    check(CASES[name], composition)


unit = st.floats(-1, 1, width=32)
said = st.builds(
    Said,
    st.sampled_from(["top", "low"]),
    st.integers(0, 3),
    st.integers(0, 4),
    unit | st.just(0.0),
    unit,
    st.booleans(),
)
played = st.builds(Played, st.lists(said, min_size=1, max_size=5).map(tuple), st.booleans())


@settings(max_examples=60)
@given(
    st.lists(played, max_size=4), st.sampled_from(["shared", "separate"]), st.floats(0, 1), st.sampled_from([0, 0.5, 1])
)
def test_random_trajectories(episodes: list[Played], composition: str, gamma: float, lam: float) -> None:
    check(episodes, composition, gamma, lam)


@settings(max_examples=30)
@given(st.lists(played, min_size=1, max_size=4))
def test_retrieved_text_changes_nothing(episodes: list[Played]) -> None:
    """Longer prompts and other values on them leave every advantage as it was."""
    longer = [Played(tuple(Said(s.agent, s.prompt + 5, s.reply, s.top, s.low, s.trainable) for s in e.turns), e.cut)
              for e in episodes]  # fmt: skip
    a, b = table(episodes), table(longer)
    inside = np.random.default_rng(1).uniform(-1, 1, a.trainable_tokens)
    va, vb = np.full(len(a.tokens), np.nan), np.full(len(b.tokens), -7.0)
    va[a.mask], vb[b.mask] = inside, inside
    for mode in MODES:
        for left, right in zip(
            credit(a, va, mode=mode, per_agent=True, gamma=0.9, lam=0.8),
            credit(b, vb, mode=mode, per_agent=True, gamma=0.9, lam=0.8),
            strict=True,
        ):
            np.testing.assert_array_equal(left[a.mask], right[b.mask])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per_agent", [False, True])
def test_separately_rewarded_agents_gain_nothing_from_each_other(mode: str, per_agent: bool) -> None:
    """Ablation NS needs no per_agent: with other rewards for Agent-Low, Agent-Top's advantages stay, and only then."""

    def advantages(low: float, composition: str) -> tuple[np.ndarray, np.ndarray]:
        turns = (Said("top", 2, 3, 1.0), Said("low", 4, 2, 0.0, low), Said("top", 2, 2, 2.0, low))
        traj = table([Played(turns)], composition)
        values = np.linspace(-1, 1, len(traj.tokens))
        found, _ = credit(traj, values, mode=mode, per_agent=per_agent, gamma=0.9, lam=0.8)
        top = np.repeat(traj.segments.agent == 0, traj.segments.end - traj.segments.start)
        return found[traj.mask & top], found[traj.mask & ~top]

    few, many = advantages(0.5, "separate"), advantages(3.0, "separate")
    np.testing.assert_array_equal(few[0], many[0])
    assert (few[1] < many[1]).all()
    assert (advantages(0.5, "shared")[0] < advantages(3.0, "shared")[0]).all()


@pytest.mark.parametrize("mode", MODES)
def test_the_stream_of_a_cut_episode_is_closed_by_its_own_agents_head(mode: str) -> None:
    traj = table([Played((Said("top", 2, 3), Said("low", 4, 2)), cut=True)])
    values, agent = np.zeros(len(traj.tokens)), np.repeat(traj.segments.agent, traj.segments.end - traj.segments.start)
    args = {"mode": mode, "gamma": 1.0, "lam": 1.0, "bootstrap": np.array([[7.0, -5.0]])}
    _, own = credit(traj, values, per_agent=True, **args)
    assert set(own[traj.mask & (agent == 0)]) == {7.0} and set(own[traj.mask & (agent == 1)]) == {-5.0}
    _, joint = credit(traj, values, per_agent=False, **args)
    assert set(joint[traj.mask]) == {-5.0}  # Agent-Low acted last


def test_without_discount_every_mode_returns_what_is_left_to_earn() -> None:
    traj = table([Played((Said("top", 2, 3, 1.0), Said("low", 4, 2, 0.0, 0.5), Said("top", 2, 2, 2.0)))])
    values = np.linspace(-1, 1, len(traj.tokens))
    left = np.repeat([3.5, 2.5, 2.0], [3, 2, 2])
    for mode in MODES:
        _, returns = credit(traj, values, mode=mode, per_agent=False, gamma=1.0, lam=1.0)
        np.testing.assert_allclose(returns[traj.mask], left, atol=1e-6)


def test_truncation_without_bootstrap_is_termination() -> None:
    turns = (Said("top", 2, 3, 0.7),)
    cut, ended = table([Played(turns, True)]), table([Played(turns, False)])
    values = np.linspace(0, 1, len(cut.tokens))
    for mode in MODES:
        args = {"mode": mode, "per_agent": False, "gamma": 0.9, "lam": 0.9}
        np.testing.assert_array_equal(credit(cut, values, **args)[0], credit(ended, values, **args)[0])


SPEC = RewardSpec(
    eta=5.0, alpha=0.2, length=3, normalise="range", rank="sound",
    composition="shared", max_iterations=5, max_paths=3,
)  # fmt: skip
ENDS = {"right": (1, "stop"), "wrong": (0, "stop"), "unreadable": (None, "stop"), "endless": (None, "length")}


def ending(how: str) -> Episode:
    """Seven readable turns and a final answer; the longer the last reply, the less it is one."""
    label, finish = ENDS[how]
    roles = ("rewrite", "retrieve", "metapaths", "summarise", "continue", "answer", "continue", "predict")
    turns = []
    for k, role in enumerate(roles):
        ids = (2,) * (9 if how == "endless" and role == "predict" else 2)
        done = Completion("x", (1,), ids, (-1.0,) * len(ids), finish_reason=finish if role == "predict" else "stop")
        readable = role != "predict" or label is not None
        turns.append(Turn("low" if role == "summarise" else "top", role, k, int(k > 4), done, readable))
    step = ReasoningStep("is it severe", "very severe", True, (0,), 0, 0, "it is very severe")
    return Episode(how, 0, Prediction(label, (step, step)), tuple(turns))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [0.0, 3.0, 12.4, 50.0])
def test_an_endless_answer_is_never_better_than_one_that_stopped(mode: str, value: float) -> None:
    """By the project's own rewards, table and credit, with a critic that says `value` everywhere."""
    episodes = [ending(how) for how in ENDS]
    traj = build(episodes, [score_episode(episode, 1, SPEC) for episode in episodes])
    everywhere = np.full((len(episodes), 2), value)
    advantages, _ = credit(
        traj, np.full(len(traj.tokens), value), mode=mode, per_agent=False, gamma=1.0, lam=0.95, bootstrap=everywhere
    )
    last = [int(traj.segments.end[2 * 8 * (i + 1) - 1]) - 1 for i in range(len(ENDS))]
    right, wrong, unreadable, endless = advantages[last]
    assert right > wrong > unreadable >= endless


def test_order_of_rows_does_not_matter() -> None:
    traj = table([Played((Said("top", 2, 3, 1.0), Said("low", 4, 2, 0.5))), Played((Said("top", 1, 2, 1.0),))])
    order = [2, 1, 0]
    values = np.linspace(0, 1, len(traj.tokens))
    whole, _ = credit(traj, values, mode="token", per_agent=False, gamma=0.9, lam=0.9)
    at = token_index(traj, order)
    mixed, _ = credit(select(traj, order), values[at], mode="token", per_agent=False, gamma=0.9, lam=0.9)
    np.testing.assert_array_equal(whole[at], mixed)


def test_whitening_is_per_agent() -> None:
    traj = table([Played((Said("top", 2, 30, 1.0), Said("low", 4, 20, 0.5), Said("top", 1, 9)))] * 3)
    x = np.random.default_rng(2).normal(3, 5, len(traj.tokens)).astype(np.float32)
    agent = np.repeat(traj.segments.agent, traj.segments.end - traj.segments.start)
    white = whiten(x, traj)
    for a in (0, 1):
        part = white[traj.mask & (agent == a)]
        assert abs(part.mean()) < 1e-5 and part.std() == pytest.approx(1.0, abs=1e-4)
    together = whiten(x, traj, per_agent=False)[traj.mask]
    assert abs(together.mean()) < 1e-5 and together.std() == pytest.approx(1.0, abs=1e-4)
    assert not white[~traj.mask].any()


def test_equal_advantages_whiten_to_zero() -> None:
    traj = table([Played((Said("top", 2, 3), Said("low", 1, 1)))])
    np.testing.assert_allclose(whiten(np.full(len(traj.tokens), 0.1), traj), 0.0, atol=1e-6)
    assert not whiten(np.zeros(0), table([])).any()


def test_whitening_over_ranks_equals_whitening_at_once() -> None:
    episodes = [Played((Said("top", 2, 5), Said("low", 1, 4))), Played((Said("top", 1, 7),))]
    whole = table(episodes)
    x = np.random.default_rng(3).normal(size=len(whole.tokens))
    at_once: list[np.ndarray] = []
    expected = whiten(x, whole, reduce=lambda sums: at_once.append(sums) or sums)
    parts = [table([e]) for e in episodes]
    cuts = np.split(x, [len(parts[0].tokens)])
    contributed: list[np.ndarray] = []
    ranks = []
    for part, cut in zip(parts, cuts, strict=True):  # every rank is handed the sums over all
        answers = iter(at_once)
        ranks.append(whiten(cut, part, reduce=lambda mine, it=answers: contributed.append(mine) or next(it)))
    np.testing.assert_allclose(np.concatenate(ranks), expected, atol=1e-6)
    for mine, other, both in zip(contributed[:2], contributed[2:], at_once, strict=True):
        np.testing.assert_allclose(mine + other, both)


def test_literal_value_target_is_the_shared_reward() -> None:
    episodes = [Played((Said("top", 2, 2, 1.0), Said("low", 1, 1, 0.0, 0.5))), Played((Said("top", 0, 1, 3.0),))]
    shared = table(episodes)
    assert episode_rewards(shared, per_agent=True)[shared.mask].tolist() == [1.5, 1.5, 1.5, 3.0]
    separate = table(episodes, "separate")
    assert episode_rewards(separate, per_agent=True)[separate.mask].tolist() == [1.0, 1.0, 0.5, 3.0]
    assert episode_rewards(separate, per_agent=False)[separate.mask].tolist() == [1.0, 1.0, 0.5, 3.0]


@pytest.mark.slow
def test_ten_times_the_episodes_take_about_ten_times_as_long() -> None:
    turns = tuple(Said("low" if k % 3 == 2 else "top", 1, 10, 0.1) for k in range(10))

    def of(episodes: int, mode: Any) -> Callable[[], object]:
        traj = table([Played(turns)] * episodes)
        values = np.random.default_rng(4).normal(size=len(traj.tokens)).astype(np.float32)
        return lambda: credit(traj, values, mode=mode, per_agent=True, gamma=1.0, lam=0.95)

    for mode in MODES:
        assert times_as_long(of(200, mode), of(2000, mode)) < TENFOLD
