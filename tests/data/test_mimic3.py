"""The MIMIC-III reader: its own traps, and nothing is lost without a count."""

from collections import Counter
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput
from tests.data.audit import audit

HEADERS = {
    "PATIENTS": "row_id,subject_id,gender,dob,dod",
    "ADMISSIONS": "row_id,subject_id,hadm_id,admittime,dischtime,deathtime,hospital_expire_flag",
    "DIAGNOSES_ICD": "row_id,subject_id,hadm_id,seq_num,icd9_code",
    "PROCEDURES_ICD": "row_id,subject_id,hadm_id,seq_num,icd9_code",
    "PRESCRIPTIONS": "row_id,subject_id,hadm_id,startdate,enddate,drug",
    "LABEVENTS": "row_id,subject_id,hadm_id,itemid,charttime,value,valuenum",
    "CHARTEVENTS": "row_id,subject_id,hadm_id,itemid,charttime,storetime,value,valuenum,error",
    "ICUSTAYS": "row_id,subject_id,hadm_id,first_careunit,intime,outtime",
    "D_ICD_DIAGNOSES": "row_id,icd9_code,long_title",
    "D_ICD_PROCEDURES": "row_id,icd9_code,long_title",
    "D_LABITEMS": "row_id,itemid,label",
}
ROWS = {
    "PATIENTS": ["1,1,F,2090-01-01 00:00:00,", "2,2,M,1850-03-01 00:00:00,2150-03-04 00:00:00"],
    "ADMISSIONS": [
        "1,1,90,2150-01-01 10:00:00,2150-01-04 09:00:00,,0",
        "2,1,20,2150-01-10 08:00:00,2150-01-10 20:00:00,,0",
        "3,2,30,2150-03-01 12:00:00,2150-03-04 06:00:00,2150-03-04 06:00:00,1",
    ],
    "DIAGNOSES_ICD": ["1,1,90,2,4019", "2,1,90,1,4280 ", "3,1,20,1,0090"],
    "PROCEDURES_ICD": ["1,1,90,1,3961"],
    "PRESCRIPTIONS": [
        "1,1,90,2150-01-01 00:00:00,2150-01-02 00:00:00,Aspirin ",
        "2,1,90,2150-01-04,,Senna",
        "3,2,30,2150-03-01 00:00:00,2150-02-28 00:00:00,Heparin",
    ],
    "LABEVENTS": [
        "1,1,90,50912,2150-01-01 11:00:00,1.1,1.1",
        "2,1,,50912,2149-12-01 11:00:00,NEG,",
        "3,1,90,50820,2150-01-01 11:00:00,7.3,7.3",
    ],
    "CHARTEVENTS": ["1,1,90,211,2150-01-01 11:00:00,2150-01-01 11:30:00,80,80,"],
    "ICUSTAYS": ["1,1,90,MICU,2150-01-01 10:30:00,2150-01-03 10:00:00"],
    "D_ICD_DIAGNOSES": ["1,4280,Congestive heart failure", "2,0090,Colitis", "3,4019,Hypertension", "4,019,Short"],
    "D_ICD_PROCEDURES": ["1,3961,Extracorporeal circulation"],
    "D_LABITEMS": ["1,50912,Creatinine", "2,50820,pH"],
}
PREFIXES = {
    "diagnoses_icd": "ICD9CM/",
    "procedures_icd": "ICD9PROC/",
    "prescriptions": ("DRUG/", "DILUENT/"),
    "labevents": "LAB/",
    "icustays": "ICU_ADMISSION/",
    "chartevents": "VITAL/",
}


def write(root: Path, rows: dict[str, list[str]] | None = None) -> Path:
    root.mkdir(exist_ok=True)
    for name, header in HEADERS.items():
        (root / f"{name}.csv").write_text("\n".join([header, *(rows or {}).get(name, ROWS[name])]) + "\n")
    return root


def of(cohort, prefix):
    prefixes = (prefix,) if isinstance(prefix, str) else prefix
    return cohort.events.filter(pl.any_horizontal(pl.col("code").str.starts_with(one) for one in prefixes))


def chart(*rows):
    """Rows of CHARTEVENTS from (item, value, valuenum)."""
    return [f"{i},1,90,{item},2150-01-01 11:00:00,,{text},{n},0" for i, (item, text, n) in enumerate(rows)]


