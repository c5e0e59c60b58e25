"""Files are left unread where no test of theirs can be asked for, and only there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.selection import may_select, refuse_borrowed_marks

ROOT = Path(__file__).resolve().parents[1]
FAST, SLOW = "not slow and not heavy and not gpu", "slow and not heavy and not gpu and not nightly"
HEAVY = "heavy and not gpu"
ALL_HEAVY = "pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures('cluster')]\n"
SOME_SLOW = "@pytest.mark.slow\ndef test_a(): ...\n"


@pytest.mark.parametrize("expression, text, is_read", [
    (FAST, "", True), (SLOW, "", False), (HEAVY, "", False), ("", ALL_HEAVY, True),
    (FAST, SOME_SLOW, True), (SLOW, SOME_SLOW, True), (HEAVY, SOME_SLOW, False),
    (FAST, ALL_HEAVY, False), (SLOW, ALL_HEAVY + SOME_SLOW, False), (HEAVY, ALL_HEAVY + SOME_SLOW, True),
    (SLOW, "@pytest.mark.slow\n@pytest.mark.nightly\n", True), ("nightly", SOME_SLOW, False),
    (SLOW, "pytest.param(3, marks=pytest.mark.slow)", True), (SLOW, "slowly = 'mark.slowly'", False),
    (HEAVY, "    pytestmark = pytest.mark.gpu\n@pytest.mark.heavy\n", True),
    ("hypothesis and not heavy and not gpu", "", True), ("hypothesis", ALL_HEAVY, True),
])  # fmt: skip
def test_a_file_is_read_where_a_test_of_it_may_be_asked_for(expression: str, text: str, is_read: bool) -> None:
    assert may_select(expression, text) == is_read


def test_the_parts_of_make_test_are_those_of_the_makefile() -> None:
    """The expressions above, of which the first three leave no test out but those of a GPU and of a night."""
    makefile = (ROOT / "Makefile").read_text()
    assert {FAST, SLOW, HEAVY} <= set(re.findall(r"-m '([^']+)'", makefile))


def test_a_mark_that_a_file_does_not_name_is_refused(tmp_path: Path) -> None:
    """Or the test would be left out without a word."""
    path = tmp_path / "test_one.py"
    item: Any = SimpleNamespace(path=path, nodeid="test_one.py::test_a", iter_markers=lambda: [pytest.mark.slow.mark])
    path.write_text("@pytest.mark.slow\ndef test_a(): ...\n")
    refuse_borrowed_marks([item])
    path.write_text("@from_elsewhere\ndef test_a(): ...\n")
    with pytest.raises(pytest.UsageError, match=r"test_one\.py::test_a is marked slow: name it in test_one\.py\."):
        refuse_borrowed_marks([item])
