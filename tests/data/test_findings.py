"""What a record says beside codes: age, sex, kind of admission, unit, day of stay, newest values; nothing of later."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort, Sample
from ghar.data.findings import LONGEST, _shorten, record_facts, with_findings
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds_export import write_meds
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.stays import Leakage, TaskName, make_samples
from ghar.data.views.visits import visit_list
from ghar.kg.drug_names import order_text

pytestmark = pytest.mark.slow

ADMISSIONS = "subject_id,hadm_id,admittime,dischtime,deathtime,hospital_expire_flag,admission_type"
LABS = (
    "labevent_id,subject_id,hadm_id,itemid,charttime,storetime,value,valuenum,valueuom,"
    "ref_range_lower,ref_range_upper,comments"
)


@pytest.fixture
def charts(tmp_path: Path, write_tables: Callable[..., Path]) -> Path:
    """One patient of the small tables with a kind of admission, ranges and results of urine."""
    root = write_tables(tmp_path)
    stay = "1,90,2150-01-01 10:00:00,2150-01-04 09:00:00,,0,EW EMER."
    (root / "hosp/admissions.csv").write_text(f"{ADMISSIONS}\n{stay}\n")
    rows = [
        "1,1,90,50912,2150-01-01 11:00:00,2150-01-01 14:00:00,1.1,1.1,mg/dL,0.4,1.1,",
        "2,1,90,50912,2150-01-02 06:00:00,2150-01-02 07:00:00,2.4,2.4,mg/dL,0.4,1.1,",
        "3,1,90,50912,2150-01-02 07:30:00,2150-01-03 20:00:00,9.9,9.9,mg/dL,0.4,1.1,",  # stored after the prediction
        "4,1,90,51478,2150-01-02 06:00:00,2150-01-02 07:00:00,,,mg/dL,,,NEG.",
    ]
    (root / "hosp/labevents.csv").write_text("\n".join([LABS, *rows]) + "\n")
    (root / "hosp/d_labitems.csv").write_text("itemid,label,fluid\n50912,Creatinine,Blood\n51478,Glucose,Urine\n")
    return root


def text_of(sample: Sample, budget: int = 10**6) -> str:
    return visit_list(sample, str, style="full", budget=budget, count=len).text


def sample_with(charts: Path, rows: Sequence[str], items: str) -> Sample:
    """The first sample once these rows stand in labevents and in d_labitems."""
    with (charts / "hosp/labevents.csv").open("a") as table:
        table.write("\n".join(rows) + "\n")
    with (charts / "hosp/d_labitems.csv").open("a") as table:
        table.write(items)
    cohort = read_mimic4(charts)
    return with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]


def test_what_is_known_at_the_prediction_is_shown(charts: Path) -> None:
    cohort = read_mimic4(charts)
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]
    assert sample.history[0].about == "61-year-old woman, EW EMER. admission, MICU, day 2"
    assert sample.history[0].values == ("Creatinine 2.4 mg/dL (high)", "Glucose (urine) NEG.")
    assert "(2150-01-01, 61-year-old woman" in text_of(sample)


def test_a_kind_that_is_called_an_admission_is_not_called_so_twice(charts: Path) -> None:
    table = charts / "hosp/admissions.csv"
    table.write_text(table.read_text().replace("EW EMER.", "SURGICAL SAME DAY ADMISSION"))
    cohort = read_mimic4(charts)
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]
    assert sample.history[0].about == "61-year-old woman, SURGICAL SAME DAY ADMISSION, MICU, day 2"


def test_a_fluid_that_the_label_names_is_not_repeated(charts: Path) -> None:
    """151 of MIMIC-IV's 1,622 items are labelled so."""
    items = charts / "hosp/d_labitems.csv"
    items.write_text(items.read_text().replace("Glucose,Urine", '"Glucose, Urine",Urine'))
    cohort = read_mimic4(charts)
    sample = with_findings(make_samples(cohort, "dec")[1], cohort, charts)[0]
    assert sample.history[0].values == ("Creatinine 2.4 mg/dL (high)", "Glucose, Urine NEG.")


