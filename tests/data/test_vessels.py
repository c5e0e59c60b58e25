"""Blood gases of veins are items of their own; other results of the draw, and those without a type, are as before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from ghar.data.findings import lab_units, with_findings
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.omop import read_omop
from ghar.data.readers.omop_measurements import LABS
from ghar.data.readers.vessels import vessel_titles, with_vessels
from ghar.data.readers.vitals import MIMIC_ITEMS, vitals_of_labs
from ghar.data.tasks.stays import make_samples
from tests.data.omop_tables import SMALL, write_omop

COLUMNS = (
    "labevent_id,subject_id,hadm_id,itemid,charttime,storetime,value,valuenum,valueuom,"
    "ref_range_lower,ref_range_upper,comments"
)
ITEMS = (
    "itemid,label,fluid\n52033,Specimen Type,Blood\n50821,pO2,Blood\n50813,Lactate,Blood\n50817,Oxygen Saturation,Blood"
)


def events(*rows: tuple[int, int, str, str]) -> pl.DataFrame:
    """Events of (subject, hour, code, text)."""
    times = [(subject, datetime(2150, 1, 1, hour), code, text) for subject, hour, code, text in rows]
    return pl.DataFrame(times, ["subject_id", "time", "code", "text_value"], orient="row")


@pytest.mark.parametrize(
    ("written", "vessel"),
    [("VEN.", "/venous"), ("MIX", "/mixed venous"), ("CENTRAL VENOUS.", "/central venous"), ("ART.", ""), ("CAP.", "")],
)
def test_the_type_of_the_draw_is_the_gas_s(written: str, vessel: str) -> None:
    rows = events((1, 5, "LAB/50821", "35"), (1, 5, "LAB/52033", written), (1, 5, "LAB/50813", "2"),
                  (1, 6, "LAB/50821", "95"), (2, 5, "LAB/50821", "90"))  # fmt: skip
    marked = with_vessels(rows)
    assert marked["code"].to_list() == [f"LAB/50821{vessel}", "LAB/52033", "LAB/50813", "LAB/50821", "LAB/50821"]
    assert marked.drop("code").equals(rows.drop("code"))


def test_two_types_at_one_time_tell_no_vessel() -> None:
    rows = events((1, 5, "LAB/50800", "ART"), (1, 5, "LAB/50821", "35"), (1, 5, "LAB/50800", "VEN"))
    assert with_vessels(rows).equals(rows)


def test_a_record_shows_both_and_no_arterial_range_for_a_vein(tmp_path: Path, write_tables: Callable) -> None:
    root = write_tables(tmp_path)
    draws = {"2150-01-01 12:00:00": ("ART.", 95, 97), "2150-01-01 13:00:00": ("VEN.", 35, 62)}
    rows = [
        row
        for number, (time, (kind, pressure, saturation)) in enumerate(draws.items())
        for row in (
            f"{number}1,1,90,52033,{time},{time},{kind},,,,,",
            f"{number}2,1,90,50821,{time},{time},{pressure},{pressure},mm Hg,85,105,",
            f"{number}3,1,90,50813,{time},{time},1.{number},1.{number},mmol/L,0.5,2,",
            f"{number}4,1,90,50817,{time},{time},{saturation},{saturation},%,,,",
        )
    ]
    (root / "hosp/labevents.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")
    (root / "hosp/d_labitems.csv").write_text(f"{ITEMS}\n")
    cohort = read_mimic4(root)
    sample = with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, root)[0]
    values = set(sample.history[0].values)
    assert values == {
        "pO2 95 mm Hg", "pO2 (venous) 35 mm Hg", "Oxygen Saturation 97 %", "Oxygen Saturation (venous) 62 %",
        "Lactate 1.1 mmol/L",
    }  # fmt: skip
    assert cohort.names()["LAB/50821/venous"] == "pO2 (venous)"
    assert cohort.counts["marked.labevents.venous"] == 2
    assert lab_units(root)["LAB/50821/venous"] == "mm Hg"


def test_no_venous_blood_among_the_vital_signs() -> None:
    """A saturation of 70% in a vein is usual; as the patient's own it would be deadly."""
    rows = events((1, 5, "LAB/50817", "97"), (1, 5, "LAB/50800", "ART"), (1, 6, "LAB/50817", "70"),
                  (1, 6, "LAB/50820", "7.31"), (1, 6, "LAB/50931", "120"), (1, 6, "LAB/50800", "MIX."),
                  (1, 7, "LAB/50820", "7.4"), (2, 6, "LOINC/11558-4", "7.2"),
                  (2, 6, "LOINC/66746-9", "VEN."))  # fmt: skip
    rows = rows.with_columns(numeric_value=pl.col("text_value").cast(pl.Float32, strict=False))
    copies, counts = vitals_of_labs(rows.lazy(), LABS)
    expected = [("VITAL/oxygen saturation", 97), ("VITAL/glucose", 120), ("VITAL/ph", 7.4)]
    assert copies.select("code", pl.col("numeric_value").cast(pl.Float64).round(2)).rows() == expected
    assert counts == {"added.labs.vitals": 3}
    assert not {860, 220274} & {item for items in MIMIC_ITEMS.values() for item in items}  # charted as "Venous pH"


