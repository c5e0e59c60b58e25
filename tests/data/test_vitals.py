"""The item lists of the 17 variables, checked against the dictionaries of the real demos."""

import polars as pl
import pytest

from ghar.data.readers import vitals
from ghar.data.readers.eicu_charts import APERIODIC, EICU_LABS, NURSE, PERIODIC, RESPIRATORY

WORDS = {  # what the label of an item must say
    "capillary refill rate": "capillary refill",
    "diastolic blood pressure": "diastolic",
    "fraction inspired oxygen": "fio2|inspired o2",
    "glasgow coma scale eye opening": "eye opening",
    "glasgow coma scale motor response": "motor response",
    "glasgow coma scale total": "gcs total",
    "glasgow coma scale verbal response": "verbal response",
    "glucose": "glucose",
    "heart rate": "heart rate",
    "height": "height|length| ht",
    "mean blood pressure": "mean",
    "oxygen saturation": "spo2|sao2|o2 saturation",
    "ph": r"\bph\b",
    "respiratory rate": "resp.* rate|breath rate",
    "systolic blood pressure": "systolic",
    "temperature": "temp",
    "weight": r"weight|\bwt",
}
ITEMS = [item for items in vitals.MIMIC_ITEMS.values() for item in items]


@pytest.fixture(scope="module")
def labels(shared_data):
    """Label in lower case of every chart item of MIMIC-III and MIMIC-IV."""
    third = pl.read_csv(shared_data / "mimic-iii-demo-1.4/D_ITEMS.csv.gz", infer_schema_length=None)
    fourth = pl.read_csv(shared_data / "mimic-iv-demo-2.2/icu/d_items.csv.gz", infer_schema_length=None)
    rows = pl.concat([frame.select("itemid", "label", "linksto") for frame in (fourth, third)])
    return dict(
        rows.filter(pl.col("linksto") == "chartevents").select("itemid", pl.col("label").str.to_lowercase()).rows()
    )


def test_every_item_is_what_its_variable_says(labels):
    for variable, items in vitals.MIMIC_ITEMS.items():
        found = pl.Series([labels[item].replace(".", " ") for item in items])
        assert found.str.contains(WORDS[variable]).all(), (variable, found.to_list())
    assert len(ITEMS) == len(set(ITEMS)) and not any("alarm" in labels[item] for item in ITEMS)


def test_units_follow_from_the_labels(labels):
    def said(variable, pattern):
        items = vitals.MIMIC_ITEMS[variable]
        return {item for item in items if pl.Series([labels[item]]).str.contains(pattern)[0]}

    assert said("temperature", r"temperature f|\[f\]") == set(vitals.FAHRENHEIT)
    assert said("weight", r"lb") == set(vitals.POUNDS)
    assert said("height", r"inch|^height$|admit ht") == set(vitals.INCHES)  # d_items: 226707 and 920 are in inches


def test_sources_name_known_variables_only():
    assert len(vitals.VARIABLES) == 17 and set(vitals.MIMIC_ITEMS) == set(vitals.VARIABLES) == set(WORDS)
    eicu = {v for table in (PERIODIC, APERIODIC, NURSE, RESPIRATORY, EICU_LABS) for v in table.values()}
    assert eicu | {"height", "weight"} == set(vitals.VARIABLES) - {"capillary refill rate"}
    assert set(vitals.MIMIC_LABS.values()) <= set(vitals.VARIABLES)


@pytest.mark.parametrize(("fahrenheit", "celsius"), [(32, 0), (98.6, 37), (212, 100)])
def test_fahrenheit(fahrenheit, celsius):
    found = pl.DataFrame({"x": [float(fahrenheit)]}).select(vitals.celsius(pl.col("x"))).item()
    assert found == pytest.approx(celsius)


@pytest.mark.parametrize("name", sorted(vitals.VARIABLES))
def test_limits_are_inclusive(name):
    about = vitals.VARIABLES[name]
    values = [about.low, about.high, about.low - 1e-3, about.high + 1e-3, float("nan"), None]
    frame = pl.LazyFrame({"label": ["here"] * 6, "x": values}).join(
        vitals.variables_of({"here": name}, "label"), on="label", maintain_order="left"
    )
    found = frame.select(vitals.implausible(pl.col("x"))).collect().to_series().to_list()
    assert found == [False, False, True, True, True, None]
