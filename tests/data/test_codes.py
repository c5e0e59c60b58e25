"""Code systems: the rules by which a code finds its class, the real tables, and the report of what did not map."""

import csv
import gzip
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.codes import CodeSystems, gsn, map_codes, ndc, plain, read_code_systems
from ghar.data.cohort import Cohort
from ghar.data.mapping import add_names, drug_keys, map_cohort, mapping_report, read_code_map
from ghar.data.readers.mimic4 import read_mimic4
from ghar.errors import BadInput

pytestmark = pytest.mark.slow

DRUGS = {
    "name": {"aspirin": {"ATC/B01A": 1}},
    "gsn": {"000015": {"ATC/C01A": 1}},
    "ndc": {"00000000042": {"ATC/A02B": 1}},
}


def systems(**icd) -> CodeSystems:
    return CodeSystems({v: icd.get(v, {}) for v in ("ICD9CM", "ICD10CM", "ICD9PROC", "ICD10PCS")}, DRUGS, {})


def rule_of(code: str, table: CodeSystems, keys=None):
    return map_codes([code], table, keys).row(0)[1:]


def test_rules_for_icd_codes():
    table = systems(
        ICD9CM={
            "0090": "CCSCM/135",
            "4280": "CCSCM/108",
            "4281": "CCSCM/108",
            "41401": "CCSCM/101",
            "41511": "CCSCM/103",
        },
        ICD10CM={"I509": "CCSCM/108"},
        ICD9PROC={"0101": "CCSPROC/1"},
    )
    assert rule_of("ICD9CM/428.0 ", table) == ("CCSCM/108", "exact")
    assert rule_of("ICD10CM/i509", table) == ("CCSCM/108", "exact")
    assert rule_of("ICD9CM/428", table) == ("CCSCM/108", "children")
    assert rule_of("ICD9CM/41", table) == (None, None)  # children that do not agree
    assert rule_of("ICD9CM/42805", table) == ("CCSCM/108", "parent")
    assert rule_of("ICD9CM/90", table) == ("CCSCM/135", "leading_zero")
    assert rule_of("ICD9PROC/101", table) == ("CCSPROC/1", "leading_zero")
    assert rule_of("ICD10CM/4280", table) == (None, None)  # trap 9: the key is (version, code)
    assert map_codes(["LAB/1", "ICU_ADMISSION/MICU"], table).is_empty()


def test_rules_for_drugs():
    rows = [("DRUG/aspirin", "000015", "42", 9), ("DRUG/digoxin", "15 000099", None, 1), ("DRUG/x", None, "42", 1)]
    rows += [("DRUG/digoxin", None, "42", 5), ("DRUG/none", None, "0", 3)]
    keys = pl.DataFrame(rows, ["code", "gsn", "ndc", "rows"], orient="row")
    found = dict(
        zip(*map_codes(keys["code"].unique(), systems(), keys).select("code", "rule").get_columns(), strict=True)
    )
    assert found == {"DRUG/aspirin": "name", "DRUG/digoxin": "gsn", "DRUG/x": "ndc", "DRUG/none": None}
    assert rule_of("DRUG/digoxin", systems()) == (None, None)
    assert rule_of("DRUG/20 ml vial: aspirin (rectal) 1%", systems()) == ("ATC/B01A", "part")
    assert rule_of("DRUG/aspirinol", systems()) == (None, None)
    assert (ndc("0"), ndc("?"), ndc("0042-1"), gsn(""), gsn("15")) == ("", "", "00000000421", "", "000015")


codes = st.text("01289.", min_size=1, max_size=6).filter(lambda c: plain(c))


@settings(max_examples=60)
@given(st.dictionaries(codes.map(plain), st.sampled_from(["CCSCM/1", "CCSCM/2"]), max_size=8), codes)
def test_the_rules_against_their_plain_reading(table, code):
    code = plain(code)
    wanted = (None, None)
    below = {target for known, target in table.items() if known.startswith(code)}
    above = [known for known in table if code.startswith(known) and 3 <= len(known) < len(code)]
    padded = [zeros + code for zeros in ("0", "00", "000") if zeros + code in table]
    if len(padded) == 1:
        wanted = (table[padded[0]], "leading_zero")
    if above:
        wanted = (table[max(above, key=len)], "parent")
    if len(code) >= 3 and len(below) == 1:
        wanted = (below.pop(), "children")
    if code in table:
        wanted = (table[code], "exact")
    assert rule_of(f"ICD9CM/{code}", systems(ICD9CM=table)) == wanted


@pytest.fixture(scope="module")
def real(shared_data) -> CodeSystems:
    return read_code_systems(shared_data / "codes")


def test_the_real_tables(real):
    assert real.absent == ()
    assert real.names["CCSCM/108"] == "Congestive heart failure; nonhypertensive"
    assert real.names["ATC/C03C"] == "high-ceiling diuretics"
    assert real.icd["ICD10CM"]["I509"] == real.icd["ICD9CM"]["4280"] == "CCSCM/108"
    assert real.drugs["name"]["furosemide"] == {"ATC/C03C": 3}
    every = {target for table in real.drugs.values() for counts in table.values() for target in counts}
    assert {len(target) for target in every} == {len("ATC/C03C")}


