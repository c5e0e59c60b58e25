"""Replies written by someone who had not read the parser: 300 that commit to no answer, 58 that do."""

from __future__ import annotations

from pathlib import Path

from ghar.llm.parsing import parse_label, parse_path_ids

LABELS = {"yesno": ("yes", "no"), "stay": tuple(map(str, range(10))), "place": ("home", "nursing facility", "died")}


def _rows(name):
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").split("\t") for line in lines if not line.startswith("#")]


def _read(reader, reply):
    if reader == "paths":
        found = parse_path_ids(reply, 12, 3)
        return None if found.error else " ".join(map(str, found.value.ids))
    found = parse_label(reply, LABELS[reader])
    return None if found.value is None else LABELS[reader][found.value]


def test_replies_without_an_answer_are_not_read_as_one():
    """First measured: 24 of 300 (16 labels, 8 lists of paths). Since then kinds were mended, so that it is blind no
    more. Too many paths are counted as errors of a list that stands (Eq. 8); 0 is a path; "3?" is read as path 3."""
    read = [(reader, reply) for reader, reply in _rows("unclear_blind.txt") if _read(reader, reply) is not None]
    assert len([pair for pair in read if pair[0] != "paths"]) <= 2, read
    assert len(read) <= 5, read


def test_replies_with_an_answer_are_read_or_counted_as_errors_of_format():
    """8 of 58 are prose without "answer:", which names no label by the contract of parse_label."""
    wrong = [row for row in _rows("clear_blind.txt") if _read(row[0], row[2]) not in (row[1], None)]
    unread = [row for row in _rows("clear_blind.txt") if _read(row[0], row[2]) is None]
    assert not wrong
    assert len(unread) <= 8, unread
