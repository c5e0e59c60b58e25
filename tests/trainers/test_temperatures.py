"""The temperature of a trained variant: fitted on validation cases alone, told with what it does on test cases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ghar.envs.play import validation_cases
from ghar.episode import Episode
from ghar.metrics.calibration import calibrated, calibration, temperature
from ghar.metrics.rows import patients_of
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation import evaluate as evaluation
from ghar.trainers.evaluation.evaluate import evaluate_system
from ghar.trainers.evaluation.playing import score
from ghar.trainers.evaluation.report import conclude

pytestmark = pytest.mark.slow


def sure(episodes: Sequence[Episode], labels: Sequence[str]) -> list[tuple[float, ...] | None]:
    """Too sure of whatever was answered."""
    rows = np.full((len(labels), len(labels)), 0.02 / (len(labels) - 1))
    np.fill_diagonal(rows, 0.98)
    return [None if e.prediction.label is None else tuple(rows[e.prediction.label].tolist()) for e in episodes]


@pytest.fixture
def played_by_the_teacher(small_system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted teacher stands where the trained weights would."""
    teacher = small_system.fixed["teacher"]()

    @contextmanager
    def opened(stage: str) -> Iterator[Any]:
        yield SimpleNamespace(policy=teacher, reader=None, ranker=sure)

    @contextmanager
    def answering(*_: Any) -> Iterator[Any]:
        yield opened

    monkeypatch.setattr(evaluation, "answering", answering)
    monkeypatch.setattr(evaluation, "find", lambda config: Stages())


class Stages:
    """A run with all stages."""

    step, home = None, Path("nowhere")

    def names(self, who: str) -> str:
        return who


def test_it_is_fitted_on_validation_cases(
    small_system: Any, small_config: Any, played_by_the_teacher: None, tmp_path: Path
) -> None:
    own = "eval.variants=[ghar_rl,ghar_base,scripted]", "trainer.rl.eval_samples=25", "eval.bootstrap=30"
    config = small_config(*own)
    system = replace(small_system, read_by=lambda reader: small_system)
    folder = RunFolder.open(tmp_path / "run")
    summary = evaluate_system(system, config, folder)
    teacher, labels = small_system.fixed["teacher"](), small_system.task.labels

    def ranker(some: Sequence[Episode]) -> list[tuple[float, ...] | None]:
        return sure(some, labels)

    drawn = validation_cases(system, config.task, config.trainer.rl.eval_samples)
    valid = score(system, config, system.variants["ghar_rl"], teacher, "valid", None, ranker, drawn)
    assert len(valid) == 25 and {row["split"] for row in valid} == {"valid"}
    wanted, found = temperature(valid, labels), summary["policies"]["ghar_rl"]
    assert found["temperature"] == wanted > 1
    rows = [row for row in calibrated(list(folder.episodes("ghar_rl")), wanted) if row["label_probabilities"]]
    table = np.array([row["label_probabilities"] for row in rows])
    truth, who = [labels.index(row["label"]) for row in rows], patients_of(rows)
    after = calibration(truth, table, patients=who, seed=config.seed, resamples=30)
    assert found["ece_calibrated"] == after["ece"].as_list() and found["brier_calibrated"] == after["brier"].as_list()
    assert found["brier_calibrated"][0] < found["brier"][0]
    for name in ("ghar_base", "scripted"):  # untrained, and without probabilities
        assert "temperature" not in summary["policies"][name] and "ece_calibrated" not in summary["policies"][name]
    assert {row["split"] for row in folder.episodes("ghar_rl")} == {"test"}

    conclude(folder, summary)
    page = (folder.path / "report.html").read_text()
    assert re.search(rf"Temperature fitted on validation cases.*?{wanted:.2f}", page, re.DOTALL)
    again = evaluate_system(system, config, folder, resume=True)  # told by the rows, not fitted anew
    assert again["policies"]["ghar_rl"]["temperature"] == wanted
