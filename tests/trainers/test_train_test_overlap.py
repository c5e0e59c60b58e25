"""A checkpoint of one task on the test patients of another: only where no patient is on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.trainers.evaluation.train_test_overlap import check_overlap, trained_with
from ghar.trainers.runs.resume import as_yaml


def trained(folder: Path, config) -> str:
    """A run's configuration, and where a checkpoint of it would be."""
    (folder / "checkpoints/step-1").mkdir(parents=True)
    (folder / "config.yaml").write_text(as_yaml(config))
    return f"eval.checkpoint={folder}/checkpoints/step-1"


def test_a_model_of_one_task_meets_its_training_patients_in_another(small_config, tmp_path: Path) -> None:
    checkpoint = trained(tmp_path / "mortality", small_config("task=kare_mortality"))
    config = small_config("task=dec", checkpoint)
    with pytest.raises(BadInput, match=r"test patients were in the training or validation .* task\.split_of=cohort"):
        check_overlap(config, Records(config))


@pytest.mark.slow
def test_with_one_split_of_the_cohort_no_patient_is_on_both_sides(small_config, tmp_path: Path) -> None:
    whole = "task.split_of=cohort"
    checkpoint = trained(tmp_path / "mortality", small_config("task=kare_mortality", whole))
    config = small_config("task=dec", whole, checkpoint)
    check_overlap(config, Records(config))
    assert trained_with(config) == small_config("task=kare_mortality", whole)


def test_other_patients_and_other_places_are_not_looked_at(small_config, tmp_path: Path) -> None:
    checkpoint = trained(tmp_path / "other", small_config("task=kare_mortality", "data.world_seed=5"))
    config = small_config("task=dec", checkpoint)
    check_overlap(config, Records(config))
    bare = small_config("task=dec", f"eval.checkpoint={tmp_path}/model")
    assert trained_with(bare) is None and trained_with(small_config("task=dec")) is None
