"""task=summary: clinical texts with a summary each, in the forms in which the sets are distributed.

set                                      a row has
ACI-BENCH (Yim et al. 2023)              dataset, encounter_id, dialogue, note
MIMIC-IV-Ext-BHC (Aali et al. 2024)      note_id, input, target
A file is csv, plain or gzipped. A folder holds the official parts, files whose names have train, valid (or dev) and
test in them; of several test files all are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ghar.config import TaskConfig
from ghar.data.cohort import Task
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.data.tasks.text_files import TextSet, cells_of, parts_of, words_of
from ghar.errors import BadInput
from ghar.sanitize import readable

SUFFIXES = (".csv", ".csv.gz")
COLUMNS = {"encounter_id": ("dialogue", "note"), "note_id": ("input", "target")}  # id -> source, summary
FORMS = "ACI-BENCH (encounter_id, dialogue, note) or MIMIC-IV-Ext-BHC (note_id, input, target)"
SUMMARY, ASKED = "summary", "Summarise the text as a clinician would."
MANY, NAMED = 12, 40  # columns, and letters of a name, beyond which a header is none
WRITTEN, LABEL = "written", 0  # the one label: a summary has no classes


@dataclass(frozen=True)
class SummarisedText:
    """A text and its summary by a clinician. text_id: the file's first word and the row's own id."""

    text_id: str
    source: str
    summary: str

    @property
    def content(self) -> tuple[str, ...]:
        """What two copies of one text share."""
        return words_of(self.source)

    @property
    def patient(self) -> int | None:
        """The patient that MIMIC's note_id names ("10000032-DS-21"), None for other ids."""
        number = self.text_id.partition(":")[2].partition("-DS-")
        return int(number[0]) if number[1] and number[0].isdecimal() else None


def read_text_parts(folder: Path) -> dict[str, list[SummarisedText]]:
    """The official parts of a set, "train", "valid" and "test". BadInput where one of them has no file."""
    return parts_of(folder, SUFFIXES, read_texts)


def read_texts(path: Path) -> list[SummarisedText]:
    """The texts of a file. BadInput for a missing file, other columns, an empty cell and an id that comes twice."""
    columns, *rows = [cells for cells in cells_of(path, f"a csv file of texts, {FORMS}") if cells] or [[]]
    key = next((name for name, own in COLUMNS.items() if {name, *own} <= set(columns)), None)
    if key is None:
        raise BadInput(f"{path} has {_header(columns)}: a file of texts is {FORMS}.")
    for i, cells in enumerate(rows, start=1):
        if len(cells) != len(columns):
            raise BadInput(
                f"{path}, row {i}: {len(cells)} cells under {len(columns)} columns; put a text with commas in quotes."
            )
    stem = path.name.partition(".")[0]
    named = [dict(zip(columns, cells, strict=True)) for cells in rows]
    texts = [_text(row, key, stem, f"{path}, row {i}") for i, row in enumerate(named, start=1)]
    if not texts:
        raise BadInput(f"{path} has no text: a file of texts is {FORMS}.")
    rows_of: dict[str, int] = {}
    for i, text in enumerate(texts, start=1):
        if (first := rows_of.setdefault(text.text_id, i)) != i:
            raise BadInput(f"{path}, rows {first} and {i} have one {key}: correct it.")
    return texts


def _header(columns: Sequence[str]) -> str:
    """The columns by name; of what may be the text of a file without a header no word."""
    if not columns or max(map(len, columns)) > NAMED or len(columns) > MANY:
        longest = max(map(len, columns), default=0)
        return f"no header, but {len(columns)} cells of up to {longest:,} letters"
    return f"the columns {', '.join(columns)}"


def _text(row: Mapping[str, str], key: str, stem: str, where: str) -> SummarisedText:
    cells = [row.get(name, "").strip() for name in (key, *COLUMNS[key])]
    for name, cell in zip((key, *COLUMNS[key]), cells, strict=True):
        if not cell:
            raise BadInput(f"{where}: {name} is empty; correct the row or leave it out.")
    return SummarisedText(f"{stem}:{cells[0]}", readable(cells[1]), readable(cells[2]))


def read_summary_set(root: Path, cut: TaskConfig) -> TextSet[TextSample[SummarisedText]]:
    """Read the official parts of a folder, or split a file's texts by patient. BadInput as the readers raise it."""
    numbers = count()

    def samples(texts: list[SummarisedText]) -> tuple[TextSample[SummarisedText], ...]:
        lines = [(one, next(numbers)) for one in texts]
        return tuple(
            TextSample(one.text_id, line if one.patient is None else one.patient, one, LABEL) for one, line in lines
        )

    if root.is_dir():
        parts = {name: samples(texts) for name, texts in read_text_parts(root).items()}
        splits = Splits(parts["train"], parts["valid"], parts["test"])
    else:
        splits = split_by_patient(samples(read_texts(root)), cut.split, cut.split_seed)
    return TextSet(Task(SUMMARY, ASKED, (WRITTEN,), "texts"), splits)
