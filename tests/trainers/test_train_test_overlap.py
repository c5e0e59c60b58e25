"""A checkpoint of one task on the test patients of another: only where no patient is on both sides."""

from __future__ import annotations

from pathlib import Path

import polars as pl
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


def test_tasks_of_a_label_file_are_looked_at_as_well(small_config, tmp_path: Path) -> None:
    samples = Records(small_config("task=read")).samples.splits
    every = [*samples.train, *samples.valid, *samples.test]
    rows = [(one.subject_id, one.prediction_time, one.label == 1) for one in every]
    schema = {"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "boolean_value": pl.Boolean}
    pl.DataFrame(rows, schema, orient="row").write_parquet(tmp_path / "own.parquet")
    own = ("task=labels", f"task.labels={tmp_path / 'own.parquet'}")
    checkpoint = trained(tmp_path / "labels", small_config(*own))
    config = small_config("task=kare_mortality", checkpoint)
    with pytest.raises(BadInput, match="test patients were in the training or validation"):
        check_overlap(config, Records(config))
    same = small_config(*own, checkpoint)
    check_overlap(same, Records(same))
