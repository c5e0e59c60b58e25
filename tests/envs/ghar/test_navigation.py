"""Navigation: what is observed and allowed, that decisions lead where they should, and the rules by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium)")

import numpy as np

from ghar.envs.ghar.navigation import CLUES, FIRST, PASSAGES, PHASES, QUANTITIES, CachedCorpus, Chart, ExactTeacher
from ghar.envs.ghar.navigator import NavigationRule, Navigator, rules
from ghar.envs.ghar.teacher import NO_ERROR, ScriptedTeacher
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.views.gym_view import GymView
from ghar.envs.worlds.severity_grades import label_rule, topic_of
from ghar.episode import Retrieve
from tests.envs.views import KNOWLEDGE, MENU, Graph, navigation_game, navigation_scene

CHART = Chart(KNOWLEDGE, 3, 3, len(MENU))
BEST = NavigationRule(CHART, (1, 2, 3), fillers=0, enough=10)


def quantities(observation: dict[str, np.ndarray]) -> dict[str, float]:
    row = observation["observation"]
    return dict(zip(QUANTITIES, row[len(PHASES) :].tolist(), strict=False))


def play(game, case: int, actions: list[int]) -> tuple[GymView, float]:
    env = GymView(game)
    env.reset(seed=0, options={"case": case})
    reward, ended = 0.0, False
    for action in actions:
        assert not ended
        _, value, terminated, truncated, _ = env.step(action)
        reward, ended = float(value), terminated or truncated
    assert ended
    return env, reward


def test_observations_say_what_is_known_and_never_the_label() -> None:
    game = navigation_game()
    seen, _ = GymView(game).reset(seed=0, options={"case": 0})
    found = quantities(seen)
    assert found["disease"] + found["drug"] == 1 and found["known"] == 1 and found["unasked"] == 0
    assert found["highest"] == pytest.approx(2 / 9) and seen["action_mask"].nonzero()[0].tolist() == [0, 1]
    seen, _ = GymView(game).reset(seed=0, options={"case": 1})
    assert quantities(seen)["known"] == 0 and quantities(seen)["unasked"] == pytest.approx(1 / 3)
    scene = navigation_scene()
    for label in range(3):
        cases = [replace(case, label=label) for case in scene.cases]
        other, _ = GymView(replace(game, scene=replace(scene, cases=cases))).reset(seed=0, options={"case": 1})
        assert np.array_equal(other["observation"], seen["observation"])


def test_the_right_way_finds_the_grade_and_predicts_it() -> None:
    """Case 1: a rare condition of grade 9. Yes, meta-path 1, content, the passage that states it, terminate."""
    env = GymView(navigation_game())
    env.reset(seed=0, options={"case": 1})
    env.step(1)
    seen, *_ = env.step(FIRST + 1)
    assert quantities(seen)["picked"] == pytest.approx(1 / 3) and seen["action_mask"][FIRST + 1] == 0
    seen, _, _, _, info = env.step(0)
    assert info["agent"] == "low" and seen["action_mask"].nonzero()[0].tolist() == [0, FIRST, FIRST + 1]
    flags = seen["observation"][-CLUES * PASSAGES :].reshape(PASSAGES, CLUES)
    edge = int(flags[:, :3].all(axis=1).argmax())
    assert flags[edge].tolist() == [1, 1, 1, 0] and flags[1 - edge].tolist()[0] == 0
    seen, *_ = env.step(FIRST + edge)
    assert quantities(seen)["found"] == 1 and quantities(seen)["highest"] == 1
    _, reward, terminated, _, info = env.step(0)
    assert terminated and info["prediction"] == env.game.scene.cases[1].label
    wrong = play(navigation_game(), 1, [0, 0])[1]  # not looking up: grade 1 is all that is known
    assert float(reward) > wrong


def test_the_last_meta_path_needs_no_stop_and_none_is_no_choice() -> None:
    env = GymView(navigation_game())
    env.reset(seed=0, options={"case": 1})
    seen, *_ = env.step(1)
    assert seen["action_mask"][0] == 0  # at least one
    for path in (0, 2, 3):
        _, _, _, _, info = env.step(FIRST + path)
    assert info["role"] == "summarise"
    assert env.play is not None and env.play.paused.turns[2].completion.text == "0 2 3"


def test_agent_low_may_be_left_to_the_rules() -> None:
    env = GymView(navigation_game(("top",)))
    env.reset(seed=0, options={"case": 1})
    for action in (1, FIRST + 1, 0):
        _, _, _, _, info = env.step(action)
    assert info["role"] == "continue" and env.play is not None
    assert "grade 9 course" in env.play.paused.turns[-1].completion.text


def test_words_are_the_teachers_without_error() -> None:
    """Where no habit asks chance, any seed says the same."""
    teacher, words = ScriptedTeacher(KNOWLEDGE, NO_ERROR), ExactTeacher(KNOWLEDGE, NO_ERROR)
    game = navigation_game()
    acts = []
    for case in range(len(game.scene.cases)):
        env = GymView(game)
        env.reset(seed=0, options={"case": case})
        ended, actions = False, iter([0, 1, 0, 0, 0, 0])
        while not ended:
            _, _, terminated, truncated, _ = env.step(next(actions))
            ended = terminated or truncated
        assert env.play is not None
        acts += [r.effect for r in env.play.paused.trace if getattr(r.effect, "role", "") not in ("", "metapaths")]
    for seed in range(3):
        assert teacher.answer(acts, [seed] * len(acts)) == words.answer(acts, [0] * len(acts))


def test_the_rule_in_the_rollout_is_the_rule_in_the_environment() -> None:
    game = navigation_game()
    for number, case in enumerate(game.scene.cases):
        env = GymView(game)
        seen, _ = env.reset(seed=0, options={"case": number})
        ended = False
        while not ended:
            action = BEST(seen["observation"][None], seen["action_mask"][None], ["top"])[0]
            seen, reward, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
        policy = Navigator(CHART, BEST, ExactTeacher(KNOWLEDGE, NO_ERROR), ("top", "low"))
        job = EpisodeJob(case.sample_id, 0, lambda case=case: game.scene.episode(case))
        other = rollout([job], dict.fromkeys(("top", "low"), policy), Graph(), seed=0, in_flight=1)[0]
        assert env.play is not None and env.play.paused.episode is not None
        assert other.trace == env.play.paused.episode.trace
        assert other.prediction.label == case.label
        assert game.scene.reward(other, case).total == pytest.approx(float(reward))


def test_rules_name_the_relations_that_answer() -> None:
    found = rules(CHART, MENU)
    assert {rule.right for rule in found} == {(1, 2, 3)} and len(found) == 12


def test_the_memory_answers_as_the_corpus_does() -> None:
    class Counting(Graph):
        asked = 0

        def retrieve(self, requests):
            Counting.asked += len(requests)
            return super().retrieve(requests)

    memory = CachedCorpus(Counting())
    for partitions in ((1,), (1, 0), (0, 1), (1,), (3, 1, 0)):
        request = Retrieve("disease rare0", partitions)
        assert sorted(p.text for p in memory.retrieve([request])[0].passages) == sorted(
            {p.text for p in Graph().retrieve([request])[0].passages}
        )
    assert Counting.asked == 3


@pytest.mark.slow
def test_the_memory_orders_as_the_retriever_does(tmp_path) -> None:
    from ghar.envs.ghar.demo import demo_scene

    scene, _ = demo_scene(str(tmp_path), patients=60)
    memory, rng = CachedCorpus(scene.corpus), np.random.default_rng(0)
    for _ in range(40):
        case = scene.cases[int(rng.integers(len(scene.cases)))]
        partitions = tuple(int(i) for i in rng.permutation(12)[: int(rng.integers(1, 4))])
        request = Retrieve(case.topics[0], partitions)
        assert memory.retrieve([request]) == scene.corpus.retrieve([request])


def test_labels_and_topics_of_the_demo_world() -> None:
    assert [label_rule("los")(g) for g in (0, 9)] == [0, 9]
    assert [label_rule("dec")(g) for g in (7, 8)] == [0, 1] and [label_rule("read")(g) for g in (4, 5)] == [0, 1]
    assert topic_of("DRUG/x", "x") == "drug x" and topic_of("ICD10CM/I1", "y") == "disease y"
