"""GraphWalker's search as an episode: greedy in it is Algorithm 1, gains are rewards, and the numbers tell the walk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium)")

from benchmarks.walks import best_gain
from benchmarks.walks import play as walk
from ghar.arrays import unit_rows
from ghar.envs.graphwalker.selection import (
    ScoredByFunction,
    WalkEpisodes,
    WalkPrediction,
    WalkSpec,
    WalkStart,
    walk_scene,
)
from ghar.envs.graphwalker.selection_game import CANDIDATE, WALK, WalkGame, demo_walks, greedy_action
from ghar.envs.graphwalker.selectors import graphwalker
from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Selection, SelectionQuery, Shots, cosines
from ghar.envs.graphwalker.selectors.scorer import drive
from ghar.envs.graphwalker.selectors.search import greedy, lazy
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.views.gym_view import GymView
from ghar.envs.views.pettingzoo_view import aec
from ghar.episode import Act, Completion, Retrieve
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy
from tests.envs.graphwalker.greedy import Greedy, ScoredByModel
from tests.envs.graphwalker.selectors.walks import HashScorer, links, make_world, play, soft_coverage

MEASURED = pytest.mark.parametrize("measured", [True, False])


def small(seed: int, budget: int, measured: bool, noisy: bool = False, rows: int = 25):
    """(scene, entropy, anchors, neighbours) of one random walk."""
    rng = np.random.default_rng(seed)
    near, smooth, noise = links(rng, rows, 4), soft_coverage(rng, rows), {}
    anchors = tuple(rng.integers(0, rows, 5).tolist())
    unit = rng.normal(size=(rows, 3)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)

    def entropy(shots: Shots) -> float:
        return noise.setdefault(shots, rng.random()) if noisy else smooth(shots)

    case = WalkStart("s0", anchors, near.__getitem__, unit @ unit[0], unit)
    scene = walk_scene(WalkEpisodes(WalkSpec(budget, measured)), ScoredByFunction({"s0": entropy}), [case])
    return scene, entropy, anchors, near


def found(scene, policy) -> tuple[Selection, float]:
    """What a policy of the rollout selects in a scene's first case, and what that is worth."""
    case = scene.cases[0]
    job = EpisodeJob(case.sample_id, 0, lambda: scene.episode(case))
    [episode] = rollout([job], {"selector": policy}, scene.corpus, seed=0, in_flight=1)
    assert isinstance(episode.prediction, WalkPrediction)
    return episode.prediction.selection, scene.reward(episode, case).total


@MEASURED
@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), budget=st.integers(1, 5), noisy=st.booleans())
def test_greedy_is_algorithm_1(measured: bool, seed: int, budget: int, noisy: bool) -> None:
    scene, entropy, anchors, near = small(seed, budget, measured, noisy)
    mine, worth = found(scene, FunctionPolicy(Greedy(scene.corpus)))
    theirs, _ = play(greedy(anchors, near.__getitem__, budget), entropy)
    assert (mine.shots, mine.gains) == (theirs.shots, theirs.gains)
    assert [step.frontier for step in mine.steps] == [step.frontier for step in theirs.steps]
    assert mine.scored == (theirs.scored if measured else 1 + len(mine.shots))
    assert worth == pytest.approx(entropy(()) - entropy(mine.shots), abs=1e-5)
    if not noisy:
        assert mine.shots == play(lazy(anchors, near.__getitem__, budget), entropy)[0].shots


def test_greedy_can_be_beaten_but_no_walk_beats_the_best() -> None:
    scene = demo_walks()
    env, rng = GymView(WalkGame(scene, 3)), np.random.default_rng(0)
    greedy_, random, optimum = [], [], []
    for number in (0, 1, 11, 18):
        case = scene.cases[number]
        greedy_.append(walk(env, number, greedy_action)[0])
        random.append(walk(env, number, lambda seen: int(rng.choice(np.flatnonzero(seen["action_mask"]))))[0])
        optimum.append(best_gain(case, scene.corpus.entropies[case.sample_id], 3))  # type: ignore[attr-defined]
    assert np.all(np.array(optimum) >= np.array(greedy_) - 1e-5) and max(np.array(optimum) - greedy_) > 0.01
    assert sum(random) < sum(greedy_) < sum(optimum)


@MEASURED
def test_every_pick_is_rewarded_by_its_gain_at_once(measured: bool) -> None:
    scene = demo_walks(measured=measured)
    entropy = scene.corpus.entropies["generated-3"]  # type: ignore[attr-defined]
    env, shots = GymView(WalkGame(scene, 3)), ()
    env.reset(seed=0, options={"case": 3})
    for last in (False, False, True):
        assert env.play is not None
        row = env.play.paused.acts[0].facts["frontier"][2]
        _, reward, terminated, _, info = env.step(3)
        assert float(reward) == pytest.approx(entropy(shots) - entropy((*shots, row)), abs=1e-5)
        assert terminated == last
        shots = (*shots, row)
    assert info["terms"] == {"gain": pytest.approx(entropy(()) - entropy(shots), abs=1e-5)}


