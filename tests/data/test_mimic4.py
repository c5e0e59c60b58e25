"""The MIMIC-IV reader: nothing is lost without a count, and bad input is refused by file and row."""

import gzip
import os
from datetime import datetime

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ghar.data.readers.cache import load_cohort
from ghar.data.readers.mimic4 import read_mimic4
from ghar.errors import BadInput
from ghar.provenance import GENERATED, sign

PREFIXES = {
    "diagnoses_icd": ("ICD9CM/", "ICD10CM/"),
    "procedures_icd": ("ICD9PROC/", "ICD10PCS/"),
    "prescriptions": ("DRUG/", "DILUENT/"),
    "labevents": ("LAB/",),
    "icustays": ("ICU_ADMISSION/",),
}


def of(cohort, *prefixes):
    return cohort.events.filter(pl.any_horizontal(pl.col("code").str.starts_with(p) for p in prefixes))


def assert_conserved(cohort):
    kept = {name: of(cohort, *prefixes).height for name, prefixes in PREFIXES.items()}
    kept["admissions"] = cohort.visits.height
    kept["patients"] = of(cohort, "GENDER/").height + cohort.counts.get("repaired.patients.no_gender", 0)
    kept["chartevents"] = of(cohort, "VITAL/").height - cohort.counts.get("added.labs.vitals", 0)
    for name, rows in kept.items():
        dropped = sum(n for rule, n in cohort.counts.items() if rule.startswith(f"dropped.{name}."))
        assert cohort.counts.get(f"rows.{name}", 0) == rows + dropped, name


def test_small_tables(tmp_path, write_tables):
    cohort = read_mimic4(write_tables(tmp_path))
    assert_conserved(cohort)
    assert not any(rule.startswith("dropped") for rule in cohort.counts)
    assert cohort.visits["visit_id"].to_list() == [90, 20, 30]  # trap 1: by time, although 20 < 90
    assert cohort.events["subject_id"].is_sorted() and cohort.events.schema["time"] == pl.Datetime("us")
    assert cohort.credentialed and not cohort.generated
    # trap 9 and blanks: the version is part of the code; seq_num order inside a visit
    codes = of(cohort, "ICD9CM/", "ICD10CM/").filter(pl.col("visit_id") == 90)["code"].to_list()
    assert codes == ["ICD9CM/4280", "ICD10CM/I509"]
    names = cohort.names()
    assert names["ICD9CM/4280"] == "Congestive heart failure" and names["DRUG/aspirin"] == "aspirin"
    assert names["ICD10CM/E0800"] == "E0800" and cohort.counts["codes_without_name"] == 1
    assert names["GENDER/F"] == "female" and names["ICU_DISCHARGE"] == "end of the ICU stay"
    assert "ICD10CM/Z00" not in names and names["LAB/50912"] == "Creatinine"


def test_one_code_string_in_two_versions_is_two_codes(tmp_path, write_tables):
    rows = ["1,90,1,E0800,9", "1,90,2,E0800,10"]  # trap 9
    titles = ["E0800,9,A vehicle", "E0800,10,A diabetes"]
    tables = {"hosp/diagnoses_icd": rows, "hosp/d_icd_diagnoses": titles}
    names = read_mimic4(write_tables(tmp_path, tables)).names()
    assert names["ICD9CM/E0800"] == "A vehicle" and names["ICD10CM/E0800"] == "A diabetes"


def test_demographics(tmp_path, write_tables):
    """Age counts on from the anchor year; the anchor age 91 stands for all above 89; gender has no time."""
    cohort = read_mimic4(write_tables(tmp_path))
    assert of(cohort, "AGE").select("visit_id", "numeric_value").rows() == [(90, 61), (20, 61), (30, 90)]
    ages = of(cohort, "AGE").join(cohort.visits, on="visit_id")
    assert ages["time"].equals(ages["start"].alias("time")) and ages["recorded"].equals(ages["time"].alias("recorded"))
    genders = of(cohort, "GENDER/").select("subject_id", "code", "time", "visit_id").rows()
    assert genders == [(1, "GENDER/F", None, None), (2, "GENDER/M", None, None)]
    assert cohort.counts["repaired.admissions.age_over_89"] == 1
    rows = {"hosp/patients": ["1,,,,", "2,m,70,2160,"]}  # unknown, and not yet born
    counts = read_mimic4(write_tables(tmp_path, rows)).counts
    assert counts["repaired.admissions.no_age"] == 2 and counts["repaired.patients.no_gender"] == 1


