"""MedQA's files as questions."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ghar.data.readers.questions import read_medqa
from ghar.errors import BadInput
from ghar.metrics.texts import text_scores

LINE = '{"question": "Which?", "answer": "two", "options": {"A": "one", "B": "two"}, "answer_idx": "B"}\n'


def test_the_test_questions_of_medqa(shared_data: Path) -> None:
    questions = read_medqa(shared_data / "text/medqa_us_4options/phrases_no_exclude_test.jsonl.gz")
    assert len(questions) == 1273 == len({question.question_id for question in questions})
    assert all(len(question.options) == 4 and 0 <= question.answer < 4 for question in questions)
    first = questions[0]
    assert first.question_id == "phrases_no_exclude_test-1" and first.letter == "B"
    assert first.options[first.answer] == "Tell the attending that he cannot fail to disclose this mistake"
    always_b = text_scores(["B"] * 1273, [question.letter for question in questions], patients=None)["exact_match"]
    assert always_b.value == sum(question.answer == 1 for question in questions) / 1273
    assert always_b.deviation == pytest.approx((always_b.value * (1 - always_b.value) / 1273) ** 0.5, rel=0.1)


def test_plain_and_gzipped(tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(LINE + "\n" + LINE)
    (tmp_path / "dev.jsonl.gz").write_bytes(gzip.compress(LINE.encode()))
    plain, zipped = read_medqa(tmp_path / "dev.jsonl"), read_medqa(tmp_path / "dev.jsonl.gz")
    assert [question.question_id for question in plain] == ["dev-1", "dev-3"] and zipped == plain[:1]
    assert plain[0].shown() == "Which?\nA. one\nB. two"


@pytest.mark.parametrize("line", [
    "no json", "[1]", '{"question": "Which?"}', LINE.replace('"B"}', '"E"}'), LINE.replace('"A": ', '"F": '),
])  # fmt: skip
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(LINE + line)
    with pytest.raises(BadInput, match="line 2"):
        read_medqa(tmp_path / "dev.jsonl")


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(LINE.encode() * 50)[:60])
    for name in ("absent.jsonl", "cut.jsonl.gz"):
        with pytest.raises(BadInput, match=name):
            read_medqa(tmp_path / name)
