"""What eval.checkpoint may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.evaluation.weights import RunStages, find


def test_a_runs_own_sft_is_a_saved_model_and_no_step(tmp_path: Path) -> None:
    sft = tmp_path / "run" / "checkpoints" / "sft"
    sft.mkdir(parents=True)
    for name in ("config.json", "manifest.json"):  # the manifest seals the folder, as it seals a step's
        (sft / name).write_text("{}")
    config = load(["task=read", f"eval.checkpoint={sft}", f"run_dir={tmp_path / 'other'}"])
    assert find(config) == RunStages(tmp_path / "other" / "checkpoints", None)
    step = sft.with_name("step-3")
    step.mkdir()
    (step / "model.json").write_text("{}")
    assert find(load(["task=read", f"eval.checkpoint={step}"])) == RunStages(sft.parent, step)
    with pytest.raises(BadInput, match="is no checkpoint"):
        find(load(["task=read", f"eval.checkpoint={tmp_path}"]))