def test_an_item_of_another_fluid_is_another_item_by_name(charts: Path) -> None:
    """The pH of blood and of urine was one trajectory in EHR-RAG: 637 of 9,130 results of shared labels (MIMIC-IV)."""
    items = charts / "hosp/d_labitems.csv"
    items.write_text("itemid,label,fluid\n50912,pH,Blood\n51478,pH,Urine\n")
    assert {name for code, name in read_mimic4(charts).names().items() if code.startswith("LAB/")} == {
        "pH", "pH (urine)",
    }  # fmt: skip
    items.write_text("itemid,label\n50912,pH\n51478,pH\n")  # a hospital's copy without the column
    assert {name for code, name in read_mimic4(charts).names().items() if code.startswith("LAB/")} == {"pH"}


def test_a_result_without_an_admission_belongs_to_the_stay_in_which_it_was_taken(charts: Path) -> None:
    """38 stays of the MIMIC-IV demo have such results: of stay 22595853 the albumin and seven others were not shown."""
    rows = [
        "5,1,,50862,2150-01-01 12:00:00,2150-01-01 13:00:00,3.1,3.1,g/dL,3.5,5.2,",
        "6,1,,50912,2150-01-02 06:30:00,2150-01-02 07:10:00,2.6,2.6,mg/dL,0.4,1.1,",
        "7,1,,50862,2150-01-01 09:00:00,2150-01-01 09:30:00,9.9,9.9,g/dL,3.5,5.2,",  # before the stay
        "8,1,,50862,2150-02-01 09:00:00,2150-02-01 09:30:00,8.8,8.8,g/dL,3.5,5.2,",  # after it
        "9,1,,50817,2150-01-02 05:00:00,2150-01-02 05:30:00,37,37,%,,,",
        "11,1,,52033,2150-01-02 05:00:00,2150-01-02 05:30:00,ART.,,,,,",
        "10,1,90,50933,2150-01-02 05:00:00,2150-01-02 05:30:00,,,,,,HOLD.  DISCARD GREATER THAN 4 HOURS OLD.",
    ]
    with (charts / "hosp/labevents.csv").open("a") as table:
        table.write("\n".join(rows) + "\n")
    cohort = read_mimic4(charts)
    [sample] = [s for s in make_samples(cohort, "dec", leakage="strict")[1] if s.visit_id == 90]
    [shown] = with_findings([sample], cohort, charts)
    names = ("Creatinine 2.6 mg/dL (high)", "50862 3.1 g/dL (low)", "50817 37 %", "Glucose (urine) NEG.")
    assert sorted(shown.history[0].values) == sorted(names)
    later = replace(sample, prediction_time=sample.prediction_time + timedelta(days=90))
    assert not any("8.8" in value for value in with_findings([later], cohort, charts)[0].history[0].values)


def test_of_two_items_of_one_name_the_newest_value_is_shown(charts: Path) -> None:
    """Of 45 stays of the MIMIC-III demo with haemoglobins of both items 43 have the older of a blood gas. Stay 199395
    was shown 6.8 g/dL of 13 July as its newest; a budget cut the 10.3 of 25 July."""
    rows = [
        "5,1,90,50811,2150-01-02 05:00:00,2150-01-02 05:30:00,6.8,6.8,g/dL,12,16,",
        "6,1,90,51222,2150-01-02 06:00:00,2150-01-02 06:30:00,12.3,12.3,g/dL,12,16,",
        "7,1,90,51478,2150-01-02 05:00:00,2150-01-02 05:30:00,,,,,,POS.",
        "8,1,90,50931,2150-01-02 05:00:00,2150-01-02 05:30:00,104,104,mg/dL,,,",
    ]
    sample = sample_with(charts, rows, "50811,Hemoglobin,Blood\n51222,Hemoglobin,Blood\n50931,Glucose,Blood\n")
    assert sample.history[0].values == (
        "Creatinine 2.4 mg/dL (high)", "Glucose 104 mg/dL", "Hemoglobin 12.3 g/dL", "Glucose (urine) NEG.",
    )  # fmt: skip


def test_indices_of_the_measurement_are_no_findings(charts: Path) -> None:
    """Of the MIMIC-IV demo 67 of 245 records of a first day had "H 99 U (high)" or the like among their values."""
    rows = [
        "5,1,90,50934,2150-01-02 05:00:00,2150-01-02 05:30:00,99,99,,0,10,",
        "6,1,90,51737,2150-01-02 05:00:00,2150-01-02 05:30:00,-49,-49,,,,",
        "7,1,90,51277,2150-01-02 05:00:00,2150-01-02 05:30:00,13.1,13.1,%,10.5,15.5,",
    ]
    sample = sample_with(charts, rows, "50934,H,Blood\n51737,STX6,Blood\n51277,RDW,Blood\n")
    assert sample.history[0].values == ("Creatinine 2.4 mg/dL (high)", "RDW 13.1 %", "Glucose (urine) NEG.")