def assert_conserved(cohort):
    kept = {name: of(cohort, prefix).height for name, prefix in PREFIXES.items()}
    kept["chartevents"] -= cohort.counts.get("added.labs.vitals", 0)
    kept["admissions"] = cohort.visits.height
    for name, rows in kept.items():
        dropped = sum(n for rule, n in cohort.counts.items() if rule.startswith(f"dropped.{name}."))
        assert cohort.counts.get(f"rows.{name}", 0) == rows + dropped, name


@pytest.fixture(scope="module")
def demo3(shared_data):
    return shared_data / "mimic-iii-demo-1.4"


@pytest.fixture(scope="module")
def cohort(mimic3_cohort):
    return mimic3_cohort


def test_small_tables(tmp_path):
    cohort = read_mimic3(write(tmp_path))
    assert_conserved(cohort)
    assert not any(rule.startswith("dropped") for rule in cohort.counts)
    assert cohort.visits["visit_id"].to_list() == [90, 20, 30]  # trap 1: by time, although 20 < 90
    assert cohort.events["subject_id"].is_sorted() and cohort.stay == "hospital" and cohort.credentialed
    codes = of(cohort, "ICD9CM/").filter(pl.col("visit_id") == 90)
    assert codes["code"].to_list() == ["ICD9CM/4280", "ICD9CM/4019"]  # seq_num order, undotted, blanks stripped
    assert set(codes["recorded"]) == {datetime(2150, 1, 4, 9)}  # trap 2
    assert of(cohort, "ICD9PROC/")["recorded"].to_list() == [datetime(2150, 1, 4, 9)]
    names = cohort.names()
    assert names["ICD9CM/4280"] == "Congestive heart failure" and names["DRUG/aspirin"] == "aspirin"
    assert cohort.visits.filter("died")["death_time"].to_list() == [datetime(2150, 3, 4, 6)]
    labs = of(cohort, "LAB/")
    assert labs["visit_id"].to_list() == [None, 90, 90] and labs["text_value"].to_list() == ["NEG", None, None]
    assert of(cohort, "VITAL/ph")["numeric_value"].to_list() == [pytest.approx(7.3)]


def test_ages_above_89_are_hidden_as_300(tmp_path):
    ages = of(read := read_mimic3(write(tmp_path)), "AGE").select("visit_id", "numeric_value").rows()
    assert ages == [(90, 60), (20, 60), (30, 90)]
    assert read.counts["repaired.admissions.age_over_89"] == 1
    genders = of(read, "GENDER/")
    assert genders["code"].to_list() == ["GENDER/F", "GENDER/M"] and genders["time"].null_count() == 2
    rows = {"PATIENTS": ["1,1,,,", "2,2,M,2160-01-01,"]}  # unknown, and born after the admission
    counts = read_mimic3(write(tmp_path, rows)).counts
    assert counts["repaired.admissions.no_age"] == 3 and counts["repaired.patients.no_gender"] == 1


@pytest.mark.slow
def test_a_date_of_prescription_is_known_when_the_day_is_over(tmp_path):
    cohort = read_mimic3(write(tmp_path))
    drugs = of(cohort, "DRUG/").select("code", "time", "recorded").rows()
    assert drugs[0] == ("DRUG/aspirin", datetime(2150, 1, 1), datetime(2150, 1, 1, 23, 59, 59))
    assert drugs[2][1:] == (datetime(2150, 3, 1), datetime(2150, 3, 1, 23, 59, 59))
    # Senna is dated on the day of discharge, 09:00: not certain to be known then
    shown = make_samples(cohort, "read", leakage="strict")[1][0].history[0]
    assert shown.medications == ("DRUG/aspirin",) and shown.diagnoses == ("ICD9CM/4280", "ICD9CM/4019")
    assert make_samples(cohort, "los", leakage="strict")[1][0].history[0].medications == ()
    undated = read_mimic3(write(tmp_path, {"PRESCRIPTIONS": ["1,1,90,,,Aspirin"]}))
    assert of(undated, "DRUG/")["recorded"].to_list() == [datetime(2150, 1, 4, 9)]
    assert undated.counts["repaired.prescriptions.no_startdate"] == 1


