"""PyHealth's models as rows of studies: the exported samples, and the files that the training script writes."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
import torch

from benchmarks import pyhealth_models, run
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


SCRIPTS = {  # what stands for a training -> the seconds that it has, what is said of it
    "print('patient 4711')\nraise SystemExit('patient 4711')": (1800.0, r"ended with code 1: .*seed0\.log says why"),
    f"raise SystemExit({pyhealth_models.NO_LOSS})": (1800.0, "no validation loss is a number"),
    "import time\ntime.sleep(1e6)": (1.0, "took over 1 s: raise --timeout"),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_training_that_fails_is_a_sentence_without_a_patient(
    script: str, world_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stands_in = tmp_path / "model.py"
    stands_in.write_text(script)
    monkeypatch.setattr("benchmarks.pyhealth_rows.SCRIPT", stands_in)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = ["task=los", "data.patients=150", f"data.cache={world_cache}"]
    limit, told = SCRIPTS[script]
    with pytest.raises(BadInput, match=told) as caught:
        pyhealth_rows(tmp_path / "out", 1, words, Path(sys.executable), ["StageNet"], limit)
    assert "4711" not in str(caught.value) + "".join(capfd.readouterr())
    assert stat.S_IMODE((tmp_path / "out/StageNet/demo-los-seed0.log").stat().st_mode) == 0o600
    assert not list(tmp_path.rglob("*samples.json*"))


@pytest.mark.slow
def test_a_python_that_is_not_there_is_a_sentence(world_cache: Path, tmp_path: Path) -> None:
    words = ["task=los", "data.patients=150", f"data.cache={world_cache}"]
    with pytest.raises(BadInput, match="--pyhealth=/no/python does not start"):
        pyhealth_rows(tmp_path, 1, words, Path("/no/python"), ["StageNet"], 2.0)


def test_weights_without_a_validation_loss_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyhealth_models, "EPOCHS", 2)
    part = [{**{key: [["a"]] for key in pyhealth_models.FEATURES}, "label": i % 2} for i in range(4)]
    model = CountingModel(part, list(pyhealth_models.FEATURES), "label", "multiclass")
    torch.nn.init.constant_(model.layer.weight, float("nan"))
    with pytest.raises(SystemExit) as caught:
        pyhealth_models._fit(torch, model, part, part)
    assert caught.value.code == pyhealth_models.NO_LOSS


def test_what_a_benchmark_writes_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(arguments: Any) -> dict[str, Any]:
        (arguments.folder / "answers.csv").touch()
        return {}

    monkeypatch.setitem(run.WHAT, "papers", made)
    monkeypatch.setattr("ghar.scratch.use_own_folder", lambda: None)
    monkeypatch.setattr(sys, "argv", ["run.py", "papers", "--folder", str(tmp_path / "kept")])
    before = os.umask(0o022)
    try:
        run.main()
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept", *(tmp_path / "kept").iterdir())
    }
    assert modes == {"kept": 0o700, "answers.csv": 0o600, "papers.json": 0o600}