def test_recording_times(tmp_path, write_tables):
    cohort = read_mimic4(write_tables(tmp_path))
    discharge = datetime(2150, 1, 4, 9)
    icd = of(cohort, "ICD9CM/", "ICD10CM/", "ICD9PROC/").filter(pl.col("visit_id") == 90)
    assert icd["recorded"].to_list() == [discharge] * 3  # trap 2
    assert of(cohort, "ICD9PROC/")["time"].item() == datetime(2150, 1, 2)
    drugs = of(cohort, "DRUG/")
    assert drugs["time"].to_list() == drugs["recorded"].to_list()  # trap 3: before admission and after discharge, as is
    assert drugs["time"].to_list()[:2] == [datetime(2150, 1, 1, 9), datetime(2150, 1, 5, 9)]
    labs = of(cohort, "LAB/")  # trap 4: the earlier one has no storetime, no admission, and a text
    assert labs["recorded"].to_list() == [datetime(2149, 12, 1, 11), datetime(2150, 1, 1, 14)]
    assert labs["visit_id"].to_list() == [None, 90] and labs["text_value"].to_list() == ["NEG", None]
    assert cohort.counts["repaired.labevents.no_storetime"] == 1
    stay = of(cohort, "ICU_ADMISSION/").row(0, named=True)  # trap 5: no trace of the outtime
    assert stay["code"] == "ICU_ADMISSION/MICU" and stay["time"] == stay["recorded"] == datetime(2150, 1, 1, 10, 30)
    assert stay["numeric_value"] is None and stay["text_value"] is None
    left = of(cohort, "ICU_DISCHARGE").row(0, named=True)  # an event of its own
    assert left["time"] == left["recorded"] == datetime(2150, 1, 3, 10) and left["visit_id"] == 90
    assert cohort.counts["added.icustays.discharges"] == of(cohort, "ICU_DISCHARGE").height == 1


@pytest.mark.parametrize(
    ("death", "dod", "expected", "rule"),
    [
        ("2150-03-01", "2150-03-01", datetime(2150, 3, 1, 12), "death_before_admission"),  # trap 6
        ("2150-02-27 01:00:00", "", datetime(2150, 3, 1, 12), "death_before_admission"),
        ("", "2150-03-01", datetime(2150, 3, 1, 23, 59, 59), "no_death_time"),
        ("", "2150-03-04", datetime(2150, 3, 4, 6), "no_death_time"),
        ("", "", datetime(2150, 3, 4, 6), "no_death_time"),
    ],
)
def test_deaths_given_as_dates(tmp_path, write_tables, death, dod, expected, rule):
    rows = {
        "hosp/patients": [f"2,M,70,2150,{dod}"],
        "hosp/admissions": [f"2,30,2150-03-01 12:00:00,2150-03-04 06:00:00,{death},1"],
    }
    cohort = read_mimic4(write_tables(tmp_path, rows))
    assert cohort.visits["death_time"].item() == expected
    assert cohort.counts[f"repaired.admissions.{rule}"] == 1


