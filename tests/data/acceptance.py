"""Twins of the acceptance inputs (shared/data/cases): the same shapes after public bug reports, other made-up rows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl

US = pl.Datetime("us")
MIMIC = {  # table -> header
    "hosp/patients": "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod",
    "hosp/admissions": "subject_id,hadm_id,admittime,dischtime,deathtime,hospital_expire_flag",
    "hosp/diagnoses_icd": "subject_id,hadm_id,seq_num,icd_code,icd_version",
    "hosp/procedures_icd": "subject_id,hadm_id,seq_num,chartdate,icd_code,icd_version",
    "hosp/prescriptions": "subject_id,hadm_id,starttime,drug_type,drug,gsn,ndc,route",
    "hosp/labevents": "subject_id,hadm_id,itemid,charttime,storetime,value,valuenum,valueuom,comments",
    "hosp/d_icd_diagnoses": "icd_code,icd_version,long_title",
    "hosp/d_icd_procedures": "icd_code,icd_version,long_title",
    "hosp/d_labitems": "itemid,label",
    "icu/icustays": "subject_id,hadm_id,stay_id,first_careunit,intime,outtime",
}
ORDINARY = {  # subject 9, an ordinary patient
    "hosp/patients": ["9,F,50,2160,2014 - 2016,"],
    "hosp/admissions": ["9,900,2160-01-01 10:00:00,2160-01-05 10:00:00,,0"],
    "hosp/diagnoses_icd": ["9,900,1,I10,10"],
    "hosp/procedures_icd": ["9,900,1,2160-01-02,3961,9"],
    "hosp/prescriptions": ["9,900,2160-01-01 12:00:00,MAIN,Aspirin,,0,PO"],
    "hosp/labevents": ["9,900,50912,2160-01-01 11:00:00,2160-01-01 12:00:00,1.1,1.1,mg/dL,"],
    "hosp/d_icd_diagnoses": ["I10,10,Essential (primary) hypertension"],
    "hosp/d_icd_procedures": ["3961,9,Extracorporeal circulation"],
    "hosp/d_labitems": ["51222,Hemoglobin", "50912,Creatinine", "51652,HIV viral load"],
    "icu/icustays": ["9,900,77,MICU,2160-01-01 10:30:00,2160-01-03 10:00:00"],
}
EICU = {
    "patient": "patientunitstayid,patienthealthsystemstayid,gender,age,hospitaladmittime24,hospitaladmitoffset,"
    "hospitaldischargeyear,hospitaldischargeoffset,hospitaldischargestatus,unittype,unitvisitnumber,"
    "unitdischargeoffset,unitdischargestatus,uniquepid,admissionheight,admissionweight,dischargeweight",
    "diagnosis": "patientunitstayid,diagnosisoffset,diagnosisstring,icd9code",
    "treatment": "patientunitstayid,treatmentoffset,treatmentstring",
    "medication": "patientunitstayid,drugorderoffset,drugstartoffset,drugname,drugordercancelled,routeadmin",
    "lab": "patientunitstayid,labresultoffset,labresultrevisedoffset,labname,labresult,labresulttext,"
    "labmeasurenamesystem",
}
EICU_ORDINARY = {"patient": ["9,90,Male,60,10:00:00,-10,2014,3000,Alive,MICU,1,2880,Alive,013-17,,,"]}


def write_mimic(root: Path, **rows: list[str]) -> Path:
    """The ordinary patient, and further rows by the last part of a table's name."""
    return _write(root, MIMIC, {table: [*ORDINARY[table], *rows.get(table.split("/")[1], [])] for table in MIMIC})


def write_eicu(root: Path, **rows: list[str]) -> Path:
    """The ordinary patient, and further rows by table."""
    return _write(root, EICU, {table: [*EICU_ORDINARY.get(table, []), *rows.get(table, [])] for table in EICU})


def _write(root: Path, headers: dict[str, str], rows: dict[str, list[str]]) -> Path:
    for table, header in headers.items():
        path = root / f"{table}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *rows[table]]) + "\n")
    return root


def write_meds(root: Path, rows: list[tuple]) -> Path:
    """rows: subject_id, time (text or None), code, numeric_value, hadm_id."""
    made = [(s, None if t is None else datetime.fromisoformat(t), c, n, h) for s, t, c, n, h in rows]
    schema = {"subject_id": pl.Int64, "time": US, "code": pl.String, "numeric_value": pl.Float32, "hadm_id": pl.Int64}
    path = root / "data" / "train" / "0.parquet"
    path.parent.mkdir(parents=True)
    pl.DataFrame(made, schema, orient="row").write_parquet(path)
    return root


def dod_years_before_stay(root: Path) -> Path:
    stays = ["1,100,2136-11-30 10:00:00,2137-02-01 10:00:00,,0", "1,101,2144-12-20 12:00:00,2144-12-25 12:00:00,,0"]
    return write_mimic(root, patients=["1,M,40,2137,2014 - 2016,2137-02-05"], admissions=stays)


