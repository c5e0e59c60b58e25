"""The same patients from MIMIC-IV's tables and from MEDS as other projects write it: equal visits, codes, labels and
prompts; other shapes of codes; what no one understands is refused with what was seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.meds import read_meds, require_visit_codes
from ghar.data.readers.meds_codes import read_vocabulary, resolve_codes
from ghar.data.readers.meds_times import with_draws
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.vessels import VENOUS
from ghar.data.tasks.ehrshot import ehrshot_labels
from ghar.data.tasks.visits import VISIT_TASKS, visit_samples
from ghar.data.views.visits import visit_list
from ghar.data.visit_codes import KIND_NAMES
from ghar.errors import BadInput
from tests.data import meds_shapes
from tests.data.test_meds import DAY, HOUR, T0, US, shard
from tests.data.test_tasks_visits import task_named

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tables(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    root = tmp_path_factory.mktemp("tables") / "kept"
    return read_mimic4(meds_shapes.what_meds_keeps(demo, root), charts=False)


@pytest.fixture(scope="module")
def new(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return read_meds(meds_shapes.write_new(demo, tmp_path_factory.mktemp("new") / "m", numbered=True))


@pytest.fixture(scope="module")
def old(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return read_meds(meds_shapes.write_old(demo, tmp_path_factory.mktemp("old") / "m"))


def shown(cohort: Cohort, name: str, leakage) -> tuple[list[tuple], list[str]]:
    """Every sample, and the prompt's text of every tenth."""
    names, samples = cohort.names(), visit_samples(cohort, task_named(name), leakage)[1]
    texts = [visit_list(s, names.__getitem__, style="full", budget=4000, count=len).text for s in samples[::10]]
    return [(s.sample_id, s.prediction_time, s.label, s.visit_id, len(s.history)) for s in samples], texts


@pytest.fixture(scope="module")
def shown_by_tables(tables: Cohort) -> Callable[[str, str], tuple[list[tuple], list[str]]]:
    """`shown` of the tables, made once for both shapes."""
    return cache(partial(shown, tables))


@pytest.mark.parametrize("leakage", ["paper", "strict"])
@pytest.mark.parametrize("shape", ["new", "old"])
def test_visits_codes_labels_and_prompts_are_those_of_the_tables(tables, shown_by_tables, request, shape, leakage):
    """All patients of the demo. What MIMIC_IV_MEDS leaves out is left out of the tables too (`what_meds_keeps`)."""
    cohort = request.getfixturevalue(shape)
    assert cohort.visits.equals(tables.visits) and cohort.visits.height == 275
    assert cohort.shown.visits == tables.shown.visits
    for kind, count in (("diagnoses", 4506), ("procedures", 667), ("medications", 7231)):
        assert sum(len(getattr(visit, kind)) for visit in cohort.shown.visits.values()) == count
    used = {code for visit in tables.shown.visits.values() for kind in KIND_NAMES for code in getattr(visit, kind)}
    assert {code: cohort.names()[code] for code in used} == {code: tables.names()[code] for code in used}
    for name in VISIT_TASKS:
        (ours, texts), (theirs, their_texts) = shown(cohort, name, leakage), shown_by_tables(name, leakage)
        if (name, shape) != ("lab_anemia", "new"):
            assert ours == theirs and texts == their_texts and ours, name
        else:  # two drawings of an item whose results were stored the other way round: nothing in MEDS tells
            assert len(ours) == len(theirs) == 2858
            assert len({row[1:4] for row in ours} ^ {row[1:4] for row in theirs}) == 2


def test_ages_are_those_of_the_tables(tables, new, old):
    """From MEDS_BIRTH, at each of the 275 admissions."""
    columns = ["subject_id", "time", "recorded", "numeric_value", "visit_id"]
    ages = [c.events.filter(code="AGE").select(columns).sort("visit_id") for c in (tables, new, old)]
    assert ages[0].height == 275 and ages[0].equals(ages[1]) and ages[0].equals(ages[2])
    assert new.names()["AGE"] == tables.names()["AGE"]