def test_the_saturation_of_a_blood_gas_is_no_vital_sign(charts: Path) -> None:
    """Of 59 stays of the MIMIC-IV demo it was: 37% of venous blood read as the patient's oxygen saturation."""
    first, second = "2150-01-01 11:00:00", "2150-01-02 06:00:00"
    for name in ("labevents", "d_labitems"):
        table = charts / f"hosp/{name}.csv"
        text = table.read_text().replace("50912", "50817").replace("Creatinine", "Oxygen Saturation")
        table.write_text(text.replace("2.4,2.4,mg/dL,0.4,1.1", "37,37,%,,").replace("mg/dL,0.4,1.1", "%,,"))
    with (charts / "hosp/labevents.csv").open("a") as rows:  # without a type it would be of no stated vessel
        rows.writelines(f"{n},1,90,52033,{at},{at},ART.,,,,,\n" for n, at in ((5, first), (6, second)))
    cohort = read_mimic4(charts)
    assert "VITAL/oxygen saturation" in cohort.names()
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]
    assert sample.history[0].values == ("Oxygen Saturation 37 %", "Glucose (urine) NEG.")


def test_inspired_oxygen_of_a_blood_gas_is_shown_once(charts: Path) -> None:
    """Of the MIMIC-IV demo it stood as "Oxygen 40 %" and as "fraction inspired oxygen 0.4 fraction"."""
    for name in ("labevents", "d_labitems"):
        table = charts / f"hosp/{name}.csv"
        text = table.read_text().replace("50912", "50816").replace("Creatinine", "Oxygen")
        table.write_text(text.replace("2.4,2.4,mg/dL,0.4,1.1", "40,40,%,,").replace("mg/dL,0.4,1.1", "%,,"))
    cohort = read_mimic4(charts)
    assert "VITAL/fraction inspired oxygen" in cohort.names()
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]
    assert sample.history[0].values == ("Oxygen 40 %", "Glucose (urine) NEG.")


def test_an_item_without_a_unit_has_its_range(charts: Path) -> None:
    """INR, 1,464 results of the MIMIC-IV demo, was never high."""
    for name in ("labevents", "d_labitems"):
        table = charts / f"hosp/{name}.csv"
        table.write_text(table.read_text().replace("mg/dL", "").replace("50912", "51237").replace("Creatinine", "INR"))
    cohort = read_mimic4(charts)
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]
    assert sample.history[0].values == ("INR 2.4 (high)", "Glucose (urine) NEG.")


@pytest.mark.parametrize("at_an_end", ["1.1", "0.9"])
def test_a_result_at_an_end_of_its_range_is_neither_low_nor_high(charts: Path, at_an_end: str) -> None:
    """Events hold 32 bits: of the MIMIC-IV demo 265 INR of 1.1 were above 1.1, and 742 numbers in all."""
    table = charts / "hosp/labevents.csv"
    text = table.read_text().replace("2.4,2.4,mg/dL", f"{at_an_end},{at_an_end},mg/dL").replace("0.4,1.1", "0.9,1.1")
    table.write_text(text)
    cohort = read_mimic4(charts)
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, charts)[0]
    assert sample.history[0].values[0] == f"Creatinine {at_an_end} mg/dL"