def test_the_agent_is_selector_0_and_may_stop() -> None:
    env = aec(WalkGame(demo_walks(), 3))
    env.reset(seed=1)
    assert env.possible_agents == ["selector_0"]
    env.step(1)
    _, gain, terminated, *_ = env.last()
    assert not terminated and gain != 0
    env.step(0)
    _, rest, terminated, *_ = env.last()
    assert terminated and rest == pytest.approx(0)
    prediction = env.unwrapped.play.paused.episode.prediction  # type: ignore[attr-defined]
    assert prediction.selection.gains == (pytest.approx(gain),)


def test_observations_tell_the_walk() -> None:
    scene = demo_walks()
    game = WalkGame(scene, 3)
    env = GymView(game)
    seen, _ = env.reset(seed=0, options={"case": 5})
    case = scene.cases[5]

    def read() -> tuple[dict[str, float], list[dict[str, float]]]:
        row = seen["observation"]
        table = row[len(WALK) :].reshape(-1, len(CANDIDATE))[seen["action_mask"][1:] == 1]
        walk: dict[str, float] = dict(zip(WALK, row.tolist(), strict=False))
        return walk, [dict(zip(CANDIDATE, r, strict=True)) for r in table.tolist()]

    walk, candidates = read()
    assert walk == {"picked": 0, "earned": 0, "candidates": pytest.approx(9 / 64)} and len(candidates) == 9
    rows = sorted(case.anchors)
    assert [c["likeness"] for c in candidates] == pytest.approx([case.likeness[r] for r in rows], rel=1e-5)
    assert all(c["nearest"] == c["waiting"] == 0 for c in candidates)
    first = max(range(9), key=lambda i: candidates[i]["gain"])
    new = set(case.near(rows[first])) - set(rows)
    assert candidates[first]["opens"] == pytest.approx(len(new) / 64)
    seen, reward, *_ = env.step(1 + first)
    walk, candidates = read()
    assert walk["earned"] == pytest.approx(float(reward)) and walk["picked"] == pytest.approx(1 / 3)
    rows = sorted({*rows, *new} - {rows[first]})
    assert len(candidates) == len(rows)
    for row, told in zip(rows, candidates, strict=True):
        assert told["waiting"] == pytest.approx(0 if row in new else 1 / 3)
        assert told["nearest"] == pytest.approx(float(case.unit[row] @ case.unit[env_pick(env)]), abs=1e-5)


def env_pick(env: GymView) -> int:
    assert env.play is not None
    return env.play.paused.acts[0].facts["shots"][0]


def test_what_is_not_measured_is_not_told() -> None:
    env = GymView(WalkGame(demo_walks(measured=False), 3))
    seen, _ = env.reset(seed=0)
    assert not seen["observation"][len(WALK) :].reshape(-1, len(CANDIDATE))[:, CANDIDATE.index("gain")].any()
    assert env.play is not None and "gain" not in env.play.paused.acts[0].prompt


def test_too_few_slots_are_named() -> None:
    with pytest.raises(BadInput, match="9 candidates: make the game with at least as many slots"):
        GymView(WalkGame(demo_walks(), 3, slots=8)).reset(seed=0)


def test_a_reply_that_names_no_candidate_ends_the_walk() -> None:
    class Says:
        def answer(self, acts, seeds):
            return [Completion("999")]

    scene = small(0, 3, True)[0]
    selection, total = found(scene, Says())
    assert selection.shots == () and total == 0


def test_a_scorer_is_asked_for_sets() -> None:
    scene = small(0, 3, True)[0]
    with pytest.raises(TypeError, match="answers MeasureSets"):
        scene.corpus.retrieve([Retrieve("s0")])


def test_real_patients_walk_as_graphwalker_has_them() -> None:
    """The same anchors, neighbours and scores as the selector's own search, with greedy picks."""
    pool, queries = make_world(3)
    corpus = ScoredByModel(HashScorer(), {q.patient.sample_id: q.patient for q in queries})  # type: ignore[arg-type]
    cases = [walk_case(pool, query) for query in queries]
    scene = walk_scene(WalkEpisodes(WalkSpec(pool.selector.k)), corpus, cases)
    for case, query in zip(cases, queries, strict=True):

        def near(row: int, query=query) -> list[int]:
            return [int(r) for r in pool.graph.neighbours_of(row) if query.allowed[r]]  # type: ignore[union-attr]

        search = greedy(graphwalker.anchors(pool, query), near, pool.selector.k)
        [theirs] = drive([lambda s=search, q=query: graphwalker.measured(s, q)], HashScorer(), 1)
        job = EpisodeJob(case.sample_id, 0, lambda case=case: scene.episode(case))
        [episode] = rollout([job], {"selector": FunctionPolicy(Greedy(corpus))}, corpus, seed=0, in_flight=1)
        assert isinstance(episode.prediction, WalkPrediction)
        assert episode.prediction.selection == theirs
        assert all(query.allowed[row] for row in theirs.shots)
        asked = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
        assert len(asked) >= len(theirs.shots)


def walk_case(pool: ExamplePool, query: SelectionQuery) -> WalkStart:
    """The walk of a real patient: anchors and neighbours as `ghar.envs.graphwalker.selectors.graphwalker` has them."""
    graph = pool.graph
    assert graph is not None

    def near(row: int) -> list[int]:
        return [int(other) for other in graph.neighbours_of(row) if query.allowed[other]]

    likeness = cosines(pool.vectors, query.vector)
    anchors = tuple(graphwalker.anchors(pool, query))
    return WalkStart(query.patient.sample_id, anchors, near, likeness, unit_rows(pool.vectors))