def test_results_have_the_times_of_their_drawings(tables, new, old):
    """99.8% of the results; units are kept, and the children of LOINC 718-7 are followed."""
    columns = ["subject_id", "time", "recorded", "code", "numeric_value"]
    item = pl.col("code").str.extract("^(LAB/[^/]+)")  # the vessel of a gas is that of its time: see the next test
    values = [
        c.scan().filter(pl.col("code").str.starts_with("LAB/")).with_columns(code=item).select(columns).collect()
        for c in (tables, new)
    ]
    right = values[0].join(values[1], on=columns, how="semi", nulls_equal=True).height
    assert values[0].height == values[1].height == 106_717 and right >= 106_489
    blood = new.events.filter(pl.col("code") == "LAB/51222")
    assert set(blood["unit"]) == {"g/dL"} and blood["recorded"].gt(blood["time"]).mean() > 0.99
    assert new.codes.filter(code="LAB/51222")["parents"].to_list() == [["LOINC/718-7"]]
    dropped = new.counts["dropped.meds.drawing_of_a_result"]
    ages = new.counts["added.meds.ages"]
    assert new.counts["rows.meds"] == new.events.height + dropped - ages and dropped > 100_000
    first = ehrshot_labels(old, "lab_anemia")[0]
    assert first.equals(ehrshot_labels(tables, "lab_anemia")[0]) and first.height == 2858


def test_venous_blood_gases_are_those_of_the_tables(tables, new, old):
    """All 641 where the folder says when blood was drawn, 639 where that is inferred (`with_draws`)."""
    gases = [c.scan().filter(pl.col("code").is_in(VENOUS)).collect() for c in (tables, old, new)]
    what = ["subject_id", "code", "numeric_value"]
    drawn, stored = [*what, "time"], [*what, "recorded"]
    assert gases[0].height == gases[1].height == gases[0].join(gases[1], on=drawn, how="semi").height == 641
    assert gases[0].join(gases[2], on=stored, how="semi").height == 639
    assert old.counts["marked.meds.venous"] == 641
    assert old.names()["LAB/50821/venous"] == f"{old.names()['LAB/50821']} (venous)"


def test_orders_without_the_number_of_their_stay(demo, tables, tmp_path):
    """As MIMIC_IV_MEDS 0.2.0 writes them: by time, or by the nearest stay within a day."""
    found = read_meds(meds_shapes.write_new(demo, tmp_path / "m"))
    assert found.visits.equals(tables.visits)
    drugs = [{v: set(visit.medications) for v, visit in c.shown.visits.items()} for c in (found, tables)]
    assert sum(drugs[0][v] == drugs[1][v] for v in drugs[1]) == 270
    assert sum(len(drugs[0][v] & drugs[1][v]) for v in drugs[1]) == 7227


def test_the_shapes_of_meds_etl(demo, tables, tmp_path):
    found = read_meds(meds_shapes.write_etl(demo, tmp_path / "m"))
    assert found.visits.equals(tables.visits)
    for kind in KIND_NAMES:
        ours, theirs = ({v: set(getattr(visit, kind)) for v, visit in c.shown.visits.items()} for c in (found, tables))
        assert ours == theirs, kind
    for name in ("los", "read", "dec", "guo_los", "guo_readmission", "new_acutemi"):
        samples = [
            [(s.sample_id, s.prediction_time, s.label) for s in visit_samples(c, task_named(name), "paper")[1]]
            for c in (found, tables)
        ]
        assert samples[0] == samples[1], name
    procedures = found.events.filter(pl.col("code").str.starts_with("ICD10PCS/"))
    ends = procedures.join(found.visits, on="visit_id")
    assert (ends["recorded"] >= ends["end"]).all()  # coded at the discharge, however early it was done
    assert ehrshot_labels(found, "lab_anemia")[0].height > 2800


