"""The eICU reader: ICU stays on a timeline that claims no more than the source knows, and nothing lost uncounted."""

from collections import Counter
from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.eicu_stays import body_measures
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput
from tests.data.audit import audit
from tests.data.eicu_tables import ROWS, assert_conserved, of, write


def test_small_tables(tmp_path):
    cohort = read_eicu(write(tmp_path))
    assert_conserved(cohort)
    assert cohort.stay == "ICU" and cohort.credentialed and cohort.events["subject_id"].is_sorted()
    names = cohort.names()
    assert names["ICD10CM/N179"] == names["ICD9CM/5849"] == "acute renal failure"
    assert (
        names["EICU_DIAGNOSIS/endocrine|glucose metabolism|diabetes mellitus|Type II"] == "diabetes mellitus, Type II"
    )
    assert names["EICU_TREATMENT/renal|dialysis|hemodialysis"] == "hemodialysis"
    assert cohort.counts["codes_without_name"] == 0
    samples = {s.visit_id: s.history[-1] for s in make_samples(cohort, "los")[1]}
    assert samples[3].medications == ("DRUG/warfarin 5 mg",)
    assert samples[3].procedures == ("EICU_TREATMENT/renal|dialysis|hemodialysis",)
    assert of(cohort, "AGE")["numeric_value"].to_list() == [90, 90, 90, 70]
    assert cohort.counts["repaired.patient.age_over_89"] == 3
    assert of(cohort, "GENDER/")["code"].to_list() == ["GENDER/F", "GENDER/M"]
    labs = of(cohort, "LAB/").select("code", "numeric_value", "text_value").rows()
    assert labs == [("LAB/BUN", 31, None), ("LAB/pH", pytest.approx(7.3), None), ("LAB/troponin - I", None, "<0.02")]


def test_timeline(tmp_path):
    """1 January of the discharge year at the hour of admission, then minutes; offsets count from the unit admission."""
    cohort = read_eicu(write(tmp_path))
    admission = datetime(2015, 1, 1, 23)
    visits = cohort.visits.select("subject_id", "group", "visit_id", "start", "end").rows()
    assert visits == [
        (20001039, 40, 5, datetime(2015, 1, 1, 8), datetime(2015, 1, 2, 9)),
        (20001039, 50, 7, admission + timedelta(hours=1), admission + timedelta(minutes=3000)),
        (20001039, 50, 3, admission + timedelta(minutes=3000), admission + timedelta(minutes=3500)),
        (130000017, 60, 9, datetime(2014, 1, 1, 10, 10), datetime(2014, 1, 3, 10, 10)),
    ]
    start = admission + timedelta(minutes=3000)
    drug = of(cohort, "DRUG/").row(0, named=True)  # started before it was ordered, and before the admission
    assert drug["time"] == start - timedelta(minutes=188) and drug["recorded"] == start + timedelta(minutes=5)
    lab = of(cohort, "LAB/BUN").row(0, named=True)
    assert lab["time"] == start + timedelta(minutes=30) and lab["recorded"] == start + timedelta(minutes=50)


@pytest.mark.slow
def test_hospital_stays_of_one_patient_have_no_order(tmp_path):
    """Trap 7. Stay 5 is of another hospital stay of the year; 7 comes before 3 although its id is higher."""
    cohort = read_eicu(write(tmp_path))
    shown = {s.visit_id: [v.visit_id for v in s.history] for s in make_samples(cohort, "los")[1]}
    assert shown == {5: [5], 7: [7], 3: [7, 3], 9: [9]}
    assert [(s.visit_id, s.label) for s in make_samples(cohort, "read")[1]] == [
        (5, 0),
        (7, 0),  # 3 begins at the minute at which 7 ended: a move to another unit
        (9, 0),  # the last of their hospital stays and left alive: they did not return
    ]


