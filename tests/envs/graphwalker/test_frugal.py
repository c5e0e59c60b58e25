"""GraphWalker's walk with prompts to spend: the rule is Appendix J's search, and nobody spends more than there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium)")

from benchmarks.walks import play as walked
from ghar.envs.graphwalker.frugal import (
    ABOUT,
    CANDIDATE,
    NEW,
    TRIED,
    FrugalEpisodes,
    FrugalGame,
    FrugalPrediction,
    demo_frugal,
    frugal,
    ranked,
)
from ghar.envs.graphwalker.selection import ScoredByFunction, WalkStart
from ghar.envs.graphwalker.selection_game import play
from ghar.envs.graphwalker.selectors.protocol import Shots
from ghar.envs.graphwalker.selectors.search import lazy
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.stepper import Scene
from ghar.envs.views.gym_view import GymView
from ghar.episode import Completion
from ghar.errors import BadInput
from tests.envs.graphwalker.selectors.walks import links, soft_coverage

SEEDS = st.integers(0, 10**6)


def game(seed: int, budget: int, prompts: int):
    """(game, entropy, anchors, neighbours) of one random walk."""
    rng = np.random.default_rng(seed)
    near, smooth = links(rng, 25, 4), soft_coverage(rng, 25)
    anchors = tuple(rng.integers(0, 25, 5).tolist())
    unit = rng.normal(size=(25, 3)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    case = WalkStart("s0", anchors, near.__getitem__, unit @ unit[0], unit)
    scored: list[Shots] = []

    def entropy(shots: Shots) -> float:
        scored.append(shots)
        return smooth(shots)

    made = demo_frugal()
    episodes = FrugalEpisodes(budget, prompts)
    scene = Scene("walk", made.agents, made.roles, [case], episodes.episode, ScoredByFunction({"s0": entropy}),
                  made.reward, made.so_far)  # fmt: skip
    return FrugalGame(scene), smooth, scored, anchors, near


def prediction(env: GymView) -> FrugalPrediction:
    assert env.play is not None and env.play.paused.episode is not None
    found = env.play.paused.episode.prediction
    assert isinstance(found, FrugalPrediction)
    return found


@settings(max_examples=30)
@given(SEEDS)
def test_with_prompts_enough_the_rule_is_the_lazy_search(seed: int) -> None:
    made, entropy, scored, anchors, near = game(seed, 3, 1000)
    env = GymView(made)
    gain, _ = walked(env, 0, frugal)
    theirs = play(lazy(anchors, near.__getitem__, 3), entropy)
    mine = prediction(env)
    assert mine.shots == theirs.shots and mine.scored == theirs.scored == len(scored)
    assert [g for g in mine.gains if g] == pytest.approx([g for g in theirs.gains if g])
    assert gain == pytest.approx(entropy(()) - entropy(mine.shots), abs=1e-5)


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 12), st.integers(1, 4))
def test_no_one_spends_more_than_there_is(seed: int, prompts: int, budget: int) -> None:
    made, entropy, scored, *_ = game(seed, budget, prompts)
    env, rng = GymView(made), np.random.default_rng(seed)
    gain, _ = walked(env, 0, lambda seen: int(rng.choice(np.flatnonzero(seen["action_mask"]))))
    found = prediction(env)
    assert len(scored) == found.scored <= prompts and len(found.shots) <= budget
    assert gain == pytest.approx(entropy(()) - entropy(found.shots), abs=1e-5)
    assert gain == pytest.approx(sum(found.gains), abs=1e-5)  # each gain is rounded to six digits


def test_numbers_stand_for_candidates_and_a_fresh_one_is_taken() -> None:
    env = GymView(FrugalGame(demo_frugal(prompts=4)))
    seen, _ = env.reset(seed=0, options={"case": 2})
    assert seen["action_mask"].tolist() == [1, *[0] * TRIED, *[1] * 9, *[0] * (NEW - 9)]  # nine anchors, none known
    for left in (2, 1, 0):
        seen, reward, *_ = env.step(1 + TRIED)
        assert reward == 0 and round(seen["observation"][ABOUT.index("left")] * 10) == left
    table = seen["observation"][len(ABOUT) :].reshape(-1, len(CANDIDATE))
    known = table[:3, CANDIDATE.index("gain")]
    assert seen["action_mask"].tolist() == [1, 1, 1, 1, *[0] * (TRIED - 3 + NEW)] and (np.diff(known) <= 0).all()
    assert table[:3, CANDIDATE.index("fresh")].tolist() == [1, 1, 1]
    assert env.play is not None
    row = ranked(env.play.paused.acts[0])[0]
    _, reward, terminated, *_ = env.step(1)
    assert reward == pytest.approx(known[0], abs=1e-5) and terminated  # nothing is left to measure with
    assert prediction(env).shots == (row,) and prediction(env).scored == 4


def test_one_prompt_measures_nothing() -> None:
    with pytest.raises(BadInput, match="give 2 or more"):
        FrugalEpisodes(3, 1)


def test_a_language_model_is_asked_in_words() -> None:
    scene, asked = demo_frugal(prompts=3), []

    class First:
        def answer(self, acts, seeds):
            asked.extend(acts)
            return [Completion(act.choices[1]) for act in acts]

    case = scene.cases[0]
    job = EpisodeJob(case.sample_id, 0, lambda: scene.episode(case))
    [episode] = rollout([job], {"selector": First()}, scene.corpus, seed=0, in_flight=1)
    first, second, *_ = asked
    assert "Measurements left: 2" in first.prompt and "with 0 examples" in second.prompt
    assert isinstance(episode.prediction, FrugalPrediction) and len(episode.prediction.shots) == 2
    assert scene.reward(episode, case).total == pytest.approx(sum(episode.prediction.gains))
