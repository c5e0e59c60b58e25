"""Tables of the OMOP CDM for tests: small ones by hand, and the open MIMIC-IV demo converted.

The conversion follows OHDSI's of MIMIC-IV where that matters here: a diagnosis is dated to the discharge, a procedure
has a date alone, the unit of a stay is its care site. Concepts of SNOMED and RxNorm are not at hand offline: diagnoses
and procedures have source concepts alone, drugs the source's value alone, and laboratory items those of LOINC that
MIMIC's own map gives (`loinc`), or MIMIC's items as source concepts.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

OWN = 2_000_000_000
SMALL = {
    "person": """person_id,gender_concept_id,year_of_birth,month_of_birth,day_of_birth,birth_datetime
1,8532,2090,5,17,
2,8507,2060,,,
""",
    "visit_occurrence": """visit_occurrence_id,person_id,visit_concept_id,visit_start_date,visit_start_datetime,\
visit_end_date,visit_end_datetime,visit_type_concept_id,discharged_to_concept_id
10,1,9201,2150-01-01,2150-01-01 10:00:00,2150-01-04,2150-01-04 09:00:00,32817,0
11,1,9202,2150-01-06,2150-01-06 10:00:00,2150-01-06,2150-01-06 11:00:00,32817,0
20,2,262,2150-03-01,2150-03-01 12:00:00,2150-03-04,2150-03-04 06:00:00,32817,4216643
""",
    "condition_occurrence": """condition_occurrence_id,person_id,condition_concept_id,condition_start_date,\
condition_start_datetime,visit_occurrence_id,condition_source_value,condition_source_concept_id
1,1,316139,2150-01-01,2150-01-01 10:00:00,10,I50.9,45567180
2,1,201826,2150-01-01,2150-01-01 10:00:00,10,E11,0
3,2,0,2150-03-01,,20,stoma prolapse,0
""",
    "drug_exposure": """drug_exposure_id,person_id,drug_concept_id,drug_exposure_start_date,\
drug_exposure_start_datetime,visit_occurrence_id,drug_source_value,drug_source_concept_id
1,1,19059056,2150-01-02,2150-01-02 08:00:00,10,00904404073,0
2,2,0,2150-03-02,,20, Heparin ,0
""",
    "procedure_occurrence": """procedure_occurrence_id,person_id,procedure_concept_id,procedure_date,\
visit_occurrence_id,procedure_source_value
1,1,4107731,2150-01-02,10,
""",
    "measurement": """measurement_id,person_id,measurement_concept_id,measurement_date,measurement_datetime,\
value_as_number,unit_concept_id,unit_source_value,value_as_concept_id,operator_concept_id,visit_occurrence_id,\
measurement_source_value,value_source_value
1,1,3000963,2150-01-02,2150-01-02 09:00:00,118,8636,g/L,,,10,,118
2,1,3027018,2150-01-02,2150-01-02 09:05:00,88,8541,,,,10,HR,88
3,1,3020891,2150-01-02,2150-01-02 09:06:00,99.5,9289,,,,10,,
4,1,0,2150-01-02,2150-01-02 09:07:00,,,,9191,,10,Troponin,
5,1,3016723,2150-01-02,2150-01-02 09:08:00,0.3,8840,,,4171756,10,,
""",
    "observation": """observation_id,person_id,observation_concept_id,observation_date,visit_occurrence_id,\
observation_source_concept_id
1,1,4058286,2150-01-02,10,45556822
2,1,4058286,2150-01-02,10,0
""",
    "visit_detail": """visit_detail_id,person_id,visit_detail_concept_id,visit_detail_start_date,\
visit_detail_start_datetime,visit_detail_end_date,visit_detail_end_datetime,visit_occurrence_id,care_site_id
1,1,32037,2150-01-01,2150-01-01 11:00:00,2150-01-02,2150-01-02 12:00:00,10,5
2,1,9201,2150-01-02,2150-01-02 12:00:00,2150-01-04,2150-01-04 09:00:00,10,6
""",
    "care_site": "care_site_id,care_site_name\n5,MICU\n6,Ward\n",
    "death": "person_id,death_date,death_datetime\n2,2150-03-04,2150-03-04 05:30:00\n",
    "concept": """concept_id\tconcept_name\tvocabulary_id\tconcept_code
