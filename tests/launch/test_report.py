"""The command `ghar report`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ghar.errors import BadInput
from ghar.launch.report import main
from ghar.metrics.runfolder import RunFolder


def test_a_folder_with_an_equals_sign_in_its_name_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It was left out of a page of several runs without a word; out= is the one word that is no folder."""
    for name in ("lr=0.1", "lr=0.2"):
        folder = RunFolder.open(tmp_path / name)
        folder.write_episodes("a", [{"policy": "a", "sample_id": "s", "subject_id": 1, "correct": True, "label": "0"}])
        folder.write_summary({
            "policies": {"a": {"accuracy": [0.5, 0.4, 0.6]}}, "generated": True, "main": "a", "seed": 1,
            "task": {"name": "los", "labels": ["0", "1"]}, "titles": {"a": "a"},
        })  # fmt: skip
    main([str(tmp_path / "lr=0.1"), str(tmp_path / "lr=0.2"), f"out={tmp_path / 'page.html'}"])
    page = (tmp_path / "page.html").read_text()
    assert "lr=0.1" in page and "lr=0.2" in page and "page.html" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "lr=0.2")
    with pytest.raises(BadInput, match=r"lr=0\.2: there is no such folder"):
        main([str(tmp_path / "lr=0.1"), str(tmp_path / "lr=0.2")])