OMOP = [
    # subject, time, code, table, end, visit
    (1, T0 - 9000 * DAY, "MEDS_BIRTH", "person", None, None),
    (1, T0, "Visit/IP", "visit_occurrence", T0 + 8 * DAY, 7),
    (1, T0 + HOUR, "SNOMED/38341003", "condition_occurrence", None, 7),
    (1, T0 + HOUR, "SNOMED/80146002", "procedure_occurrence", None, 7),
    (1, T0 + HOUR, "SNOMED/271649006", "observation", None, 7),
    (1, T0 + HOUR, "RxNorm/1049640", "drug_exposure", None, 7),
    (1, T0 + HOUR, "CPT4/93010", "procedure_occurrence", None, 7),
    (1, T0 + HOUR, "ICD10CM/I10", "condition_occurrence", None, 7),
    (1, T0 + HOUR, "STANFORD_DX/1", "condition_occurrence", None, 7),
    (1, T0 + HOUR, "LOCAL_DX/2", None, None, 7),  # a child of ICD10CM/I21.4
    (1, T0 + 2 * HOUR, "STANFORD_MEAS/HGB", "measurement", None, 7),  # a child of LOINC/718-7
]  # fmt: skip


def omop(root: Path, table: str, codes: list | None = None) -> Path:
    rows = [row[:3] for row in OMOP]
    more = {table: [row[3] for row in OMOP], "end": pl.Series([row[4] for row in OMOP], dtype=US)}
    more["visit_id"] = [None if row[5] is None else str(row[5]) for row in OMOP]  # meds_etl leaves them as text
    last = [None] * (len(OMOP) - 1)
    shard(root, rows, numeric_value=[*last, 9.5], unit=[*last, "g/dL"], **more)
    (root / "metadata").mkdir()
    above = {"code": ["STANFORD_MEAS/HGB", "LOCAL_DX/2"], "parent_codes": [["LOINC/718-7"], ["ICD10CM/I21.4"]]}
    pl.DataFrame(above | {"description": ["Hgb", "heart attack"]}).write_parquet(root / "metadata" / "codes.parquet")
    return root


@pytest.mark.parametrize("table", ["omop_table", "table", "table_name"])
def test_omop_and_ehrshot(tmp_path, table):
    """SNOMED's kind is that of the table an event is from; parents say what a local code is."""
    found = require_visit_codes(read_meds(omop(tmp_path, table)))
    [visit] = found.shown.visits.values()
    assert visit.visit_id == 7
    assert visit.diagnoses == ("SNOMED/38341003", "ICD10CM/I10", "STANFORD_DX/1", "ICD10CM/I214")
    assert visit.procedures == ("SNOMED/80146002", "CPT4/93010") and visit.medications == ("RxNorm/1049640",)
    assert ehrshot_labels(found, "lab_anemia")[0]["label"].to_list() == [2]  # 9.5 g/dL
    assert ehrshot_labels(found, "guo_los")[0]["label"].to_list() == [1]


def test_an_infarction_by_its_parents(tmp_path):
    """eICU-MEDS codes a path and names ICD codes as its parents; patients share the number of the hospital."""
    rows = [
        (1, T0, "HOSPITAL_ADMISSION//ED//West//t//> 500"), (1, T0, "ADMISSION_DIAGNOSIS//x"),
        (1, T0 + HOUR, "DIAGNOSIS//renal|failure"), (1, T0 + HOUR, "TREATMENT//ENTERED//renal|dialysis"),
        (1, T0 + HOUR, "MEDICATION//STARTED//ASPIRIN 81 mg"), (1, T0 + DAY, "HOSPITAL_DISCHARGE//Alive//Home"),
        (1, T0 + 3 * DAY, "DIAGNOSIS//cardiovascular|infarction"),
        (2, T0, "HOSPITAL_ADMISSION//ED//West//t//> 500"), (2, T0 + DAY, "HOSPITAL_DISCHARGE//Expired//Death"),
    ]  # fmt: skip
    shard(tmp_path, rows, hadm_id=[60, None, None, None, None, 60, None, 60, 60])
    (tmp_path / "metadata").mkdir()
    codes = pl.DataFrame({"code": ["DIAGNOSIS//cardiovascular|infarction"], "parent_codes": [["ICD9CM/410.9"]]})
    codes.write_parquet(tmp_path / "metadata" / "codes.parquet")
    found = read_meds(tmp_path)
    assert found.visits.select("visit_id", "subject_id", "died").rows() == [(1, 1, False), (2, 2, True)]
    assert found.shown.visits[1].medications == ("DRUG/aspirin 81 mg",)
    assert found.shown.visits[1].procedures == ("EICU_TREATMENT/renal|dialysis",)
    assert ehrshot_labels(found, "new_acutemi")[0].rows()[0][2] == 1


