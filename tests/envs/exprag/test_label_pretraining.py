"""What EXPRAG's demo model practises on where a label is asked: drawn outcomes, whatever the true ones are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.exprag.label_pretraining import AnswerCache, DrawnOutcomes, draw_outcomes, practice
from ghar.envs.exprag.report_corpus import FindExcerpts, RankReports
from ghar.envs.exprag.rule import outcome_shares
from ghar.envs.exprag.settings import Settings
from ghar.envs.records import Records
from ghar.envs.system import DemoPretraining, System, build
from ghar.episode import Act, Evidence, Passage, Retrieve
from ghar.launch.entry import load


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    cache: Path = tmp_path_factory.mktemp("cache")
    overrides = ["system=exprag", "data.patients=120", f"data.cache={cache}", "task.max_test=8", "task=read"]
    return Records(load(overrides))


def own_practice(system: System[None]) -> DemoPretraining:
    made = system.training.pretraining
    assert isinstance(made, DemoPretraining)
    return made


def decisions(made: DemoPretraining) -> list[Any]:
    """What is imitated of 300 exercises."""
    traces = [record for episode in made.exercises(1200, 3).episodes for record in episode.trace]
    return [record for record in traces if isinstance(record.effect, Act)]


@pytest.mark.slow
def test_the_most_frequent_outcome_that_a_prompt_shows_is_imitated(records: Records) -> None:
    made = decisions(own_practice(build(records)))
    assert len(made) == 300
    for record in made:
        shown = re.findall(r"^similar patient \d+, outcome: (.*)$", record.effect.prompt, re.MULTILINE)
        counts = Counter(shown)
        often = max(counts.values())
        first = next(outcome for outcome in shown if counts[outcome] == often)
        assert record.result.text == f"answer: {first}"
    sizes = [record.effect.prompt.count("similar patient ") for record in made]
    assert max(sizes) == 15 and min(sizes) == 1


@pytest.mark.slow
def test_no_true_outcome_is_part_of_the_exercises(records: Records) -> None:
    system = build(records)
    corpus: Any = system.corpus
    wrong = replace(corpus, outcomes={stay: 1 - outcome for stay, outcome in corpus.outcomes.items()})
    cases = system.cases.train
    turned = [replace(case, label=1 - case.label) for case in cases]
    assert pairs_of(records, corpus, cases) == pairs_of(records, wrong, turned)


def pairs_of(records: Records, corpus: Any, cases: Sequence[Any]) -> list[tuple[str, str]]:
    """Prompts and replies of exercises over a corpus and the cases that ask it."""
    made = practice(records, Settings(), corpus, cases, build(records).variants["exprag"].spec)
    return [(record.effect.prompt, record.result.text) for record in decisions(made)]


@pytest.mark.parametrize(("more", "same"), [
    (Settings(), True), (Settings(label_epochs=2), True), (Settings(words=100), False), (Settings(top_k=5), False),
    (Settings(retriever="bm25"), False), (Settings(ranker="random"), False),
])  # fmt: skip
def test_the_key_changes_with_what_exercises_are_made_of(records: Records, more: Settings, same: bool) -> None:
    other = Records(replace(records.config, system=more))
    assert (own_practice(build(records)).key == own_practice(build(other)).key) is same


@given(outcomes=st.lists(st.integers(0, 2), min_size=1, max_size=15))
@settings(deadline=None)
def test_counts_decide_and_the_first_of_equals(outcomes: list[int]) -> None:
    ranked = Evidence(tuple(Passage(f"{n}", "report", -1, 0.3, n) for n in range(15)))
    drawn = DrawnOutcomes(Fixed(ranked), {"a": outcomes})
    [shown] = drawn.retrieve([RankReports("", None, 15, "a")])
    assert [passage.partition for passage in shown.passages] == outcomes
    counts = Counter(outcomes)
    first = next(outcome for outcome in outcomes if counts[outcome] == max(counts.values()))
    shares = outcome_shares(shown, 3)
    assert max(range(3), key=lambda label: shares[label]) == first and shares.count(max(shares)) == 1


class Fixed:
    """Answers all with one piece of evidence, and counts how often it is asked."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.asked = evidence, 0

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        self.asked += len(requests)
        return [self.evidence] * len(requests)


def test_what_was_found_is_not_looked_for_again() -> None:
    corpus = Fixed(Evidence((Passage("text", "excerpt", 1, 1.0, 0),)))
    cache = AnswerCache(corpus)
    asked = [FindExcerpts("a", (1,), 3, "x"), FindExcerpts("a", (1,), 3, "x"), FindExcerpts("b", (1,), 3, "x")]
    assert cache.retrieve(asked) == cache.retrieve(asked) == [corpus.evidence] * 3
    assert corpus.asked == 2


def test_any_outcome_may_be_the_frequent_one() -> None:
    rng = np.random.default_rng(0)
    drawn = [draw_outcomes(rng, 15, 2) for _ in range(600)]
    whole = [outcomes for outcomes in drawn if len(outcomes) == 15]
    assert 0.4 < len(whole) / len(drawn) < 0.65
    assert 0.4 < np.mean([np.mean(outcomes) > 0.5 for outcomes in whole]) < 0.6
    assert min(map(len, drawn)) == 1
