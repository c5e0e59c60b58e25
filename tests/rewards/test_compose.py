"""R_all: sums, places and owners of rewards."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.episode import Completion, Episode, Prediction, ReasoningStep, Turn
from ghar.rewards.compose import TERMS, Reference, RewardSpec, costs, score_episode
from ghar.rewards.normalise import RunningNormaliser

SPEC = RewardSpec(
    eta=5.0, alpha=0.2, length=3, normalise="range", rank="sound",
    composition="shared", max_iterations=5, max_paths=3,
)  # fmt: skip
REFERENCE = Reference("is it severe yes very", "none")


def play(plan: list[str], label: int | None = 1) -> Episode:
    """An episode with one step per word of the plan: "own" answers by itself, "rag" retrieves."""
    turns: list[tuple[str, str, int]] = [("top", "rewrite", 0)]
    history = []
    for i, kind in enumerate(plan):
        turns.append(("top", "retrieve", i))
        if kind == "rag":
            turns += [("top", "metapaths", i), ("low", "summarise", i)]
            history.append(ReasoningStep("is it severe", "very severe", True, (0, i), 1, 0, "it is very severe"))
        else:
            turns.append(("top", "answer", i))
            history.append(ReasoningStep("is it severe", "no", False))
        turns.append(("top", "continue", i + 1))
    turns.append(("top", "predict", len(plan)))
    done = tuple(Turn(a, r, k, s, Completion("x"), True) for k, (a, r, s) in enumerate(turns))
    return Episode("p1", 0, Prediction(label, tuple(history)), done)


plans = st.lists(st.sampled_from(["own", "rag"]), min_size=1, max_size=5)


@given(plans, st.sampled_from(["range", "none"]), st.sampled_from(["shared", "separate"]), st.integers(0, 2))
def test_total_is_equation_14(plan: list[str], normalise: str, composition: str, label: int) -> None:
    spec = replace(SPEC, normalise=normalise, composition=composition)
    reward = score_episode(play(plan), label, spec, REFERENCE)
    t = reward.terms
    assert set(t) == set(TERMS)
    assert reward.total == pytest.approx(t["reason"] + t["path"] + t["relevance"] + 5.0 * t["orm"] + t["rank"])
    assert sum(reward.arriving()) == pytest.approx(reward.total)
    both = sum(reward.arriving("top")) + sum(reward.arriving("low"))
    assert both == pytest.approx(reward.total * (2 if composition == "shared" else 1))


@given(plans)
def test_raw_terms_are_the_equations(plan: list[str]) -> None:
    reward = score_episode(play(plan), 1, replace(SPEC, normalise="none"))
    retrievals = plan.count("rag")
    assert reward.terms["reason"] == pytest.approx(1 - len(plan) / 3)
    assert reward.terms["path"] == pytest.approx(1.5 * retrievals)
    # "very severe" against "is it severe" (1 of 2 + 3 words) and against "it is very severe" (2 of 2 + 4)
    assert reward.terms["relevance"] == pytest.approx(retrievals * (2 / 5 + 4 / 6))
    assert reward.terms["orm"] == 3.0
    assert reward.terms["rank"] == 0.0


@given(plans)
def test_terms_arrive_where_they_were_earned(plan: list[str]) -> None:
    episode = play(plan)
    reward = score_episode(episode, 1, SPEC, REFERENCE)
    for turn, terms in zip(episode.turns, reward.per_turn, strict=True):
        expected = {"metapaths": {"path", "repeats"}, "summarise": {"relevance"}, "predict": {"reason", "orm", "rank"}}
        assert set(terms) == expected.get(turn.role, set())


def test_each_step_is_scored_on_its_own_turn() -> None:
    episode = play(["rag", "own", "rag"])
    better = replace(episode.prediction.history[2], paths=(0, 1, 2), path_errors=0)
    history = (*episode.prediction.history[:2], better)
    reward = score_episode(replace(episode, prediction=Prediction(1, history)), 1, SPEC)
    path = [terms["path"] for terms in reward.per_turn if "path" in terms]
    assert path == [pytest.approx(-1.5 / 4.5 / SPEC.max_iterations), 0.0]


@given(plans)
def test_in_range_each_cost_of_a_whole_episode_is_at_most_one(plan: list[str]) -> None:
    found = score_episode(play(plan), 1, SPEC)
    assert all(-1.0 <= found.terms[term] <= 0.0 for term in ("reason", "path", "relevance"))


@given(plans)
def test_separate_rewards_have_one_owner_each(plan: list[str]) -> None:
    episode = play(plan)
    reward = score_episode(episode, 1, replace(SPEC, composition="separate"), REFERENCE)
    for turn, top, low in zip(episode.turns, reward.arriving("top"), reward.arriving("low"), strict=True):
        assert low == 0.0 or turn.role == "summarise"
        assert top == 0.0 or turn.role in ("metapaths", "predict")
    assert sum(reward.arriving("low")) == pytest.approx(reward.terms["relevance"])


def test_separate_outcome_goes_to_top_even_when_low_acts_last() -> None:
    episode = play(["rag"])
    until = next(k for k, turn in enumerate(episode.turns) if turn.role == "summarise") + 1
    reward = score_episode(replace(episode, turns=episode.turns[:until]), 1, replace(SPEC, composition="separate"))
    assert "orm" in reward.per_turn[-2] and set(reward.per_turn[-1]) == {"relevance"}


def test_no_retrieval_is_not_worse_than_a_perfect_one() -> None:
    episode = play(["rag"])
    perfect = ReasoningStep("severe", "severe", True, (0, 1, 2), 0, 0, "severe")
    retrieving = score_episode(replace(episode, prediction=Prediction(1, (perfect,))), 1, SPEC)
    knowing = score_episode(play(["own"]), 1, SPEC)
    assert knowing.total == retrieving.total
    raw = replace(SPEC, normalise="none")
    assert score_episode(replace(episode, prediction=Prediction(1, (perfect,))), 1, raw).total > knowing.total


@given(plans)
def test_range_costs_are_never_positive(plan: list[str]) -> None:
    terms = score_episode(play(plan), 1, SPEC).terms
    assert max(terms[name] for name in ("reason", "path", "relevance")) <= 0.0


def test_a_failed_episode_is_worth_nothing() -> None:
    reward = score_episode(replace(play(["own"]), failure="retriever"), 1, SPEC, REFERENCE)
    assert reward.total == 0.0 and set(reward.terms.values()) == {0.0}
    assert reward.arriving() == (0.0,) * len(play(["own"]).turns)


def test_running_needs_and_uses_its_normaliser() -> None:
    spec = replace(SPEC, normalise="running")
    with pytest.raises(ValueError, match="RunningNormaliser"):
        score_episode(play(["own"]), 1, spec)
    running = RunningNormaliser()
    for episode in (play(["own"]), play(["own", "own", "rag"])):
        running.observe((term, value) for _, term, value in costs(episode, spec))
    short = score_episode(play(["own"]), 1, spec, None, running).terms["reason"]
    long = score_episode(play(["own"] * 3), 1, spec, None, running).terms["reason"]
    assert (short, long) == (pytest.approx(1.0), pytest.approx(-1.0))


def test_an_episode_without_turns_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="p1"):
        score_episode(replace(play(["own"]), turns=()), 1, SPEC)


@pytest.mark.slow
@given(plans, st.sampled_from(["shared", "separate"]), st.data())
def test_a_cut_episode_has_costs_and_no_outcome(plan: list[str], composition: str, data: st.DataObject) -> None:
    """What is still to come is the critic's to say: neither its answer nor its length is known."""
    spec, whole = replace(SPEC, composition=composition), play(plan)
    turns = whole.turns[: data.draw(st.integers(0, len(whole.turns) - 1))]
    finished = whole.prediction.history[: max((turn.step for turn in turns), default=0)]
    reward = score_episode(
        replace(whole, turns=turns, prediction=Prediction(None, finished), cut=True), 1, spec, REFERENCE
    )
    full = score_episode(whole, 1, spec, REFERENCE)
    assert {term for turn in reward.per_turn for term in turn} <= {"path", "relevance", "repeats"}
    assert reward.terms["orm"] == reward.terms["rank"] == reward.terms["reason"] == 0.0
    assert reward.total == pytest.approx(sum(sum(turn.values()) for turn in reward.per_turn))
    for turn, there, here in zip(turns, full.per_turn, reward.per_turn, strict=False):
        assert here == (there if turn.step < len(finished) else {})