0\tNo matching concept\tNone\tNo matching concept
316139\tHeart failure\tSNOMED\t84114007
45567180\tHeart failure, "unspecified"\tICD10CM\tI50.9
201826\tType 2 diabetes mellitus\tSNOMED\t44054006
19059056\taspirin 81 MG Oral Tablet\tRxNorm\t243670
4107731\tSubcutaneous immunotherapy\tSNOMED\t180256009
3000963\tHemoglobin [Mass/volume] in Blood\tLOINC\t718-7
3027018\tHeart rate\tLOINC\t8867-4
3020891\tBody temperature\tLOINC\t8310-5
3016723\tCreatinine [Mass/volume] in Serum or Plasma\tLOINC\t2160-0
8636\tgram per liter\tUCUM\tg/L
8840\tmilligram per deciliter\tUCUM\tmg/dL
8541\tper minute\tUCUM\t/min
9289\tdegree Fahrenheit\tUCUM\t[degF]
9191\tPositive\tSNOMED\t10828004
4058286\tPalliative care\tSNOMED\t103735009
45556822\tEncounter for palliative care\tICD10CM\tZ51.5
32037\tIntensive Care\tVisit\tOMOP4822460
9201\tInpatient Visit\tVisit\tIP
""",
}


def write_omop(root: Path, **tables: str | None) -> Path:
    """The small tables as csv, those of `tables` in other words; None leaves one out."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in {**SMALL, **tables}.items():
        if text is not None:
            (root / f"{name}.csv").write_text(text)
    return root


def omop_of_mimic4(demo: Path, maps: Path, root: Path, *, loinc: bool) -> Path:
    """The open MIMIC-IV demo as OMOP tables in Parquet. maps: MIMIC's map of laboratory items to LOINC."""
    root.mkdir(parents=True)
    tables = {**_stays(demo), **_orders(demo), **_results(demo, maps, loinc)}
    concepts = [tables.pop(name) for name in ("codes", "items")]
    for name, frame in tables.items():
        frame.write_parquet(root / f"{name}.parquet")
    kinds = [(9201, "Inpatient Visit", "Visit", "IP"), (262, "Emergency Room and Inpatient Visit", "Visit", "ERIP")]
    kinds.append((32037, "Intensive Care", "Visit", "OMOP4822460"))
    pl.concat([*concepts, _concepts(kinds)]).write_csv(root / "CONCEPT.csv", separator="\t", quote_style="never")
    return root


def _read(demo: Path, name: str) -> pl.DataFrame:
    return pl.read_csv(demo / f"{name}.csv.gz", infer_schema=False)


def _concepts(rows: list[tuple[int, str, str, str]]) -> pl.DataFrame:
    names = ("concept_id", "concept_name", "vocabulary_id", "concept_code")
    return pl.DataFrame(rows, dict(zip(names, (pl.Int64, *[pl.String] * 3), strict=True)), orient="row")


def _at(column: str, name: str) -> list[pl.Expr]:
    """NAME_date and NAME_datetime of a column of MIMIC."""
    time = pl.coalesce(
        pl.col(column).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False),
        pl.col(column).str.to_datetime("%Y-%m-%d", strict=False),
    )
    return [time.dt.date().alias(f"{name}_date"), time.alias(f"{name}_datetime")]


def _stays(demo: Path) -> dict[str, pl.DataFrame]:
    people, stays, units = (_read(demo, name) for name in ("hosp/patients", "hosp/admissions", "icu/icustays"))
    who = pl.col("subject_id").cast(pl.Int64).alias("person_id")
    visit = pl.col("hadm_id").cast(pl.Int64).alias("visit_occurrence_id")
    sex = pl.col("gender").replace_strict({"F": 8532, "M": 8507})
    year = pl.col("anchor_year").cast(pl.Int64) - pl.col("anchor_age").cast(pl.Int64)
    person = people.select(who, gender_concept_id=sex, year_of_birth=year)
    kind = pl.when(pl.col("edregtime").is_not_null()).then(262).otherwise(9201)
    visits = stays.select(
        visit, who, *_at("admittime", "visit_start"), *_at("dischtime", "visit_end"), visit_concept_id=kind,
        discharged_to_concept_id=pl.when(pl.col("hospital_expire_flag") == "1").then(4216643).otherwise(0),
    )  # fmt: skip
    dead = stays.filter(pl.col("deathtime").is_not_null()).select(who, *_at("deathtime", "death"))
    later = people.filter(pl.col("dod").is_not_null()).select(who, *_at("dod", "death"))
    later = later.with_columns(death_datetime=pl.lit(None, pl.Datetime("us")))
    death = pl.concat([dead, later.join(dead, on="person_id", how="anti")])
    sites = units["first_careunit"].unique().sort()
    site = (
        pl.DataFrame({"care_site_name": sites})
        .with_row_index("care_site_id", offset=1)
        .cast({"care_site_id": pl.Int64})
    )
    detail = units.join(site, left_on="first_careunit", right_on="care_site_name", maintain_order="left").select(
        visit, who, "care_site_id", *_at("intime", "visit_detail_start"), *_at("outtime", "visit_detail_end"),
        visit_detail_concept_id=pl.lit(32037),
    )  # fmt: skip
    return {"person": person, "visit_occurrence": visits, "death": death, "visit_detail": detail, "care_site": site}


