"""launch/export_meds.py: any cohort as a MEDS folder that our reader and ACES read, with labels and split of a task."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from ghar.data.findings import with_findings
from ghar.data.readers.meds import read_meds
from ghar.data.readers.meds_labels import read_labels, read_subject_splits
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.label_files import located
from ghar.data.tasks.visits import VISIT_TASKS, visit_samples
from ghar.envs.records import Records
from ghar.launch.entry import load
from ghar.launch.export_meds import run
from tests.data.test_tasks_visits import task_named
from tests.running import run_command

pytestmark = pytest.mark.slow

DEMOS = {"mimic4": "mimic-iv-demo-2.2", "mimic3": "mimic-iii-demo-1.4", "eicu": "eicu-crd-demo-2.0.1"}

WEEK = """
predicates:
  admitted: {code: {regex: "^HOSPITAL_ADMISSION"}}
  left: {code: {regex: "^HOSPITAL_DISCHARGE"}}
  died: {code: MEDS_DEATH}
  over: {expr: "or(left, died)"}
trigger: admitted
windows:
  input: {start: null, end: trigger + 24h, start_inclusive: true, end_inclusive: true, index_timestamp: end}
  gap: {start: trigger, end: start + 48h, start_inclusive: false, end_inclusive: true,
        has: {left: "(None, 0)", died: "(None, 0)", admitted: "(None, 0)"}}
  target: {start: gap.end, end: start -> over, start_inclusive: false, end_inclusive: true, label: died}
"""


@pytest.fixture(scope="module")
def exported(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export")
    demo = f"data.root={shared_data / 'mimic-iv-demo-2.2'}"
    run(load(["data=mimic4", demo, f"data.cache={root / 'cache'}", f"run_dir={root}", "task=guo_los"]))
    return root / "meds"


def test_the_cohort_the_labels_and_the_split_come_back(exported, shared_data):
    for charts in (False, True):
        cohort, back = read_mimic4(shared_data / "mimic-iv-demo-2.2", charts=charts), read_meds(exported, charts=charts)
        for frame in ("events", "codes", "visits"):
            assert getattr(back, frame).equals(getattr(cohort, frame)), frame
    labels, splits = read_labels(exported / "labels/guo_los.parquet"), read_subject_splits(exported)
    assert labels.columns[2:] == ["boolean_value"] and labels.height == 262
    assert set(labels["subject_id"]) == set(splits) and set(splits.values()) == {"train", "tuning", "held_out"}


@pytest.mark.parametrize("source", ["mimic4", "mimic3", "eicu"])
def test_every_text_of_every_task_is_that_of_the_tables(source, shared_data, tmp_path):
    """What records show of all samples, at full length and in order: codes, who lies where, newest values."""
    of_folder = f"data.root={tmp_path / 'meds'}"
    of_tables = f"data.root={shared_data / DEMOS[source]}"
    more = [f"data.cache={tmp_path / 'cache'}", f"run_dir={tmp_path}", "env.prompts=full"]
    run(load([f"data={source}", of_tables, *more, "task=dec"]))
    tables, folder = (
        Records(load([*where, *more])) for where in ([f"data={source}", of_tables], ["data=meds", of_folder])
    )
    for name in ("los", "read", "dec") if source == "eicu" else VISIT_TASKS:
        told = []
        for records in (tables, folder):
            samples = visit_samples(records.source, task_named(name), "strict")[1]
            told.append(with_findings(samples, records.charted, records.facts))
        assert told[0] == told[1] and told[0], name
        assert any(visit.values for sample in told[0] for visit in sample.history), name
    names = tables.source.names()
    assert names == {code: name for code, name in folder.source.names().items() if code in names}


def test_aces_makes_a_task_of_it(exported, shared_data, tmp_path):
    """Death in hospital after the first 48 hours, asked 24 hours after admission; counted again from the visits."""
    tool = shutil.which("aces-cli", path=os.environ.get("GHAR_MEDS_TOOLS")) or shutil.which("aces-cli")
    if tool is None:
        pytest.skip("es-aces is not installed: pip install es-aces in an environment of its own")
    (tmp_path / "in_hospital_death.yaml").write_text(WEEK)
    shards = sorted((exported / "data").glob("*.parquet"))
    assert len(shards) == 1
    command = [tool, "cohort_name=in_hospital_death", f"cohort_dir={tmp_path}", "data.standard=meds",
               f"data.path={shards[0]}"]  # fmt: skip
    run_command(command, cwd=tmp_path).check_returncode()
    file = tmp_path / "in_hospital_death.parquet"
    cohort = read_mimic4(shared_data / "mimic-iv-demo-2.2", charts=False)
    words = {"question": "Will this patient die in this stay?", "labels": ["survives", "dies"]}
    (tmp_path / "in_hospital_death.json").write_text(json.dumps(words))
    config = load(["task=labels", f"task.labels={file}"])
    about, samples = visit_samples(cohort, located(config.task, config.data), "strict")
    stays = cohort.visits.filter(pl.col("end") - pl.col("start") > pl.duration(hours=48))
    # four more died minutes after what the tables call their discharge, which ends ACES's window
    deaths = stays.filter(pl.col("died") & (pl.col("death_time") <= pl.col("end")))
    assert about.labels == ("survives", "dies") and about.question == words["question"]
    assert len(samples) == len({(s.subject_id, s.prediction_time) for s in samples})
    dead = {(s.subject_id, s.visit_id) for s in samples if s.label == 1}
    assert dead == set(deaths.select("subject_id", "visit_id").rows()) and len(dead) == 9
    assert {s.visit_id for s in samples} == set(stays["visit_id"]) and len(samples) == 220