def test_a_result_stands_in_the_range_of_the_patients_sex(charts: Path, tmp_path: Path) -> None:
    """A woman's hemoglobin of 12.5 was "(low)" in MIMIC-IV: the median of all results is the range of men."""
    rows = [f"{n},2,30,51222,2150-03-01 1{n}:00:00,2150-03-01 1{n}:30:00,12.5,12.5,g/dL,13.7,17.5," for n in range(3)]
    woman = "9,1,90,51222,2150-01-02 06:00:00,2150-01-02 07:00:00,12.5,12.5,g/dL,11.2,15.7,"
    (charts / "hosp/labevents.csv").write_text("\n".join([LABS, *rows, woman]) + "\n")
    (charts / "hosp/d_labitems.csv").write_text("itemid,label,fluid\n51222,Hemoglobin,Blood\n")
    cohort = read_mimic4(charts)
    exported = tmp_path / "meds"
    write_meds(cohort, exported, facts=record_facts(charts))
    older = shutil.copytree(exported, tmp_path / "older")  # written before there were ranges by sex
    pl.read_parquet(exported / "items.parquet").select("code", "unit", "low", "high", "fluid").write_parquet(
        older / "items.parquet"
    )
    samples = make_samples(cohort, "dec", leakage="strict")[1]
    for root, flag in ((charts, ""), (exported, ""), (older, " (low)")):
        assert with_findings(samples, cohort, root)[0].history[-1].values == (f"Hemoglobin 12.5 g/dL{flag}",)
    patients = charts / "hosp/patients.csv"
    patients.write_text(patients.read_text().replace("1,F", "1,M"))
    as_a_man = with_findings(samples, read_mimic4(charts), charts)[0]
    assert as_a_man.history[-1].values == ("Hemoglobin 12.5 g/dL (low)",)


@pytest.mark.parametrize(
    ("item", "units", "ranges", "shown"),
    [
        # of one number a unit is known by the table of units, or by the others of its item
        ("50889", ("mg/dL", "mg/L"), ("0,5", "0,5"), "Test 89.2 mg/L (high)"),
        ("51249", ("%", "%"), (",", ","), "Test 8.92 g/dL"),
        ("52769", ("#/uL", "#/uL"), (",", ","), "Test 0.00892 K/uL"),  # "Absolute Lymphocyte Count", as 51133 is
        ("51196", ("ng/mL", "ng/mL FEU"), ("0,5", "0,9"), "Test 8.92"),
        ("51196", ("ng/mL", "ng/mL FEU"), ("0,5", "0,5"), "Test 8.92 (high)"),
        ("51274", ("SECONDS", "sec"), ("0,5", "0,5"), "Test 8.92 sec (high)"),
        ("51274", ("sec", ""), ("0,5", "0,5"), "Test 8.92 sec (high)"),
    ],
)
def test_no_number_stands_in_the_unit_of_another(
    charts: Path, item: str, units: tuple[str, str], ranges: tuple[str, str], shown: str
) -> None:
    """Stay 142345 of the MIMIC-III demo had a C-reactive protein of 8.92 mg/dL and was shown 8.92 mg/L, the unit of the
    item's two other results."""
    other = f"5,2,,{item},2150-01-01 12:00:00,2150-01-01 13:00:00,3,3,{units[1]},{ranges[1]},"
    own = f"6,1,90,{item},2150-01-02 06:00:00,2150-01-02 06:10:00,8.92,8.92,{units[0]},{ranges[0]},"
    more = other.replace("5,2,", "7,2,")
    (charts / "hosp/labevents.csv").write_text("\n".join([LABS, other, own, more]) + "\n")
    (charts / "hosp/d_labitems.csv").write_text(f"itemid,label,fluid\n{item},Test,Blood\n")
    cohort = read_mimic4(charts)
    [sample] = [s for s in make_samples(cohort, "dec", leakage="strict")[1] if s.visit_id == 90]
    assert with_findings([sample], cohort, charts)[0].history[0].values == (shown,)


@pytest.mark.parametrize(
    ("remark", "shown"),
    [
        ("NEG", "NEG"),
        ("NEG. " + "This assay does not detect some drugs. " * 3, "NEG."),
        ("Using this patient's age and creatinine of 1.2,. Estimated GFR = 44 if so (mL/min). For comparison 75.",
         "= 44 if so (mL/min)."),
        ("x" * 70, "x" * LONGEST + "..."),
    ],
)  # fmt: skip
def test_a_long_remark_is_shown_from_its_result_on(remark: str, shown: str) -> None:
    assert _shorten(remark, "Estimated GFR (MDRD equation)") == shown


def test_the_day_of_stay_is_not_told_where_it_is_the_outcome(charts: Path) -> None:
    cohort = read_mimic4(charts)
    cases: tuple[tuple[Leakage, bool], ...] = (("paper", False), ("strict", True))
    for leakage, day in cases:
        sample = with_findings(make_samples(cohort, "los", leakage=leakage)[1], cohort, charts)[0]
        assert ("day 1" in sample.history[0].about) == day and "day 3" not in sample.history[0].about


