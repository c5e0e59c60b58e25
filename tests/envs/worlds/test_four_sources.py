"""The world of four sources: what leads to the outcome, what hides it, and what each subset of sources can know."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.envs.worlds.severity import sources, story
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.source_upper_bounds import SOURCES, report_coverage, source_ceilings, source_coverage
from ghar.envs.worlds.severity.sources import MEASURE, POINTERS, SourceShares, draw_phenotypes
from ghar.envs.worlds.severity.upper_bounds import FURTHER, acuity_law, label_law, rare_numbers
from ghar.envs.worlds.severity.world import World, generate_world, world_folder
from ghar.errors import BadInput

PATIENTS = 400


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("four") / "world"
    return generate_world(root, seed=3, patients=PATIENTS, two_steps=0.25, further=(0.3, 0.2, 0.35, 0.35))


def test_without_further_sources_the_world_is_the_one_it_was(tmp_path: Path) -> None:
    generate_world(tmp_path / "plain", seed=1, patients=40)
    generate_world(tmp_path / "none", seed=1, patients=40, further=sources.NONE)
    for file in sorted((tmp_path / "plain").rglob("*.gz")):
        assert file.read_bytes() == (tmp_path / "none" / file.relative_to(tmp_path / "plain")).read_bytes()
    assert not (tmp_path / "plain" / "hosp" / "omr.csv.gz").exists()
    assert world_folder(tmp_path, 1, 40).name == world_folder(tmp_path, 1, 40, further=sources.NONE).name


def test_the_acuity_is_the_highest_of_all_severities(world: World) -> None:
    truth = world.truth
    rare = np.append(world.rare_severity, 0)[rare_numbers(truth)].max(axis=1)
    further = truth.select(pl.col(FURTHER).fill_null(0)).to_numpy().max(axis=1)
    acuity = np.maximum.reduce([truth["common_acuity"].to_numpy(), rare, further])
    assert (acuity == truth["acuity"].to_numpy()).all()


def test_a_phenotype_is_met_once_unrecognised_and_told_by_other_patients(world: World) -> None:
    truth = world.truth
    asks = truth["asks"].drop_nulls()
    assert asks.n_unique() == len(asks) > 100
    assert truth.filter(pl.col("asks").is_not_null() & pl.col("tells").is_not_null()).is_empty()
    tellers = truth["tells"].drop_nulls()
    assert asks.is_in(tellers.to_list()).to_numpy().mean() > 0.9 and 1.5 < len(tellers) / len(asks) < 2.5


def test_a_told_phenotype_changes_nothing_in_the_stay_that_tells_it(world: World) -> None:
    """Or its label would tell what only its report should."""
    told = world.truth.filter(pl.col("tells").is_not_null() & pl.col("past").is_null() & pl.col("rare_1").is_null())
    plain = told.filter(pl.col("rare_2").is_null())
    assert plain.height > 30 and (plain["acuity"] == plain["common_acuity"]).all()


def test_both_stays_of_a_phenotype_have_its_three_conditions(world: World) -> None:
    codes = pl.read_csv(world.root / "hosp/diagnoses_icd.csv.gz", infer_schema=False)
    common = {code.split("/")[1] for code, tier in world.tier.items() if tier == "common"}
    shown = codes.filter(pl.col("icd_code").is_in(common)).group_by("hadm_id").agg(pl.col("icd_code").sort())
    sets = {int(visit): tuple(own) for visit, own in shown.iter_rows()}
    phenotypes: dict[int, set[tuple[str, ...]]] = {}
    for visit, asks, tells in world.truth.select("visit_id", "asks", "tells").iter_rows():
        if asks is not None or tells is not None:
            phenotypes.setdefault(asks if asks is not None else tells, set()).add(sets[visit])
    assert all(len(own) == 1 and len(next(iter(own))) == 3 for own in phenotypes.values())


def test_the_past_lies_years_before_and_belongs_to_one_patient(world: World) -> None:
    rows = pl.read_csv(world.root / "hosp/omr.csv.gz", try_parse_dates=True)
    first = pl.read_csv(world.root / "hosp/admissions.csv.gz", try_parse_dates=True)
    first = first.group_by("subject_id").agg(pl.col("admittime").min())
    graft = rows.filter(pl.col("result_name") == "Earlier graft")
    course = graft.filter(~pl.col("result_value").str.contains("pain")).join(first, on="subject_id")
    years = (course["admittime"].dt.date() - course["chartdate"]).dt.total_days() / 365
    assert course["subject_id"].is_unique().all() and years.is_between(4, 13).all()
    past = dict(world.truth.filter(pl.col("past").is_not_null()).select("subject_id", "past").iter_rows())
    chained = dict(world.truth.filter(pl.col("chain").is_not_null()).select("subject_id", "chain").iter_rows())
    targets = list(world.target.values())
    for subject, value in course.select("subject_id", "result_value").iter_rows():
        expected = f"target {targets[chained[subject]]}" if subject in chained else f"grade {past[subject]} course"
        assert value == expected
    graph = pl.read_csv(world.root / "kg/kg.csv.gz", infer_schema=False)
    for subject, number in list(chained.items())[:20]:
        own = graph.filter((pl.col("x_name") == targets[number]) | (pl.col("y_name") == targets[number]))
        named = set(own["x_name"]) | set(own["y_name"])
        assert f"grade {past[subject]} course" in named


def test_the_last_values_of_a_failing_graft_alone_tell_its_grade(world: World) -> None:
    rows = _omr(world).filter(pl.col("result_name") == MEASURE)
    told = {p: g for p, g, s in world.truth.select("subject_id", "past", "slope").iter_rows() if s}
    assert set(rows["subject_id"]) == set(told) and len(told) > 20
    assert _omr(world).filter(pl.col("subject_id").is_in(list(told)))["result_name"].unique().to_list() == [MEASURE]
    whole = []
    for subject, grade in told.items():
        own = rows.filter(pl.col("subject_id") == subject).sort("chartdate")
        days = own["chartdate"].cast(pl.Int32).to_numpy()
        values = own["result_value"].cast(pl.Float64).to_numpy()
        assert len(own) == sources.MEASURED and values.min() > 15
        parts = slice(4, 8), slice(4), slice(8)
        slope, before, ever = (-np.polyfit(days[part] / 365, values[part], 1)[0] for part in parts)
        assert round(slope) == grade and round(before) != grade
        whole.append(round(ever) == grade)
    assert np.mean(whole) < 0.3
    shown = pl.read_csv(world.root / "hosp/diagnoses_icd.csv.gz", infer_schema=False)
    failing = set(shown.filter(pl.col("icd_code") == sources.FAILING)["subject_id"].cast(pl.Int64))
    assert failing == set(told)


def _omr(world: World) -> pl.DataFrame:
    return pl.read_csv(world.root / "hosp/omr.csv.gz", try_parse_dates=True)


def test_without_slopes_no_record_shows_a_failing_graft(tmp_path: Path) -> None:
    plain = generate_world(tmp_path / "w", seed=3, patients=60, further=(0.5, 0.2, 0.3))
    assert sources.FAILING not in plain.further.pointers and not plain.truth["slope"].any()
    assert set(_omr(plain)["result_name"]) == {"Earlier graft"}


def test_no_visit_has_what_a_chained_past_names(world: World) -> None:
    shown = set(world.truth["rare_2"].drop_nulls().to_list())
    assert not shown & {world.tail + number for number in world.truth["chain"].drop_nulls().to_list()}


@pytest.mark.slow
def test_reports_tell_a_phenotype_and_no_other_text_does(world: World, tmp_path: Path) -> None:
    write_notes(world.root, tmp_path / "notes")
    notes = pl.read_csv(tmp_path / "notes/note/discharge.csv.gz")
    said = notes.select("hadm_id", grade=pl.col("text").str.extract(r"syndrome was on its way to a grade (\d)"))
    truth = world.truth.select(hadm_id="visit_id", tells="tells_grade").join(said, on="hadm_id")
    assert (truth["tells"].cast(pl.String).eq_missing(truth["grade"])).all()
    assert not notes["text"].str.contains("earlier graft").any()


def direct(world: World, visit: dict[str, int | None], names: tuple[str, ...], told: bool) -> np.ndarray:
    """P(acuity) of one visit, by going through every severity that is not known."""
    severity, half = world.rare_severity, len(world.rare_severity) // 2
    laws = []
    for kind, column in enumerate(("rare_1", "rare_2")):
        number = visit[column]
        if number is not None:
            own = severity[kind * half : (kind + 1) * half]
            laws.append({int(severity[number]): 1.0} if "graph" in names else _frequencies(own))
    uniform = {grade: 1 / 9 for grade in range(1, 10)}
    if visit["past"] is not None:
        knows = "past" in names and (visit["chain"] is None or "graph" in names)
        laws.append({visit["past"]: 1.0} if knows else uniform)
    if visit["asks_grade"] is not None:
        laws.append({visit["asks_grade"]: 1.0} if "reports" in names and told else uniform)
    assert visit["common_acuity"] is not None
    common = world.truth["common_acuity"].to_numpy()
    total = {visit["common_acuity"]: 1.0} if "training" in names else _frequencies(common)
    for law in laws:
        joint: dict[int, float] = {}
        for a, p in total.items():
            for b, q in law.items():
                joint[max(a, b)] = joint.get(max(a, b), 0.0) + p * q
        total = joint
    return np.array([total.get(grade, 0.0) for grade in range(story.GRADES)])


def _frequencies(values: np.ndarray) -> dict[int, float]:
    found, counts = np.unique(values, return_counts=True)
    return {int(v): c / len(values) for v, c in zip(found, counts, strict=True)}


@pytest.mark.slow
def test_all_sixteen_ceilings_equal_a_direct_evaluation(world: World) -> None:
    patients = world.truth["subject_id"].unique().sort().to_list()
    shown = world.truth.filter(pl.col("subject_id").is_in(patients[:280]))["visit_id"].to_list()
    asked = world.truth.filter(pl.col("subject_id").is_in(patients[280:320]))
    told = report_coverage(world, asked, shown)
    for task in ("los", "dec"):
        found = source_ceilings(world, asked["visit_id"].to_list(), task, shown)
        assert list(found) == [names for n in range(5) for names in combinations(SOURCES, n)]
        for names, best in found.items():
            laws = np.stack([direct(world, v, names, bool(t)) for v, t in zip(asked.to_dicts(), told, strict=True)])
            assert best == pytest.approx(label_law(laws, task).max(axis=1).mean(), abs=1e-9)


def test_each_source_is_worth_something_beside_the_others(world: World) -> None:
    visits = world.truth["visit_id"].to_list()
    found = source_ceilings(world, visits, "los", visits)
    whole = found[SOURCES]
    for source in SOURCES:
        assert whole > found[tuple(name for name in SOURCES if name != source)] + 0.04
    assert max(found[(source,)] for source in SOURCES) < 0.6 * whole


def test_a_report_of_the_patient_who_asks_tells_nothing(world: World) -> None:
    asked = world.truth.filter(pl.col("asks").is_not_null())
    everyone = report_coverage(world, asked, world.truth["visit_id"].to_list())
    own = asked.rows(named=True)
    for row, told in zip(own, everyone, strict=True):
        others = world.truth.filter((pl.col("tells") == row["asks"]) & (pl.col("subject_id") != row["subject_id"]))
        assert told == (not others.is_empty())
    assert not report_coverage(world, asked, []).any()


def test_known_from_a_chain_takes_both_sources(world: World) -> None:
    chained = world.truth.filter(pl.col("chain").is_not_null())
    for names, knows in ((("past",), False), (("graph",), False), (("graph", "past"), True)):
        assert (source_coverage(world, chained, names, [])[:, 2] == knows).all()


@pytest.mark.parametrize("shares", [(1.5, 0.1, 0.1), (0.1, 0.4, 0.1), (-0.1, 0.1, 0.1), (0.1, 0.1, 0.6, 0.6)])
def test_impossible_shares_are_refused(tmp_path: Path, shares: tuple[float, ...]) -> None:
    with pytest.raises(BadInput, match="must be shares"):
        generate_world(tmp_path / "w", seed=0, patients=10, further=shares)


def test_phenotypes_are_distinct_and_their_grades_even() -> None:
    drawn = draw_phenotypes(np.random.default_rng(0))
    assert len(np.unique(drawn.conditions, axis=0)) == len(drawn.conditions)
    counts = np.bincount(drawn.grade, minlength=10)
    assert counts[0] == 0 and np.ptp(counts[1:]) <= 1
    assert drawn.shows(np.array([-1, 4])).sum(axis=1).tolist() == [0, 3]
    assert SourceShares(*sources.NONE).any is False and len(POINTERS) == 4


def test_acuity_law_of_nothing_unknown() -> None:
    assert acuity_law(np.array([4]), np.ones((1, 10)))[0].tolist() == [0.0] * 4 + [1.0] + [0.0] * 5