def dod_years_before_stay_meds(root: Path) -> Path:
    return write_meds(root, [
        (9, "2160-01-01T10:00", "HOSPITAL_ADMISSION//A", None, 900), (9, "2160-01-05T10:00", "ICD10CM/I10", None, 900),
        (9, "2160-01-05T10:00", "HOSPITAL_DISCHARGE//HOME", None, 900),
        (1, "2136-11-30T10:00", "HOSPITAL_ADMISSION//A", None, 100),
        (1, "2137-02-01T10:00", "HOSPITAL_DISCHARGE//HOME", None, 100),
        (1, "2137-02-05T00:00", "MEDS_DEATH", None, None),
        (1, "2144-12-20T12:00", "HOSPITAL_ADMISSION//A", None, 101),
        (1, "2144-12-25T12:00", "HOSPITAL_DISCHARGE//HOME", None, 101),
    ])  # fmt: skip


def haemoglobin_in_g_per_l(root: Path) -> Path:
    labs = [
        f"1,100,51222,2150-01-0{day} 10:00:00,2150-01-0{day} 11:00:00,{value},{value},g/L,"
        for day, value in ((2, 118), (3, 95), (4, 65))
    ]
    stay = ["1,100,2150-01-01 10:00:00,2150-01-08 10:00:00,,0"]
    return write_mimic(root, patients=["1,M,40,2150,2014 - 2016,"], admissions=stay, labevents=labs,
                       diagnoses_icd=["1,100,1,I10,10"])  # fmt: skip


def haemoglobin_in_g_per_l_meds(root: Path) -> Path:
    values = [(1, f"2150-01-0{d}T10:00", "LAB//51222//g/L", float(v), 100) for d, v in ((2, 118), (3, 95), (4, 65))]
    return write_meds(root, [(1, "2150-01-01T10:00", "HOSPITAL_ADMISSION//A", None, 100), *values,
                             (1, "2150-01-08T10:00", "HOSPITAL_DISCHARGE//HOME", None, 100)])  # fmt: skip


def result_in_comments(root: Path) -> Path:
    labs = [
        '1,100,51652,2150-01-02 10:00:00,2150-01-02 11:00:00,,,,"DETECTED <1.3"',
        "1,100,51222,2150-01-02 10:00:00,2150-01-02 11:00:00,___,,g/dL,9.1",
    ]
    stay = ["1,100,2150-01-01 10:00:00,2150-01-08 10:00:00,,0"]
    return write_mimic(root, patients=["1,M,40,2150,2014 - 2016,"], admissions=stay, labevents=labs)


def death_time_alone_meds(root: Path) -> Path:
    return write_meds(root, [(1, "2150-01-01T10:00", "HOSPITAL_ADMISSION//A", None, 100),
                             (1, "2150-01-05T05:00", "MEDS_DEATH", None, 100),
                             (1, "2150-01-05T20:00", "HOSPITAL_DISCHARGE//DIED", None, 100)])  # fmt: skip


def death_time_and_dod_midnight_meds(root: Path) -> Path:
    return write_meds(root, [(1, "2150-01-01T10:00", "HOSPITAL_ADMISSION//A", None, 100),
                             (1, "2150-01-05T00:00", "MEDS_DEATH", None, None),
                             (1, "2150-01-05T05:00", "MEDS_DEATH", None, 100),
                             (1, "2150-01-05T20:00", "HOSPITAL_DISCHARGE//DIED", None, 100)])  # fmt: skip


def result_without_time_meds(root: Path) -> Path:
    return write_meds(root, [(1, "2150-01-01T10:00", "HOSPITAL_ADMISSION//A", None, 100),
                             (1, None, "LAB//51222//g/dL", 6.1, 100), (1, None, "DIAGNOSIS//ICD//10//I214", None, 100),
                             (1, "2150-01-08T10:00", "HOSPITAL_DISCHARGE//HOME", None, 100)])  # fmt: skip


def drug_spellings(root: Path) -> Path:
    names = ("*NF* Aspirin", "OxycoDONE (Immediate Release) ", "oxycodone", "Oxycodone")
    drugs = [f"1,100,2150-01-02 10:00:00,MAIN,{name},,0,PO" for name in names]
    stay = ["1,100,2150-01-01 10:00:00,2150-01-08 10:00:00,,0"]
    return write_mimic(root, patients=["1,M,40,2150,2014 - 2016,"], admissions=stay, prescriptions=drugs)


def eicu_move_is_no_return(root: Path) -> Path:
    stays = ["1,50,Female,50,10:00:00,-60,2015,9000,Alive,MICU,1,3000,Alive,002-11,,,",
             "2,50,Female,50,10:00:00,-3060,2015,6000,Alive,SDU,2,1000,Alive,002-11,,,"]  # fmt: skip
    return write_eicu(root, patient=stays)


def eicu_offsets_of_190_years(root: Path) -> Path:
    coded = ["9,10,renal|x|y,584.9", "9,99999999,renal|x|y,584.9", "9,-99999999,renal|x|z,584.9"]
    return write_eicu(root, diagnosis=coded, lab=["9,123456789,0,Hgb,9,9,g/dL"],
                      medication=["9,-60000000,-60000000,ASPIRIN,No,PO"])  # fmt: skip


def labels_twice_conflict(root: Path) -> Path:
    at = datetime(2150, 1, 3, 10)
    rows = [(1, at, True), (1, at, False), (9, datetime(2160, 1, 3, 10), False)]
    schema = {"subject_id": pl.Int64, "prediction_time": US, "boolean_value": pl.Boolean}
    root.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, schema, orient="row").write_parquet(root / "labels_twice_conflict.parquet")
    return root / "labels_twice_conflict.parquet"