@pytest.mark.parametrize(
    ("unit", "hospital", "leaves", "died", "rule"),
    [
        ("Alive", "Expired", 3000, False, None),  # trap 7: the death was later, on the ward or in another unit
        ("Expired", "Expired", 3000, True, None),
        ("Expired", "Alive", 3000, True, "expired_but_hospital_says_alive"),
        ("", "Alive", 3000, False, "no_unit_status"),
        ("", "Expired", 3000, False, "no_unit_status"),
        ("", "Expired", 500, True, "no_unit_status"),
    ],
)
def test_who_died_in_the_unit(tmp_path, unit, hospital, leaves, died, rule):
    row = f"3,50,Female,60,23:00:00,-60,2015,{leaves},{hospital},MICU,1,500,{unit},002-1039,,,"
    cohort = read_eicu(write(tmp_path, {"patient": [row]}))
    visit = cohort.visits.row(0, named=True)
    assert visit["died"] == died and visit["death_time"] == (visit["end"] if died else None)
    found = [r for r in cohort.counts if r.startswith("repaired.patient.")]
    assert found == ([f"repaired.patient.{rule}"] if rule else [])


@pytest.mark.slow
def test_icd_codes(tmp_path):
    """Pairs and longer lists, told apart by shape; repeated rows go, later mentions stay, a visit lists a code once."""
    cohort = read_eicu(write(tmp_path))
    assert cohort.counts["dropped.diagnosis.repeated"] == 1
    assert cohort.counts["added.diagnosis.further_codes"] == 2 and cohort.counts["repaired.diagnosis.no_icd_code"] == 1
    visit = make_samples(cohort, "los")[1][2].history[-1]
    assert visit.diagnoses == ("ICD9CM/5849", "ICD10CM/N179", *visit.diagnoses[2:]) and len(visit.diagnoses) == 3
    # offset -10: known at the admission, unlike what was written down later (not discharge-coded, trap 2)
    strict = make_samples(cohort, "los", leakage="strict")[1][2].history[-1]
    assert strict.diagnoses == ("ICD9CM/5849", "ICD10CM/N179")
    rows = [
        '1,3,0,a|b|c,"E980.2, 965.00, 965.00, T40.60",Other',
        "2,3,1,a|b|d,E87.1,Other",
        '3,3,2,a|b|e,"V62.84, R45.851",Other',
        '4,3,3,a|b|f,"31.1, 428.0",Other',
        '5,3,4,a|b|g,"?",Other',
        '6,3,5,,"",Other',
        "7,8,6,a|b|h,428.0,Other",
        "8,3,,a|b|h,428.0,Other",
    ]
    cohort = read_eicu(write(tmp_path, {"diagnosis": rows}))
    codes = of(cohort, "ICD", "EICU_DIAGNOSIS/")["code"].to_list()
    nine, ten = [c for c in codes if c.startswith("ICD9CM/")], [c for c in codes if c.startswith("ICD10CM/")]
    assert nine == ["ICD9CM/E9802", "ICD9CM/96500", "ICD9CM/V6284", "ICD9CM/4280"]
    assert ten == ["ICD10CM/T4060", "ICD10CM/E871", "ICD10CM/R45851"]
    assert len(codes) == 8 and "EICU_DIAGNOSIS/a|b|g" in codes
    assert_conserved(cohort)
    assert {rule: n for rule, n in cohort.counts.items() if ".diagnosis." in rule} == {
        "dropped.diagnosis.unknown_stay": 1,
        "dropped.diagnosis.no_time": 1,
        "dropped.diagnosis.blank": 1,
        "repaired.diagnosis.code_of_no_icd_shape": 2,
        "added.diagnosis.further_codes": 3,
    }


