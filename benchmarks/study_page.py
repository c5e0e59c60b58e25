"""A section of docs/results.md from a study's folder, finished or not: command, commit, tables, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

from ghar.data.tasks.cards import CARDS
from ghar.errors import BadInput
from ghar.metrics.runfolder import write_whole
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.metrics import title_of
from ghar.trainers.study.numbers import NOT_PLAYED, WHOLE
from ghar.trainers.study.run import conclude, kept_study
from ghar.trainers.study.schema import Study, StudyTable, cells_of, read_study
from ghar.yaml_text import parse_yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE, STUDIES = ROOT / "docs" / "results.md", ROOT / "conf" / "study"
WIDTH = 118
OWN = ("<!-- by hand -->", "<!-- /by hand -->")  # around what a person writes of the numbers, which stays
COSTS = ("rounds", "calls", "tokens", "lookups", "seconds")
LAST = "## Not measured at this commit"  # the page's last section, before which a study's section is inserted


def study_page(path: Path, page: Path = PAGE) -> dict[str, int]:
    """Write or replace a study's section on the page; return its finished cells and all of its cells.

    BadInput for a folder without a finished cell.
    """
    folder = StudyFolder(path)
    study = kept_study(folder)
    cells = cells_of(study)
    finished = [about for cell in cells if (about := folder.done(cell)) is not None]
    if not finished:
        raise BadInput(f"{path} has no finished cell: start the study first.")
    numbers = conclude(folder, study)
    text = "\n".join(section_lines(folder, study, folder.about(), numbers, finished)) + "\n\n"
    write_whole(page, insert_section(page.read_text(), text))
    return {"finished cells": len(finished), "cells": len(cells)}


def insert_section(page: str, section: str) -> str:
    """Replace the page's section of the same heading, but for what stands there by hand, or insert one before the last.

    BadInput without the last one.
    """
    if f"\n{LAST}\n" not in page:
        raise BadInput(f"The page has no heading {LAST!r}, before which a study's section stands.")
    heading = section.partition("\n")[0]
    there = re.search(rf"(?ms)^{re.escape(heading)}\n.*?(?=^## )", page)
    if there is None:
        return page.replace(f"\n{LAST}\n", f"\n{section}{LAST}\n")
    between = re.compile(rf"(?s){OWN[0]}\n.*?{OWN[1]}\n")
    own = between.search(there[0])
    return page.replace(there[0], section if own is None else between.sub(lambda _: own[0], section))


def section_lines(
    folder: StudyFolder,
    study: Study,
    about: Mapping[str, Any],
    numbers: Mapping[str, Any],
    finished: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """Write heading, command, introduction, tables and gaps. about: study.yaml; finished: done.json of each finished
    cell."""
    overrides = "".join(f" {text}" for text in (*about["more"], *_choices(study, about["scale"])))
    commits = ", ".join(dict.fromkeys(str(cell["commit"])[:8] for cell in finished))
    yield f"## Study: {_heading(study)}"
    yield ""
    yield "```sh"
    yield f"python launch/study.py study={study.name} scale={about['scale']['name']}{overrides}   # {commits}"
    yield "```"
    yield ""
    yield from _introduction(study, about["more"], numbers, finished)
    yield from ("", *OWN)
    for table in study.tables:
        if table.by is None:
            for cohort in study.cohorts:
                title = f"{table.title}, {cohort}" if len(study.cohorts) > 1 else table.title
                yield from table_lines(study, replace(table, title=title), numbers.get(f"{table.name}-{cohort}"))
    yield from gap_lines(folder, study)


def _shipped(study: Study) -> Study | None:
    """The study of this name as conf/study has it; None for one of your own."""
    file = STUDIES / f"{study.name}.yaml"
    return read_study(study.name, parse_yaml(file.read_text())) if file.is_file() else None


def _heading(study: Study) -> str:
    """The title, with the tasks where they are not all of the study's."""
    shipped = _shipped(study)
    if shipped is None or set(study.tasks) >= set(shipped.tasks):
        return study.title
    names = (CARDS[task].title.lower() if task in CARDS else task for task in study.tasks)
    return f"{study.title}, {' and '.join(names)}"


def _choices(study: Study, scale: Mapping[str, Any]) -> Iterator[str]:
    """The arguments by which a command names other seeds, tasks or cohorts than the study and its scale."""
    shipped = _shipped(study)
    if shipped is None:
        return
    if study.cohorts != shipped.cohorts:
        own = [name if shipped.cohorts.get(name) == overrides else f"{name}:FOLDER"
               for name, overrides in study.cohorts.items()]  # fmt: skip
        yield f"'cohorts=[{','.join(own)}]'"
    if study.tasks != shipped.tasks:
        yield f"'tasks=[{','.join(study.tasks)}]'"
    if study.seeds != tuple(scale["seeds"] or shipped.seeds):
        yield f"'seeds=[{','.join(map(str, study.seeds))}]'"


