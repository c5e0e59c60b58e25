"""The report: complete, self-contained, and safe against what a model may have written."""

import json
import re
from pathlib import Path

import pytest

from ghar.errors import BadInput
from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder


def test_everything_is_in_one_file_without_requests(whole_run: RunFolder):
    page = write_report(whole_run.path).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) and "@import" not in page
    for text in ("generated", "GHAR after RL", "Always retrieve", "Confusion", "Validation reward", "amyloidosis"):
        assert text in page, text
    assert page.count("<svg") >= 8
    assert "not complete" not in page


def test_ten_patients_can_be_browsed(whole_run: RunFolder):
    page = write_report(whole_run.path).read_text()
    assert len(set(re.findall(r"\bp\d{4}\b", page))) >= 10


def test_model_text_is_shown_and_never_run(tmp_path: Path):
    run = RunFolder.open(tmp_path / "run")
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    row = {
        "policy": evil, "split": "test", "sample_id": evil, "patient": evil, "label": "1", "prediction": None,
        "correct": False, "needs_retrieval": None, "retrieved": False, "iterations": 1, "prompt_tokens": 1,
        "completion_tokens": 1, "seconds": 0.1, "rewards": {"orm": 0.0}, "reward": 0.0, "failure": None,
        "turns": [{"agent": "top", "role": "predict", "step": 0, "prompt": evil, "reply": "</script>" + evil,
                   "format_ok": False, "evidence": evil}],
    }  # fmt: skip
    run.write_episodes("ghar_rl", [row])
    page = write_report(run.path).read_text()
    assert "<script>alert" not in page and "<img src=x" not in page
    assert "alert(1)" in page


@pytest.mark.parametrize("gone", ["summary.json", "metrics.jsonl", "config.yaml"])
def test_a_part_that_is_missing_is_named(whole_run: RunFolder, gone: str):
    (whole_run.path / gone).unlink()
    page = write_report(whole_run.path).read_text()
    assert "not complete" in page and gone in page


def test_credentialed_patients_are_marked(whole_run: RunFolder):
    summary = json.loads((whole_run.path / "summary.json").read_text())
    whole_run.write_summary({**summary, "generated": False})
    assert "Keep this file where the data may be kept" in write_report(whole_run.path).read_text()


def test_a_folder_that_is_no_run(tmp_path: Path):
    with pytest.raises(BadInput, match="folder of a run"):
        write_report(tmp_path)
