"""launch/record_retrievals.py: what a trained agent decides for its training samples, played by a rule in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from ghar.config import Config
from ghar.envs.play import teacher_cases
from ghar.envs.records import Records
from ghar.envs.system import WORDS, System
from ghar.episode import Act
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy
from ghar.metrics.runfolder import RunFolder, read_lines, write_lines
from ghar.trainers.evaluation import retrievals
from ghar.trainers.evaluation.retrievals import record_retrievals
from ghar.trainers.evaluation.weights import RunStages
from ghar.trainers.runs.samples import data_print, hold_data

Make = Callable[..., Config]


class Weights:
    """Stand for trained weights: of three samples the first is answered without a retrieval, the second retrieves, the
    third wants to and names no meta-path. They fail after `lasting` acts."""

    def __init__(self, system: System[Any]) -> None:
        self.rule = system.fixed["teacher"]()
        self.order = {case.sample_id: i for i, case in enumerate(system.cases.train)}
        self.acts, self.lasting = 0, 10**9

    def policy(self) -> FunctionPolicy:
        return FunctionPolicy(self.reply)

    def reply(self, act: Act) -> str:
        self.acts += 1
        if self.acts > self.lasting:
            raise RuntimeError("killed")
        kind = self.order[act.facts["case"].sample_id] % 3
        if act.role == "retrieve":
            return "yes" if kind else "no"
        if act.role == "metapaths" and kind == 2:
            return "unreadable"
        return self.rule.answer([act], [0])[0].text


@pytest.fixture
def run(
    small_config: Make, small_records: Records, small_system: System[Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Path, Weights]:  # fmt: skip
    """A finished run of the small world, as far as this command looks."""
    path, weights = tmp_path / "run", Weights(small_system)
    folder = RunFolder.open(path)
    hold_data(folder, data_print(small_system, small_records))
    folder.write_summary({"time": {}})

    @contextmanager
    def opened(stage: str) -> Iterator[Any]:
        yield SimpleNamespace(policy=weights.policy(), reader=WORDS)

    @contextmanager
    def answering(*_: Any) -> Iterator[Any]:
        yield opened

    monkeypatch.setattr(retrievals, "answering", answering)
    monkeypatch.setattr(RunStages, "names", lambda self, who: who)
    return path, weights


@pytest.mark.slow
def test_the_decision_is_recorded_and_played_once(
    run: tuple[Path, Weights], small_config: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    path, weights = run
    config = small_config(f"run_dir={path}", "trainer.warmup.samples=1000")
    parts = path / "episodes" / ".retrievals" / "ghar_rl-train"
    weights.lasting = 700
    with pytest.raises(RuntimeError, match="killed"):
        record_retrievals(config)
    done = sorted(parts.glob("*.jsonl"))
    assert done and not (path / "retrievals.parquet").exists()
    first, *others = rows = list(read_lines(done[0]))
    assert all(row["retrievals"] == 0 for row in rows[2::3]), "a yes without meta-paths finds nothing"
    write_lines(done[0], [{**first, "failure": "context"}, *others])
    asked, weights.lasting = weights.acts, 10**9
    capsys.readouterr()
    found = pl.read_parquet(record_retrievals(config))
    assert f"{len(done)} of " in capsys.readouterr().out and weights.acts > asked
    assert found.schema == {"sample_id": pl.String, "retrieved": pl.Boolean}
    assert found["sample_id"].to_list() == list(weights.order)
    expected = [i % 3 > 0 for i in range(len(found))]
    assert found["retrieved"].to_list() == [None, *expected[1:]]
    assert not parts.parent.exists(), "episodes quote patients, so none is left"


def test_samples_that_no_teacher_tries_are_not_played(
    run: tuple[Path, Weights], small_config: Make, small_system: System[Any]
) -> None:
    path, weights = run
    config = small_config(f"run_dir={path}", "trainer.warmup.samples=6")
    found = pl.read_parquet(record_retrievals(config))
    tried = [case.sample_id for case in teacher_cases(small_system, config)]
    assert found["sample_id"].to_list() == tried and len(tried) == 6
    assert found["retrieved"].to_list() == [weights.order[ident] % 3 > 0 for ident in tried]


def test_a_run_of_other_data_is_refused(run: tuple[Path, Weights], small_config: Make) -> None:
    path, weights = run
    with pytest.raises(BadInput, match=r"run is of other data \(.*\): give the data, task and seed"):
        record_retrievals(small_config(f"run_dir={path}", "task=read"))
    assert weights.acts == 0 and not (path / "retrievals.parquet").exists()


def test_an_unfinished_training_is_refused(run: tuple[Path, Weights], small_config: Make) -> None:
    path, weights = run
    RunFolder.open(path).write_summary({"policies": {}})  # as an evaluation of a run that was cut short leaves it
    with pytest.raises(BadInput, match=r"run holds an unfinished training: train it to its end, or name weights in"):
        record_retrievals(small_config(f"run_dir={path}"))
    assert weights.acts == 0


def test_a_run_that_was_never_trained_is_refused(small_config: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no trained weights: train it first"):
        record_retrievals(small_config(f"run_dir={tmp_path / 'none'}"))
    assert not (tmp_path / "none").exists()