def _introduction(
    study: Study, overrides: Sequence[str], numbers: Mapping[str, Any], finished: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Name cells, hours, samples and overrides, and say how to read the tables."""
    measured = [column[WHOLE] for table in numbers.values() for row in table["cells"].values()
                for column in row.values() if "value" in column.get(WHOLE, {})]  # fmt: skip
    largest = max(measured, key=lambda cell: cell["samples"], default={"samples": 0, "patients": 0})
    hours = sum(cell["seconds"] for cell in finished) / 3600
    keys = ", ".join(f"`{text}`" for text in overrides if not text.startswith("threads="))
    sentences = [
        f"{len(finished)} of {len(cells_of(study))} cells, {hours:.1f} hours by the clock;",
        f"{largest['samples']:,} test samples of {largest['patients']:,} patients.",
        f"Beside the study's own keys: {keys or 'none'}.",
        "An interval over one seed is of patients alone, and says nothing of another training.",
        f"The last column is the first number of the {study.row(study.main).title} row less the line's, with p after",
        "Holm's correction for all tests of the table.",
    ]
    if study.paper is None:
        sentences.append("No paper has these rows on one task, so no published number stands beside them.")
    yield from (*wrap(study.about.strip(), WIDTH), "", *wrap(" ".join(sentences), WIDTH))


def table_lines(study: Study, table: StudyTable, numbers: Mapping[str, Any] | None) -> Iterator[str]:
    """Write a table of the rows whose cells are finished: numbers, or the reason why there is none.

    A table of costs leaves out rows that cost nothing. No line for a table without rows, and for a scatter figure:
    its two numbers stand in other tables.
    """
    if numbers is None or table.draw == "scatter":
        return
    columns = numbers["columns"]
    costs = all(column.split("/")[1] in COSTS for column in columns)
    rows = [name for name, row in numbers["cells"].items() if _is_listed([row[c][WHOLE] for c in columns], costs)]
    if not rows:
        return
    yield ""
    yield f"{table.title}:"
    yield ""
    titles = [f"{column.split('/')[0]}: {title_of(column.split('/')[1])}" for column in columns]
    yield f"| row | seeds | {' | '.join(titles)} | {titles[0]}, difference |"
    yield "|---" * (len(columns) + 3) + "|"
    for name in rows:
        cells = [numbers["cells"][name][column][WHOLE] for column in columns]
        test = numbers["tests"].get(name, {}).get(columns[0], {}).get(WHOLE)
        seeds = max((cell.get("seeds", []) for cell in cells), key=len)
        p = "" if test is None else "p < 0.001" if test["holm"] < 0.0005 else f"p {test['holm']:.3f}"
        difference = "" if test is None else f"{_format_difference(test)}, {p}"
        title = study.row(name).title
        head = [f"**{title}**" if name == numbers["main"] else title, ", ".join(map(str, seeds))]
        yield f"| {' | '.join([*head, *map(_format_cell, cells), difference])} |"


def _is_listed(cells: Sequence[Mapping[str, Any]], costs: bool) -> bool:
    """Whether a row has a number (of costs: above 0), or a reason for none besides not having been played."""
    values = [cell["value"] for cell in cells if "value" in cell]
    if values:
        return any(values) or not costs
    return any(cell["hole"] != NOT_PLAYED for cell in cells)


def _format_cell(cell: Mapping[str, Any]) -> str:
    if "value" not in cell:
        return cell["hole"]
    digits = 3 if cell["high"] <= 1 else 1
    return " ".join([f"{cell['value']:.{digits}f}", f"[{cell['low']:.{digits}f}, {cell['high']:.{digits}f}]"])


def _format_difference(test: Mapping[str, Any]) -> str:
    return f"{test['difference']:+.3f} [{test['low']:+.3f}, {test['high']:+.3f}]"


def gap_lines(folder: StudyFolder, study: Study) -> Iterator[str]:
    """List the unfinished cells by reason and seed."""
    gaps: dict[str, list[str]] = {}
    for cell in cells_of(study):
        if folder.done(cell) is None:
            reason = folder.reason(cell) or ("begun" if folder.run(cell).is_dir() else "not begun")
            where = f"{cell.cohort}, {cell.task}" if len(study.cohorts) > 1 else cell.task
            gaps.setdefault(f"{reason}, seed {cell.seed}", []).append(f"{cell.run.name} ({where})")
    if gaps:
        yield from ("", "Not in these tables:", "")
        for reason, names in gaps.items():
            yield from wrap(f"- {reason}: {', '.join(names)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