GASES = """measurement_id,person_id,measurement_concept_id,measurement_date,measurement_datetime,value_as_number,\
unit_source_value,visit_occurrence_id,measurement_source_concept_id,value_source_value
1,1,0,2150-01-02,2150-01-02 09:00:00,,,10,2000000001,ART.
2,1,3013502,2150-01-02,2150-01-02 09:00:00,97,%,10,,97
3,1,40769406,2150-01-02,2150-01-02 10:00:00,,,10,,VEN.
4,1,3013502,2150-01-02,2150-01-02 10:00:00,62,%,10,,62
5,1,0,2150-01-02,2150-01-02 10:00:00,35,mm Hg,10,2000000002,35
"""
CONCEPTS = """3013502\tOxygen saturation in Blood\tLOINC\t20564-1
40769406\tSpecimen type\tLOINC\t66746-9
2000000001\tSpecimen Type\tmimiciv_meas_lab\t52033
2000000002\tpO2\tmimiciv_meas_lab\t50821
"""


def test_venous_blood_in_omop(tmp_path: Path) -> None:
    """MIMIC's items as concepts of its own and, by its own map, of LOINC."""
    cohort = read_omop(write_omop(tmp_path, measurement=GASES, concept=SMALL["concept"] + CONCEPTS))
    values = cohort.events.drop_nulls("numeric_value").filter(pl.col("code").str.contains("^(LAB|LOINC)/"))
    assert dict(values.select("code", "numeric_value").iter_rows()) == {
        "LOINC/20564-1": 97, "LOINC/20564-1/venous": 62, "LAB/50821/venous": 35,
    }  # fmt: skip
    assert cohort.names()["LOINC/20564-1/venous"] == "Oxygen saturation in Blood (venous)"
    assert cohort.counts["marked.measurement.venous"] == 2


def test_a_saturation_without_a_type_and_a_pressure_is_of_no_stated_vessel() -> None:
    """Patient 10045 of the MIMIC-III demo had one of 41% so, which read as the patient's own."""
    rows = events((1, 5, "LAB/50817", "41"), (1, 6, "LAB/50817", "97"), (1, 6, "LAB/50821", "95"),
                  (1, 7, "LAB/50817", "98"), (1, 7, "LAB/50800", "ART"), (1, 8, "LAB/50820", "7.4"),
                  (2, 5, "LOINC/20564-1", "66"), (3, 5, "LOINC/20564-1", "63"),
                  (3, 6, "LOINC/66746-9", "ART."))  # fmt: skip
    unstated = {(1, 5): "LAB/50817/vessel not stated", (3, 5): "LOINC/20564-1/vessel not stated"}
    marked = with_vessels(rows)
    asked = zip(rows["subject_id"], rows["time"].dt.hour(), rows["code"], strict=True)
    assert marked["code"].to_list() == [unstated.get((subject, hour), code) for subject, hour, code in asked]
    numbers = rows.with_columns(numeric_value=pl.col("text_value").cast(pl.Float32, strict=False))
    copies, _ = vitals_of_labs(numbers.lazy(), LABS)
    assert copies.filter(pl.col("code") == "VITAL/oxygen saturation")["numeric_value"].to_list() == [97, 98]
    assert dict(vessel_titles(pl.DataFrame({"code": ["LAB/50817"], "description": ["O2 Sat"]})).iter_rows())[
        "LAB/50817/vessel not stated"
    ] == "O2 Sat (vessel not stated)"  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "folder", "count", "unstated"),
    [(read_mimic4, "mimic-iv-demo-2.2", 641, 1), (read_mimic3, "mimic-iii-demo-1.4", 252, 28)],
)
def test_counts_of_the_open_demos(read: Callable, folder: str, count: int, unstated: int, shared_data: Path) -> None:
    counts = read(shared_data / folder, charts=False).counts
    assert counts["marked.labevents.venous"] == count
    assert counts["marked.labevents.vessel_not_stated"] == unstated
