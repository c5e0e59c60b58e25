"""Medical questions with a choice of answers: MedQA (Jin et al. 2021), as its files are distributed."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from ghar.errors import BadInput
from ghar.plain import readable

LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Question:
    """`options` are named A, B, ... in this order; `answer` is the index of the right one."""

    question_id: str
    text: str
    options: tuple[str, ...]
    answer: int

    @property
    def letter(self) -> str:
        """The reference of an exact match."""
        return LETTERS[self.answer]

    def shown(self) -> str:
        """The question and its options, as a prompt shows them."""
        options = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, self.options, strict=False))
        return f"{self.text}\n{options}"


def read_medqa(path: Path) -> list[Question]:
    """Questions of a file such as questions/US/4_options/phrases_no_exclude_test.jsonl, or the same gzipped.

    Ids are the file's first word and the line number from 1. Raises BadInput for a missing file and for a line that is
    no question with its answer among the options.
    """
    try:
        opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
        with opened as file:
            lines = file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} cannot be read ({error}): give a file of MedQA questions (jsonl or jsonl.gz)."
        ) from error
    stem = path.name.partition(".")[0]
    return [_question(line, f"{stem}-{i}", path) for i, line in enumerate(lines, start=1) if line.strip()]


def _question(line: str, name: str, path: Path) -> Question:
    try:
        row = json.loads(line)
        letters = sorted(row["options"])
        if letters != list(LETTERS[: len(letters)]):
            raise ValueError(f"options {letters}")
        options = tuple(readable(str(row["options"][letter])) for letter in letters)
        return Question(name, readable(str(row["question"])), options, letters.index(row["answer_idx"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path}, line {name.rpartition('-')[2]}: {error} is wrong or missing; a question has question, options "
            "A, B, ... and answer_idx."
        ) from error