def meaning(code: str, table: str | None = None) -> tuple:
    frame = pl.DataFrame(
        [(code, None, [], table)],
        {"code": pl.String, "description": pl.String, "parent_codes": pl.List(pl.String), "table": pl.String},
        orient="row",
    )
    return resolve_codes(frame).select("code", "kind", "unit", "role").row(0)


@pytest.mark.parametrize(
    "code, expected",
    [
        ("DIAGNOSIS//ICD//10//I214", ("ICD10CM/I214", "diagnoses", None, "billed")),
        ("DIAGNOSIS-ICD//9//4280//hosp/diagnoses_icd", ("ICD9CM/4280", "diagnoses", None, "billed")),
        ("PROCEDURE//ICD//10//0W9G3ZZ", ("ICD10PCS/0W9G3ZZ", "procedures", None, "billed")),
        ("ICD9Proc/39.61", ("ICD9PROC/3961", "procedures", None, "plain")),
        ("ICD10CM/I21.4", ("ICD10CM/I214", "diagnoses", None, "plain")),
        ("MEDICATION//START//Ipratropium-Albuterol Neb//487020101",
         ("DRUG/ipratropium-albuterol neb", "medications", None, "order")),
        ("MEDICATION//START//Sulfameth/Trim DS", ("DRUG/sulfameth/trim ds", "medications", None, "order")),
        ("MEDICATION//START//UNK//UNK", ("MEDICATION//START//UNK//UNK", None, None, "plain")),
        ("MEDICATION//STOP//Aspirin", ("MEDICATION//STOP//Aspirin", None, None, "plain")),
        ("MEDICATION//Heparin//Administered//63323026201", ("DRUG/heparin", "medications", None, "given")),
        ("MEDICATION//Heparin//Administered in Other Location", ("DRUG/heparin", "medications", None, "given")),
        ("MEDICATION//Heparin//Not Given//UNK", ("MEDICATION//Heparin//Not Given//UNK", None, None, "plain")),
        ("MEDICATION//Heparin//Hold Dose", ("MEDICATION//Heparin//Hold Dose", None, None, "plain")),
        ("LAB//51222//g/dL", ("LAB/51222", None, "g/dL", "plain")),
        ("LAB//RESULT//51222//UNK", ("LAB/51222", None, None, "result")),
        ("LAB//RESULT//paO2//mm Hg", ("LAB/paO2", None, "mm Hg", "result")),
        ("LAB//220045//bpm", ("CHART/220045", None, "bpm", "plain")),
        ("LAB//SPECIMEN_COLLECTED//51222//STAT", ("SPECIMEN/51222", None, None, "specimen")),
        ("LOINC//718-7", ("LOINC/718-7", None, None, "plain")),
        ("condition_occurrence//SNOMED//320128", ("condition_occurrence//SNOMED//320128", "diagnoses", None, "plain")),
        ("drug_exposure_start//RxNorm//1", ("drug_exposure_start//RxNorm//1", "medications", None, "plain")),
        ("drug_exposure_end//RxNorm//1154343", ("drug_exposure_end//RxNorm//1154343", None, None, "plain")),
        ("NDC/00002751001", ("NDC/00002751001", "medications", None, "plain")),
        ("GENDER//Female", ("GENDER/F", None, None, "plain")),
    ],
)  # fmt: skip
def test_shapes(code, expected):
    assert meaning(code) == expected


