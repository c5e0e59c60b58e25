"""Codes that a dictionary lacks are named by the finer codes that it has."""

from collections import defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.readers.code_families import LISTED, earlier_titles, family_name, family_names, residual_names
from ghar.data.readers.mimic3 import DIAGNOSIS, PROCEDURE, read_titles

KIDNEY = {
    "5851": "Kidney disease, stage 1", "5852": "Kidney disease, stage 2", "5853": "Kidney disease, stage 3",
    "5854": "Kidney disease, stage 4", "5859": "Kidney disease, unspecified",
}  # fmt: skip


def table(titles):
    rows = {f"ICD9CM/{code}": name for code, name in titles.items()}
    return pl.DataFrame(
        {"code": list(rows), "description": list(rows.values())}, schema={"code": str, "description": str}
    )


def names_of(titles):
    return dict(family_names(table(titles), DIAGNOSIS).rows())


def test_a_divided_code_means_one_of_the_codes_that_it_was_divided_into():
    assert names_of({"27651": "Dehydration", "27650": "Volume depletion", "276": "Disorders of fluid"}) == {
        "ICD9CM/2765": "Volume depletion or Dehydration"
    }
    assert names_of(KIDNEY) == {"ICD9CM/585": "Kidney disease, unspecified"}
    assert names_of({}) == {} and names_of({"585": "x"}) == {}


def test_codes_that_were_narrowed_in_2008_say_what_they_said_before():
    """Beside V09.0, resistance, and a culture that is resistant to oxacillin, stood "Methicillin susceptible"."""
    titles = {
        "04111": "Methicillin susceptible Staphylococcus aureus in conditions classified elsewhere",
        "48241": "Methicillin susceptible pneumonia due to Staphylococcus aureus",
        "04112": "Methicillin resistant Staphylococcus aureus in conditions classified elsewhere",
        "V1204": "Methicillin susceptible of another code",
    }
    assert dict(earlier_titles(table(titles)).rows()) == {
        "ICD9CM/04111": "Staphylococcus aureus in conditions classified elsewhere",
        "ICD9CM/48241": "Pneumonia due to Staphylococcus aureus",
        "ICD9CM/04112": titles["04112"],
        "ICD9CM/V1204": titles["V1204"],
    }


def test_of_codes_without_a_residual_one_few_are_listed():
    names = [(f"41{i + 1}", f"kind {i}") for i in range(LISTED + 1)]
    assert family_name(names) == f"kind {LISTED}, or another of {LISTED + 1} kinds"
    assert family_name(names[:LISTED]) == "kind 0 or kind 1 or kind 2 or kind 3"


@pytest.mark.parametrize(("family", "name"), [
    ({"34881": "Temporal sclerosis", "34882": "Brain death", "34889": "Other conditions of brain"},
     "Other conditions of brain"),
    ({"78951": "Malignant ascites", "78959": "Other ascites"}, "Other ascites"),
    ({"99800": "Postoperative shock, unspecified", "99801": "Postoperative shock, cardiogenic",
      "99809": "Postoperative shock, other"}, "Postoperative shock, unspecified"),
    ({"04141": "Shiga toxin-producing Escherichia coli O157", "04143": "Shiga toxin-producing E. coli, unspecified",
      "04149": "Other and unspecified Escherichia coli"}, "Other and unspecified Escherichia coli"),
])  # fmt: skip
def test_a_divided_code_is_not_called_by_its_rare_kinds(family, name):
    """Of the open demo's stays 8 had "Shiga toxin-producing" for 041.4, and one had "Brain death" for 348.8."""
    assert family_name(list(family.items())) == name


def test_a_dropped_code_has_the_name_of_the_residual_code_beside_it():
    titles = {"3603": "Open angioplasty", "3609": "Other removal", "3699": "Other operations", "379": "Pacemakers"}
    procedures = table(titles).with_columns(pl.col("code").str.replace("ICD9CM", "ICD9PROC"))
    codes = [f"ICD9PROC/{code}" for code in ("3601", "3681", "361", "3799", "4101")]
    assert dict(residual_names(codes, procedures, PROCEDURE).rows()) == {
        "ICD9PROC/3601": "Other removal", "ICD9PROC/3681": "Other operations",
    }  # fmt: skip
    assert residual_names([], procedures, PROCEDURE).is_empty()


@given(st.dictionaries(st.text("019", min_size=3, max_size=5), st.text("ab", min_size=1, max_size=2), max_size=12))
def test_families_equal_a_direct_search(titles):
    families = defaultdict(list)
    for code in sorted(titles):
        for size in range(DIAGNOSIS, len(code)):
            families[code[:size]].append(code)
    expected = {}
    for prefix, codes in families.items():
        shortest = min(map(len, codes))
        if prefix not in titles:
            expected[f"ICD9CM/{prefix}"] = family_name([(c, titles[c]) for c in codes if len(c) == shortest])
    assert names_of(titles) == expected


def test_the_demo_has_no_diagnosis_without_a_name(mimic3_cohort, shared_data):
    """45 of 1,761 had none, chronic renal failure among them."""
    names = mimic3_cohort.names()
    nameless = {code for code, name in names.items() if code.startswith("ICD9CM/") and code.endswith(f"/{name}")}
    assert not nameless
    assert names["ICD9CM/03811"] == "Staphylococcus aureus septicemia"
    assert names["ICD9CM/585"] == "Chronic kidney disease, unspecified"
    assert names["ICD9CM/2765"] == "Volume depletion, unspecified"
    assert not [code for code, name in names.items() if code.startswith("ICD9PROC/") and code.endswith(f"/{name}")]
    assert names["ICD9PROC/3601"] == names["ICD9PROC/3605"] == "Other removal of coronary artery obstruction"
    diagnoses, _ = read_titles(shared_data / "mimic-iii-demo-1.4")
    assert not set(family_names(diagnoses, DIAGNOSIS)["code"]) & set(diagnoses["code"])
