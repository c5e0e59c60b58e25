"""A checkpoint of one task on the test patients of another: only where no patient is on both sides."""

from __future__ import annotations

import os
import shutil
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


@pytest.mark.parametrize("place", ["a copy", "links to the files", "the world that was generated"])
def test_one_cohort_in_two_folders_is_one_cohort(small_config, tmp_path: Path, place: str) -> None:
    root = Records(small_config()).root
    if place == "a copy":
        shutil.copytree(root, tmp_path / "tables")
    elif place == "links to the files":
        shutil.copytree(root, tmp_path / "tables", copy_function=os.symlink)
    first = [] if place.startswith("the world") else ["data=mimic4", f"data.root={root}"]
    second = root if place.startswith("the world") else tmp_path / "tables"
    checkpoint = trained(tmp_path / "mortality", small_config("task=kare_mortality", *first))
    config = small_config("task=dec", "data=mimic4", f"data.root={second}", checkpoint)
    with pytest.raises(BadInput, match="test patients were in the training or validation"):
        check_overlap(config, Records(config))


def test_patients_of_one_number_in_two_cohorts_are_two(small_config, tmp_path: Path) -> None:
    """Both worlds number their patients alike."""
    roots = [Records(small_config(f"data.world_seed={seed}")).root for seed in (0, 5)]
    checkpoint = trained(
        tmp_path / "other", small_config("task=kare_mortality", "data=mimic4", f"data.root={roots[1]}")
    )
    config = small_config("task=dec", "data=mimic4", f"data.root={roots[0]}", checkpoint)
    check_overlap(config, Records(config))


def test_tables_that_are_gone_are_a_sentence(small_config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = small_config("task=kare_mortality", "data=mimic4", f"data.root={tmp_path / 'gone'}")
    config = small_config("task=dec", "data=mimic4", f"data.root={Records(small_config()).root}",
                          trained(tmp_path / "run", gone))  # fmt: skip
    check_overlap(config, Records(config))
    assert "is not here: whether test patients were in its training is not checked" in capsys.readouterr().out


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
