"""task=medqa: medical questions with a choice of answers, in the forms in which the sets are distributed.

No patient stands behind a question: it is a sample of its own, and its number stands where a patient's does.

set                             a row has
MedQA (Jin et al. 2021)         question, options {A: ...}, answer_idx
MIRAGE (Xiong et al. 2024)      question, options {A: ...}, answer (a letter); one JSON file of several sets, FILE/NAME
MMLU (Hendrycks et al. 2021)    question, choices [...], answer (a number from 0, or a letter); or the authors' csv
MedMCQA (Pal et al. 2022)       question, opa, opb, opc, opd, cop (1 to 4, or 0 to 3 in copies that count from 0)
PubMedQA (Jin et al. 2019)      QUESTION, CONTEXTS, final_decision; or question, context, final_decision
A file is JSON lines, a JSON list, or a JSON object of rows by id, plain or gzipped. MMLU's csv has no header: question,
options, letter. A folder holds the official parts, files whose names have train, dev (or valid) and test in them
(`text_files`); or MMLU's folders dev, val and test of SUBJECT_PART.csv, of which dev, five questions a subject to show,
is for training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from ghar.config import TaskConfig
from ghar.data.cohort import Task
from ghar.data.tasks.samples import TextSample, kin_of
from ghar.data.tasks.splits import Splits, split_stratified
from ghar.data.tasks.text_files import TextSet, cells_of, parts_of, text_of, words_of
from ghar.errors import BadInput
from ghar.sanitize import readable

LETTERS = "ABCDEFGHIJ"
CHOICES = ("opa", "opb", "opc", "opd")  # MedMCQA's
DECISIONS = ("yes", "no", "maybe")  # PubMedQA's
MMLU_PARTS = {"train": "dev", "valid": "val", "test": "test"}  # part -> folder
TABLES = (".csv", ".csv.gz")
SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", *TABLES)
FORMS = (
    "MedQA (question, options, answer_idx), MIRAGE (question, options, answer), MMLU (question, choices, answer), "
    "MedMCQA (question, opa to opd, cop) or PubMedQA (QUESTION, final_decision)"
)
Row = Mapping[str, Any]
MEDQA, ASKED = "medqa", "Which answer is right?"


@dataclass(frozen=True)
class ChoiceQuestion:
    """`options` are named A, B, ... in this order; `answer` is the index of the right one."""

    question_id: str
    text: str
    options: tuple[str, ...]
    answer: int

    @property
    def letter(self) -> str:
        """The reference of an exact match."""
        return LETTERS[self.answer]

    @property
    def content(self) -> tuple[tuple[str, ...], frozenset[tuple[str, ...]]]:
        """What two copies of one question share, in whatever order their options stand."""
        return words_of(self.text), frozenset(map(words_of, self.options))

    def shown(self) -> str:
        """The question and its options, as a prompt shows them."""
        options = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, self.options, strict=False))
        return f"{self.text}\n{options}"


def read_parts(folder: Path) -> dict[str, list[ChoiceQuestion]]:
    """The official parts of a set, "train", "valid" and "test". BadInput where one of them is not there."""
    if all((folder / name).is_dir() for name in MMLU_PARTS.values()):
        return {part: _read_subjects(folder / name) for part, name in MMLU_PARTS.items()}
    return parts_of(folder, SUFFIXES, read_questions)


def read_questions(path: Path, name_of_set: str | None = None) -> list[ChoiceQuestion]:
    """The questions of a file, in one of the forms above; of a file of several sets those of one, or all.

    Ids are the file's first word and the row's number from 1, or its own id. Raises BadInput for a missing file and for
    a row that is no question with its answer among the options.
    """
    stem = path.name.partition(".")[0]
    rows = list(_table_rows(path, name_of_set) if path.name.endswith(TABLES) else _rows(path, name_of_set))
    first = _counts_from_one(path, [row for _, row in rows])
    return [_question(row, f"{stem}-{place.partition(' ')[2]}", f"{path}, {place}", first) for place, row in rows]


def _read_subjects(folder: Path) -> list[ChoiceQuestion]:
    """The questions of all subjects of one of MMLU's folders, subject by subject."""
    files = [path for path in sorted(folder.iterdir()) if path.name.endswith(TABLES)]
    if not files:
        raise BadInput(f"{folder} has no csv file of questions: put MMLU's SUBJECT_{folder.name}.csv there.")
    return [question for path in files for question in read_questions(path)]


