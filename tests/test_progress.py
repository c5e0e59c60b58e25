"""Progress is one line when nobody watches, and never changes the items."""

import pytest

from ghar.progress import progress, track


def test_items_pass_through_and_one_line_is_printed(capsys):
    assert list(track([3, 1, 2], "Count")) == [3, 1, 2]
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("Count: 3 in ")


def test_items_without_length():
    assert list(track(iter("ab"), "Letters")) == ["a", "b"]


def test_advance_counts_parts(capsys):
    with progress(10, "Parts") as advance:
        advance(4)
        advance()
    assert capsys.readouterr().err.startswith("Parts: 5 in ")


def test_a_failed_step_prints_no_end_line(capsys):
    with pytest.raises(RuntimeError), progress(10, "Parts"):
        raise RuntimeError
    assert "Parts" not in capsys.readouterr().err
