"""The dataset table of the demo, counted again from its files, and the one reader of all sources."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from ghar.data.cohort import Task
from ghar.data.statistics import dataset_table, split_table, split_text, text
from ghar.data.tasks import ehrshot, series
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.data.tasks.stays import make_samples
from ghar.envs.records import Records
from ghar.envs.system import drawn_samples
from ghar.envs.worlds.source import read_source
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.launch.prepare_data import run as prepare_data
from tests.envs.exams import write_exam

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(mimic4_cohort):
    cohort = mimic4_cohort
    return dataset_table(cohort, {task: make_samples(cohort, task) for task in ("los", "read", "dec")})


def test_codes_of_the_demo(table, demo):
    assert (table["patients"], table["visits"], table["visits per patient"]) == (100, 275, 2.75)
    for kind, name in (("diagnoses", "diagnoses_icd"), ("procedures", "procedures_icd")):
        rows = pl.read_csv(demo / f"hosp/{name}.csv.gz", infer_schema=False).unique(
            ["hadm_id", "icd_code", "icd_version"]
        )
        different = rows.select(pl.struct("icd_version", "icd_code").n_unique()).item()
        assert table["codes"][kind]["different"] == different
        assert table["codes"][kind]["per visit"] == pytest.approx(rows.height / 275)
    drugs = pl.read_csv(demo / "hosp/prescriptions.csv.gz", infer_schema=False).filter(pl.col("drug_type") != "BASE")
    names = drugs.with_columns(pl.col("drug").str.strip_chars().str.to_lowercase()).unique(["hadm_id", "drug"])
    assert table["codes"]["medications"]["different"] == names["drug"].n_unique() == 552
    assert table["codes"]["medications"]["per visit"] == pytest.approx(names.height / 275)
    # A visit's codes are shown in the sample of that visit and in those of all later ones.
    stays = pl.read_csv(demo / "hosp/admissions.csv.gz", infer_schema=False).sort("subject_id", "admittime")
    left = stays.select("hadm_id", times=pl.len().over("subject_id") - pl.int_range(pl.len()).over("subject_id"))
    expected = names.join(left, on="hadm_id")["times"].sum() / 275
    assert table["codes"]["medications"]["shown"] == pytest.approx(expected)


def test_labels_and_leaks_of_the_demo(table, mimic4_cohort):
    assert table["tasks"]["read"]["labels"] == {"no": 137, "yes": 38}
    assert table["tasks"]["dec"]["labels"] == {"no": 260, "yes": 15}
    assert table["tasks"]["los"]["samples"] == 275 and table["tasks"]["los"]["patients"] == 100
    assert all(row["codes shown too early"] > 0 for row in table["tasks"].values())
    cohort = mimic4_cohort
    strict = {"read": make_samples(cohort, "read", leakage="strict")}
    assert dataset_table(cohort, strict)["tasks"]["read"]["codes shown too early"] == 0
    shown = text(table)
    assert "Will this patient be readmitted within 15 days of discharge?" in shown  # what "read" asks
    assert "visits per patient 2.75\n" in shown
    assert "patients 100   visits 275" in shown and "no: 137 (78.3%)  yes: 38 (21.7%)" in shown


@pytest.mark.parametrize("source", ["mimic3", "mimic4", "eicu", "meds"])
def test_prepare_data_on_every_source(source, request, tmp_path, monkeypatch, capsys):
    """The tables are read once for all tests; tests/launch runs the command from outside, on MIMIC-IV."""
    cohort = request.getfixturevalue(f"{source}_cohort")
    monkeypatch.setattr("ghar.envs.worlds.source.read_source", lambda data: cohort)
    prepare_data(load([f"data={source}", "data.root=.", f"run_dir={tmp_path}"]))
    saved = json.loads((tmp_path / "dataset.json").read_text())
    printed = capsys.readouterr()
    assert (tmp_path / "dataset.txt").read_text() == printed.out
    assert printed.err.endswith(f"Kept in {tmp_path}: dataset.json, dataset.txt\n")
    tasks = {name: row["samples"] for name, row in saved["tasks"].items()}
    known = {"los", "read", "dec", "kare_mortality", "kare_readmission"}
    # they need an order of hospital stays (trap 7)
    known |= set() if source == "eicu" else set(ehrshot.TASKS)
    known -= {"kare_readmission"} if source == "eicu" else set()
    known |= {f"series_{name}{stay}" for name in series.TASKS for stay in ("", " system.stay=icu")}
    assert set(tasks) == known and all(tasks.values())
    for name in tasks:  # as a command takes them
        load([f"task={name.split()[0]}", *(["system=graphwalker", *name.split()[1:]] if "series" in name else [])])
    assert saved["visits"] == cohort.visits.height and saved["counts"] == dict(cohort.counts)


def test_a_drawn_split_is_counted_by_split_and_label(mimic4_cohort) -> None:
    task, samples = make_samples(mimic4_cohort, "read")
    splits = split_by_patient(samples)
    found = split_table(task, splits)
    assert list(found) == ["train", "valid", "test"]
    assert sum(row["samples"] for row in found.values()) == len(samples) == 175
    for name, row in found.items():
        part = getattr(splits, name)
        assert row["patients"] == len({s.subject_id for s in part})
        frame = pl.DataFrame(
            {"label": [task.labels[s.label] for s in part], "visits": [len(s.history) for s in part],
             "drugs": [sum(len(v.medications) for v in s.history) for s in part]}
        )  # fmt: skip
        assert row["shown"]["visits"] == frame["visits"].sum()
        for label, visits, drugs in frame.group_by("label").sum().rows():
            assert row["labels"][label]["shown"]["visits"] == visits
            assert row["labels"][label]["shown"]["medications"] == drugs
    shown = split_text(task, found)
    row = found["train"]
    assert f"visits per sample {row['shown']['visits'] / row['samples']:.2f}   diagnoses per sample" in shown
    assert f"yes ({row['labels']['yes']['samples'] / row['samples']:.1%}): samples" in shown


@pytest.mark.parametrize(("words", "shows"), [
    (["task=kare_mortality"], ["visits", "diagnoses", "procedures", "medications"]),
    (["protocol=graphwalker", "task=series_readmission", "task.patients=40"], ["steps"]),
])  # fmt: skip
def test_prepare_data_counts_what_a_protocol_draws(
    words, shows, mimic4_cohort, tmp_path, monkeypatch, capsys
) -> None:
    """As a study keeps them (trainers/study/samples.py); and no encoder is trained for it."""
    monkeypatch.setattr("ghar.envs.worlds.source.read_source", lambda data: mimic4_cohort)
    monkeypatch.setattr("ghar.envs.graphwalker.series.embed", None)
    config = load(["data=mimic4", "data.root=.", f"run_dir={tmp_path}", *words])
    prepare_data(config)
    drawn = json.loads((tmp_path / "dataset.json").read_text())["drawn"]
    task, splits = drawn_samples(Records(config, mimic4_cohort))
    assert drawn == {"task": task.name, "splits": split_table(task, splits)}
    assert list(drawn["splits"]["test"]["shown"]) == shows
    assert f"drawn for {task.name}, by split" in capsys.readouterr().out
    if "task.patients=40" in words:  # the draw's size, 8:1:1 within each class
        assert [row["patients"] for row in drawn["splits"].values()] == pytest.approx([32, 4, 4], abs=1)


def test_questions_are_counted_by_split_without_any_patients(tmp_path, capsys) -> None:
    path, _ = write_exam(tmp_path)
    prepare_data(load(["data=medqa", "task=medqa", f"data.root={path}", f"run_dir={tmp_path / 'out'}"]))
    saved = json.loads((tmp_path / "out/dataset.json").read_text())
    assert list(saved) == ["drawn"] and list(saved["drawn"]["splits"]) == ["train", "valid", "test"]
    assert capsys.readouterr().out.startswith("drawn for medqa, by split\n")


def test_tasks_of_a_system_alone_are_counted_by_its_cases(monkeypatch) -> None:
    people: list[Any] = [SimpleNamespace(subject_id=i, label=i % 2) for i in range(3)]
    one, two, three = people
    parts = Splits((one,), (two, two), (three, three, three))
    made = SimpleNamespace(task=Task("own", "?", ("no", "yes")), cases=parts)
    monkeypatch.setattr("ghar.envs.system.room", lambda name, part: SimpleNamespace(build=lambda *given: made))
    task, system, env = SimpleNamespace(name="own"), SimpleNamespace(name="one"), SimpleNamespace(budgets={})
    config = SimpleNamespace(task=task, system=system, env=env)
    records: Any = SimpleNamespace(config=config, texts_alone=False)
    found = split_table(*drawn_samples(records))
    assert {name: row["samples"] for name, row in found.items()} == {"train": 1, "valid": 2, "test": 3}
    assert found["valid"]["labels"]["yes"] == {"samples": 2, "patients": 1, "shown": {}}


def test_a_source_is_read_by_its_name(demo, tmp_path, write_tables):
    data = dataclasses.replace(load().data, cache=str(tmp_path / "cache"), patients=20)
    assert read_source(data).generated
    for name, text_ in (("mimic4", "set data.root"), ("meds", "set data.root")):
        with pytest.raises(BadInput, match=text_):
            read_source(dataclasses.replace(data, name=name))
    root = str(write_tables(tmp_path / "tables"))
    assert read_source(dataclasses.replace(data, name="mimic4", root=root)).visits.height == 3
    with pytest.raises(BadInput, match="has no data"):
        read_source(dataclasses.replace(data, name="meds", root=root))


def test_patients_without_a_visit_are_told(mimic4_cohort) -> None:
    none = dataclasses.replace(mimic4_cohort, visits=mimic4_cohort.visits.clear())
    table = dataset_table(none, {})
    assert table["patients"] == 100 and table["visits"] == 0
    assert "100 patients have events and no visit" in text(table)