def test_lost_leading_zeros_come_back(tmp_path):
    # 90 can only be 0090; 19 can only be 019; 4019 is a code itself; 77 is unknown with and without zeros
    rows = ["1,1,90,1,90", "2,1,90,2,19", "3,1,90,3,4019", "4,1,90,4,77"]
    cohort = read_mimic3(write(tmp_path, {"DIAGNOSES_ICD": rows}))
    codes = [code.removeprefix("ICD9CM/") for code in of(cohort, "ICD9CM/")["code"]]
    assert codes == ["0090", "019", "4019", "77"]
    assert cohort.counts["repaired.diagnoses_icd.leading_zeros_lost"] == 2
    titles = ["1,0090,Colitis", "2,090,Syphilis", "3,019,Short"]  # now 90 could be either
    cohort = read_mimic3(write(tmp_path, {"DIAGNOSES_ICD": rows[:1], "D_ICD_DIAGNOSES": titles}))
    assert of(cohort, "ICD9CM/")["code"].to_list() == ["ICD9CM/90"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item", "text", "number", "code", "expected"),
    [
        (678, "98.6", 98.6, "temperature", 37),
        (223762, "37", 37, "temperature", 37),
        (226531, "220.5", 220.5, "weight", 100.017),
        (763, "81", 81, "weight", 81),
        (226707, "66", 66, "height", 167.64),
        (226730, "168", 168, "height", 168),
        (190, ".5", 0.5, "fraction inspired oxygen", 0.5),
        (223835, "50", 50, "fraction inspired oxygen", 0.5),
        (646, "97 ", "", "oxygen saturation", 97),
        (115, "Normal <3 secs", "", "capillary refill rate", 0),
        (224308, "Abnormal >3 Seconds", "", "capillary refill rate", 1),
        (723, "1.0 ET/Trach", 1, "glasgow coma scale verbal response", 1),
    ],
)
def test_units_of_chart_measurements(tmp_path, item, text, number, code, expected):
    rows = {"CHARTEVENTS": chart((item, text, number)), "LABEVENTS": []}
    found = of(read_mimic3(write(tmp_path, rows)), "VITAL/")
    assert found["code"].to_list() == [f"VITAL/{code}"] and found["numeric_value"][0] == pytest.approx(
        expected, rel=1e-5
    )
    worded = not text.strip().replace(".", "").isdigit()
    assert found["text_value"].to_list() == [text if worded else None]
    assert found["recorded"].to_list() == [datetime(2150, 1, 1, 11)]


def test_bad_chart_rows_are_dropped_and_counted(tmp_path):
    rows = [
        *chart(
            (211, "80", 80), (226228, "x", ""), (211, "", ""), (211, "900", 900), (646, "0", 0), (211, "nan", "NaN")
        ),
        "9,1,90,211,,,80,80,0",
        "9,1,90,211,2150-01-01 11:00:00,,80,80,1",
        "9,1,20,211,,2150-01-01 11:30:00,80,80,",
        "9,1,77,211,2150-01-01 11:00:00,,80,80,0",
        "9,7,,211,2150-01-01 11:00:00,,80,80,0",
    ]
    cohort = read_mimic3(write(tmp_path, {"CHARTEVENTS": rows}))
    assert_conserved(cohort)
    counts = {rule: n for rule, n in cohort.counts.items() if ".chartevents." in rule}
    assert counts == {
        "dropped.chartevents.other_item": 1,
        "dropped.chartevents.unknown_patient": 1,
        "dropped.chartevents.unknown_admission": 1,
        "dropped.chartevents.marked_error": 1,
        "dropped.chartevents.no_time": 1,
        "dropped.chartevents.no_value": 1,
        "dropped.chartevents.implausible": 3,
        "repaired.chartevents.no_charttime": 1,
        "repaired.chartevents.no_storetime": 1,
    }


def blank(strategy):
    return st.one_of(st.just(""), strategy)


def table(*cells):
    return st.lists(st.tuples(*cells).map(",".join), max_size=6)