def _orders(demo: Path) -> dict[str, pl.DataFrame]:
    who = pl.col("subject_id").cast(pl.Int64).alias("person_id")
    visit = pl.col("hadm_id").cast(pl.Int64).alias("visit_occurrence_id")
    ends = _read(demo, "hosp/admissions").select("hadm_id", "admittime", "dischtime")
    found, concepts = {}, []
    for table, name, date, vocabularies in (
        ("diagnoses_icd", "condition", "condition_start", {"9": "ICD9CM", "10": "ICD10CM"}),
        ("procedures_icd", "procedure", "procedure", {"9": "ICD9Proc", "10": "ICD10PCS"}),
    ):
        rows = _read(demo, f"hosp/{table}").with_columns(pl.col("icd_code").str.strip_chars())
        titles = _read(demo, f"hosp/d_icd_{table.removesuffix('_icd')}")
        titles = titles.with_columns(pl.col("icd_code").str.strip_chars()).unique(["icd_code", "icd_version"])
        used = rows.select("icd_code", "icd_version").unique().sort("icd_version", "icd_code")
        used = used.join(titles, on=["icd_code", "icd_version"], how="left", maintain_order="left")
        used = used.with_columns(own=OWN + 10_000 * (1 + len(concepts)) + pl.int_range(pl.len()))
        dotted = pl.concat_str(pl.col("icd_code").str.slice(0, 3), pl.lit("."), pl.col("icd_code").str.slice(3))
        long = (pl.col("icd_code").str.len_chars() > 3) & (pl.col("icd_version") == "10") & (name == "condition")
        concepts.append(used.select(
            concept_id="own", concept_name="long_title", vocabulary_id=pl.col("icd_version").replace(vocabularies),
            concept_code=pl.when(long).then(dotted).otherwise("icd_code"),
        ))  # fmt: skip
        rows = rows.join(used, on=["icd_code", "icd_version"], how="left", maintain_order="left")
        rows = rows.join(ends, on="hadm_id", how="left", maintain_order="left")
        day = "dischtime" if name == "condition" else "chartdate"
        rows = rows.sort(pl.col("seq_num").cast(pl.Int64) if name == "condition" else "chartdate", maintain_order=True)
        frame = rows.select(
            who, visit, *_at(day, date), **{f"{name}_concept_id": pl.lit(0), f"{name}_source_concept_id": "own"}
        )
        found[f"{name}_occurrence"] = frame if name == "condition" else frame.drop(f"{date}_datetime")
    drugs = _read(demo, "hosp/prescriptions").filter(pl.col("drug_type") != "BASE")
    drugs = drugs.join(ends, on="hadm_id", how="left", maintain_order="left")
    rank = pl.col("poe_seq").cast(pl.Int64, strict=False)
    drugs = drugs.with_columns(starttime=pl.coalesce("starttime", "admittime"))
    drugs = drugs.sort("starttime", rank, pl.col("drug").str.strip_chars().str.to_lowercase(), nulls_last=True)
    drugs = drugs.select(
        who, visit, *_at("starttime", "drug_exposure_start"), drug_concept_id=pl.lit(0), drug_source_value="drug"
    )
    return {**found, "drug_exposure": drugs, "codes": pl.concat(concepts)}


def _results(demo: Path, maps: Path, loinc: bool) -> dict[str, pl.DataFrame]:
    rows, items = _read(demo, "hosp/labevents"), _read(demo, "hosp/d_labitems")
    known = pl.read_csv(maps, infer_schema=False).rename({"itemid (omop_source_code)": "itemid"})
    numbered = pl.col("omop_concept_id").str.contains(r"^\d+$")  # one of them is a code of LOINC
    known = known.filter((pl.col("omop_vocabulary_id") == "LOINC") & numbered).unique("itemid", maintain_order=True)
    own = items.select(
        concept_id=OWN + 1_000_000 + pl.col("itemid").cast(pl.Int64), concept_name="label",
        vocabulary_id=pl.lit("mimiciv_meas_lab"), concept_code="itemid",
    )  # fmt: skip
    standard = known.select(
        concept_id=pl.col("omop_concept_id").cast(pl.Int64), concept_name="omop_concept_name",
        vocabulary_id=pl.lit("LOINC"), concept_code="omop_concept_code",
    ).unique("concept_id", maintain_order=True)  # fmt: skip
    rows = rows.join(
        known.select("itemid", concept=pl.col("omop_concept_id").cast(pl.Int64)), on="itemid", how="left",
        maintain_order="left",
    )  # fmt: skip
    measured = rows.select(
        pl.col("subject_id").cast(pl.Int64).alias("person_id"),
        pl.col("hadm_id").cast(pl.Int64).alias("visit_occurrence_id"),
        *_at("charttime", "measurement"),
        measurement_concept_id=pl.col("concept").fill_null(0) if loinc else pl.lit(0),
        measurement_source_concept_id=OWN + 1_000_000 + pl.col("itemid").cast(pl.Int64),
        measurement_source_value="itemid",
        value_as_number=pl.col("valuenum").cast(pl.Float64),
        unit_concept_id=pl.lit(0),
        unit_source_value="valueuom",
        value_source_value=pl.when(~pl.col("value").str.contains("^ *_*$")).then("value"),
    )
    return {"measurement": measured, "items": pl.concat([own, standard])}
