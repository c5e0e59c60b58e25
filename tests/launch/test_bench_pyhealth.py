"""PyHealth's models as rows of studies: the exported samples, and the files that the training script writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
import torch

from benchmarks import pyhealth_models
from benchmarks.pyhealth_rows import export, pyhealth_rows
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.study.outside import read_outside
from ghar.trainers.study.samples import labels_of, samples_frame


class CountingModel(torch.nn.Module):
    """Stands for a model of PyHealth: the same arguments, and a batch of lists in."""

    def __init__(self, dataset: list[dict[str, Any]], feature_keys: list[str], label_key: str, mode: str) -> None:
        super().__init__()
        assert mode == "multiclass" and label_key == "label"
        self.keys, self.classes = feature_keys, sorted({sample["label"] for sample in dataset})
        self.layer = torch.nn.Linear(len(feature_keys), len(self.classes))

    def forward(self, **batch: Any) -> dict[str, Any]:
        counts = [[sum(map(len, visits)) for visits in batch[key]] for key in self.keys]
        logits = self.layer(torch.tensor(counts, dtype=torch.float32).T)
        truth = torch.tensor([self.classes.index(label) for label in batch["label"]])
        return {"loss": torch.nn.functional.cross_entropy(logits, truth), "y_prob": logits.softmax(dim=1)}


@pytest.fixture
def pyhealth(monkeypatch: pytest.MonkeyPatch) -> None:
    models, datasets = ModuleType("pyhealth.models"), ModuleType("pyhealth.datasets")
    models.__dict__["StageNet"] = CountingModel
    datasets.__dict__["SampleEHRDataset"] = lambda samples, dataset_name: samples
    for module in (models, datasets):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("pyhealth")
def test_answers_are_read_as_a_row_of_a_study(world_cache: Path, tmp_path: Path) -> None:
    config = load(["task=los", "data.patients=150", f"data.cache={world_cache}"])
    export(config, tmp_path / "samples.json")
    content = json.loads((tmp_path / "samples.json").read_text())
    samples = {sample.sample_id: sample for sample in Records(config).splits.test}
    exported = [row for row in content["samples"] if row["split"] == "test"]
    for row in exported:
        visits = samples[row["sample_id"]].history
        assert row["conditions"] == [list(visit.diagnoses) for visit in visits]
    answers = tmp_path / "demo-los-seed0.csv"
    pyhealth_models.main(tmp_path / "samples.json", "StageNet", 0, answers)
    frame = read_outside(answers, labels_of(config), samples_frame(config).filter(pl.col("split") == "test"))
    assert frame.height == len(exported) and frame["prediction"].null_count() == 0


def test_small_last_batches_join_the_one_before() -> None:
    sizes = [len(batch["a"]) for batch in pyhealth_models._batches([{"a": i} for i in range(64 * 2 + 5)], None)]
    assert sizes == [64, 69]


def test_a_missing_environment_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--pyhealth is missing"):
        pyhealth_rows(tmp_path, 1, [], None, ["StageNet"], 10.0)