IDS, HADM = st.sampled_from(["1", "2", "3"]), st.sampled_from(["20", "30", "90", "99"])
DATES = st.sampled_from(["2150-01-01", "2150-01-02 03:04:05", "2150-06-01 00:00:00"])


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    admissions=table(IDS, IDS, blank(HADM), blank(DATES), blank(DATES), blank(DATES), blank(st.sampled_from("01"))),
    diagnoses=table(IDS, blank(IDS), blank(HADM), blank(IDS), blank(st.sampled_from([" 4280 ", "90", " ", "V10"]))),
    drugs=table(IDS, IDS, blank(HADM), blank(DATES), blank(DATES), st.sampled_from(["", " ", "A", "b "])),
    labs=table(IDS, IDS, blank(HADM), blank(st.sampled_from(["50820", "1"])), blank(DATES), blank(IDS), blank(IDS)),
    vitals=table(
        *(IDS, blank(IDS), blank(HADM), blank(st.sampled_from(["211", "678", "190", "9"]))),
        *(blank(DATES), blank(DATES), blank(st.sampled_from(["x", "50"])), blank(IDS), blank(st.sampled_from("01"))),
    ),
    stays=table(IDS, IDS, HADM, blank(st.just("MICU")), blank(DATES), blank(DATES)),
)
def test_no_row_is_lost_without_a_count(tmp_path, admissions, diagnoses, drugs, labs, vitals, stays):
    assume(diagnoses)  # a header alone is refused
    rows = {
        "PATIENTS": [*ROWS["PATIENTS"], "3,2,M,,"],
        "ADMISSIONS": [*admissions, "1,1,5,2150-01-01 10:00:00,2150-01-04 09:00:00,,0"],
        "DIAGNOSES_ICD": diagnoses,
        "PRESCRIPTIONS": drugs,
        "LABEVENTS": labs,
        "CHARTEVENTS": vitals,
        "ICUSTAYS": stays,
    }
    cohort = read_mimic3(write(tmp_path, rows))
    for name, lines in rows.items():
        assert cohort.counts.get(f"rows.{name.lower()}", 0) == len(lines)
    assert_conserved(cohort)
    visits = cohort.visits
    assert visits.filter((pl.col("end") < pl.col("start")) | (pl.col("death_time") < pl.col("start"))).is_empty()
    assert set(cohort.events["code"]) == set(cohort.codes["code"])
    dated = cohort.events.filter(~pl.col("code").str.starts_with("GENDER/"))
    assert dated["recorded"].null_count() == dated["time"].null_count() == 0


@pytest.mark.slow
def test_formats_and_letter_case_are_equal(tmp_path):
    plain = read_mimic3(write(tmp_path / "csv"))
    for path in write(tmp_path / "upper").glob("*.csv"):  # column names of the full set, file names of neither
        lines = path.read_text().splitlines()
        path.with_name(path.name.lower() + "x").write_text("\n".join([lines[0].upper(), *lines[1:]]) + "\n")
        path.unlink()
        path.with_name(path.name.lower() + "x").rename(path.with_name(path.name.lower()))
    for path in write(tmp_path / "parquet").glob("*.csv"):
        text = {"ICD9_CODE": pl.String, "ERROR": pl.Int64}
        frame = pl.read_csv(path, try_parse_dates=True, schema_overrides={n.lower(): t for n, t in text.items()})
        frame.rename(str.upper).write_parquet(path.with_suffix(".parquet"))
        path.unlink()
    for folder in ("upper", "parquet"):
        same = read_mimic3(tmp_path / folder)
        assert same.events.equals(plain.events) and same.visits.equals(plain.visits) and same.codes.equals(plain.codes)
        assert same.counts == plain.counts


def test_absent_tables(tmp_path):
    root = write(tmp_path)
    for name in ("LABEVENTS", "CHARTEVENTS"):
        (root / f"{name}.csv").unlink()
    counts = read_mimic3(root).counts
    assert counts["absent.labevents"] == counts["absent.chartevents"] == 1
    (root / "PRESCRIPTIONS.csv").unlink()
    with pytest.raises(BadInput, match="no table prescriptions"):
        read_mimic3(root)
    with pytest.raises(BadInput, match="no folder"):
        read_mimic3(tmp_path / "nowhere")


def test_cache_is_reused_and_depends_on_charts(tmp_path, monkeypatch):
    root, cache = write(tmp_path / "in"), tmp_path / "cache"
    first, lean = read_mimic3(root, cache), read_mimic3(root, cache, charts=False)
    assert of(lean, "VITAL/").is_empty() and not of(first, "VITAL/").is_empty() and len(list(cache.iterdir())) == 2
    monkeypatch.setattr("ghar.data.readers.mimic3._read", None)
    again = read_mimic3(root, cache)
    assert again.events.equals(first.events) and again.visits.equals(first.visits) and again.counts == first.counts


