"""Progress is one line when nobody watches, and never changes the items."""

import pytest

from ghar.progress import left_of, progress, track


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


def test_what_is_counted_stands_behind_the_number(capsys, monkeypatch):
    monkeypatch.setattr("ghar.progress.EVERY", 0.0)
    assert list(track("ab", "Read", unit="tables")) == ["a", "b"]
    first, second, end = capsys.readouterr().err.splitlines()
    assert first == "Read: 1 of 2 tables" and second.startswith("Read: 2 of 2 tables, ")
    assert end.startswith("Read: 2 tables in ")


def test_a_failed_step_prints_no_end_line(capsys):
    with pytest.raises(RuntimeError), progress(10, "Parts"):
        raise RuntimeError
    assert "Parts" not in capsys.readouterr().err


def test_a_long_step_says_how_far_it_is_where_no_one_sees_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("ghar.progress.EVERY", 0.0)
    with progress(4, "Parts") as advance:
        advance()
        advance()
    first, second, end = capsys.readouterr().err.splitlines()
    assert first == "Parts: 1 of 4"  # how long it took to get ready says nothing of the pace
    assert second.startswith("Parts: 2 of 4, ") and second.endswith(" left") and end.startswith("Parts: 2 in ")


@pytest.mark.parametrize(
    ("spent", "done", "words"), [(10, 5, "10 s left"), (600, 5, "10 min left"), (9e3, 1, "22.5 h left")]
)
def test_what_is_left_in_words(spent, done, words):
    assert left_of(spent, done, 10 - done) == words and left_of(spent, 0, 10) == ""


def test_parts_of_a_step_are_one_step(capsys):
    with progress(5, "Evaluating kare", "episodes"):
        for part in ([1, 2, 3], [4, 5]):
            assert list(track(part, "Evaluating kare", unit="episodes")) == part
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Evaluating kare: 5 episodes in ")
    list(track([1], "Evaluating kare"))
    assert capsys.readouterr().err.startswith("Evaluating kare: 1 in ")
