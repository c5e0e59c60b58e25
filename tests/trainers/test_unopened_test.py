"""task.max_test=0: the validation samples are played, no test sample is, and every page says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.compare import check_patients
from ghar.trainers.evaluation.evaluate import evaluate


def ids(cases) -> list[str]:
    return [case.sample_id for case in cases]


def test_the_validation_samples_stand_in_the_tests_place(small_config: Callable[..., Config]) -> None:
    whole, unopened = Records(small_config()), Records(small_config("task.max_test=0"))
    assert ids(unopened.splits.train) == ids(whole.splits.train)
    assert ids(unopened.splits.test) == ids(unopened.splits.valid) == ids(whole.splits.valid)
    assert not set(ids(whole.splits.test)) & set(ids(unopened.splits.test))
    cut = Records(small_config("task.max_test=0", "task.max_valid=5"))
    assert ids(cut.splits.test) == ids(cut.splits.valid) and len(cut.splits.test) == 5


def test_an_evaluation_says_whose_numbers_they_are(
    small_config: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("system=baselines", "eval.variants=[usual,last_stay]", "eval.bootstrap=20", f"run_dir={tmp_path}")
    summary = evaluate(small_config(*words, "task.max_test=0"))
    assert summary["split"] == "valid" and "this is no test result" in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "report.html").read_text()
    assert "Validation patients" in page and "Accuracy on the validation patients" in page
    assert "test set" not in page and "the test patients" not in page
    rows = list(RunFolder(tmp_path).episodes("usual"))
    assert {row["sample_id"] for row in rows} == set(ids(Records(small_config()).splits.valid))
    assert {row["split"] for row in rows} == {"valid"} and summary["rarity"]["usual"]
    later = evaluate(small_config(*words))  # the test, once: into a folder of its own, and the run's numbers stay
    assert "split" not in later and RunFolder(tmp_path).summary()["split"] == "valid"  # type: ignore[index]
    [other] = (tmp_path / "evaluations").iterdir()
    page = (other / "report.html").read_text()
    assert "Validation patients" not in page and "Accuracy on the test patients" in page


def test_a_comparison_on_validation_is_allowed(small_config: Callable[..., Config]) -> None:
    system = build(Records(small_config("task.max_test=0")))
    check_patients({"ghar": system}, on_valid=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("system=kare", "task=read"), ("system=exprag", "task=dischargeqa_medication"), ("system=exprag", "task=read"),
        ("system=graphwalker", "task=series_mortality"), ("system=graphwalker", "task=read"), ("system=baselines",),
        ("system=ehr_rag", "task=guo_los"), ("system=comparators", "task=read"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_system_leaves_the_test_unopened(
    words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.getbasetemp() / "unopened"
    own = [*words, "data.patients=120", f"data.cache={cache}"]
    whole, unopened = (build(Records(load([*own, f"task.max_test={most}"]))) for most in ("null", "0"))
    assert ids(unopened.cases.train) == ids(whole.cases.train)
    assert ids(unopened.cases.test) == ids(unopened.cases.valid) == ids(whole.cases.valid)
    assert not set(ids(whole.cases.test)) & set(ids(unopened.cases.test))
