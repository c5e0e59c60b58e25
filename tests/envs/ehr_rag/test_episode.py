"""EHR-RAG's episodes: what they ask in which order, what a prompt may show, and what happens to bad replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.tasks.cards import CARDS
from ghar.data.tasks.ehrshot import TASKS, EhrshotTask
from ghar.envs.case import Case
from ghar.envs.ehr_rag.context import PromptContext, fit, merge
from ghar.envs.ehr_rag.episode import (
    AGENTS,
    ROLES,
    EhrRagEpisodes,
    EhrRagSpec,
    EventPrediction,
    EventReading,
    ehr_rag_scene,
)
from ghar.envs.ehr_rag.ether import EtherSpec, EventCorpus, EventPassage, EventQuery
from ghar.envs.ehr_rag.rule import RuleReader
from ghar.envs.ehr_rag.rule_fit import EventRules, fit_rules
from ghar.envs.generators import together
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Act, Completion, Episode, Reply, Retrieve
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from tests.data.small import DAY, HOUR, START, small_cohort

ENCODER = HashingEncoder(32)
NOW = START + 50 * DAY - timedelta(microseconds=1)
METHODS = ("ehr_rag", "no_ether", "no_air", "no_der", "direct", "rag", "uniform", "rule", "react")
GOOD = {
    "indicators": '["LAB/sodium"]', "refine": "ENOUGH", "support": "long stays before", "oppose": "nothing severe",
    "weigh": "Reasoning: so.\nAnswer: 1", "predict": "Answer: 1", "react": "Thought: clear.\nAnswer: 1",
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EventCorpus:
    """Patient 1: 80 drugs in 80 days and three indicators; patient 2: known by a static fact alone; 3: unknown."""
    events = [(1, 1, f"DRUG/drug {i % 9}", START + i * DAY) for i in range(80)]
    for k, name in enumerate(("sodium", "glucose", "haemoglobin")):
        events += [(1, 1, f"LAB/{name}", START + i * DAY + HOUR, START, float(100 * k + i), None) for i in range(80)]
    events = [(2, None, "GENDER/F", None), *sorted(events, key=lambda e: e[3])]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    folder = tmp_path_factory.mktemp("stores")
    stores = [build_event_store(cohort, folder, ENCODER, StoreLayout(10, 2, apart, "time")) for apart in (True, False)]
    spec = EtherSpec(0.75, 180, 3650, 100, 5)
    return EventCorpus([(1, NOW), (2, NOW), (3, NOW)], spec, ENCODER, *stores, seed=0)


def case(place: int = 0, task: EhrshotTask = "guo_los") -> Case[EventReading]:
    return Case(f"s{place}", place + 1, place, "", (), TASKS[task], 1, EventReading(place, place + 1, NOW, CARDS[task]))


def episodes(method="ehr_rag", prompts="full", rows: int = 40, tokens: int = 10_000, keep: int = 2) -> EhrRagEpisodes:
    spec = EhrRagSpec(prompts, method, 3, 2, 30, keep, 4, rows, tokens)  # type: ignore[arg-type]
    return EhrRagEpisodes(spec, lambda text: len(text.split()))


class Says:
    """Replies by role, or by the act."""

    def __init__(self, **replies: str | Callable[[Act], str]):
        self.replies = {**GOOD, **replies}

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        said = [self.replies[act.role] for act in acts]
        return [Completion(one if isinstance(one, str) else one(act)) for one, act in zip(said, acts, strict=True)]


def play(corpus: EventCorpus, policy, made: EhrRagEpisodes, who: Case[EventReading]) -> tuple[Episode, EventPrediction]:
    jobs = [EpisodeJob(who.sample_id, 0, lambda: made.episode(who))]
    [episode] = rollout(jobs, dict.fromkeys(AGENTS, policy), corpus, seed=0, in_flight=4)
    assert episode.failure is None and isinstance(episode.prediction, EventPrediction)
    return episode, episode.prediction


def roles(episode: Episode) -> list[str]:
    return [r.effect.role if isinstance(r.effect, Act) else "look" for r in episode.trace]


def test_two_paths_go_side_by_side(corpus: EventCorpus) -> None:
    searches = iter(["drug 3", "drug 4", "drug 5", "drug 6"])
    episode, found = play(corpus, Says(refine=lambda act: next(searches)), episodes(), case())
    pairs = ["look", "look", "refine", "refine"] * 2 + ["look", "look", "support", "oppose"]
    assert roles(episode) == ["look", "indicators", *pairs, "weigh"]
    asked = [lookup.query for lookup in found.lookups if lookup.path == "support"]
    assert asked == [CARDS["guo_los"].factual, "drug 3", "drug 5"] and found.label == 1
    assert [lookup.path for lookup in found.lookups[:3]] == ["numbers", "support", "oppose"]
    assert found.arguments == {"support": GOOD["support"], "oppose": GOOD["oppose"]}
    weigh = next(r.effect for r in episode.trace if isinstance(r.effect, Act) and r.effect.role == "weigh")
    assert GOOD["support"] in weigh.prompt and GOOD["oppose"] in weigh.prompt
    # the numbers that the model chose, the five most recent of them, in every argument
    assert weigh.prompt.count("LAB/sodium:") == 1 and "LAB/glucose" not in weigh.prompt
    assert "] 49" in weigh.prompt and "] 44" not in weigh.prompt and "] 45" in weigh.prompt


@pytest.mark.parametrize("side, heading", [
    ("support", "Argument that the outcome will occur:\n"), ("oppose", "Argument that it will not:\n"),
])  # fmt: skip
def test_a_side_without_an_argument_keeps_its_section(corpus: EventCorpus, side: str, heading: str) -> None:
    episode, found = play(corpus, Says(**{side: " "}), episodes(), case())
    weigh = next(r.effect for r in episode.trace if isinstance(r.effect, Act) and r.effect.role == "weigh")
    assert f"{heading}(nothing)\n" in weigh.prompt
    assert found.arguments[side] == "" and weigh.facts["arguments"] == tuple(found.arguments.values())


def test_one_path_may_end_before_the_other(corpus: EventCorpus) -> None:
    policy = Says(refine=lambda act: "ENOUGH" if act.facts["path"] == "support" else f"drug {act.step}")
    episode, found = play(corpus, policy, episodes(), case())
    assert [lookup.path for lookup in found.lookups].count("oppose") == 3
    assert [lookup.path for lookup in found.lookups].count("support") == 1
    assert roles(episode)[-1] == "weigh" and found.label == 1


@pytest.mark.parametrize("method, wanted", [
    ("no_ether", ["look", "look", "refine", "refine", "support", "oppose", "weigh"]),
    ("no_air", ["look", "indicators", "look", "look", "support", "oppose", "weigh"]),
    ("no_der", ["look", "indicators", "look", "refine", "predict"]),
    ("direct", ["look", "predict"]), ("rag", ["look", "predict"]), ("uniform", ["look", "predict"]),
    ("rule", ["look", "predict"]), ("react", ["react"]),
])  # fmt: skip
def test_ablations_and_baselines(corpus: EventCorpus, method: str, wanted: list[str]) -> None:
    episode, found = play(corpus, Says(), episodes(method), case())
    assert roles(episode) == wanted and found.label == 1
    assert {turn.role for turn in episode.turns} <= set(ROLES)


def test_react_searches_until_it_answers(corpus: EventCorpus) -> None:
    moves = iter(["Search: drug 1", "Search: drug 2", "Search: drug 3"])
    episode, found = play(corpus, Says(react=lambda act: next(moves)), episodes("react"), case())
    assert roles(episode) == ["react", "look"] * 3 + ["predict"] and found.label == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prompts", ["full", "compact"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_prompts_keep_to_the_budget_and_the_past(corpus: EventCorpus, method: str, prompts: str, place: int) -> None:
    policy = Says(refine=lambda act: f"drug {act.step}", react=lambda act: f"Search: drug {act.step}")
    episode, _ = play(corpus, policy, episodes(method, prompts, rows=17, tokens=90), case(place))
    for act in (r.effect for r in episode.trace if isinstance(r.effect, Act)):
        lines = re.findall(r"^\[\d{4}.*$", act.prompt, re.M)
        assert len(lines) <= 17 and len(set(lines)) == len(lines)
        assert len((act.facts["shown"].text + act.facts["shown"].numbers).split()) <= 90
        times = re.findall(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]", act.prompt)
        assert all(time < f"{NOW}" for time in times)
        assert [line[:21] for line in lines] == sorted(line[:21] for line in lines)
        if prompts == "full" and place:
            assert "(nothing)" in act.prompt


@pytest.mark.parametrize("method", ["direct", "rag", "uniform", "rule", "no_ether"])
def test_a_method_that_reads_no_indicators_is_not_told_that_there_are_none(corpus: EventCorpus, method: str) -> None:
    episode, _ = play(corpus, Says(), episodes(method), replace(case(), text="admission type: urgent"))
    prompts = [r.effect.prompt for r in episode.trace if isinstance(r.effect, Act)]
    assert not any("Measurements:" in prompt or "(nothing)" in prompt for prompt in prompts if "weigh" not in prompt)
    assert "Record:\n<data>\n[" in prompts[-1]


def test_unreadable_replies_are_counted_and_do_no_harm(corpus: EventCorpus) -> None:
    policy = Says(indicators="I cannot", refine="", weigh="Answer: 5")
    episode, found = play(corpus, policy, episodes(), case())
    errors = [r.result.error for r in episode.trace if isinstance(r.result, Reply)]
    assert errors.count("outside_labels") == 1 and errors.count("no_item") == 1 and errors.count("empty") == 2
    assert found.label is None and sum(not turn.format_ok for turn in episode.turns) == 4
    assert len(found.lookups[0].passages) == 2  # the indicators most like the question stand in


def test_few_indicators_need_no_choice(corpus: EventCorpus) -> None:
    episode, found = play(corpus, Says(), episodes(keep=3), case())
    assert "indicators" not in roles(episode) and len(found.lookups[0].passages) == 3


def test_a_task_of_four_classes(corpus: EventCorpus) -> None:
    policy = Says(weigh="Answer: 3")
    episode, found = play(corpus, policy, episodes(), case(task="lab_anemia"))
    prompts = {r.effect.role: r.effect.prompt for r in episode.trace if isinstance(r.effect, Act)}
    assert found.label == 3 and "label 1, 2 or 3" in prompts["support"] and "label 0" in prompts["oppose"]
    assert "0, 1, 2, 3" in prompts["weigh"] and CARDS["lab_anemia"].advice in prompts["weigh"]


def passage(ident: int, begin: int, n: int, score: float) -> EventPassage:
    rows = tuple(f"[row {i:03}] word" for i in range(begin, begin + n))
    at = START, START
    return EventPassage("\n".join(rows), "chunks", 0, score, ident, tuple(range(begin, begin + n)), rows, rows, *at)


found_before = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9)), max_size=8)


@given(found_before, found_before)
def test_merging_keeps_each_passage_once_in_order(old: list[tuple[int, int]], new: list[tuple[int, int]]) -> None:
    merged = merge([passage(i, 4 * i, 5, s / 9) for i, s in old], [passage(i, 4 * i, 5, s / 9) for i, s in new])
    best: dict[int, float] = {}
    for i, s in [*old, *new]:
        best[i] = max(best.get(i, -1.0), s / 9)
    assert [(p.ident, p.score) for p in merged] == sorted(best.items())


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 30), st.integers(1, 120))
def test_fitting_against_a_direct_walk(scores: list[int], rows: int, tokens: int) -> None:
    passages = [passage(i, 4 * i, 5, s / 9) for i, s in enumerate(scores)]
    shown = fit(passages, (), rows=rows, tokens=tokens, count=lambda text: len(text.split()))
    kept: list[int] = []
    for p in sorted(passages, key=lambda p: -p.score):
        new = [n for n in p.numbers if n not in kept]
        room = min(rows - len(kept), (tokens - 3 * len(kept)) // 3)
        kept += new[max(len(new) - room, 0) :] if room > 0 else []
        if room < len(new):
            break
    assert list(shown.rows) == sorted(kept)


def test_equal_rows_stand_once_and_rows_stand_by_their_times() -> None:
    """In prompts on six patients of the MIMIC-IV demo 87 of 693 rows repeated another, and a troponin of 17:50, stored
    later, stood below results of 19:00."""
    rows = ("[2155-07-14 19:00:00] drug - insulin", "[2155-07-14 17:50:00] measurement - Troponin T (value: <0.01)")
    more = ("[2155-07-14 19:00:00] drug - insulin", "[2155-07-14 23:00:00] drug - heparin")
    first = EventPassage("", "chunks", 0, 0.9, 0, (0, 1), rows, ("DRUG/insulin", "LAB/1"), START, START)
    second = EventPassage("", "chunks", 0, 0.5, 1, (2, 3), more, ("DRUG/insulin", "DRUG/heparin"), START, START)
    shown = fit((first, second), (), rows=3, tokens=100, count=lambda text: len(text.split()))
    assert list(shown.rows) == [0, 1, 3]
    assert shown.text.splitlines() == [rows[1], rows[0], more[1]]


def test_on_overflow_the_most_frequent_rows_stay(corpus: EventCorpus) -> None:
    """Each of the three measurements comes 50 times, each of the nine drugs 5 or 6 times, about as lately."""
    [found] = corpus.retrieve([EventQuery("any", top_n=1000, place=0, view="frequent")])
    assert [len(passage.text.splitlines()) for passage in found.passages] == [150, 30, 20]
    episode, _ = play(corpus, Says(), episodes("rule", rows=160, tokens=900), case())
    [act] = [r.effect for r in episode.trace if isinstance(r.effect, Act)]
    shown = [code for code, _ in act.facts["shown"].rows.values()]
    assert len(shown) > 100 and all(code.startswith("LAB/") for code in shown)


def test_together_returns_what_each_returns() -> None:
    def counting(n: int):
        total = 0
        for i in range(n):
            total += yield Retrieve(f"{n}-{i}")
        return total

    running = together(counting(1), counting(3), counting(0))
    effects, asked = next(running), []
    try:
        while True:
            asked.append([effect.query for effect in effects])
            effects = running.send(tuple(range(10, 10 + len(effects))))
    except StopIteration as stop:
        assert stop.value == (10, 11 + 10 + 10, 0)
    assert asked == [["1-0", "3-0"], ["3-1"], ["3-2"]]


@pytest.mark.parametrize("method", ["ehr_rag", "react"])
def test_the_views_play_it(corpus: EventCorpus, method: str) -> None:
    pytest.importorskip("gymnasium")
    from ghar import envs
    from ghar.envs.views.games import TextGame
    from ghar.envs.views.gym_view import GymView

    scene = ehr_rag_scene(episodes(method, "compact"), corpus, [case(0), case(1)], eta=5.0)
    envs.check(GymView(TextGame(scene)))


@pytest.mark.slow
def test_the_rule_finds_what_decides(tmp_path: Path) -> None:
    """Drug "bad" goes with label 1, and so does a high sodium; everything else is noise."""
    rng = np.random.default_rng(0)
    events, labels = [], []
    for subject in range(1, 201):
        label = int(rng.random() < 0.5)
        labels.append(label)
        for i in range(6):
            events.append((subject, None, f"DRUG/noise {rng.integers(9)}", START + i * DAY))
        if label and subject % 2:
            events.append((subject, None, "DRUG/bad", START + int(rng.integers(6)) * DAY))
        sodium = 150.0 if label and not subject % 2 else 130.0 + rng.random()
        events.append((subject, None, "LAB/sodium", START + DAY, START, sodium, None))
        events.append((subject, None, "LAB/sodium", START + 2 * DAY, START, None, "0-2"))  # is no number
    cohort = small_cohort([(1, 1, START, START + DAY, None)], sorted(events, key=lambda e: (e[0], e[3])))
    layouts = [StoreLayout(10, 2, apart, "time") for apart in (True, False)]
    stores = [build_event_store(cohort, tmp_path, ENCODER, layout) for layout in layouts]
    keys = [(subject, NOW) for subject in range(1, 201)]
    corpus = EventCorpus(keys, EtherSpec(0.75, 180, 3650, 100, 5), ENCODER, *stores, seed=0)
    records = [corpus.record(i, "chunks") for i in range(150)]
    rule = RuleReader(fit_rules(records, labels[:150], 2, cohort.names()))
    told = sorted(rule.rules.weights, key=lambda feature: -np.ptp(rule.rules.weights[feature]))
    telling = {"DRUG/bad", *(f"LAB/sodium {third}" for third in ("low", "middle", "high"))}
    assert set(told[:2]) <= telling and len(set(told) - telling) <= 2  # of nine, some pass by chance
    for method in ("ehr_rag", "direct"):
        right = []
        for place in range(150, 200):
            _, found = play(corpus, rule, episodes(method), case(place))
            right.append(found.label == labels[place])
        assert np.mean(right) > 0.9
    _, found = play(corpus, rule, episodes(), case(labels.index(1, 160)))
    assert "bad" in found.arguments["support"] or "sodium" in found.arguments["support"]


@pytest.mark.slow
def test_the_rule_gains_from_searching_on(tmp_path: Path) -> None:
    """What decides stands once in 60 rows, and no task query is like it: the first retrieval misses it, a search for it
    by name does not. So no_air, which may not search on, answers otherwise."""
    rng, encoder = np.random.default_rng(0), HashingEncoder(2048)
    events, labels = [], []
    for subject in range(1, 161):
        labels.append(int(rng.random() < 0.5))
        rows = [f"DRUG/noise {rng.integers(9)}" for _ in range(60)]
        rows[int(rng.integers(20, 40))] = "DRUG/vitriol" if labels[-1] else "DRUG/honey"
        events += [(subject, None, row, START + i * HOUR) for i, row in enumerate(rows)]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    store = build_event_store(cohort, tmp_path, encoder, StoreLayout(5, 0, True, "time"))
    keys = [(subject, NOW) for subject in range(1, 161)]
    corpus = EventCorpus(keys, EtherSpec(0.9, 180, 3650, 100, 5), encoder, store, None, seed=0)
    records = [corpus.record(i, "chunks") for i in range(120)]
    rule = RuleReader(fit_rules(records, labels[:120], 2, cohort.names()))
    right: dict[str, list[bool]] = {"ehr_rag": [], "no_air": []}
    for method, found in right.items():
        spec = EhrRagSpec("full", method, 3, 1, 30, 2, 4, 60, 10_000)  # type: ignore[arg-type]
        made = EhrRagEpisodes(spec, lambda text: len(text.split()))
        found += [play(corpus, rule, made, case(place))[1].label == labels[place] for place in range(120, 160)]
    assert np.mean(right["ehr_rag"]) > 0.9 > 0.7 > np.mean(right["no_air"])


def test_the_rule_weighs_what_either_argument_names() -> None:
    """Each path's evidence fits the budget, both together do not: what was cut still counts, by its argument."""
    weights = {"bad": np.array([-1.0, 1.0]), "worse": np.array([-1.0, 1.5]), "good": np.array([4.0, -1.0])}
    names = {f"DRUG/{name}": name for name in weights}
    weights |= {"sodium high": np.array([0.0, 9.0])}
    rule = RuleReader(EventRules(np.zeros(2), weights, dict.fromkeys(weights, 0.0), {"sodium": (1, 2)}, names))

    def shown(*some: str) -> PromptContext:
        rows = {i: (f"DRUG/{name}", f"[2150-01-0{i} 00:00:00] drug - {name}") for i, name in enumerate(some, 1)}
        return PromptContext(rows)

    def act(role: str, what: PromptContext, arguments: tuple[str, ...] = ()) -> Act:
        return Act(
            "top", role, "", facts={"shown": what, "arguments": arguments, "names": (), "keep": 1, "asked": ()}
        )

    def said(one: Act) -> str:
        return rule.answer([one], [0])[0].text

    support, oppose = said(act("support", shown("bad", "worse"))), said(act("oppose", shown("bad", "good")))
    assert "worse (+2.50)" in support and "good (-5.00)" in oppose and "bad" not in oppose
    assert said(act("weigh", shown("bad"), ("", ""))).endswith("Answer: 1")
    assert said(act("weigh", shown("bad"), (support, oppose))).endswith("Answer: 0")
    assert said(act("weigh", shown("bad"), (support, ""))).startswith("Reasoning: 2 pieces")
    number = PromptContext({}, (("sodium", "sodium: [2150-01-01 00:00:00] 1; [2150-01-02 00:00:00] 3 mmol/l"),))
    assert "sodium: [" in said(act("support", number))
    assert said(act("weigh", shown("good"), (said(act("support", number)), ""))).endswith("Answer: 1")