def _table_rows(path: Path, name_of_set: str | None) -> Iterator[tuple[str, Row]]:
    """The rows of a csv file without a header: question, options, letter of the right one."""
    if name_of_set is not None:
        raise _of_one_set(path, name_of_set)
    for i, cells in enumerate(cells_of(path, f"a file of questions, {FORMS}"), start=1):
        if not cells:
            continue
        if len(cells) < 4:
            raise BadInput(f"{path}, row {i}: {len(cells)} cells; a row is a question, its options and a letter.")
        yield f"row {i}", {"question": cells[0], "choices": cells[1:-1], "answer": cells[-1].strip()}


def _rows(path: Path, name_of_set: str | None) -> Iterator[tuple[str, Row]]:
    """Where a row stands ("line 3", "row abc"), and the row."""
    text = text_of(path, f"a file of questions, {FORMS}")
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if name_of_set is not None:
        whole = {name_of_set: _set(path, whole, name_of_set)}
    if isinstance(whole, list):
        yield from ((f"row {i}", row) for i, row in enumerate(whole, start=1))
    elif isinstance(whole, dict) and not _is_row(whole):
        for name, row in whole.items():
            if isinstance(row, dict) and not _is_row(row):  # MIRAGE: sets by name
                yield from ((f"row {name}-{own}", inner) for own, inner in row.items())
            else:
                yield f"row {name}", row
    else:
        # Not splitlines: valid JSON holds U+2028 and U+2029, which are line ends to Python and not to JSON lines.
        for i, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield f"line {i}", json.loads(line)
                except ValueError as error:
                    raise BadInput(f"{path}, line {i}: {error}; a line is one question in JSON: correct it.") from error


def _set(path: Path, whole: object, name: str) -> Mapping[str, Row]:
    """One of the sets of a file. BadInput where it is not there, with those that are."""
    named = whole if isinstance(whole, dict) and not _is_row(whole) else {}
    sets = {own: rows for own, rows in named.items() if isinstance(rows, dict) and not _is_row(rows)}
    if not sets:
        raise _of_one_set(path, name)
    if name not in sets:
        raise BadInput(f"{path} has no set {name}: choose among {', '.join(sorted(sets))}.")
    return sets[name]


def _of_one_set(path: Path, name: str) -> BadInput:
    return BadInput(f"{path} is no file of several sets: leave /{name} out.")


def _is_row(value: Mapping[str, Any]) -> bool:
    return bool({"question", "QUESTION"} & value.keys())


def _counts_from_one(path: Path, rows: Sequence[Row]) -> bool:
    """Whether MedMCQA's cop counts from 1: the authors' files do, copies of them count from 0. BadInput for a file that
    could be read both ways."""
    cops = {_number(row["cop"]) for row in rows if isinstance(row, dict) and "cop" in row}
    if cops and cops <= set(range(1, len(CHOICES))):
        raise BadInput(
            f"{path}: no cop is 0 and none is {len(CHOICES)}, so it counts from 0 or from 1: take the whole file, or "
            "write options and answer_idx as MedQA does."
        )
    return 0 not in cops


def _number(cop: object) -> float | None:
    """Of an answer that a file has as 2, 2.0 or "2"; None for anything else."""
    try:
        return float(str(cop))
    except ValueError:
        return None


def _question(row: Row, name: str, where: str, first: bool) -> ChoiceQuestion:
    try:
        text = str(row["question"] if "question" in row else row["QUESTION"]).strip()
        given, answer = _options(row, first)
        options = tuple(map(_in_one_line, given))
        if row.get("question", row.get("QUESTION")) is None or not readable(text).strip():
            raise ValueError("an empty question")
        if not 2 <= len(options) <= len(LETTERS):
            raise ValueError(f"{len(options)} options, where a question has 2 to {len(LETTERS)}")
        if not 0 <= answer < len(options):
            raise ValueError(f"answer {answer} of {len(options)} options")
        if empty := [letter for letter, option in zip(LETTERS, options, strict=False) if not option]:
            raise ValueError(f"option {empty[0]} is empty")
        return ChoiceQuestion(name, readable("\n".join([*_contexts(row), text])), options, answer)
    except KeyError as error:
        raise BadInput(f"{where}: {error} is missing; a question is a row of {FORMS}.") from error
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise BadInput(f"{where}: {error}; a question is a row of {FORMS}.") from error