def test_bad_rows_are_dropped_or_repaired_and_counted(tmp_path, write_tables):
    rows = {
        "hosp/admissions": [
            "1,90,2150-01-01 10:00:00,2149-12-31 09:00:00,,0",  # ends before it starts
            "1,90,2150-01-01 10:00:00,2150-01-02 09:00:00,,0",  # repeated
            "1,20,2150-01-10 08:00:00,,,0",
            "9,21,2150-01-10 08:00:00,2150-01-11 08:00:00,,0",
            "2,30,,2150-03-04 06:00:00,,1",
        ],
        "hosp/diagnoses_icd": [
            "1,90,1,4280,9",
            "1,90,1,4280 ,9",
            "1,90,2, ,9",
            "1,90,3,4280,11",
            "2,90,1,4280,9",
            "1,30,1,4280,9",
        ],
        "hosp/prescriptions": ["1,90,,,Aspirin", "1,90,2150-01-01,, ", "1,90,2150-01-01,,"],
        "hosp/labevents": ["1,9,,50912,2150-01-01,,1,1", "2,1,77,50912,2150-01-01,,1,1", "3,1,,50912,,,1,1"],
        "icu/icustays": ["1,90,7,,2150-01-01 10:30:00,", "1,90,8,MICU,,", "1,90,9,MICU,2150-01-02,2150-01-01"],
        "hosp/procedures_icd": ["1,90,1,,3961,9"],
    }
    cohort = read_mimic4(write_tables(tmp_path, rows))
    assert_conserved(cohort)
    counts = {rule: n for rule, n in cohort.counts.items() if not rule.startswith("rows.")}
    assert counts == {
        "dropped.admissions.repeated": 1,
        "dropped.admissions.unknown_patient": 1,
        "dropped.admissions.no_admission_time": 1,
        "repaired.admissions.discharge_before_admission": 1,
        "repaired.admissions.no_discharge_time": 1,
        "dropped.diagnoses_icd.repeated": 1,
        "dropped.diagnoses_icd.blank_code": 1,
        "dropped.diagnoses_icd.unknown_version": 1,
        "dropped.diagnoses_icd.unknown_admission": 2,
        "repaired.procedures_icd.no_chartdate": 1,
        "dropped.prescriptions.blank_drug": 2,
        "repaired.prescriptions.no_starttime": 1,
        "dropped.labevents.unknown_patient": 1,
        "dropped.labevents.unknown_admission": 1,
        "dropped.labevents.no_time": 1,
        "dropped.icustays.no_intime": 1,
        "repaired.icustays.no_careunit": 1,
        "repaired.icustays.no_outtime": 1,
        "repaired.icustays.outtime_before_intime": 1,
        "absent.chartevents": 1,
        "codes_without_name": 0,
    }
    assert cohort.visits["end"].to_list() == [None, None]


def blank(strategy):
    return st.one_of(st.just(""), strategy)


IDS, DATES = (
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(["2150-01-01", "2150-01-02 03:04:05", "2150-06-01 00:00:00"]),
)
HADM = st.sampled_from(["20", "30", "90", "99"])


def table(*cells):
    return st.lists(st.tuples(*cells).map(",".join), max_size=6)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    patients=table(
        blank(IDS), blank(st.sampled_from("FM ")), blank(st.just("60")), blank(st.just("2149")), blank(DATES)
    ),
    admissions=table(IDS, blank(HADM), blank(DATES), blank(DATES), blank(DATES), st.sampled_from(["0", "1", ""])),
    diagnoses=table(
        blank(IDS), blank(HADM), blank(IDS), blank(st.just(" I50 ")), st.sampled_from(["9", "10", "8", ""])
    ),
    procedures=table(IDS, HADM, IDS, blank(DATES), blank(st.just("3961")), st.sampled_from(["9", "10"])),
    drugs=table(IDS, HADM, blank(DATES), blank(DATES), st.sampled_from(["", " ", "A", "b "])),
    labs=table(IDS, IDS, blank(HADM), blank(IDS), blank(DATES), blank(DATES), blank(st.just("x")), blank(IDS)),
    stays=table(IDS, HADM, IDS, blank(st.just("MICU")), blank(DATES), blank(DATES)),
    charts=table(
        *(IDS, blank(HADM), blank(DATES), blank(DATES), blank(st.sampled_from(["220045", "223761", "9"]))),
        *(blank(st.sampled_from(["x", "50"])), blank(st.sampled_from(["-1", "80", "NaN"]))),
    ),
)
def test_no_row_is_lost_without_a_count(
    tmp_path, write_tables, patients, admissions, diagnoses, procedures, drugs, labs, stays, charts
):
    assume(diagnoses)  # a header alone is refused
    rows = {
        "hosp/patients": [*patients, "1,F,60,2150,", "2,M,70,2150,2150-03-04"],
        "hosp/admissions": [*admissions, "1,5,2150-01-01 10:00:00,2150-01-04 09:00:00,,0"],
        "hosp/diagnoses_icd": diagnoses,
        "hosp/procedures_icd": procedures,
        "hosp/prescriptions": drugs,
        "hosp/labevents": labs,
        "icu/icustays": stays,
        "icu/chartevents": charts,
    }
    cohort = read_mimic4(write_tables(tmp_path, rows))
    for name, lines in rows.items():
        assert cohort.counts.get(f"rows.{name.split('/')[1]}", 0) == len(lines)
    assert_conserved(cohort)
    visits = cohort.visits
    assert visits.filter((pl.col("end") < pl.col("start")) | (pl.col("death_time") < pl.col("start"))).is_empty()
    assert visits["death_time"].is_not_null().to_list() == visits["died"].to_list()
    assert set(cohort.events["code"]) == set(cohort.codes["code"])
    dated = cohort.events.filter(~pl.col("code").str.starts_with("GENDER/"))
    assert dated["recorded"].null_count() == dated["time"].null_count() == 0


