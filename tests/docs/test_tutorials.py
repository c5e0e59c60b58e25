"""Every script of docs/tutorials runs as it stands, in order, in one folder."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
SHOWN = {  # script -> what it prints at the end
    "1_episode.py": ["[retrieve]", "== prediction 3 =="],
    "2_system.py": ["right; 3 effects", "Retrieve"],
    "3_training.py": ["sft", "runs/tutorial/report.html"],
    "4_meds.py": ["'train': 36, 'valid': 12, 'test': 12", "label: "],
    "5_model.py": ["269,760 weights", "retrieve 'yes'"],
    "6_report.py": ["ghar_rl: accuracy", "macro F1", "reward"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, in which 5 and 6 find the run of 3."""
    return tmp_path_factory.mktemp("tutorials")


def test_all_tutorials_are_run():
    assert sorted(path.name for path in FOLDER.glob("*.py")) == list(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_tutorial_runs(name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(place)
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    out = capsys.readouterr().out
    assert [words for words in SHOWN[name] if words not in out] == []
    assert len((FOLDER / name).read_text().splitlines()) <= 80
