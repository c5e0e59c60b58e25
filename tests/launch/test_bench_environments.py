"""benchmarks/environments.py: every id has its numbers, in the page and in its metadata, and they are of this code."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.environments import PAGE, measured, table
from ghar.envs.demo import ETA
from ghar.envs.register import GAMES, load_scores, make


def test_every_id_has_numbers_on_the_page_and_in_its_metadata() -> None:
    scores = load_scores()
    assert list(scores) == [f"ghar/{name}-v0" for name in GAMES]
    assert table(scores) in PAGE.read_text(), "python benchmarks/run.py environments"
    assert make("KARE").metadata["reward"] == scores["ghar/KARE-v0"]["reward"]
    for name in ("GHAR", "KARE", "EHRRAG", "EXPRAG"):
        own = scores[f"ghar/{name}-v0"]
        best = next(mean for who, (mean, _, _) in own["scores"].items() if who.startswith("best constant"))
        assert best <= 0.1 * ETA and own["reward"]["high"] == pytest.approx(ETA)


def test_what_is_written_down_is_what_is_measured() -> None:
    """Of the quickest id, anew."""
    kept = load_scores()["ghar/GraphWalker-v0"]
    assert measured("GraphWalker", 200) == kept


def test_the_package_carries_the_numbers() -> None:
    text = (Path(__file__).resolve().parents[2] / "setup.cfg").read_text()
    assert "scores.json" in text and "py.typed" in text