def test_a_drug_that_was_given_is_a_medication_where_nothing_was_ordered(tmp_path):
    rows = [(1, T0, "ADMISSION//ER"), (1, T0 + HOUR, "MEDICATION//Insulin//Administered"), (1, T0 + DAY, "DISCHARGE")]
    given = read_meds(shard(tmp_path / "a", rows))
    assert given.shown.visits[1].medications == ("DRUG/insulin",)
    rows.insert(2, (1, T0 + HOUR, "MEDICATION//START//Insulin//1"))
    both = read_meds(shard(tmp_path / "b", rows))
    assert both.shown.visits[1].medications == ("DRUG/insulin",) and "GIVEN/insulin" in both.events["code"]


@pytest.mark.parametrize(
    "drawn, stored, expected",
    [
        ([0, 2], [1, 3], [0, 2]),  # as many of both, in order
        ([0, 1], [2, 3], [0, 1]),  # also where the second was drawn before the first was stored
        ([0, 2], [3], [2]),  # one was never stored: the last before it
        ([2], [1], [1]),  # stored before it was drawn: left as it is
    ],
)
def test_results_and_their_drawings(drawn, stored, expected):
    rows = [(T0 + h * HOUR, "SPECIMEN/1", "specimen", None) for h in drawn]
    rows += [(T0 + h * HOUR, "LAB/1", "result", float(h)) for h in stored]
    types = {"time": US, "code": pl.String, "role": pl.String, "numeric_value": pl.Float32}
    frame = pl.DataFrame(rows, types, orient="row").with_columns(
        subject_id=pl.lit(1), recorded="time", _key=pl.lit(None, pl.Int64)
    )
    found, dropped = with_draws(frame)
    results = found.filter(role="result").sort("numeric_value")
    assert [(t - T0) / HOUR for t in results["time"]] == expected
    assert [(t - T0) / HOUR for t in results["recorded"]] == stored
    assert found.height + dropped == frame.height


def test_visits_that_show_nothing_are_refused_with_what_was_seen(tmp_path):
    rows = [(1, T0, "ADMISSION//ER"), *[(1, T0 + HOUR, f"DX:{n}") for n in range(3)], (1, T0 + HOUR, "RX|a"),
            (1, T0 + DAY, "DISCHARGE//HOME")]  # fmt: skip
    found = read_meds(shard(tmp_path, rows))
    with pytest.raises(BadInput, match=r"1 of 1 visits .* show no diagnosis.*DX:#... \(3 events, as DX:0\); RX"):
        require_visit_codes(found)
    told = tmp_path / "told.yaml"
    told.write_text("codes:\n- {pattern: 'DX:(?P<icd>.*)', code: 'ICD10CM/{icd}'}\n")
    again = require_visit_codes(read_meds(tmp_path, vocabulary=told), told)
    assert again.shown.visits[1].diagnoses == ("ICD10CM/0", "ICD10CM/1", "ICD10CM/2")
    nobody = read_meds(shard(tmp_path / "b", [(1, T0, "CAME"), (1, T0 + HOUR, "ICD10CM/I10"), (1, T0 + DAY, "WENT")]))
    with pytest.raises(BadInput, match=r"have no visit: no event begins a stay. .*CAME.* system=ehr_rag, which reads"):
        require_visit_codes(nobody)
    told.write_text("admission: ^CAME$\ndischarge: ^WENT$\n")
    assert require_visit_codes(read_meds(tmp_path / "b", vocabulary=told), told).visits.height == 1


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("codes: [{code: x}]", "entry 1 of codes must have pattern"),
        ("codes: [{pattern: '('}]", "is no regular expression"),
        ("codes: [{pattern: 'a', code: 'ICD10CM/{icd}'}]", "names no group of its pattern"),
        ("codes: [{pattern: 'a', kind: drugs}]", "kind is one of diagnoses, procedures, medications"),
        ("code: []", "other keys than codes, admission, discharge: code"),
        ("- a", "other keys than"),
        ("a: [", "is not YAML"),
    ],
)
def test_bad_vocabularies(tmp_path, text, sentence):
    path = tmp_path / "v.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=sentence):
        read_vocabulary(path)
    with pytest.raises(BadInput, match="is no file"):
        read_vocabulary(tmp_path / "nowhere.yaml")


