"""Small tables in eICU's layout, and the account of their rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl

PATIENT = (
    "patientunitstayid,patienthealthsystemstayid,gender,age,hospitaladmittime24,hospitaladmitoffset,"
    "hospitaldischargeyear,hospitaldischargeoffset,hospitaldischargestatus,unittype,unitvisitnumber,"
    "unitdischargeoffset,unitdischargestatus,uniquepid,admissionheight,admissionweight,dischargeweight"
)
HEADERS = {
    "patient": PATIENT,
    "diagnosis": "diagnosisid,patientunitstayid,diagnosisoffset,diagnosisstring,icd9code,diagnosispriority",
    "treatment": "treatmentid,patientunitstayid,treatmentoffset,treatmentstring",
    "medication": "medicationid,patientunitstayid,drugorderoffset,drugstartoffset,drugordercancelled,drugname",
    "lab": "labid,patientunitstayid,labresultoffset,labname,labresult,labresulttext,labresultrevisedoffset",
    "vitalPeriodic": (
        "vitalperiodicid,patientunitstayid,observationoffset,temperature,sao2,heartrate,respiration,"
        "systemicsystolic,systemicdiastolic,systemicmean"
    ),
    "vitalAperiodic": (
        "vitalaperiodicid,patientunitstayid,observationoffset,noninvasivesystolic,noninvasivediastolic,noninvasivemean"
    ),
    "nurseCharting": (
        "nursingchartid,patientunitstayid,nursingchartoffset,nursingchartentryoffset,nursingchartcelltypevallabel,"
        "nursingchartcelltypevalname,nursingchartvalue"
    ),
    "respiratoryCharting": (
        "respchartid,patientunitstayid,respchartoffset,respchartentryoffset,respchartvaluelabel,respchartvalue"
    ),
}
# One patient with two hospital stays in 2015: ICU stays 7 and 3 (in this order) of stay 50, and 5 of stay 40.
ROWS = {
    "patient": [
        "3,50,Female,> 89,23:00:00,-3000,2015,900,Expired,MICU,2,500,Expired,002-1039,157.5,46.5,45",
        "7,50,Female,> 89,23:00:00,-60,2015,3840,Expired,SICU,1,2940,Alive,002-1039,157.5,,",
        "5,40,Female,> 89,08:00:00,0,2015,2000,Alive,MICU,1,1500,Alive,002-1039,,,",
        "9,60,Male,70,10:00:00,-10,2014,3000,Alive,MICU,1,2880,Alive,013-17,,,",
    ],
    "diagnosis": [
        '1,3,-10,renal|disorder of kidney|acute renal failure,"584.9, N17.9",Primary',
        '2,3,300,renal|disorder of kidney|acute renal failure,"584.9, N17.9",Major',
        '3,3,300,renal|disorder of kidney|acute renal failure,"584.9, N17.9",Other',
        "4,3,10,endocrine|glucose metabolism|diabetes mellitus|Type II,,Other",
    ],
    "treatment": ["1,3,20,renal|dialysis|hemodialysis"],
    "medication": [
        "1,3,5,-188,No,WARFARIN 5 MG ",
        "2,3,5,10,No,",
        "3,3,5,10,Yes,ASPIRIN",
        "4,3,5,10,Yes,",
    ],
    "lab": ["1,3,30,BUN,31,31,50", "2,3,30,pH,7.3,7.3,30", "3,3,30,troponin - I,,<0.02,30"],
    "vitalPeriodic": ["1,3,35,37.1,97,80,18,120,60,80", "2,3,40,,,81,,,,"],
    "vitalAperiodic": ["1,3,36,121,61,81"],
    "nurseCharting": [
        "1,3,40,45,Temperature,Temperature (F),98.6",
        "2,3,40,45,Temperature,Temperature Location,ORAL",
        "3,3,40,45,Glasgow coma score,GCS Total,15",
        "4,3,40,45,Heart Rate,Heart Rate,eighty",
    ],
    "respiratoryCharting": ["1,3,41,46,FiO2,40%", "2,3,41,46,PEEP,5"],
}
PREFIXES = {"treatment": "EICU_TREATMENT/", "medication": "DRUG/", "lab": "LAB/"}
CHARTED = ("vitalperiodic", "vitalaperiodic", "nursecharting", "respiratorycharting", "patient_body")


def write(root: Path, rows: dict[str, list[str]] | None = None) -> Path:
    root.mkdir(exist_ok=True)
    for name, header in HEADERS.items():
        (root / f"{name}.csv").write_text("\n".join([header, *(rows or {}).get(name, ROWS[name])]) + "\n")
    return root


def of(cohort, *prefixes):
    return cohort.events.filter(pl.any_horizontal(pl.col("code").str.starts_with(p) for p in prefixes))


def dropped(cohort, *tables):
    rules = tuple(f"dropped.{table}." for table in tables)
    return sum(n for rule, n in cohort.counts.items() if rule.startswith(rules))


def assert_conserved(cohort):
    counts = cohort.counts
    kept = {name: of(cohort, prefix).height for name, prefix in PREFIXES.items()} | {"patient": cohort.visits.height}
    diagnoses = of(cohort, "ICD9CM/", "ICD10CM/", "EICU_DIAGNOSIS/").height
    kept["diagnosis"] = diagnoses - counts.get("added.diagnosis.further_codes", 0)
    for name, rows in kept.items():
        assert counts.get(f"rows.{name}", 0) == rows + dropped(cohort, name), name
    vitals = of(cohort, "VITAL/").height - counts.get("added.labs.vitals", 0)
    assert sum(counts.get(f"rows.{name}", 0) for name in CHARTED) == vitals + dropped(cohort, *CHARTED)
