"""Leak scores on the open MIMIC-IV demo, held against a slow count of the same thing."""

from __future__ import annotations

import pytest

from ghar.data.audit import exposure
from ghar.data.cohort import Cohort
from ghar.data.tasks.series import SeriesTask, series_samples
from ghar.data.tasks.stays import Leakage
from ghar.data.tasks.visits import read_task
from ghar.envs.records import Records
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.leakage import by_rarity, in_words, keep_groups, section

pytestmark = pytest.mark.slow


def samples_of(cohort: Cohort, task: str, leakage: str):
    config = load(["data=mimic4", "data.root=.", f"task={task}", f"data.leakage={leakage}"])
    return read_task(cohort, config.data, config.task).samples


def test_length_of_stay_at_the_discharge_leaks_and_at_the_admission_does_not(mimic4_cohort: Cohort) -> None:
    paper = exposure(mimic4_cohort, samples_of(mimic4_cohort, "los", "paper"))
    assert paper.score == 1 and paper.at_outcome == paper.samples == 275 and paper.late == 38
    assert paper.with_outcome > 5_000  # the own stay's diagnoses and procedures, coded at the discharge
    strict = exposure(mimic4_cohort, samples_of(mimic4_cohort, "los", "strict"))
    assert strict.score == 0 and strict.late == strict.with_outcome == strict.at_outcome == 0 < strict.facts


@pytest.mark.parametrize("task", ["los", "read", "dec", "kare_mortality", "guo_readmission"])
@pytest.mark.parametrize("leakage", ["paper", "strict"])
def test_exposure_against_its_plain_count(mimic4_cohort: Cohort, task: str, leakage: str) -> None:
    samples = samples_of(mimic4_cohort, task, leakage)[::7]
    first: dict = {}
    events = mimic4_cohort.events.drop_nulls("visit_id").select("visit_id", "code", "recorded")
    for visit, code, recorded in events.iter_rows():
        first[visit, code] = min(recorded, first.get((visit, code), recorded))
    late = told = facts = leaking = 0
    for sample in samples:
        assert sample.outcome_time is not None
        known = [
            first[visit.visit_id, code]
            for visit in sample.history
            for code in (*visit.diagnoses, *visit.procedures, *visit.medications)
        ]
        with_it = sum(at >= sample.outcome_time for at in known)
        facts, late, told = facts + len(known), late + sum(at > sample.prediction_time for at in known), told + with_it
        leaking += with_it > 0 or sample.prediction_time >= sample.outcome_time
    found = exposure(mimic4_cohort, samples)
    assert (found.facts, found.late, found.with_outcome, found.leaking) == (facts, late, told, leaking)
    assert found.late == 0 or leakage == "paper"


@pytest.mark.parametrize("leakage", ["paper", "strict"])
@pytest.mark.parametrize("task", ["mortality", "readmission", "los", "dec"])
def test_series_against_their_plain_count(mimic3_cohort: Cohort, task: SeriesTask, leakage: Leakage) -> None:
    """Values shown of the open MIMIC-III demo; los at the discharge leaks, and nothing does in strict mode."""
    every = series_samples(mimic3_cohort, task, leakage=leakage, stay="icu")[1]
    samples = every[:: max(len(every) // 40, 1)]
    recorded = mimic3_cohort.events["recorded"].to_list()
    late = told = facts = leaking = 0
    for sample in samples:
        assert sample.outcome_time is not None
        known = [recorded[row] for row in set(sample.history.source[sample.history.source >= 0].tolist())]
        with_it = sum(at >= sample.outcome_time for at in known)
        facts, late, told = facts + len(known), late + sum(at > sample.prediction_time for at in known), told + with_it
        leaking += with_it > 0 or sample.prediction_time >= sample.outcome_time
    found = exposure(mimic3_cohort, samples)
    assert (found.facts, found.late, found.with_outcome, found.leaking) == (facts, late, told, leaking)
    assert found.facts > 0 and (found.late == 0 or leakage == "paper")
    assert found.score == 0 if leakage == "strict" else found.score == 1 if task == "los" else found.score < 1


def test_the_page_and_the_table_say_that_a_task_leaks() -> None:
    row = {"samples": 5, "facts": 40, "late": 3, "with_outcome": 9, "at_outcome": 5, "leak_score": 1.0,
           "hours_ahead": 0.0}  # fmt: skip
    strict = {**row, "late": 0, "with_outcome": 0, "at_outcome": 0, "leak_score": 0.0, "hours_ahead": None}
    summary = {"audit": {"used": "paper", "modes": {"paper": row, "strict": strict}}}
    [part] = section(summary)
    assert "This task leaks" in part.html and "paper (this run)" in part.html and "1.00" in part.html
    assert in_words(summary)[0].startswith("leak score of paper (this run): 1.00; of 40 facts shown 3 were recorded")
    [calm] = section({"audit": {"used": "strict", "modes": {"strict": strict}}})
    assert "This task leaks" not in calm.html
    assert section({}) == [] and in_words({}) == []


def test_accuracy_by_how_rare_the_diseases_are(small_config, tmp_path) -> None:
    records, folder = Records(small_config("task=read")), RunFolder.open(tmp_path)
    test = records.splits.test
    folder.write_episodes("always", [{"split": "test", "sample_id": s.sample_id, "correct": True} for s in test])
    folder.write_episodes("never", [{"split": "test", "sample_id": s.sample_id, "correct": False} for s in test])
    assert by_rarity(records, folder, ["never"])["rarity"].keys() == {"never"}  # "always" is of an earlier evaluation
    found = by_rarity(records, folder, ["always", "never"])["rarity"]
    sizes = [found["always"][name][0] for name in ("G1", "G2", "G3")]
    assert sum(sizes) == len(test) and max(sizes) - min(sizes) <= len(test) // 3
    assert {share for _, share in found["always"].values()} == {1.0}
    assert {share for _, share in found["never"].values()} == {0.0}
    [part] = section({"rarity": found})
    assert "never" in part.html and f"of {sizes[0]}" in part.html


def test_groups_of_the_test_samples_are_kept_for_the_page(small_config, tmp_path) -> None:
    records, folder = Records(small_config("task=read")), RunFolder.open(tmp_path)
    assert folder.groups() == {}
    keep_groups(records, folder)
    found = folder.groups()
    assert found.keys() == {sample.sample_id for sample in records.splits.test}
    kinds = {kind for own in found.values() for kind in own}
    assert {"diseases", "age", "sex", "race", "admission", "visits shown"} == kinds
    assert {own["diseases"] for own in found.values()} == {"rarest third", "middle third", "commonest third"}


def test_the_audit_draws_its_samples(small_config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones would be of few hospitals."""
    records, looked = Records(small_config("task=read")), []
    monkeypatch.setattr("ghar.envs.records.AUDITED", 5)
    measured = exposure

    def look(cohort, samples):
        looked.append([sample.sample_id for sample in samples])
        return measured(cohort, samples)

    monkeypatch.setattr("ghar.envs.records.exposure", look)
    records.exposures()
    first = [sample.sample_id for sample in records.splits.test[:5]]
    assert all(len(own) == 5 for own in looked) and first not in looked
