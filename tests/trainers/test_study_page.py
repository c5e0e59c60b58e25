"""The section of docs/results.md that a study's folder gives, finished or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.study_page import insert_section, section_lines, study_page
from ghar.errors import BadInput
from ghar.launch.study import workshop as launched
from ghar.trainers.study.run import about, run_study
from ghar.trainers.study.schema import cells_of
from tests.trainers.test_study import quiet, workshop

PAGE = "# Results\n\n## One\n\nA.\n\n## Not measured at this commit\n\nThe rest.\n"


def test_a_section_is_put_before_the_last_and_replaced() -> None:
    once = insert_section(PAGE, "## Study: S\n\nB.\n\n")
    assert once == PAGE.replace("## Not", "## Study: S\n\nB.\n\n## Not")
    assert insert_section(once, "## Study: S\n\nB.\n\n") == once
    assert insert_section(once, "## Study: S\n\nC.\n\n") == once.replace("B.", "C.")
    both = insert_section(once, "## Study: T\n\nD.\n\n")
    assert insert_section(both, "## Study: S\n\nC.\n\n") == both.replace("B.", "C.")  # where it is
    ours = "<!-- by hand -->\n\nWhat it says: \\1.\n\n<!-- /by hand -->\n"
    new = "## Study: S\n\nD.\n\n<!-- by hand -->\n<!-- /by hand -->\n\nE.\n\n"
    assert insert_section(once.replace("B.\n", f"B.\n\n{ours}"), new) == insert_section(
        once, f"## Study: S\n\nD.\n\n{ours}\nE.\n\n"
    )
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


@pytest.mark.parametrize("choices, heading, ends", [
    ((), "Study: GHAR, Tables IV-VII and Figures 6-9", "threads=1"),
    (("tasks=[read]", "seeds=[1]"), "Study: GHAR, Tables IV-VII and Figures 6-9, early readmission",
     "threads=1 'tasks=[read]' 'seeds=[1]'"),
    (("cohorts=[mimic4:/data/iv]",), "Study: GHAR, Tables IV-VII and Figures 6-9",
     "threads=1 'cohorts=[mimic4:FOLDER]'"),  # no path of a machine stands on a page
])  # fmt: skip
def test_a_section_names_the_command_and_its_tasks(choices: tuple[str, ...], heading: str, ends: str) -> None:
    shop, _ = launched(["study=ghar", "scale=rules", "threads=1", *choices])
    lines = list(section_lines(shop.folder, shop.study, about(shop), {}, [{"commit": "0123456789", "seconds": 1}]))
    assert lines[0] == f"## {heading}"
    assert lines[3] == f"python launch/study.py study=ghar scale=rules {ends}   # 01234567"
    assert lines[lines.index("<!-- by hand -->") + 1] == "<!-- /by hand -->"


def test_tables_and_gaps_of_several_cohorts_name_them(tmp_path: Path) -> None:
    shop, _ = launched(["study=four_sources", "scale=rules", f"folder={tmp_path / 'none'}"])
    gaps = "\n".join(section_lines(shop.folder, shop.study, about(shop), {}, [{"commit": "0", "seconds": 1}]))
    assert "all (mixed, los), all (graph, los), all (patients, los)" in gaps.replace("\n  ", " ")


def test_a_folder_without_a_finished_cell_is_a_sentence(tmp_path: Path, world_cache: Path) -> None:
    made, player = workshop(tmp_path / "study", world_cache)
    player.stops_at = 0
    with pytest.raises(KeyboardInterrupt):
        run_study(made, quiet)
    with pytest.raises(BadInput, match="has no finished cell"):
        study_page(made.folder.path, tmp_path / "results.md")