def test_a_code_stands_only_where_its_name_does(tmp_path):
    """eICU gives one code to several diagnoses; a code is named by the commonest of them."""
    shock, salt, side = "c|shock|septic shock", "r|electrolytes|hyponatremia", "p|pleura|pleural effusion"
    diagnoses = [
        (shock, "785.59"), (shock, "785.59"), ("c|shock|hypovolemic shock", "785.59"),
        (salt, "276.1, E87.0, E87.1"), (salt, "276.1, E87.0, E87.1"), ("r|electrolytes|hypernatremia", "276.0, E87.0"),
        (f"{side}|right", "511.9"), (f"{side}|right", "511.9"), (f"{side}|left", "511.9"), (side, "511.9"),
        (f"{salt}|severe", "276.1"), ("i|sepsis|single organ- acute renal failure", "584.9"),
        ("r|kidney|acute renal failure", "584.9"), ("r|kidney|acute renal failure", "584.9"),
    ]  # fmt: skip
    rows = [f'{i},3,{i},{path},"{codes}",Other' for i, (path, codes) in enumerate(diagnoses)]
    cohort = read_eicu(write(tmp_path, {"diagnosis": rows}))
    names = dict(cohort.codes.select("code", "description").iter_rows())
    found = of(cohort, "ICD", "EICU_DIAGNOSIS/").sort("time", maintain_order=True)
    each = found.group_by("time", maintain_order=True).agg("code")["code"]
    texts = [{names[code] for code in codes} for codes in each]
    own = [{"hypovolemic shock"}, {"hypernatremia"}, {"pleural effusion, left"}, {"pleural effusion"}]
    assert [texts[i] for i in (2, 5, 8, 9)] == own
    assert texts[0] == {"septic shock"} and texts[3] == {"hyponatremia"} and texts[6] == {"pleural effusion, right"}
    assert texts[10] == {"hyponatremia"} and texts[11] == texts[12] == {"acute renal failure"}
    assert cohort.counts["repaired.diagnosis.code_says_otherwise"] == 4
    assert_conserved(cohort)


def test_orders_without_a_name_and_cancelled_orders(tmp_path):
    counts = read_eicu(write(tmp_path)).counts
    assert counts["dropped.medication.blank_drug"] == 2 and counts["dropped.medication.cancelled"] == 1


def test_chart_measurements(tmp_path):
    cohort = read_eicu(write(tmp_path))
    vitals = of(cohort, "VITAL/").filter(pl.col("visit_id") == 3)
    start = datetime(2015, 1, 4, 1)
    found = Counter(vitals["code"].str.strip_prefix("VITAL/"))
    assert found == {
        **dict.fromkeys(("systolic blood pressure", "diastolic blood pressure", "mean blood pressure", "weight"), 2),
        **dict.fromkeys(("temperature", "heart rate"), 2),
        **dict.fromkeys(("oxygen saturation", "respiratory rate", "glasgow coma scale total", "height", "ph"), 1),
        "fraction inspired oxygen": 1,
    }
    warm = vitals.filter(pl.col("code") == "VITAL/temperature").select("time", "recorded", "numeric_value").rows()
    assert warm[0] == (start + timedelta(minutes=35), start + timedelta(minutes=35), pytest.approx(37.1))
    assert warm[1] == (start + timedelta(minutes=40), start + timedelta(minutes=45), pytest.approx(37))
    oxygen = vitals.filter(pl.col("code") == "VITAL/fraction inspired oxygen")
    assert oxygen["numeric_value"].to_list() == [pytest.approx(0.4)]
    weights = vitals.filter(pl.col("code") == "VITAL/weight").select("time", "numeric_value").rows()
    assert weights == [(start, 46.5), (start + timedelta(minutes=500), 45)]  # trap 5: known at the discharge only
    counts = cohort.counts
    assert counts["rows.vitalperiodic"] == 14 and counts["dropped.vitalperiodic.no_value"] == 6
    assert counts["dropped.nursecharting.other_item"] == 1 and counts["dropped.nursecharting.no_value"] == 1
    lean = read_eicu(tmp_path, charts=False)
    assert of(lean, "VITAL/").is_empty() and of(lean, "LAB/").equals(of(cohort, "LAB/"))


