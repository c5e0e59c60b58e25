"""Further tables of MIMIC-IV, and the largest of MIMIC-IV and eICU with all columns of the real files, in parts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers import tables
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds import read_meds
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.mimic4_more import MORE
from ghar.errors import BadInput
from tests.data import eicu_tables
from tests.data.conftest import write_mimic4
from tests.data.hostile import account

pytestmark = pytest.mark.slow

ED = {  # MIMIC-IV-ED 2.2; written here from its documentation
    "edstays": "subject_id,hadm_id,stay_id,intime,outtime,gender,race,arrival_transport,disposition\n"
    "1,90,5,2150-01-01 08:00:00,2150-01-01 09:55:00,F,WHITE,AMBULANCE,ADMITTED\n"
    "2,,6,2149-05-01 08:00:00,2149-05-01 07:00:00,M,WHITE,WALK IN,HOME\n"
    "8,,7,2149-05-01 08:00:00,2149-05-01 09:00:00,M,WHITE,WALK IN,HOME\n",
    "triage": "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint\n"
    "1,5,98.6,90,18,97,120,70,6,2,Chest pain\n2,6,36.6,,,,,,,,\n",
    "vitalsign": "subject_id,stay_id,charttime,temperature,heartrate,resprate,o2sat,sbp,dbp,rhythm,pain\n"
    "1,5,2150-01-01 09:00:00,,95,,97,1200,70,Sinus Tachycardia,5\n",
    "diagnosis": "subject_id,stay_id,seq_num,icd_code,icd_version,icd_title\n1,5,1,78650,9,CHEST PAIN NOS\n",
    "medrecon": "subject_id,stay_id,charttime,name,gsn,ndc,etc_rn,etccode,etcdescription\n"
    "1,5,2150-01-01 08:10:00,Lisinopril,1,2,1,3,ACE Inhibitors\n",
    "pyxis": "subject_id,stay_id,charttime,med_rn,name,gsn_rn,gsn\n1,5,2150-01-01 08:30:00,1,Aspirin,1,4\n",
}


def of(cohort: Cohort, prefix: str) -> pl.DataFrame:
    return cohort.events.filter(pl.col("code").str.starts_with(prefix))


def test_the_emergency_department(tmp_path: Path) -> None:
    plain, root = read_mimic4(write_mimic4(tmp_path)), tmp_path
    (root / "ed").mkdir()
    for name, text in ED.items():
        (root / f"ed/{name}.csv").write_text(text)
    cohort = read_mimic4(root, more=["ed"])
    counts = cohort.counts
    assert cohort.shown.visits == plain.shown.visits  # visits show what they showed
    assert counts["dropped.edstays.unknown_patient"] == counts["repaired.edstays.outtime_before_intime"] == 1
    assert of(cohort, "ED_ADMISSION/")["code"].to_list() == ["ED_ADMISSION/AMBULANCE", "ED_ADMISSION/WALK IN"]
    assert of(cohort, "ED_DISCHARGE/").height == counts["added.edstays.discharges"] == 1
    signs = of(cohort, "VITAL/").sort("time", "code", "subject_id")
    assert signs.height == 12 - account(counts, "triage", "dropped") + 6 - account(counts, "vitalsign", "dropped") == 10
    assert signs.filter(code="VITAL/temperature")["numeric_value"].to_list() == pytest.approx([36.6, 37.0])
    assert counts["dropped.vitalsign.implausible"] == 1
    told = of(cohort, "ED/").select("code", "numeric_value", "text_value").rows()
    assert told == [("ED/acuity", 2.0, None), ("ED/chief complaint", None, "Chest pain")]
    (known,) = of(cohort, "ED_DIAGNOSIS/chest pain nos")["recorded"]
    assert known == datetime(2150, 1, 1, 9, 55)
    assert of(cohort, "GIVEN/aspirin").height == of(cohort, "HOME_DRUG/lisinopril").height == 1
    assert set(of(cohort, "ED_DIAGNOSIS")["visit_id"]) == {90}
    (root / "ed/pyxis.csv").unlink()
    assert read_mimic4(root, more=["ed"]).counts["absent.pyxis"] == 1
    (root / "ed/edstays.csv").unlink()
    with pytest.raises(BadInput, match="no table ed/edstays"):
        read_mimic4(root, more=["ed"])


def test_outpatient_measures_microbiology_and_drugs_given_of_the_open_demo(demo: Path) -> None:
    usual, cohort = (
        read_mimic4(demo, charts=False),
        read_mimic4(demo, charts=False, more=[name for name in MORE if name not in ("ed", "notes")]),
    )
    counts = cohort.counts
    assert cohort.shown.visits == usual.shown.visits and not cohort.credentialed
    added = counts["added.omr.second_pressure"]
    kept = {"omr": ("OMR/", "VITAL/"), "microbiologyevents": ("MICROBIOLOGY/",), "emar": ("GIVEN/",)}
    kept |= {"inputevents": ("INPUT/",), "outputevents": ("OUTPUT/",)}
    kept |= {"transfers": ("TRANSFER/",), "services": ("SERVICE/",)}
    lines = {"omr": 2964, "microbiologyevents": 2899, "emar": 35835, "inputevents": 20404, "outputevents": 9362}
    lines |= {"transfers": 1190, "services": 319}
    for name, prefixes in kept.items():
        events = sum(of(cohort, prefix).height for prefix in prefixes) - (added if name == "omr" else 0)
        assert counts[f"rows.{name}"] == lines[name] == events + account(counts, name, "dropped"), name
    assert cohort.events.height - usual.events.height == sum(of(cohort, p).height for ps in kept.values() for p in ps)
    given = pl.read_csv(demo / "hosp/emar.csv.gz", infer_schema=False)["event_txt"].value_counts()
    wanted = {"Administered", "Started", "Applied", "Administered Bolus from IV Drip", "Delayed Administered",
              "Restarted", "Partial Administered", "Administered in Other Location",
              "Removed Existing / Applied New", "Started in Other Location", "Delayed Started",
              "Applied in Other Location"}  # fmt: skip
    rows = given.filter(pl.col("event_txt").is_in(wanted))["count"].sum()
    assert counts["rows.emar"] - counts["dropped.emar.not_given"] == rows
    grown = of(cohort, "MICROBIOLOGY/urine culture")
    assert grown.filter(pl.col("text_value").str.contains("URINE, ESCHERICHIA COLI, GENTAMICIN S")).height > 0
    assert grown["text_value"].str.starts_with("specimen URINE").all()  # "URINE" alone read as the result
    assert (grown["recorded"] >= grown["time"]).all()
    assert counts["dropped.transfers.discharge"] == 275  # one an admission


EVENTS = {  # `event_txt` of eMAR -> whether a drug was given
    **dict.fromkeys((
        "Administered", "Delayed Administered", "Partial Administered", "Administered in Other Location", "Started",
        "Administered Bolus from IV Drip", "Delayed Started", "Started in Other Location", "Restarted", "Applied",
        "Delayed Applied", "Applied in Other Location", "Removed Existing / Applied New", "Given",
    ), True),
    **dict.fromkeys((
        "Not Given", "Not Given per Sliding Scale", "Delayed Not Given", "Confirmed, not given", "Not Started",
        "Delayed Not Started", "Not Applied", "Delayed Not Applied", "Not Confirmed", "Delayed Not Confirmed",
        "Confirmed", "Delayed Confirmed", "Hold Dose", "Stopped", "Stopped - Unscheduled", "Not Stopped",
        "Stopped As Directed", "Stopped in Other Location", "Delayed Stopped", "Removed", "Removed - Unscheduled",
        "Not Removed", "Infusion Reconciliation", "Infusion Reconciliation Not Done", "Infusion Reconciled", "Read",
        "Flushed", "Not Flushed", "Delayed Flushed", "Assessed", "Not Assessed", "Rate Change", "Delayed", "",
    ), False),
}  # fmt: skip


def test_a_drug_is_given_where_the_event_says_so_and_no_word_denies_it(tmp_path: Path) -> None:
    root, time = write_mimic4(tmp_path), "2150-01-01 11:00:00"
    rows = [f'1,90,{time},{time},drug {i},"{text}"' for i, text in enumerate(EVENTS)]
    head = "subject_id,hadm_id,charttime,storetime,medication,event_txt"
    (root / "hosp/emar.csv").write_text("\n".join([head, *rows]) + "\n")
    cohort = read_mimic4(root, more=["emar"])
    names = dict(zip(EVENTS, (f"GIVEN/drug {i}" for i in range(len(EVENTS))), strict=True))
    shown = set(of(cohort, "GIVEN/")["code"])
    assert {text: names[text] in shown for text in EVENTS} == EVENTS


def test_a_culture_without_an_organism_shows_its_specimen_as_one(tmp_path: Path) -> None:
    root, time = write_mimic4(tmp_path), "2150-01-01 11:00:00"
    head = "subject_id,hadm_id,chartdate,charttime,storedate,storetime,"
    head += "spec_type_desc,test_name,org_name,ab_name,interpretation"
    ends = ("URINE,Urine Culture,,,", "URINE,Urine Culture,ESCHERICHIA COLI,GENTAMICIN,S", ",Urine Culture,,,")
    rows = [f"1,90,{time},{time},{time},{time},{end}" for end in ends]
    (root / "hosp/microbiologyevents.csv").write_text("\n".join([head, *rows]) + "\n")
    cohort = read_mimic4(root, more=["microbiology"])
    texts = {text or None for text in of(cohort, "MICROBIOLOGY/urine culture")["text_value"]}
    assert texts == {"specimen URINE", "specimen URINE, ESCHERICHIA COLI, GENTAMICIN S", None}


def test_rates_are_known_from_the_start_and_amounts_when_given(tmp_path: Path) -> None:
    root = write_mimic4(tmp_path)
    (root / "icu/d_items.csv").write_text("itemid,label\n1,Norepinephrine\n2,Foley\n")
    begin, end = "2150-01-01 11:00:00", "2150-01-01 15:00:00"
    (root / "icu/inputevents.csv").write_text(
        "subject_id,hadm_id,starttime,endtime,storetime,itemid,amount,amountuom,rate,rateuom,statusdescription\n"
        f"1,90,{begin},{end},2150-01-01 11:05:00,1,4,mg,0.1,mcg/kg/min,FinishedRunning\n"
        f"1,90,{begin},{end},2150-01-01 11:05:00,1,4,mg,,,FinishedRunning\n"
        f"1,90,{begin},{end},,1,4,mg,,,Rewritten\n1,90,{begin},{end},,7,4,mg,,,Stopped\n"
    )
    (root / "icu/outputevents.csv").write_text(
        "subject_id,hadm_id,charttime,storetime,itemid,value,valueuom\n"
        f"1,90,{begin},2150-01-01 11:30:00,2,350,ml\n1,90,{begin},,2,876587,ml\n1,90,{begin},,2,3,L\n"
    )
    cohort = read_mimic4(root, more=["inputs", "outputs"])
    at = datetime(2150, 1, 1, 11)
    found = cohort.events.filter(pl.col("code").str.contains("^(IN|OUT)PUT/")).sort("code")
    assert found.select("code", "time", "numeric_value", "recorded").rows() == [
        ("INPUT/norepinephrine, mcg/kg/min", at, pytest.approx(0.1), at.replace(minute=5)),
        ("INPUT/norepinephrine, mg", at, 4.0, at.replace(hour=15)),
        ("OUTPUT/foley", at, 350.0, at.replace(minute=30)),
    ]
    assert account(cohort.counts, "inputevents", "dropped") == account(cohort.counts, "outputevents", "dropped") == 2
    assert cohort.names()["OUTPUT/foley"] == "foley"


# The largest tables, with every column of the real files.
CHARTEVENTS = """subject_id,hadm_id,stay_id,caregiver_id,charttime,storetime,itemid,value,valuenum,valueuom,warning
1,90,7,100,2150-01-01 11:00:00,2150-01-01 11:30:00,220045,80,80,bpm,0
1,90,7,,2150-01-01 12:00:00,2150-01-01 12:02:00,223761,98.6,98.6,°F,0
1,90,7,,2150-01-01 12:00:00,2150-01-01 12:02:00,220739,Spontaneously,4,,0
1,90,7,,2150-01-01 12:05:00,2150-01-01 12:02:00,224054,No Impairment,4,,0
1,90,7,,2150-01-01 13:00:00,,220277,400,400,%,1
"""
EICU = {
    "vitalPeriodic": "vitalperiodicid,patientunitstayid,observationoffset,temperature,sao2,heartrate,respiration,cvp,"
    "etco2,systemicsystolic,systemicdiastolic,systemicmean,pasystolic,padiastolic,pamean,st1,st2,st3,icp\n"
    "1,3,35,37.1,97,80,18,9,,120,60,80,,,,0.1,,-0.2,\n2,3,40,,,81,,,,,,,,,,,,,\n",
    "nurseCharting": "nursingchartid,patientunitstayid,nursingchartoffset,nursingchartentryoffset,"
    "nursingchartcelltypecat,nursingchartcelltypevallabel,nursingchartcelltypevalname,nursingchartvalue\n"
    "1,3,40,45,Vital Signs,Temperature,Temperature (F),98.6\n2,3,40,45,Scores,Glasgow coma score,GCS Total,15\n"
    "3,3,41,45,Other Vital Signs and Infusions,Pain Assessment,Pain Present,no\n",
    "lab": "labid,patientunitstayid,labresultoffset,labtypeid,labname,labresult,labresulttext,labmeasurenamesystem,"
    "labmeasurenameinterface,labresultrevisedoffset\n"
    "1,3,30,1,BUN,31,31,mg/dL,mg/dL,50\n2,3,30,7,pH,7.3,7.3,,Units,30\n3,3,30,1,troponin - I,,<0.02,ng/mL,ng/mL,30\n",
}


def test_chart_events_of_mimic4_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (write_mimic4(tmp_path) / "icu/chartevents.csv").write_text(CHARTEVENTS)
    whole = read_mimic4(tmp_path)
    counts = whole.counts
    signs = of(whole, "VITAL/")
    assert signs.select("code", pl.col("numeric_value").round(2)).rows() == [
        ("VITAL/heart rate", 80.0),
        ("VITAL/temperature", 37.0),
        ("VITAL/glasgow coma scale eye opening", 4.0),
    ]
    assert counts["rows.chartevents"] == 5 == signs.height + account(counts, "chartevents", "dropped")
    monkeypatch.setattr(tables, "HELD", 1)
    assert read_mimic4(tmp_path).events.equals(whole.events)


def test_charts_of_meds_folders_are_the_vital_signs_of_the_tables(tmp_path: Path) -> None:
    """The same chart events by MIMIC_IV_MEDS's codes, and monitor readings by eICU-MEDS's."""
    (write_mimic4(tmp_path / "csv") / "icu/chartevents.csv").write_text(CHARTEVENTS)
    sound = of(read_mimic4(tmp_path / "csv"), "VITAL/")
    rows = pl.read_csv(
        tmp_path / "csv/icu/chartevents.csv", try_parse_dates=True, schema_overrides={"value": pl.String}
    )
    text = pl.when(pl.col("value").cast(pl.Float64, strict=False).is_null()).then("value")
    charts = rows.select(
        pl.col("subject_id", "hadm_id"), time=pl.col("charttime").dt.cast_time_unit("us"), text_value=text,
        code=pl.format("LAB//{}//{}", "itemid", pl.col("valueuom").fill_null("UNK")),
        numeric_value=pl.col("valuenum").cast(pl.Float32),
    )  # fmt: skip
    monitor = charts[:1].with_columns(code=pl.lit("VITALS//PERIODIC//HEARTRATE"), time=pl.datetime(2150, 1, 1, 23))
    ends = [
        charts[:1].with_columns(code=pl.lit(code), time=time, numeric_value=None)
        for code, time in (("HOSPITAL_ADMISSION//EW", pl.datetime(2150, 1, 1)),
                           ("HOSPITAL_DISCHARGE//HOME", pl.datetime(2150, 1, 4)))
    ]  # fmt: skip
    events = pl.concat([*ends, charts, monitor], how="vertical_relaxed").sort("time", maintain_order=True)
    (tmp_path / "meds/data").mkdir(parents=True)
    events.write_parquet(tmp_path / "meds/data/0.parquet")
    cohort = read_meds(tmp_path / "meds")
    facts = ["subject_id", "time", "code", pl.col("numeric_value").round(3), "text_value", "visit_id"]
    assert of(cohort, "VITAL/").select(facts).rows()[:-1] == sound.select(facts).rows()
    assert of(cohort, "VITAL/").row(-1, named=True)["code"] == "VITAL/heart rate"
    assert cohort.counts["marked.meds.charts_as_vitals"] == 4
    assert of(cohort, "CHART/")["code"].to_list() == ["CHART/224054", "CHART/220277"]  # unknown, implausible: as it was
    assert "VITAL/temperature" in cohort.names()


def test_the_largest_tables_of_eicu_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = eicu_tables.write(tmp_path)
    for name, text in EICU.items():
        (root / f"{name}.csv").write_text(text)
    whole = read_eicu(root)
    eicu_tables.assert_conserved(whole)
    assert whole.counts["rows.vitalperiodic"] == 14 and whole.counts["rows.nursecharting"] == 3
    assert of(whole, "LAB/").height == 3 and of(whole, "VITAL/glasgow coma scale total")["numeric_value"].to_list() == [
        15
    ]
    monkeypatch.setattr(tables, "HELD", 1)
    assert read_eicu(root).events.equals(whole.events)