def _in_one_line(option: object) -> str:
    """An option as prompts show it, behind its letter. MedQA has 38 that end with a line end and a quotation mark."""
    text = " ".join(readable("" if option is None else str(option)).split())
    return text[:-1].rstrip() if text.count('"') == 1 and text.endswith('"') else text


def _place(answer: object, names: Sequence[str]) -> int:
    """Where an answer stands among names. ValueError for another one."""
    if answer not in list(names):  # a string of letters has "BC" in it
        raise ValueError(f"the answer {answer!r:.20} is none of {', '.join(names)}")
    return list(names).index(str(answer))


def _options(row: Row, first: bool) -> tuple[Sequence[Any], int]:
    """The options of a row, and which of them is right."""
    if "options" in row:
        if not isinstance(row["options"], dict) or sorted(row["options"]) != list(LETTERS[: len(row["options"])]):
            raise ValueError("its options are no letters from A on with a text each")
        letters = sorted(row["options"])
        right = row["answer_idx"] if "answer_idx" in row else row["answer"]
        return [row["options"][letter] for letter in letters], _place(right, letters)
    if "choices" in row:
        right = row["answer"]
        letters = LETTERS[: len(row["choices"])]
        return row["choices"], _place(right, letters) if isinstance(right, str) else int(right)
    if "opa" in row:
        if row.get("cop") in (None, -1):
            raise ValueError("it has no answer (cop), as MedMCQA's test, whose answers are not public: take dev for it")
        return [row[name] for name in CHOICES], int(row["cop"]) - first
    return DECISIONS, _place(str(row["final_decision"]).lower(), DECISIONS)


def _contexts(row: Row) -> list[str]:
    """PubMedQA's abstract, without its conclusion."""
    context = row.get("context")
    passages = row.get("CONTEXTS") or (context.get("contexts") if isinstance(context, dict) else context) or []
    return [passages] if isinstance(passages, str) else [str(part) for part in passages]


def read_question_set(root: Path, cut: TaskConfig) -> TextSet[TextSample[ChoiceQuestion]]:
    """Read the official parts of a folder, or split the questions of a file, or of a set in it, within each answer.

    root: FILE/NAME is the set of that name in a file of several sets, as if the file were a folder. The task's labels
    are the letters of the options. BadInput for questions of different numbers of options.
    """
    file, name = (root.parent, root.name) if root.parent.is_file() else (root, None)
    parts = read_parts(root) if root.is_dir() else {"all": read_questions(file, name)}
    firsts: dict[int, str] = {}
    for question in (question for part in parts.values() for question in part):
        firsts.setdefault(len(question.options), question.question_id)
    if not firsts:
        raise BadInput(f"{root} has no question: a question is a row of {FORMS}.")
    if len(firsts) > 1:
        each = ", ".join(f"{number} ({name})" for number, name in sorted(firsts.items()))
        raise BadInput(
            f"{root} has questions of several numbers of options, first {each}: give those of one number; of a file "
            f"of several sets, such as MIRAGE's, one set: {root}/NAME."
        )
    counts = set(firsts)
    numbers = count()
    exams = {
        name: tuple(TextSample(one.question_id, next(numbers), one, one.answer) for one in part)
        for name, part in parts.items()
    }
    if "all" in exams:
        kin = kin_of([(one.subject_id, one.text.content) for one in exams["all"]])  # copies stand in one part
        together = [replace(one, subject_id=own) for one, own in zip(exams["all"], kin, strict=True)]
        splits = split_stratified(together, cut.split, cut.split_seed)
    else:
        splits = Splits(exams["train"], exams["valid"], exams["test"])
    return TextSet(Task(MEDQA, ASKED, tuple(LETTERS[: counts.pop()]), "questions"), splits)