def test_the_published_demo_has_nulls_inside_parents(tmp_path):
    """MIMIC_IV_MEDS 0.0.1, as published: 60 of 2,661 codes have the parents [null]."""
    rows = [(1, T0, "ADMISSION//ER"), (1, T0 + HOUR, "ICD10CM/I10"), (1, T0 + HOUR, "LOCAL//1"),
            (1, T0 + DAY, "DISCHARGE//HOME")]  # fmt: skip
    shard(tmp_path, rows)
    (tmp_path / "metadata").mkdir()
    listed = {"code": ["ICD10CM/I10", "LOCAL//1"], "description": ["Hypertension", "heart attack"],
              "parent_codes": [[None], [None, "ICD10CM/I21.4"]]}  # fmt: skip
    pl.DataFrame(listed).write_parquet(tmp_path / "metadata" / "codes.parquet")
    found = require_visit_codes(read_meds(tmp_path))
    assert found.shown.visits[1].diagnoses == ("ICD10CM/I10", "ICD10CM/I214")
    assert found.codes.filter(code="ICD10CM/I10")["parents"].to_list() == [[]]


def test_a_birth_gives_the_age_at_each_admission(tmp_path):
    born = T0.replace(year=2100, month=6, day=2)
    rows = [(1, born, "MEDS_BIRTH"), (1, T0, "ADMISSION//ER"), (1, T0 + DAY, "DISCHARGE//HOME"),
            (1, T0 + 160 * DAY, "ADMISSION//ER"), (2, T0.replace(year=2050), "MEDS_BIRTH"), (2, T0, "ADMISSION//ER"),
            (3, T0, "ADMISSION//ER")]  # fmt: skip
    found = read_meds(shard(tmp_path, rows))
    ages = found.events.filter(code="AGE").select("subject_id", "time", "recorded", "numeric_value", "visit_id")
    second = T0 + 160 * DAY
    assert ages.drop("visit_id").rows() == [(1, T0, T0, 49), (1, second, second, 50), (2, T0, T0, 90)]
    assert ages["visit_id"].null_count() == 0 and found.counts["added.meds.ages"] == 3
    assert found.names()["MEDS_BIRTH"] == "birth"
    assert found.counts["rows.meds"] == found.events.height - 3
    told = read_meds(shard(tmp_path / "b", [*rows, (3, T0, "AGE")]))  # a folder that has ages keeps its own
    assert told.events.filter(code="AGE").height == 1


def test_a_fact_without_a_time_is_known_at_no_time(tmp_path):
    """A gender is so from birth, a coded diagnosis of a stay is known at its end; a result is neither."""
    rows = [(1, None, "GENDER//F"), (1, T0, "HOSPITAL_ADMISSION//A"), (1, None, "LAB//51222//g/dL"),
            (1, None, "DIAGNOSIS//ICD//10//I214"), (1, None, "MEDICATION//START//Aspirin"), (1, None, "RACE//WHITE"),
            (1, T0 + DAY, "HOSPITAL_DISCHARGE//HOME")]  # fmt: skip
    found = read_meds(shard(tmp_path, rows, hadm_id=[None, 5, 5, 5, 5, None, 5]))
    assert found.events.filter(pl.col("time").is_null())["code"].to_list() == ["GENDER/F", "RACE//WHITE"]
    assert found.events.filter(code="ICD10CM/I214").select("time", "recorded").rows() == [(T0 + DAY, T0 + DAY)]
    assert found.counts["dropped.meds.fact_without_time"] == 2
    assert found.counts["rows.meds"] == found.events.height + 2