def test_bad_stays_are_dropped_or_repaired_and_counted(tmp_path):
    rows = [
        "1,50,,,,,,,,,,,,002-1,,,",
        "2,51,Female,40,25:61:00,-5,2015,9,Alive,MICU,1,-3,Alive,002-2,1000,,",
        "2,51,Female,40,10:00:00,-5,2015,9,Alive,MICU,1,3,Alive,002-2,,,",
        ",51,Female,40,10:00:00,-5,2015,9,Alive,MICU,1,3,Alive,002-2,,,",
        "4,51,Female,40,10:00:00,-5,2015,9,Alive,MICU,1,3,Alive,2-2,,,",
        "5,,Female,40,10:00:00,-5,2015,9,Alive,MICU,1,3,Alive,002-2,,,",
        "6,51,Female,40,10:00:00,-5,20155,9,Alive,MICU,1,3,Alive,002-2,,,",
        "7,51,Female,40,10:00:00,-50,2015,9,Alive,MICU,0,3,Alive,002-2,,,",
        "8,51,Female,40,10:00:00,-60,2015,9,Alive,MICU,-1,3,Alive,002-2,,,",
    ]
    cohort = read_eicu(write(tmp_path, {"patient": rows}))
    assert_conserved(cohort)
    assert cohort.visits.select("visit_id", "end").rows()[:2] == [(1, None), (2, None)]
    assert cohort.visits["start"][0] == datetime(2014, 1, 1)
    assert {rule: n for rule, n in cohort.counts.items() if ".patient" in rule and "rows" not in rule} == {
        "dropped.patient.no_id": 1,
        "dropped.patient.repeated": 1,
        "dropped.patient.no_patient": 1,
        "dropped.patient.no_hospital_stay": 1,
        "dropped.patient.impossible_year": 1,
        "repaired.patient.no_discharge_year": 1,
        "repaired.patient.no_admission_hour": 2,
        "repaired.patient.no_admission_offset": 1,
        "repaired.patient.no_discharge_offset": 1,
        "repaired.patient.discharge_before_admission": 1,
        "repaired.patient.no_unit_status": 1,
        "repaired.patient.visit_number_not_in_time_order": 2,
        "repaired.patient.no_age": 1,
        "repaired.patient.no_gender": 1,
        "dropped.patient_body.no_value": 11,
        "dropped.patient_body.implausible": 1,
    }


def blank(strategy):
    return st.one_of(st.just(""), strategy)


def table(*cells):
    return st.lists(st.tuples(*cells).map(",".join), max_size=6)


IDS, STAYS = st.sampled_from(["1", "2", "3"]), st.sampled_from(["3", "5", "99"])
MINUTES, NUMBERS = st.sampled_from(["-70", "0", "30", "900"]), st.sampled_from(["-1", "0.5", "40", "7.2", "9000"])
CODES = st.sampled_from(['"584.9, N17.9"', "E87.1", '"31.1, , 4"', '" "', '"V08, Z21"'])
STATUS, PATHS = st.sampled_from(["Alive", "Expired", ""]), st.sampled_from(["", "a|b|c", " ", "renal|x"])
LABELS = st.sampled_from(["Heart Rate,Heart Rate", "Temperature,Temperature (F)", "Other,x", ","])


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    patient=table(
        *(blank(STAYS), blank(IDS), blank(st.just("Male")), st.sampled_from(["> 89", "40", ""])),
        *(blank(st.just("10:00:00")), blank(MINUTES), blank(st.just("2015")), blank(MINUTES), STATUS),
        *(blank(st.just("MICU")), blank(IDS), blank(MINUTES), STATUS, st.sampled_from(["002-1", "002-2", "x"])),
        *(blank(NUMBERS), blank(NUMBERS), blank(NUMBERS)),
    ),
    diagnosis=table(IDS, blank(STAYS), blank(MINUTES), PATHS, blank(CODES), st.just("Major")),
    treatment=table(IDS, blank(STAYS), blank(MINUTES), PATHS),
    medication=table(
        IDS, blank(STAYS), blank(MINUTES), blank(MINUTES), st.sampled_from(["Yes", "No", ""]), st.sampled_from(" AB")
    ),
    lab=table(
        IDS, blank(STAYS), blank(MINUTES), st.sampled_from(["", "pH", "BUN"]), blank(NUMBERS), PATHS, blank(MINUTES)
    ),
    periodic=table(IDS, blank(STAYS), blank(MINUTES), *[blank(NUMBERS)] * 7),
    nurse=table(IDS, blank(STAYS), blank(MINUTES), blank(MINUTES), LABELS, blank(NUMBERS)),
)
def test_no_row_is_lost_without_a_count(tmp_path, patient, diagnosis, treatment, medication, lab, periodic, nurse):
    rows = {
        "patient": [*patient, *ROWS["patient"]],
        "diagnosis": diagnosis,
        "treatment": treatment,
        "medication": medication,
        "lab": lab,
        "vitalPeriodic": periodic,
        "nurseCharting": nurse,
    }
    cohort = read_eicu(write(tmp_path, rows))
    for name, lines in rows.items():
        assert cohort.counts.get(f"rows.{name.lower()}", 0) == len(lines) * (7 if name == "vitalPeriodic" else 1)
    assert_conserved(cohort)
    visits = cohort.visits
    assert visits.filter((pl.col("end") < pl.col("start")) | (pl.col("death_time") < pl.col("start"))).is_empty()
    assert visits["death_time"].is_not_null().to_list() == visits["died"].to_list()
    ordered = visits.with_columns(later=pl.col("start") >= pl.col("start").shift().over("subject_id", "group"))
    assert ordered["later"].drop_nulls().all()
    assert set(cohort.events["code"]) == set(cohort.codes["code"])
    dated = cohort.events.filter(~pl.col("code").str.starts_with("GENDER/"))
    assert dated["recorded"].null_count() == dated["time"].null_count() == 0
    assert all(audit(cohort, make_samples(cohort, task, leakage="strict")[1]).is_empty() for task in ("los", "dec"))