def test_values_that_do_not_fit_are_counted_and_go_first(charts: Path) -> None:
    cohort = read_mimic4(charts)
    sample = with_findings(make_samples(cohort, "dec")[1], cohort, charts)[0]
    whole = visit_list(sample, str, style="full", budget=10**6, count=len)
    cut = visit_list(sample, str, style="full", budget=len(whole.text) - 1, count=len)
    assert cut.dropped_codes == 1 and "Glucose (urine)" not in cut.text and "Creatinine" in cut.text
    compact = visit_list(sample, str, style="compact", budget=10**6, count=len)
    assert compact == visit_list(replace(sample, history=(replace(sample.history[0], about="", values=()),)), str,
                                 style="compact", budget=10**6, count=len)  # fmt: skip


READERS = {"mimic-iii-demo-1.4": read_mimic3, "mimic-iv-demo-2.2": read_mimic4, "eicu-crd-demo-2.0.1": read_eicu}


@pytest.fixture(scope="module")
def demos(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Cohort, Path]]:
    """The open demos with charts; eICU's results of 174 stays lie in a folder of their own there."""
    found = {}
    for name, read in READERS.items():
        root = shared_data / name
        if read is read_eicu:
            links = tmp_path_factory.mktemp("eicu")
            for path in [*root.glob("*.csv.gz"), root / "subset_174_stays" / "lab.csv.gz"]:
                (links / path.name).symlink_to(path)
            root = links
        found[name] = read(root), root
    return found


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("task", ["los", "read", "dec"])
def test_nothing_recorded_after_the_prediction_changes_a_record(
    demos: dict[str, tuple[Cohort, Path]], name: str, task: TaskName
) -> None:
    """Ten samples of each demo, told from all events and from those recorded by the prediction."""
    cohort, root = demos[name]
    samples = make_samples(cohort, task, leakage="strict")[1]
    some = samples[:: max(len(samples) // 10, 1)][:10]
    told = with_findings(some, cohort, root)
    for sample, own in zip(told, some, strict=True):
        early = cohort.events.filter(pl.col("recorded").is_null() | (pl.col("recorded") <= own.prediction_time))
        assert sample == with_findings([own], replace(cohort, table=early), root)[0]
    if name.startswith("eicu"):
        assert all("2014" not in text_of(s) and "2015" not in text_of(s) and "-01-01" not in text_of(s) for s in told)
    assert any(sample.history[-1].values for sample in told)


@pytest.mark.parametrize(
    "words", ["NotDone", "UNABLE TO REPORT", "ERROR", "-", "See Comments", "NETWORK FAILURE. TEST NOT RESULTED."]
)
def test_a_test_without_a_result_does_not_hide_an_earlier_one(charts: Path, words: str) -> None:
    """The newest CK-MB of 29 stays of the MIMIC-III demo is "NotDone"; 12 of them have a number before it."""
    rows = [
        "5,1,90,50911,2150-01-01 12:00:00,2150-01-01 13:00:00,16,16,ng/mL,0,10,",
        f"6,1,90,50911,2150-01-02 05:00:00,2150-01-02 05:30:00,{words},,ng/mL,0,10,",
    ]
    with (charts / "hosp/labevents.csv").open("a") as table:
        table.write("\n".join(rows) + "\n")
    cohort = read_mimic4(charts)
    [sample] = [s for s in make_samples(cohort, "dec", leakage="strict")[1] if s.visit_id == 90]
    [shown] = with_findings([sample], cohort, charts)
    assert [value for value in shown.history[0].values if value.startswith("50911 ")] == ["50911 16 ng/mL (high)"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("473 ml  -  chlorhexidine gluconate 0.12 % mt soln", "chlorhexidine gluconate"),
        ("furosemide (lasix) inj 40 mg", "furosemide (lasix)"),
        ("1000 ml flex cont : sodium chloride 0.9 % iv soln", "sodium chloride"),
        ("oxycodone-acetaminophen (5mg-325mg)", "oxycodone-acetaminophen"),
        ("glucose 15 gram/60 ml bq liq", "glucose"),
        ("magnesium sulfate 2 gram/50 ml iv piggy back 50 ml flex cont", "magnesium sulfate"),
        ("sodium phosphate 3 mmole/ml iv : 15 ml vial", "sodium phosphate"),
        ("3 ml  -  ipratropium-albuterol 0.5-2.5 (3) mg/3ml in soln", "ipratropium-albuterol"),
        ("penicillin g potassium", "penicillin g potassium"),
        ("hydrocodone 5 mg-acetaminophen 325 mg tablet", "hydrocodone-acetaminophen"),
        ("heparin 25,000 unit(s) in d5w 25", "heparin"),
        ("norepinephrine 8 mg in 250ml ns", "norepinephrine"),
        ("potassium chl 20 meq / 1000 ml d5 1/2 ns", "potassium chl"),
        ("potassium chloride er 20 meq tablet,extended release(part/cryst)", "potassium chloride"),
        ("albuterol sulfate 2.5 mg/3 ml (0.083 %) neb solution 3 ml blist pack", "albuterol sulfate"),
        ("pneumococcal 23-valent polysaccharide vaccine", "pneumococcal 23-valent polysaccharide vaccine"),
        ("d5w", "d5w"),
        ("d50", "d50"),
        # a combination keeps its second drug
        ("Dorzolamide 2%/Timolol 0.5% Ophth.", "Dorzolamide/Timolol"),
        ("lidocaine 1%/epinephrine 1:100000", "lidocaine/epinephrine"),
        ("magnesium sulfate 2g/sodium chloride 0.9% 100ml stock bag", "magnesium sulfate/sodium chloride"),
        ("dextrose 5%/nacl 0.45%", "dextrose/nacl"),
        ("amlodipine 5 mg/benazepril 10 mg", "amlodipine/benazepril"),
        ("hydrochlorothiazide 12.5mg / lisinopril 10mg", "hydrochlorothiazide/lisinopril"),
        ("bupivacaine 0.25%/fentanyl 2 mcg/ml", "bupivacaine/fentanyl"),
        ("Tylenol 325 mg/codeine 30 mg tab", "Tylenol/codeine"),
        # and what an amount is given in or by is none
        ("norepinephrine 0.1 mcg/kg/min", "norepinephrine"),
        ("morphine 2 mg/0.5 ml", "morphine"),
        ("testosterone 50 mg/pkt", "testosterone"),
        ("percocet 5mg/325mg", "percocet"),
        ("nitroglycerin 50mg/d5w 250ml btl", "nitroglycerin"),
        ("calcium gluconate 1 gram/d5w 50ml", "calcium gluconate"),
        ("potassium phosphate 3 mmol/ml15 ml inj", "potassium phosphate"),
        # words and numbers that belong to a name
        ("milk of magnesia ud liq 30 ml", "milk of magnesia"),
        ("fish oil (omega 3)", "fish oil (omega 3)"),
        ("omega-3 fatty acids 1 g cap", "omega-3 fatty acids"),
        ("insulin regular human (u-500)", "insulin regular (u-500)"),
        ("insulin regular human u-500", "insulin regular u-500"),
        ("insulin nph/regular human 70/30 100 unit/ml", "insulin nph/regular human 70/30"),
        ("novolog mix 70-30 flexpen", "novolog mix 70-30 flexpen"),
        ("polyethylene glycol 3350 17 gram oral powder packet", "polyethylene glycol 3350"),
        ("dextran 40 10% in ns", "dextran 40"),
        ("glucagon (human recombinant) 1 mg inj recon soln", "glucagon (human recombinant)"),
        ("esmolol in saline (iso-osm)", "esmolol in saline (iso-osm)"),
        ("phenobarbital (loading dose 2 and 3)", "phenobarbital (loading dose 2 and 3)"),
        ("1 ml crtrdg-ndl : morphine sulfate 2 mg/ml ij soln", "morphine sulfate"),
        ("250 ml plas cont: fat emulsion 20 % iv emul", "fat emulsion"),
        ("albuterol sulfate (5 mg/ml) 0.5% in nebu", "albuterol sulfate"),
        ("8 g - albuterol sulfate hfa 108 (90 base) mcg/act in aers", "albuterol sulfate hfa"),
        ("potassium chloride 20 meq in", "potassium chloride"),
        ("bag of sodium chloride 0.9% 1000 ml", "sodium chloride"),
        ("25 mg tab", "25 mg tab"),
    ],
)
def test_orders_are_shown_without_amounts_and_packs(text: str, shown: str) -> None:
    assert order_text(text) == shown
