"""What questions are worth without experience, and what experience could tell at best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ghar.envs.exprag.baselines import MajorityAnswer, OptionFeatures, OptionRegression, of_option
from ghar.envs.exprag.dischargeqa import DischargeQuestion
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.upper_bounds import readable
from ghar.envs.records import Records
from ghar.envs.system import System, build
from ghar.episode import Act, Evidence, Passage
from ghar.launch.entry import load
from ghar.retrieval.reports import ReportQuery, allowed_stays, rank

pytestmark = pytest.mark.slow

THIRDS = (1 / 3, 1 / 3, 1 / 3)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[System[DischargeQuestion], Records]:
    cache = tmp_path_factory.mktemp("baselines")
    task = ["task=dischargeqa_instruction", "task.max_test=60", "system.excerpts=8"]
    records = Records(load(["system=exprag", "data.patients=500", f"data.cache={cache}", *task]))
    return build(records), records


def test_the_options_tell_nothing_and_the_reports_that_count_all(
    built: tuple[System[DischargeQuestion], Records],
) -> None:
    system, _ = built
    cases = [*system.cases.valid, *system.cases.test]
    fitted = OptionRegression([case.reads for case in system.cases.train], of_option)
    assert np.mean([fitted.chosen(case.reads) == case.label for case in cases]) <= 0.30
    found = system.truth.upper_bounds(system.cases.test)
    assert found is not None and 0.3 < found["experience only"] <= found["experience"]
    assert 0.5 < found["experience"] <= found["gold reports"] and found["gold reports"] > 0.9


def test_eq_7_finds_a_phenotype_that_no_single_code_tells(built: tuple[System[DischargeQuestion], Records]) -> None:
    """The habits follow several codes: of stays alike in all tables more follow them than of those that share one."""
    system, records = built
    corpus, habits = system.corpus, records.phenotypes
    assert isinstance(corpus, ReportCorpus) and habits is not None
    alike, one_code, anyone = [], [], []
    for case in system.cases.test:
        query, own = corpus.queries[case.visit_id], habits[case.visit_id]
        follows = np.array([habits[stay] == own for stay in corpus.index.visit_id.tolist()])
        allowed = allowed_stays(corpus.index, query)
        alike.append(follows[rank(corpus.index, query, THIRDS, 15)[0]].mean())
        sharing = allowed & (corpus.index.sets[0].overlap(query.codes[0][:1])[0] > 0)
        one_code.append(follows[sharing].mean() if sharing.any() else 0.0)
        anyone.append(follows[allowed].mean())
    assert np.mean(alike) > 3 * np.mean(one_code) and np.mean(alike) > 5 * np.mean(anyone)


def question(kind: Any, options: tuple[str, ...], answer: int, number: int = 1) -> DischargeQuestion:
    return DischargeQuestion(f"{number}", number, number, kind, options, answer, "")


def said(rule: Callable[[Act], str], asked: DischargeQuestion) -> str:
    return rule(Act("top", "predict", "", facts={"question": asked}))


def test_the_usual_answer_is_that_of_questions_as_long() -> None:
    train = [question("diagnosis", tuple("abc"), answer) for answer in (1, 6, 6, 2, 2, 2)]
    train += [question("diagnosis", tuple("abcd"), 0b1001)]
    assert said(MajorityAnswer(train), question("diagnosis", tuple("xyz"), 1)) == "B"
    assert said(MajorityAnswer(train), question("diagnosis", tuple("wxyz"), 1)) == "A, D"
    assert said(MajorityAnswer(train), question("diagnosis", tuple("vwxyz"), 1)) == "A"


def test_a_fitted_baseline_finds_what_gives_the_answer_away() -> None:
    give = [question("diagnosis", ("gout", "sepsis", f"pain {n}"), 0b010, n) for n in range(20)]
    assert said(OptionRegression(give, of_option), question("diagnosis", ("pain 3", "sepsis"), 1)) == "B"
    sets = ("Rest. Walk.", "Rest. Swim.")
    asked = [question("instruction", sets, 1 + n % 2, n) for n in range(40)]
    queries = {n: ReportQuery(n, None, ((f"code {n % 2}",), (), ())) for n in range(40)}
    by_code = OptionRegression(asked, OptionFeatures(queries))
    assert [by_code.chosen(one) for one in asked] == [one.answer for one in asked]
    assert np.mean([OptionRegression(asked, of_option).chosen(one) == one.answer for one in asked]) == 0.5


def report(stay: int, text: str) -> Passage:
    return Passage(text, "excerpt", stay, 1.0, 0)


@pytest.mark.parametrize("texts, usual, expected", [
    (["discharge diagnosis: gout", "past medical history: sepsis\n\nDischarge Diagnosis:\ngout"], True, 1.0),
    (["discharge diagnosis: sepsis"], False, 0.0), ([], True, 0.0),
])  # fmt: skip
def test_what_a_reader_of_the_right_reports_says(texts: list[str], usual: bool, expected: float) -> None:
    asked = question("diagnosis", ("gout", "sepsis"), 0b01)
    assert readable(asked, Evidence(tuple(report(n, text) for n, text in enumerate(texts))), usual) == expected


def test_ties_are_broken_by_chance() -> None:
    asked = question("instruction", ("Rest. Walk.", "Rest. Swim.", "Rest. Run."), 0b001)
    assert readable(asked, Evidence(), True) == pytest.approx(1 / 3)
    told = Evidence((report(1, "discharge instructions: - Walk.\n- Rest."),))
    assert readable(asked, told, True) == 1.0