@pytest.mark.slow
def test_real_demo_keeps_every_row(cohort, demo3):
    assert not cohort.credentialed and not cohort.generated
    assert_conserved(cohort)
    # what the demo holds; what is not dropped by name below is an event
    rows = {"diagnoses_icd": 1761, "procedures_icd": 506, "prescriptions": 10398, "icustays": 136, "labevents": 76074}
    for name, n in rows.items():
        assert of(cohort, PREFIXES[name]).height == n
    dropped = {rule for rule in cohort.counts if rule.startswith("dropped.")}
    assert (
        all(rule.startswith("dropped.chartevents.") for rule in dropped) and cohort.counts["rows.chartevents"] == 758355
    )
    raw = pl.scan_csv(demo3 / "CHARTEVENTS.csv.gz", infer_schema=False)
    beats = raw.filter(pl.col("itemid").is_in(["211", "220045"]) & pl.col("value").is_not_null()).collect()
    errors = beats.filter(pl.col("error") == "1").height  # marked so by the staff
    assert of(cohort, "VITAL/heart rate").height == beats.height - errors == 15484
    # ages: 9 admissions of patients born "300 years" before
    assert cohort.counts["repaired.admissions.age_over_89"] == 9
    assert of(cohort, "AGE")["numeric_value"].max() == 90
    # 45 of 1,761 codes are not in the dictionary, all of them truncated, none for want of a zero
    assert not any("leading_zeros" in rule for rule in cohort.counts)


@pytest.mark.slow
def test_a_part_of_the_demo_counts_as_credentialed(tmp_path, demo3):
    root = write(tmp_path)
    patients = pl.read_csv(demo3 / "PATIENTS.csv.gz", infer_schema=False)
    patients[:99].write_csv(root / "PATIENTS.csv")
    admission = "1,10006,90,2150-01-01 10:00:00,2150-01-04 09:00:00,,0"
    (root / "ADMISSIONS.csv").write_text(f"{HEADERS['ADMISSIONS']}\n{admission}\n")
    assert read_mimic3(root).credentialed
    patients.write_csv(root / "PATIENTS.csv")
    assert read_mimic3(root).credentialed  # the right patients with other tables


def labels(samples):
    return dict(Counter(sample.label for sample in samples))


@pytest.mark.slow
def test_label_counts_of_the_demo(cohort, demo3):
    frame = pl.read_csv(demo3 / "ADMISSIONS.csv.gz", try_parse_dates=True).sort("subject_id", "admittime")
    start, end, died = (frame[c] for c in ("admittime", "dischtime", "hospital_expire_flag"))
    # LOS-10: whole days; 8..14 -> 8, more -> 9; the demo has no discharge before its admission
    days = (end - start).dt.total_seconds() // 86400
    expected = Counter(9 if d > 14 else 8 if d > 7 else d for d in days)
    for leakage in ("paper", "strict"):
        assert labels(make_samples(cohort, "los", leakage=leakage)[1]) == expected
    assert expected == {0: 10, 1: 4, 2: 18, 3: 6, 4: 12, 5: 11, 6: 8, 7: 10, 8: 33, 9: 17}
    # READ-15: 129 admissions of 100 patients have 29 successors, none of them after a death
    following = frame.with_columns(next=pl.col("admittime").shift(-1).over("subject_id")).drop_nulls("next")
    assert following.height == 29 and following["hospital_expire_flag"].sum() == 0
    soon = following.filter(pl.col("next") - pl.col("dischtime") <= pl.duration(days=15)).height
    assert labels(make_samples(cohort, "read")[1]) == {0: 29 - soon, 1: soon} == {0: 21, 1: 8}
    # DEC at its default anchor: every in-hospital death is positive; at the admission those of the first 24 hours
    assert labels(make_samples(cohort, "dec")[1]) == {0: 129 - died.sum(), 1: died.sum()} == {0: 89, 1: 40}
    early = frame.filter(pl.col("deathtime") - pl.col("admittime") <= pl.duration(hours=24)).height
    assert labels(make_samples(cohort, "dec", anchor="admission")[1]) == {0: 129 - early, 1: early} == {0: 120, 1: 9}


@pytest.mark.parametrize("task", ["los", "read", "dec"])
def test_strict_shows_nothing_that_was_recorded_later(cohort, task):
    strict = make_samples(cohort, task, leakage="strict")[1]
    assert audit(cohort, strict).is_empty()
    assert audit(cohort, make_samples(cohort, task)[1]).height > 0
    if task != "read":
        assert not any(s.history[-1].diagnoses or s.history[-1].procedures for s in strict)
