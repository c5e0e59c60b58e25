"""The open MIMIC-IV demo in the shapes of other projects' MEDS, written from its tables without any of our readers.

new     MIMIC_IV_MEDS 0.2.0: a drawing and a result for each laboratory value, orders of drugs without the stay's number
old     its versions before 0.0.7: LAB//51222//g/dL at the time of drawing, orders of drugs
etl     meds_etl 0.3.11: ICD10CM/I21.4, MIMIC_IV_LABITEM/51222, unit and visit_id as columns, admissions with an end

Facts: event_configs.yaml of MIMIC_IV_MEDS 0.2.0 and 0.0.x, mimic/__init__.py of meds_etl. Compared by hand with what
MIMIC_IV_MEDS 0.2.0 itself writes of these tables: the same 246,228 events (it has NDC numbers where `new` has UNK).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

LOINC = {"51222": "LOINC/718-7", "50811": "LOINC/718-7", "50912": "LOINC/2160-0"}  # of d_labitems_to_loinc.csv
TEXT = pl.when(pl.col("value").cast(pl.Float64, strict=False).is_null()).then("value")  # a number is no text
KEPT = (
    "hosp/patients", "hosp/admissions", "hosp/d_icd_diagnoses", "hosp/d_icd_procedures", "hosp/d_labitems",
    "icu/icustays",
)  # fmt: skip


def table(root: Path, name: str) -> pl.DataFrame:
    """A table of the demo, all text."""
    return pl.read_csv(root / f"{name}.csv.gz", infer_schema=False)


def when(column: str) -> pl.Expr:
    """A time, or the midnight of a date."""
    long = pl.col(column).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    return pl.coalesce(long, pl.col(column).str.to_datetime("%Y-%m-%d", strict=False, time_unit="us"))


def what_meds_keeps(demo: Path, root: Path) -> Path:
    """The demo's tables less what MIMIC_IV_MEDS does not write: the ranks of diagnoses and procedures but for the rows'
    order, the date of a procedure, and laboratory rows without a time of storing; drugs as the pharmacy has them."""
    for name in KEPT:
        path = root / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(demo / f"{name}.csv.gz")
    place = pl.int_range(1, pl.len() + 1).over("hadm_id").cast(pl.String)
    for name in ("hosp/diagnoses_icd", "hosp/procedures_icd"):
        rows = table(demo, name).with_columns(seq_num=place)
        dates = [pl.lit(None, pl.String).alias("chartdate")] if "chartdate" in rows.columns else []
        rows.with_columns(*dates).write_csv(root / f"{name}.csv")
    drugs = table(demo, "hosp/pharmacy").drop_nulls("medication").rename({"medication": "drug"})
    drugs = drugs.with_columns(poe_seq=pl.col("poe_id").str.extract("-([0-9]+)$"))
    drugs = drugs.select("subject_id", "hadm_id", "poe_seq", "starttime", "stoptime", "drug")
    drugs.write_csv(root / "hosp/prescriptions.csv")
    labs = table(demo, "hosp/labevents").drop_nulls("storetime")
    said = ["subject_id", "hadm_id", "itemid", "charttime", "storetime", "value", "valuenum"]
    labs.unique(said, maintain_order=True).write_csv(root / "hosp/labevents.csv")
    return root


def write_new(demo: Path, root: Path, *, numbered: bool = False) -> Path:
    """As MIMIC_IV_MEDS 0.2.0. numbered: orders carry hadm_id, as forks of it write them."""
    lab = table(demo, "hosp/labevents")
    unit = pl.col("valueuom").fill_null("UNK")
    priority = pl.col("priority").fill_null("UNK")
    collected = pl.format("LAB//SPECIMEN_COLLECTED//{}//{}", "itemid", priority)
    value = {"numeric_value": pl.col("valuenum"), "text_value": TEXT}
    parts = [
        *_stays(demo), *_billed(demo), *_orders(demo, numbered),
        _events(lab, when("charttime"), collected),
        _events(lab, when("storetime"), pl.format("LAB//RESULT//{}//{}", "itemid", unit), **value),
    ]  # fmt: skip
    return _write(parts, root, demo)


def write_old(demo: Path, root: Path) -> Path:
    """As MIMIC_IV_MEDS before 0.0.7."""
    lab = table(demo, "hosp/labevents").drop_nulls("storetime")
    code = pl.format("LAB//{}//{}", "itemid", pl.col("valueuom").fill_null("UNK"))
    value = {"numeric_value": pl.col("valuenum"), "text_value": TEXT}
    labs = _events(lab, when("charttime"), code, **value)
    return _write([*_stays(demo), *_billed(demo), *_orders(demo, True), labs], root, demo)


def write_etl(demo: Path, root: Path) -> Path:
    """As meds_etl: other prefixes, dotted codes, `visit_id`, `unit` and `table` as columns."""
    admissions = table(demo, "hosp/admissions")
    lab, drugs = table(demo, "hosp/labevents"), table(demo, "hosp/pharmacy").drop_nulls("medication")
    ends = table(demo, "hosp/admissions").select("hadm_id", "dischtime")
    dotted = pl.concat_str(pl.col("icd_code").str.slice(0, 3), pl.lit("."), pl.col("icd_code").str.slice(3))
    icd = pl.format("ICD{}CM/{}", "icd_version", dotted.str.strip_chars_end("."))
    coded = table(demo, "hosp/diagnoses_icd").join(ends, on="hadm_id", maintain_order="left")
    done = table(demo, "hosp/procedures_icd")
    nine = pl.concat_str(pl.col("icd_code").str.slice(0, 2), pl.lit("."), pl.col("icd_code").str.slice(2))
    code = pl.when(pl.col("icd_version") == "9").then(pl.format("ICD9Proc/{}", nine)).otherwise(
        pl.format("ICD10PCS/{}", "icd_code")
    )  # fmt: skip
    value = {"numeric_value": pl.col("valuenum"), "text_value": TEXT, "unit": pl.col("valueuom")}
    parts = [
        _events(admissions, when("admittime"), pl.format("MIMIC_IV_Admission/{}", "admission_type"),
                end=when("dischtime")),
        _events(admissions, when("dischtime"), pl.format("MIMIC_IV_Discharge_Location/{}", "discharge_location")),
        *_people(demo),
        _events(coded, when("dischtime"), icd, table=pl.lit("hosp/diagnoses_icd")),
        _events(done, when("chartdate"), code, table=pl.lit("hosp/procedures_icd")),
        _events(drugs, when("starttime"), pl.format("MIMIC_IV_Drug/{}", "medication"), table=pl.lit("hosp/pharmacy")),
        _events(lab, when("storetime"), pl.format("MIMIC_IV_LABITEM/{}", "itemid"), **value),
    ]  # fmt: skip
    return _write(parts, root, demo, key="visit_id")


def _events(
    frame: pl.DataFrame, time: pl.Expr, code: pl.Expr, numbered: bool = True, **more: pl.Expr | str
) -> pl.DataFrame:
    number = pl.col("hadm_id") if numbered and "hadm_id" in frame.columns else pl.lit(None, pl.String)
    return frame.select("subject_id", time.alias("time"), code.alias("code"), number.alias("hadm_id"), **more)


def _people(demo: Path) -> list[pl.DataFrame]:
    deaths = table(demo, "hosp/admissions").group_by("subject_id").agg(pl.min("deathtime"))
    people = table(demo, "hosp/patients").join(deaths, on="subject_id", maintain_order="left")
    born = pl.datetime(pl.col("anchor_year").cast(pl.Int32) - pl.col("anchor_age").cast(pl.Int32), 1, 1)
    died = people.with_columns(at=pl.coalesce(when("deathtime"), when("dod"))).drop_nulls("at")
    return [
        _events(people, pl.lit(None, pl.Datetime("us")), pl.format("GENDER//{}", "gender")),
        _events(people, born, pl.lit("MEDS_BIRTH")),
        _events(died, pl.col("at"), pl.lit("MEDS_DEATH")),
    ]


def _stays(demo: Path) -> list[pl.DataFrame]:
    admissions, icu = table(demo, "hosp/admissions"), table(demo, "icu/icustays")
    came = pl.format("HOSPITAL_ADMISSION//{}//{}", "admission_type", pl.col("admission_location").fill_null("UNK"))
    left = pl.format("HOSPITAL_DISCHARGE//{}", pl.col("discharge_location").fill_null("UNK"))
    return [
        _events(admissions, when("admittime"), came),
        _events(admissions, when("dischtime"), left),
        _events(icu, when("intime"), pl.format("ICU_ADMISSION//{}", "first_careunit")),
        _events(icu, when("outtime"), pl.format("ICU_DISCHARGE//{}", "last_careunit")),
        *_people(demo),
    ]


def _billed(demo: Path) -> list[pl.DataFrame]:
    ends = table(demo, "hosp/admissions").select("hadm_id", "dischtime")
    found = []
    for name, kind in (("hosp/diagnoses_icd", "DIAGNOSIS"), ("hosp/procedures_icd", "PROCEDURE")):
        rows = table(demo, name).join(ends, on="hadm_id", how="left", maintain_order="left")
        found.append(_events(rows, when("dischtime"), pl.format(f"{kind}//ICD//{{}}//{{}}", "icd_version", "icd_code")))
    return found


def _orders(demo: Path, numbered: bool) -> list[pl.DataFrame]:
    rows = table(demo, "hosp/pharmacy")
    name, ends = pl.col("medication").fill_null("UNK"), rows.drop_nulls("stoptime")
    return [
        _events(rows, when("starttime"), pl.format("MEDICATION//START//{}//UNK", name), numbered, poe_id="poe_id"),
        _events(ends, when("stoptime"), pl.format("MEDICATION//STOP//{}//UNK", name), numbered),
    ]


def _write(parts: list[pl.DataFrame], root: Path, demo: Path, key: str = "hadm_id") -> Path:
    """data/<split>/0.parquet, metadata/codes.parquet and subject_splits.parquet, as MEDS-Extract lays them out: events
    of a patient by time, those of one time in the order of the tables, repeated ones once."""
    rows = pl.concat(parts, how="diagonal").unique(maintain_order=True).drop_nulls("code")
    rows = rows.filter(pl.col("time").is_not_null() | pl.col("code").str.starts_with("GENDER"))
    rows = rows.with_columns(
        pl.col("subject_id", "hadm_id").cast(pl.Int64), pl.col("numeric_value").cast(pl.Float32)
    ).rename({"hadm_id": key})  # fmt: skip
    rows = rows.sort("subject_id", "time", maintain_order=True)
    people = rows["subject_id"].unique().sort()
    names = pl.Series(["train"] * 80 + ["tuning"] * 10 + ["held_out"] * 10)[: len(people)]
    splits = pl.DataFrame({"subject_id": people, "split": names})
    for name in ("train", "tuning", "held_out"):
        path = root / "data" / name / "0.parquet"
        path.parent.mkdir(parents=True)
        rows.join(splits.filter(split=name), on="subject_id", how="semi", maintain_order="left").write_parquet(path)
    (root / "metadata").mkdir()
    splits.write_parquet(root / "metadata" / "subject_splits.parquet")
    _described(rows["code"].unique().sort(), demo).write_parquet(root / "metadata" / "codes.parquet")
    return root


def _described(codes: pl.Series, demo: Path) -> pl.DataFrame:
    """Names and parents, as the project's tables of concepts have them."""
    titles = pl.concat(
        table(demo, f"hosp/d_icd_{name}").select(
            code=pl.format(f"{kind}//ICD//{{}}//{{}}", "icd_version", "icd_code"), description="long_title"
        )
        for name, kind in (("diagnoses", "DIAGNOSIS"), ("procedures", "PROCEDURE"))
    ).unique("code", keep="first")
    item = pl.col("code").str.extract(r"^(?:LAB//(?:RESULT//|SPECIMEN_COLLECTED//)?|MIMIC_IV_LABITEM/)(\d+)")
    above = item.replace_strict(LOINC, default=None, return_dtype=pl.String)
    parents = pl.when(above.is_not_null()).then(pl.concat_list(above))
    frame = codes.to_frame("code").join(titles, on="code", how="left", maintain_order="left")
    return frame.with_columns(parent_codes=parents.cast(pl.List(pl.String)))