@pytest.mark.parametrize("name", ["hosp/patients", "hosp/prescriptions", "hosp/d_icd_diagnoses"])
def test_missing_table(tmp_path, write_tables, name):
    (write_tables(tmp_path) / f"{name}.csv").unlink()
    with pytest.raises(BadInput, match=name):
        read_mimic4(tmp_path)


def test_labs_may_be_absent(tmp_path, write_tables):
    for name in ("labevents", "d_labitems"):
        (write_tables(tmp_path / name) / "hosp/labevents.csv").unlink()
    cohort = read_mimic4(tmp_path / "labevents")
    assert cohort.counts["absent.labevents"] == 1 and of(cohort, "LAB/").is_empty()


def test_chart_measurements(tmp_path, write_tables):
    lines = [
        "subject_id,hadm_id,stay_id,charttime,storetime,itemid,value,valuenum",
        "1,90,7,2150-01-01 12:00:00,2150-01-01 12:20:00,223761,98.6,98.6",
        "1,90,7,2150-01-01 12:00:00,,220045,80,80",
        "1,90,7,2150-01-01 12:00:00,,226228,80,80",
    ]
    (write_tables(tmp_path) / "icu/chartevents.csv").write_text("\n".join(lines) + "\n")
    cohort = read_mimic4(tmp_path)
    vitals = of(cohort, "VITAL/").select("code", "numeric_value", "visit_id", "recorded").rows()
    assert vitals == [
        ("VITAL/temperature", 37, 90, datetime(2150, 1, 1, 12, 20)),
        ("VITAL/heart rate", 80, 90, datetime(2150, 1, 1, 12)),
    ]
    assert cohort.counts["rows.chartevents"] == 3 and cohort.counts["dropped.chartevents.other_item"] == 1
    assert cohort.names()["VITAL/heart rate"] == "heart rate (beats/min)"
    without = read_mimic4(tmp_path, charts=False)
    assert of(without, "VITAL/").is_empty() and "absent.chartevents" not in without.counts
    assert of(without, "LAB/").equals(of(cohort, "LAB/"))


def test_missing_column(tmp_path, write_tables):
    path = write_tables(tmp_path) / "hosp/prescriptions.csv"
    path.write_text("subject_id,hadm_id,drug\n1,90,Aspirin\n")
    with pytest.raises(BadInput, match=r"prescriptions\.csv has no column starttime"):
        read_mimic4(tmp_path)


@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        (
            "hosp/admissions",
            "1,91,2150-13-01 10:00:00,2150-01-04 09:00:00,,0",
            "row 2 .* column admittime: '2150-13-01",
        ),
        ("hosp/admissions", "1,91,01/02/2150,2150-01-04 09:00:00,,0", "row 2 .* column admittime: '01/02/2150'"),
        ("hosp/admissions", "1,91,2150-01-01,2150-01-04,,yes", "row 2 .* column hospital_expire_flag: 'yes'"),
        ("hosp/diagnoses_icd", "one,90,1,4280,9", "row 2 .* column subject_id: 'one' is not a whole number"),
        ("hosp/labevents", "1,1,90,50912,2150-01-01,2150-01-01,x,x", "row 2 .* column valuenum: 'x' is not a number"),
    ],
)
@pytest.mark.parametrize("parquet", [False, True])
def test_bad_cells_are_named_by_row(tmp_path, write_tables, name, bad, said, parquet):
    path = write_tables(tmp_path) / f"{name}.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], bad, *lines[2:]]) + "\n")
    if parquet:
        pl.read_csv(path, infer_schema=False).write_parquet(path.with_suffix(".parquet"))
        path.unlink()
    with pytest.raises(BadInput, match=said):
        read_mimic4(tmp_path)


