"""The fixed rule: what it learns from training patients, what it searches for, how it counts what is not there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.ehr_rag.context import PromptContext
from ghar.envs.ehr_rag.rule import RuleReader, filled
from ghar.envs.ehr_rag.rule_fit import fit_rules, links_of, slope, trend_of
from ghar.episode import Act
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from tests.data.small import DAY, START, small_cohort

KINDS = ("kestrel", "osprey", "merlin", "condor")
LINK = "* disease & * exchange"


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> RuleReader:
    """Label 1: a pump of the same kind as the disease was exchanged, or "potash" rises over its last values."""
    rng = np.random.default_rng(0)
    events, labels = [], []
    for subject in range(1, 401):
        kind, other = rng.permutation(KINDS)[:2].tolist()
        linked, rising = bool(rng.random() < 0.5), bool(rng.random() < 0.3)
        labels.append(int(linked or rising))
        rows = [f"{kind} disease", f"{kind if linked else other} exchange", f"noise {rng.integers(30)}"]
        events += [(subject, 1, row, START + i * DAY) for i, row in enumerate(rows)]
        level, step = rng.uniform(10, 20), 1.0 if rising else -1.0
        numbers = [level, level + rng.uniform(-9, 9), *(level + step * (i - rng.integers(5)) for i in range(5))]
        events += [(subject, 1, "potash", START + i * DAY, START, v, None) for i, v in enumerate(numbers)]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], sorted(events, key=lambda e: (e[0], e[3])))
    folder = tmp_path_factory.mktemp("rule")
    store = build_event_store(cohort, folder, HashingEncoder(8), StoreLayout(10, 0, True, "time"))
    records = [store.record(subject, START + 99 * DAY) for subject in range(1, 401)]
    return RuleReader(fit_rules(records, labels, 2, cohort.names()))


def act(role: str, *rows: str, numbers: str = "", **facts: object) -> Act:
    shown = {i: (row, f"[2150-01-{i:02} 00:00:00] long - {row}") for i, row in enumerate(rows, 1)}
    lines = (("potash", f"potash: {numbers}"),) if numbers else ()
    about = {"shown": PromptContext(shown, lines), "arguments": (), "asked": (), "path": "support", **facts}
    return Act("top", role, "", facts=about)


def said(rule: RuleReader, one: Act) -> str:
    return rule.answer([one], [0])[0].text


def scores(rule: RuleReader, one: Act) -> float:
    told = said(rule, one).split("labels ")[1].split(".\nAnswer")[0]
    against, favour = map(float, told.split(", "))
    return favour - against


def test_it_learns_that_two_rows_belong_together_whatever_the_word(rule: RuleReader) -> None:
    assert rule.rules.links == {LINK: ("* disease", "* exchange")} and rule.rules.leaning(LINK) > 1
    alone = [abs(rule.rules.leaning(f)) for f in rule.rules.weights if any(kind in f for kind in KINDS)]
    assert max(alone, default=0.0) < 0.5 * rule.rules.leaning(LINK)  # some pass by chance


def test_it_searches_for_the_row_that_a_shown_one_leads_to(rule: RuleReader) -> None:
    assert said(rule, act("refine", "osprey disease")) == "osprey exchange"
    for other in (
        act("refine", "noise 3"),
        act("refine", "osprey disease", asked=("osprey exchange",)),
        act("refine", "osprey disease", "osprey exchange"),
        act("refine", "osprey disease", path="oppose"),
    ):
        assert said(rule, other) != "osprey exchange"


def test_what_was_searched_for_and_is_not_there_is_absent(rule: RuleReader) -> None:
    found = scores(rule, act("weigh", "osprey disease", "osprey exchange", asked=("osprey exchange",)))
    unknown = scores(rule, act("weigh", "osprey disease", "merlin exchange"))
    absent = scores(rule, act("weigh", "osprey disease", "merlin exchange", asked=("osprey exchange",)))
    assert found > unknown > absent


def test_a_slope_tells_and_a_level_does_not(rule: RuleReader) -> None:
    def trend(*values: float) -> str:
        return "; ".join(f"[2150-01-0{i} 00:00:00] {value}" for i, value in enumerate(values, 1))

    rising, falling = (act("weigh", numbers=trend(*values)) for values in ((10, 11, 12, 13, 14), (19, 18, 17, 16, 15)))
    assert scores(rule, rising) > 1 + scores(rule, falling)
    assert "potash: [" in said(rule, act("support", numbers=trend(10, 11, 12, 13, 14)))


def test_an_argument_hands_on_both_rows_of_a_link(rule: RuleReader) -> None:
    """What was cut from the prompt still counts where an argument names it."""
    argument = said(rule, act("support", "osprey disease", "osprey exchange"))
    assert "osprey disease" in argument and "osprey exchange" in argument
    assert scores(rule, act("weigh", arguments=(argument, ""))) > scores(rule, act("weigh"))


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=9))
def test_a_slope_is_that_of_least_squares(values: list[float]) -> None:
    place = np.arange(len(values))
    line = np.polyfit(place, values, 1)
    scatter = np.sum((values - np.polyval(line, place)) ** 2) / (len(values) - 2)
    error = np.sqrt(scatter / np.sum((place - place.mean()) ** 2))
    assert slope(values) == pytest.approx((line[0], error), abs=1e-6)
    assert slope(values[:2]) is None


@pytest.mark.parametrize(
    ("values", "trend"),
    [([1, 2, 3], "rising"), ([5.1, 4.0, 3.2, 1.9, 1.0], "falling"), ([3, 3, 3], "steady"), ([1, 9, 2, 8], "steady"),
     ([0.1] * 5, "steady"), ([1, 2], None)],
)  # fmt: skip
def test_a_trend_is_a_slope_beyond_its_error(values: list[float], trend: str | None) -> None:
    assert trend_of(values) == trend


def test_links_name_both_rows_and_patterns_are_filled() -> None:
    names = ["osprey disease", "osprey exchange", "condor exchange"]
    assert links_of(names, frozenset({"osprey", "condor"})) == {LINK: ("osprey disease", "osprey exchange")}
    assert filled("* disease", "osprey disease") == "osprey" and filled("old * pump", "old condor pump") == "condor"
    assert filled("* disease", "disease") is None and filled("* disease", "a b disease") is None


def test_what_was_coded_at_the_discharge_is_not_known_on_the_first_day(tmp_path: Path) -> None:
    """guo_los asks on the evening of the admission: the procedure bears that day's date and was coded a week later."""
    evening, week = START + timedelta(hours=10), START + 7 * DAY
    events = [
        (1, 1, "ICD10PCS/ventilation", START, week), (1, 1, "DRUG/given", START, START), (1, 1, "NOTE/undated", START),
        (1, 1, "LAB/stored late", START, week, 5.0, None),
    ]  # fmt: skip
    cohort = small_cohort([(1, 1, START, week, None)], events)
    store = build_event_store(cohort, tmp_path, None, StoreLayout(10, 0, True, "known"))
    told = [line.split(" - ")[1] for line in store.record(1, evening).text(range(store.record(1, evening).rows))]
    assert told == ["DRUG/given", "NOTE/undated"] and not store.record(1, evening).indicators
    later = store.record(1, week)
    assert later.rows == 3 and len(later.indicators) == 1
    plain = build_event_store(cohort, tmp_path, None, StoreLayout(10, 0, True, "time"))
    assert plain.record(1, evening).rows == 3
