"""Codes mapped to CCS and ATC, from the tables to what a model reads, on the open MIMIC-IV demo."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.data.views.visits import visit_lists
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.data.audit import audit

pytestmark = pytest.mark.slow

LISTS = ("Conditions", "Procedures", "Medications")
LIST = rf"({'|'.join(LISTS)}): (.*?)\.(?= (?:{'|'.join(LISTS)}): |\n|$)"


@pytest.fixture(scope="module")
def configured(shared_data: Path, tmp_path_factory: pytest.TempPathFactory):
    fixed = [
        "data=mimic4", f"data.root={shared_data / 'mimic-iv-demo-2.2'}", f"data.codes={shared_data / 'codes'}",
        f"data.cache={tmp_path_factory.mktemp('mapped')}",
        f"kg.path={shared_data / 'kg/primekg-subset/merged_kg_12col.csv.gz'}",
        f"kg.references={shared_data / 'kg/primekg-subset/txgnn_mondo_references.csv.gz'}",
    ]  # fmt: skip

    def configure(*overrides: str) -> Config:
        return load([*fixed, *overrides])

    return configure


@pytest.fixture(scope="module")
def mapped(configured) -> Records:
    return Records(configured("task=los"))


def in_prompts(records: Records) -> dict[str, set[str]]:
    """The names that the texts of all samples print, by the kind of list they stand in."""
    splits, found = records.splits, {title: set() for title in LISTS}
    samples = (*splits.train, *splits.valid, *splits.test)
    for view in visit_lists(samples, records.name_of, style="full", budget=sys.maxsize, count=len):
        for title, names in re.findall(LIST, view.text):
            found[title] |= set(names.split("; "))
    return found


def codes_shown(records: Records, kind: str) -> set[str]:
    splits = records.splits
    samples = (*splits.train, *splits.valid, *splits.test)
    return {code for sample in samples for visit in sample.history for code in getattr(visit, kind)}


def test_prompts_hold_151_names_of_drugs_and_207_ccs_groups(mapped: Records) -> None:
    """Of the 151, which were 552 strings, 137 are ATC classes; of fourteen the route allows none, or there is none."""
    conditions, drugs = codes_shown(mapped, "diagnoses"), codes_shown(mapped, "medications")
    groups = {code for code in conditions if code.startswith("CCSCM/")}
    classes = {code for code in drugs if code.startswith("ATC/")}
    assert len(groups) == 207 and groups == conditions
    assert len(drugs) == 151 and len(classes) == 137 and all(len(code) == len("ATC/C03C") for code in classes)
    assert {code.partition("/")[0] for code in drugs - classes} == {"DRUG"} and "DRUG/glucose gel" in drugs
    printed = in_prompts(mapped)
    assert {mapped.name_of(code) for code in groups} <= printed["Conditions"]
    assert {mapped.name_of(code) for code in classes} <= printed["Medications"]
    names = [mapped.name_of(code) for code in (*groups, *classes)]
    assert len(set(names)) == 207 + 137 and not any(name.replace(".", "").isdigit() or ";" in name for name in names)
    assert "Acute myocardial infarction" in printed["Conditions"] and "antithrombotic agents" in printed["Medications"]
    assert not any(name.startswith(("CCS", "ATC", "ICD")) for part in printed.values() for name in part)


def test_ghar_maps_drugs_alone(configured, mapped: Records) -> None:
    records = Records(configured("task=los", "data.mapping=drugs"))
    assert codes_shown(records, "medications") == codes_shown(mapped, "medications")
    assert all(code.startswith("ICD") for code in codes_shown(records, "diagnoses"))
    assert len(codes_shown(records, "diagnoses")) == 1474
    assert [s.label for s in records.splits.test] == [s.label for s in mapped.splits.test]


def test_labels_are_those_of_the_sources_own_codes(configured) -> None:
    """Infarction is defined by ICD codes, which a mapped cohort has no more."""
    plain = Records(configured("task=new_acutemi", "data.codes=null"))
    records = Records(configured("task=new_acutemi"))
    for part in ("train", "valid", "test"):
        own, other = getattr(records.splits, part), getattr(plain.splits, part)
        assert [(s.sample_id, s.label) for s in own] == [(s.sample_id, s.label) for s in other]
    assert records.splits.train[0].history != plain.splits.train[0].history


def test_strict_shows_a_class_from_its_first_known_member_on(configured) -> None:
    records = Records(configured("task=los", "data.leakage=strict"))
    assert audit(records.cohort, records.splits.train).is_empty()
    paper = Records(configured("task=los"))
    assert len(audit(paper.cohort, paper.splits.train)) > 0


def test_groups_are_linked_by_their_members_and_keep_their_names(mapped: Records) -> None:
    rules = mapped.links.rules
    assert mapped.graph_counts()["codes linked, member"] == sum(rule == "member" for rule in rules.values()) > 100
    heart = mapped.links.nodes["ATC/C07A"]
    assert mapped.names["ATC/C07A"] == "beta blocking agents"
    assert mapped.primekg.names[heart].lower() == "metoprolol"
    plain = Records(mapped.config).source  # the members' own links
    assert not any(code.startswith("ATC/") for code in plain.codes["code"])


def test_every_kind_of_system_sees_the_mapped_codes(configured) -> None:
    for system in ("ghar", "baselines", "graphwalker"):
        long = ("env.prompts=full", "env.history_tokens=4000")
        made = build(Records(configured(f"system={system}", "task=read", *long)))
        shown = " ".join(case.text for case in made.cases.train)
        assert "antithrombotic agents" in shown and "aspirin" not in shown.lower(), system


def test_kept_stores_of_mapped_codes_are_others(configured, mapped: Records) -> None:
    other = Records(configured("data.mapping=drugs"))
    assert len({mapped.source.key, mapped.cohort.key, other.cohort.key}) == 3


def test_generated_patients_keep_their_codes(shared_data: Path, small_config) -> None:
    with pytest.raises(BadInput, match=r"leave data\.codes out"):
        _ = Records(small_config(f"data.codes={shared_data / 'codes'}")).cohort
