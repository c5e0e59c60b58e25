"""A section of docs/results.md from a study's folder, finished or not: command, commit, tables, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from ghar.errors import BadInput
from ghar.metrics.runfolder import write_whole
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.metrics import title_of
from ghar.trainers.study.numbers import NOT_PLAYED, WHOLE
from ghar.trainers.study.run import conclude, kept_study
from ghar.trainers.study.schema import Study, StudyTable, cells_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"
WIDTH = 118
COSTS = ("rounds", "calls", "tokens", "lookups", "seconds")
LAST = "## Not measured at this commit"  # the section that a new one is put before


def study_page(path: Path, page: Path = PAGE) -> dict[str, int]:
    """Draw what the folder holds, and write or replace its section; how many cells it has, of how many."""
    folder = StudyFolder(path)
    study = kept_study(folder)
    cells = cells_of(study)
    done = [about for cell in cells if (about := folder.done(cell)) is not None]
    if not done:
        raise BadInput(f"{path} has no finished cell: start the study first.")
    numbers = conclude(folder, study)
    text = "\n".join(section(folder, study, numbers, done)) + "\n\n"
    write_whole(page, placed(page.read_text(), text))
    return {"finished cells": len(done), "cells": len(cells)}


def placed(page: str, text: str) -> str:
    """The page with a section: in place of the one of its heading, else before the last. BadInput without that one."""
    if f"\n{LAST}\n" not in page:
        raise BadInput(f"The page has no heading {LAST!r}, before which a study's section stands.")
    heading = text.partition("\n")[0]
    without = re.sub(rf"(?ms)^{re.escape(heading)}\n.*?(?=^## )", "", page)
    return without.replace(f"\n{LAST}\n", f"\n{text}{LAST}\n")


def section(folder: StudyFolder, study: Study, numbers: Mapping[str, Any], done: list[dict[str, Any]]) -> Iterator[str]:
    """Its lines."""
    about = folder.about()
    more = "".join(f" {text}" for text in about["more"])
    commits = ", ".join(dict.fromkeys(str(one["commit"])[:8] for one in done))
    yield f"## Study: {study.title}"
    yield ""
    yield "```sh"
    yield f"python launch/study.py study={study.name} scale={about['scale']['name']}{more}   # {commits}"
    yield "```"
    yield ""
    yield from _head(study, about["more"], numbers, done)
    for table in study.tables:
        if table.by is None:
            for cohort in study.cohorts:
                yield from lines_of(study, table, numbers.get(f"{table.name}-{cohort}"))
    yield from missing(folder, study)


def _head(study: Study, more: list[str], numbers: Mapping[str, Any], done: list[dict[str, Any]]) -> Iterator[str]:
    """What was played, under which keys beside the study's own, and how to read the tables."""
    told = [part[WHOLE] for found in numbers.values() for row in found["cells"].values() for part in row.values()
            if "value" in part.get(WHOLE, {})]  # fmt: skip
    largest = max(told, key=lambda cell: cell["samples"], default={"samples": 0, "patients": 0})
    hours = sum(one["seconds"] for one in done) / 3600
    own = ", ".join(f"`{text}`" for text in more if not text.startswith("threads="))
    words = [
        f"{len(done)} of {len(cells_of(study))} cells, {hours:.1f} hours by the clock;",
        f"{largest['samples']:,} test samples of {largest['patients']:,} patients.",
        f"Beside the study's own keys: {own or 'none'}.",
        "An interval over one seed is of patients alone, and says nothing of another training.",
        f"The last column is the first number of the {study.row(study.main).title} row less the line's, with p after",
        "Holm's correction for all tests of the table.",
    ]
    if study.paper is None:
        words.append("No paper has these rows on one task, so no published number stands beside them.")
    yield from (*wrap(study.about.strip(), WIDTH), "", *wrap(" ".join(words), WIDTH))


def lines_of(study: Study, table: StudyTable, found: Mapping[str, Any] | None) -> Iterator[str]:
    """A table of the rows whose cells are finished: numbers, or why there is none; in a table of costs without the rows
    that cost nothing. Nothing where there are none, or where the table is a figure of two numbers that others hold."""
    if found is None or table.draw == "scatter":
        return
    columns = found["columns"]
    costs = all(column.split("/")[1] in COSTS for column in columns)
    rows = [name for name, own in found["cells"].items() if _shown([own[c][WHOLE] for c in columns], costs)]
    if not rows:
        return
    yield ""
    yield f"{table.title}:"
    yield ""
    titles = [f"{column.split('/')[0]}: {title_of(column.split('/')[1])}" for column in columns]
    yield f"| who | seeds | {' | '.join(titles)} | {titles[0]}, difference |"
    yield "|---" * (len(columns) + 3) + "|"
    for name in rows:
        own, test = found["cells"][name], found["tests"].get(name, {}).get(columns[0], {}).get(WHOLE)
        seeds = max((own[c][WHOLE].get("seeds", []) for c in columns), key=len)
        apart = "" if test is None else f"{_signed(test)}, p {test['holm']:.3f}"
        title = study.row(name).title
        told = [f"**{title}**" if name == found["main"] else title, ", ".join(map(str, seeds))]
        yield f"| {' | '.join([*told, *(_told(own[c][WHOLE]) for c in columns), apart])} |"


def _shown(cells: Sequence[Mapping[str, Any]], costs: bool) -> bool:
    values = [cell["value"] for cell in cells if "value" in cell]
    if values:
        return any(values) or not costs
    return any(cell["hole"] != NOT_PLAYED for cell in cells)


def _told(cell: Mapping[str, Any]) -> str:
    if "value" not in cell:
        return cell["hole"]
    digits = 3 if cell["high"] <= 1 else 1
    return " ".join([f"{cell['value']:.{digits}f}", f"[{cell['low']:.{digits}f}, {cell['high']:.{digits}f}]"])


def _signed(test: Mapping[str, Any]) -> str:
    return f"{test['difference']:+.3f} [{test['low']:+.3f}, {test['high']:+.3f}]"


def missing(folder: StudyFolder, study: Study) -> Iterator[str]:
    """The cells that left nothing, by their reason."""
    left: dict[str, list[str]] = {}
    for cell in cells_of(study):
        if folder.done(cell) is None:
            why = folder.reason(cell) or ("begun" if folder.run(cell).is_dir() else "not begun")
            left.setdefault(f"{why}, seed {cell.seed}", []).append(f"{cell.run.name} ({cell.task})")
    if left:
        yield from ("", "Not in these tables:", "")
        for why, names in left.items():
            yield from wrap(f"- {why}: {', '.join(names)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
