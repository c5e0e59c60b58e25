"""The section of docs/results.md that a study's folder gives, finished or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.study_page import insert_section, study_page
from ghar.errors import BadInput
from ghar.trainers.study.run import run_study
from ghar.trainers.study.schema import cells_of
from tests.trainers.test_study import quiet, workshop

PAGE = "# Results\n\n## One\n\nA.\n\n## Not measured at this commit\n\nThe rest.\n"


def test_a_section_is_put_before_the_last_and_replaced() -> None:
    once = insert_section(PAGE, "## Study: S\n\nB.\n\n")
    assert once == PAGE.replace("## Not", "## Study: S\n\nB.\n\n## Not")
    assert insert_section(once, "## Study: S\n\nB.\n\n") == once
    assert insert_section(once, "## Study: S\n\nC.\n\n") == once.replace("B.", "C.")
    with pytest.raises(BadInput, match="has no heading '## Not measured"):
        insert_section("# Results\n", "## Study: S\n\n")


@pytest.mark.slow
def test_a_stopped_study_gives_its_finished_seed(tmp_path: Path, world_cache: Path) -> None:
    made, player = workshop(tmp_path / "study", world_cache, tasks=["read"])
    page = tmp_path / "results.md"
    page.write_text(PAGE)
    player.stops_at = 2
    with pytest.raises(KeyboardInterrupt):
        run_study(made, quiet)
    assert player.played == ["one-demo-read-seed0", "two-demo-read-seed0"]  # all of seed 0 before any of seed 1
    assert study_page(made.folder.path, page) == {"finished cells": 2, "cells": len(cells_of(made.study))}
    text = page.read_text()
    assert "## Study: A study" in text and "scale=rules data.patients=150" in text
    [good] = [line for line in text.splitlines() if line.startswith("| **Good & right** | 0 | ")]
    [poor] = [line for line in text.splitlines() if line.startswith("| Poor | 0 | ")]
    assert good.endswith("|  |") and ", p " in poor
    assert "| No rule |  | needs a trained model; scale=rules trains none" in text
    assert "- begun, seed 1: one (read)" in text and "- not begun, seed 1: two (read)" in text


def test_a_folder_without_a_finished_cell_is_a_sentence(tmp_path: Path, world_cache: Path) -> None:
    made, player = workshop(tmp_path / "study", world_cache)
    player.stops_at = 0
    with pytest.raises(KeyboardInterrupt):
        run_study(made, quiet)
    with pytest.raises(BadInput, match="has no finished cell"):
        study_page(made.folder.path, tmp_path / "results.md")