def test_the_demo_mapped(real, demo, shared_data, mimic4_cohort):
    cohort = mimic4_cohort
    mapping = map_codes(cohort.codes["code"], real, drug_keys(demo))
    report = mapping_report(cohort, mapping)
    events = dict(report.by_rule.group_by("vocabulary").agg(pl.sum("events")).rows())
    assert events == {"ICD9CM": 2193, "ICD10CM": 2313, "ICD9PROC": 401, "ICD10PCS": 321, "DRUG": 14410}
    assert report.by_rule.filter(vocabulary="ICD9CM")["rule"].to_list() == ["exact"]
    # 94% of the rows by name. Counted again from the two files, without the code under test.
    with gzip.open(shared_data / "codes/atc-ndc-rxnorm/mimic_drug_to_atc.csv.gz", "rt") as file:
        known = {row["drug"].strip().lower() for row in csv.DictReader(file) if len(row["atc_code"]) >= 4}
    orders = pl.read_csv(demo / "hosp/prescriptions.csv.gz", columns=["drug", "drug_type"]).filter(
        pl.col("drug_type") != "BASE"
    )
    by_name = int(orders["drug"].str.strip_chars().str.to_lowercase().is_in(list(known)).sum())
    # of 563 of these rows the route allows none of the name's classes; 516 of them have another one by NDC
    assert report.by_rule.filter(vocabulary="DRUG", rule="name")["events"].to_list() == [13657] and by_name >= 13657
    rules = dict(report.by_rule.filter(vocabulary="DRUG").select("rule", "events").rows())
    assert rules == {"name": 13657, "ndc": 564, "part": 5, None: 184}
    assert "unmapped" in report.text() and "DRUG/glucose gel" in report.unmapped["code"]

    mapped = map_cohort(cohort, mapping, real)
    assert mapped.events.height == cohort.events.height
    assert mapped.events.drop("code").equals(cohort.events.drop("code"))
    assert set(mapped.events["code"]) == set(mapped.codes["code"])
    assert mapped.names()["CCSCM/108"].startswith("Congestive") and "DRUG/glucose gel" in mapped.names()
    only = map_cohort(cohort, mapping, real, vocabularies=("DRUG",))
    changed = (only.events["code"] != cohort.events["code"]).sum()
    assert changed == 13657 + 564 + 5 and only.events["code"].str.starts_with("ICD9CM/").sum() == 2193


def test_names_from_the_tables_for_codes_without_one(real, write_tables, tmp_path):
    rows = {"hosp/d_icd_diagnoses": ["Z00,10,Unused"]}
    cohort = add_names(read_mimic4(write_tables(tmp_path, rows)), real)
    assert cohort.names()["ICD9CM/4280"].startswith("Congestive heart failure")
    assert cohort.names()["LAB/50912"] == "Creatinine"


def test_folders_that_are_not_code_systems(tmp_path):
    with pytest.raises(BadInput, match="holds none of the code tables"):
        read_code_systems(tmp_path)
    (tmp_path / "CCSCM.csv").write_text("code,title\n1,Tuberculosis\n")
    with pytest.raises(BadInput, match="has no column name"):
        read_code_systems(tmp_path)
    (tmp_path / "CCSCM.csv").write_text("code,name\n1,Tuberculosis\n")
    found = read_code_systems(tmp_path)
    assert found.names == {"CCSCM/1": "Tuberculosis"} and "RxNorm_to_ATC" in found.absent
    (tmp_path / "ndc2rxnorm_mapping.txt").write_text("{'1':")
    with pytest.raises(BadInput, match="is not a dictionary"):
        read_code_systems(tmp_path)
    with pytest.raises(BadInput, match="no prescriptions table"):
        drug_keys(tmp_path)


def test_what_prompts_show_of_the_open_demo(shared_data: Path, mimic4_cohort: Cohort) -> None:
    """552 drug strings become 151 names, 137 ATC classes and 14 strings without one; 1,474 diagnoses 207 CCS groups."""
    code_map = read_code_map(mimic4_cohort, shared_data / "codes", shared_data / "mimic-iv-demo-2.2", "all")
    own, mapped = mimic4_cohort.shown.visits.values(), code_map.cohort(mimic4_cohort)
    shown = mapped.shown.visits.values()
    before, after = (
        {kind: {code for visit in visits for code in getattr(visit, kind)} for kind in ("diagnoses", "medications")}
        for visits in (own, shown)
    )
    assert (len(before["medications"]), len(after["medications"])) == (552, 151)
    assert sum(code.startswith("ATC/") for code in after["medications"]) == 137
    assert (len(before["diagnoses"]), len(after["diagnoses"])) == (1474, 207)
    assert all(code.startswith("CCSCM/") for code in after["diagnoses"])
    names = mapped.names()
    assert all(names[code] != code for codes in after.values() for code in codes)