def test_damaged_files(tmp_path, write_tables):
    path = write_tables(tmp_path) / "hosp/labevents.csv"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    for part in (packed[: len(packed) // 2], packed[:-4]):
        path.with_suffix(".csv.gz").write_bytes(part)
        with pytest.raises(BadInput, match=r"labevents\.csv\.gz .*cut short|labevents\.csv\.gz cannot be read"):
            read_mimic4(tmp_path)
    path.with_suffix(".csv.gz").unlink()
    path.write_text("")
    with pytest.raises(BadInput, match=r"labevents\.csv is empty"):
        read_mimic4(tmp_path)
    with pytest.raises(BadInput, match="no folder"):
        read_mimic4(tmp_path / "nowhere")


@pytest.mark.slow
def test_formats_and_letter_case_are_equal(tmp_path, write_tables):
    plain = read_mimic4(write_tables(tmp_path / "csv"))
    for path in (write_tables(tmp_path / "other")).rglob("*.csv"):
        frame = pl.read_csv(path, try_parse_dates=True).rename(str.upper)
        frame.write_parquet(path.with_name(path.stem.upper() + ".parquet"))
        path.unlink()
    for path in write_tables(tmp_path / "dos").rglob("*.csv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    for folder in ("other", "dos"):
        same = read_mimic4(tmp_path / folder)
        assert same.events.equals(plain.events) and same.visits.equals(plain.visits) and same.codes.equals(plain.codes)
        assert same.counts == plain.counts


@pytest.mark.slow
def test_cache_is_reused_until_the_source_changes(tmp_path, write_tables, monkeypatch):
    root, cache = write_tables(tmp_path / "in"), tmp_path / "cache"
    first = read_mimic4(root, cache)
    with monkeypatch.context() as patch:
        patch.setattr("ghar.data.readers.mimic4._read", None)
        again = read_mimic4(root, cache)
    assert again.events.equals(first.events) and again.visits.equals(first.visits) and again.codes.equals(first.codes)
    assert (again.counts, again.name, again.credentialed) == (first.counts, first.name, first.credentialed)
    os.utime(root / "hosp/patients.csv", (0, 0))
    read_mimic4(root, cache)
    assert len(list(cache.iterdir())) == 2  # and no half-written folder beside them
    path = root / "hosp/patients.csv"
    path.write_text(path.read_text().replace("F", "M"))  # as long as before, and as old
    os.utime(path, (0, 0))
    read_mimic4(root, cache)
    assert len(list(cache.iterdir())) == 3


def test_a_damaged_cache_is_named_and_built_again(tmp_path, write_tables, capsys):
    root, cache = write_tables(tmp_path / "in"), tmp_path / "cache"
    first = read_mimic4(root, cache)
    damaged = next(cache.glob("*/events-*.parquet"))
    damaged.write_bytes(b"PAR1")
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(damaged.parent)
    assert read_mimic4(root, cache).events.equals(first.events)
    assert str(damaged) in capsys.readouterr().err


def test_generated_and_open_data_are_marked(tmp_path, write_tables):
    generated = write_tables(tmp_path / "generated")
    sign(generated, GENERATED)
    cohort = read_mimic4(generated)
    assert cohort.generated and not cohort.credentialed
    listed = write_tables(tmp_path / "listed")
    (listed / "demo_subject_id.csv").write_text("subject_id\n1\n2\n")
    assert read_mimic4(listed).credentialed  # a list beside the tables says nothing


@pytest.mark.slow
def test_real_demo_keeps_every_row(demo):
    cohort = read_mimic4(demo)
    assert not cohort.credentialed and not cohort.generated
    assert_conserved(cohort)
    # the demo: 100 patients, 275 admissions, 140 stays, 4,506 diagnoses, 722, 18,087, 107,727 lab rows.
    assert cohort.visits["subject_id"].n_unique() == 100 and cohort.visits.height == 275
    expected = dict(zip(PREFIXES, (4506, 722, 18087, 107727, 140), strict=True))
    for name, rows in expected.items():
        path = demo / ("icu" if name == "icustays" else "hosp") / f"{name}.csv.gz"
        assert pl.read_csv(path, infer_schema=False).height == rows
        assert of(cohort, *PREFIXES[name]).height == rows, name
    raw = pl.read_csv(demo / "hosp/diagnoses_icd.csv.gz", infer_schema=False)
    assert of(cohort, "DILUENT/").height == cohort.counts["repaired.prescriptions.diluent"] == 3677
    assert of(cohort, "ICD10CM/").height == raw.filter(pl.col("icd_version") == "10").height == 2313
    assert cohort.counts["repaired.labevents.no_storetime"] == 992
    assert not [rule for rule in cohort.counts if rule.startswith("dropped.")]
    # trap 6: here a discharge may be a date (midnight) and the death hours later; a death never precedes its admission
    deaths = cohort.visits.filter("died")
    assert deaths.height == 15 and deaths.filter(pl.col("death_time") < pl.col("start")).is_empty()