def test_formats_and_letter_case_are_equal(tmp_path):
    plain = read_eicu(write(tmp_path / "csv"))
    for path in write(tmp_path / "parquet").glob("*.csv"):
        pl.read_csv(path).rename(str.upper).write_parquet(path.with_name(path.stem.upper() + ".parquet"))
        path.unlink()
    same = read_eicu(tmp_path / "parquet")
    assert same.events.equals(plain.events) and same.visits.equals(plain.visits) and same.codes.equals(plain.codes)
    assert same.counts == plain.counts


def test_absent_tables(tmp_path):
    root = write(tmp_path)
    optional = ("lab", "vitalPeriodic", "vitalAperiodic", "nurseCharting", "respiratoryCharting")
    for name in optional:
        (root / f"{name}.csv").unlink()
    counts = read_eicu(root).counts
    assert all(counts[f"absent.{name.lower()}"] == 1 for name in optional)
    (root / "medication.csv").unlink()
    with pytest.raises(BadInput, match="no table medication"):
        read_eicu(root)
    with pytest.raises(BadInput, match="no folder"):
        read_eicu(tmp_path / "nowhere")


def test_cache_keeps_groups_and_kind_of_stay(tmp_path, monkeypatch):
    root, cache = write(tmp_path / "in"), tmp_path / "cache"
    first = read_eicu(root, cache)
    monkeypatch.setattr("ghar.data.readers.eicu._read", None)
    again = read_eicu(root, cache)
    assert again.visits.equals(first.visits) and "group" in again.visits.columns and again.stay == "ICU"
    assert again.events.equals(first.events) and again.codes.equals(first.codes) and again.counts == first.counts


def test_a_height_in_inches_is_no_height_in_centimetres() -> None:
    """Nine heights of the open demo from 33.6 to 91.4 cm were shown, and a weight of 0.5 kg; a child's are right."""
    rows = [
        (1, 1, "85", 66.0, 73.9),
        (2, 2, "> 89", 0.3, 0.5),
        (3, 3, "2", 91.0, 14.0),
        (4, 4, "", 70.0, 17.0),
        (5, 5, "74", 165.0, 60.0),
    ]
    columns = ["subject_id", "visit_id", "age", "admissionheight", "admissionweight"]
    stays = pl.DataFrame(rows, columns, orient="row").with_columns(
        start=datetime(2014, 1, 1), end=datetime(2014, 1, 2), dischargeweight=pl.lit(None, pl.Float64)
    )
    measures, counts = body_measures(stays)
    heights = measures.filter(pl.col("code") == "VITAL/height").sort("visit_id")
    assert heights.select("visit_id", "numeric_value").rows() == [(3, 91.0), (4, 70.0), (5, 165.0)]
    weights = measures.filter(pl.col("code") == "VITAL/weight").sort("visit_id")
    assert weights["visit_id"].to_list() == [1, 3, 4, 5]
    assert counts["dropped.patient_body.implausible"] == 3
