"""What cuts the data is reachable: a documented key that the command line takes, and a caller of what does it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ghar.launch.entry import load

ROOT = Path(__file__).resolve().parents[2]
PAGES = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
CODE = {
    path: path.read_text() for room in ("envs", "ghar", "launch", "trainers") for path in (ROOT / room).rglob("*.py")
}
KEYS = {  # what -> what is written on a command line, and the function that does it
    "pairs across tasks": ("task=read task.split_of=cohort", "split_samples"),
    "weights that have seen a test patient": (
        "task=read eval.checkpoint=runs/other/checkpoints/step-1",
        "check_overlap",
    ),
    "the last visit of two or more": ("task=read task.draw=last", "last_of_patients"),
    "so many patients": ("task=read task.patients=100", "sample_patients"),
    "KARE's draw": ("task=kare_readmission task.draw=kare", "mimic4_sample"),
    "KARE's released window": ("task=kare_readmission task.anchor=admission", "next_visit_samples"),
    "similar patients cut by time": ("task=read data.earlier=true", "known_by"),
    "complete visits": ("task=read task.complete=true", "complete_only"),
    "hours": ("system=graphwalker task=series_mortality system.step_hours=1", "series_samples"),
    "stays of the benchmark": ("system=graphwalker task=series_mortality system.stay=benchmark", "benchmark_stays"),
    "tables besides": ("task=read data.more=[omr]", "more_tables"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", KEYS)
def test_a_documented_key_leads_to_it(what: str) -> None:
    line, function = KEYS[what]
    load(line.split())  # BadInput for a key or a value that does not exist
    key = line.split()[-1]
    name = key.partition("=")[0]
    assert name in PAGES or name in "".join(p.read_text() for p in (ROOT / "conf/protocol").glob("*.yaml")), name
    used = [line for text in CODE.values() for line in text.splitlines() if re.search(rf"\b{function}\b", line)]
    assert any(line.startswith(f"def {function}(") for line in used), function
    assert [line for line in used if not line.lstrip().startswith(("def ", "from ", "import ", "#"))], function


def test_rarity_groups_and_the_export_are_parts_of_commands() -> None:
    callers = {path.name for path, text in CODE.items() if "rarity_groups(" in text or "write_meds(" in text}
    assert {"leakage.py", "export_meds.py"} <= callers
