"""Tables (HTML, CSV, LaTeX), figures (SVG, PNG) and one page of a study's numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ghar.metrics.runfolder import write_whole
from ghar.metrics.style import pages
from ghar.trainers.study.figures import figures_of
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.metrics import MODEL_METRICS, title_of
from ghar.trainers.study.numbers import WHOLE
from ghar.trainers.study.paper import published_number, published_rows
from ghar.trainers.study.schema import Cell, Study, StudyTable, cells_of

FIELDS = (
    "row", "title", "task", "metric", "part", "value", "low", "high", "seeds", "patients", "samples", "hole",
    "main_minus_it", "difference_low", "difference_high", "p", "p_holm", "published",
)  # fmt: skip
UNOPENED = "task.max_test=0"  # of a study on validation samples
SIGNIFICANT = 0.05  # of Holm's p, for the mark in tables
ACROSS = 3  # columns with intervals beside each other on a page
FEW = 10  # patients, whose intervals and tests say little
LATEX = str.maketrans({sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$",
})  # fmt: skip
PLAIN = ("tokens", "calls", "lookups", "rounds", "reward")  # shown with one digit


def draw(folder: StudyFolder, study: Study, numbers: Mapping[str, Any]) -> None:
    """Write everything that is made from numbers.json."""
    published = folder.about().get("published") or {}
    drawn = []
    for name, table, printed, withheld, texts in tables_of(folder, study, numbers):
        table_numbers = numbers[name]
        beside = published.get(table.published.get(table_numbers["cohort"], ""), {})
        for end, text in texts.items():
            write_whole(folder.path / "tables" / f"{name}{end}", text)
        svgs = []
        for part, (svg, png) in figures_of(study, table, table_numbers).items():
            place = folder.path / "figures" / f"{name}-{part}"
            write_whole(place.with_name(place.name + ".svg"), svg)
            place.with_name(place.name + ".png").write_bytes(png)
            svgs.append((part, svg))
        drawn.append({"name": name, "table": table, "found": table_numbers,
                      "grid": grid(study, table_numbers, printed), "svgs": svgs,
                      "size": size_of(table_numbers), "few": fewest_of(table_numbers) < FEW,
                      "source": beside.get("source"), "printed": bool(printed), "withheld": withheld,
                      "labels_alone": labels_alone(folder, study, table_numbers)})  # fmt: skip
    for one in drawn:
        write_whole(folder.path / "tables" / f"{one['name']}.html", _page(study, folder, [one]))
    write_whole(folder.path / "report.html", _page(study, folder, drawn))


class DrawnTable(NamedTuple):
    """A table as it is published. printed, withheld: see `comparable`. texts: {".csv": the table as CSV, ".tex": as
    LaTeX}, as `draw` writes them and `verify` holds them against."""

    name: str
    table: StudyTable
    printed: dict[str, dict[str, float]]
    withheld: dict[str, list[str]]
    texts: dict[str, str]


def tables_of(folder: StudyFolder, study: Study, numbers: Mapping[str, Any]) -> Iterator[DrawnTable]:
    """Every table of numbers.json."""
    about = folder.about()
    published, scale = about.get("published") or {}, about["scale"]
    dones = [done for cell in cells_of(study) if (done := folder.done(cell)) is not None]
    generated = any(done["generated"] for done in dones)
    for name, own in numbers.items():
        table = next(one for one in study.tables if one.name == own["table"])
        beside = published.get(table.published.get(own["cohort"], ""), {})
        printed, withheld = comparable(folder, study, own, beside)
        texts = {
            ".csv": as_csv(list(lines_of(study, own, printed))),
            ".tex": as_latex(study, table, own, _remarks(study, own, scale, generated)),
        }
        yield DrawnTable(name, table, printed, withheld, texts)


def _remarks(study: Study, numbers: Mapping[str, Any], scale: Mapping[str, Any], generated: bool) -> list[str]:
    """What a reader of a table alone must know."""
    seeds = ", ".join(map(str, study.seeds))
    return [
        f"{study.title}; {numbers['cohort']}; scale={scale['name']}; seeds {seeds}; {size_of(numbers)}.",
        *(["Generated patients: these numbers say nothing about real ones."] if generated else []),
        *([] if scale["train"] else ["Fixed rules play, nothing is trained."]),
        f"Bold: the main row, {study.row(numbers['main']).title}. Dagger: differs from it at 5%, paired, after Holm's "
        "correction.",
    ]


def size_of(numbers: Mapping[str, Any]) -> str:
    """How many samples and patients a table is of, the largest row and part."""
    cells = [cell for row in numbers["cells"].values() for parts in row.values() for cell in parts.values()]
    there = [cell for cell in cells if "hole" not in cell]
    if not there:
        return "no samples"
    samples, patients = max(cell["samples"] for cell in there), max(cell["patients"] for cell in there)
    parted = any(WHOLE not in parts for row in numbers["cells"].values() for parts in row.values())
    where = " in the largest group" if parted else ""
    return f"{samples:,} test sample{'s' * (samples != 1)} of {patients:,} patient{'s' * (patients != 1)}{where}"


def fewest_of(numbers: Mapping[str, Any]) -> int:
    """The patients of the smallest row and part that has a number."""
    cells = (cell for row in numbers["cells"].values() for parts in row.values() for cell in parts.values())
    return min((cell["patients"] for cell in cells if "hole" not in cell), default=FEW)


def comparable(
    folder: StudyFolder, study: Study, numbers: Mapping[str, Any], published: Mapping[str, Any]
) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """The published numbers beside whose cells they may stand, and why others may not: reason -> titles of rows.

    published: an entry of conf/study/_published.yaml, which may have numbers of several models, and under "differs" row
    -> column -> in what a printed number is of something else than its row. A number is withheld there, and where the
    cell of any seed differs from the paper's setting or is not played.
    """
    theirs, other = published_rows(published), published.get("differs") or {}
    printed: dict[str, dict[str, float]] = {}
    reasons: dict[str, list[str]] = {}
    dones: dict[str, dict[str, Any] | None] = {}
    for row in [study.row(name) for name in numbers["cells"] if name in theirs]:
        for column in [column for column in numbers["columns"] if column in theirs[row.name]]:
            task = column.split("/", 1)[0]
            why: list[str] = [text for text in (row.differs, other.get(row.name, {}).get(column)) if text]
            values: set[float] = set()
            for seed in study.seeds:
                cell = Cell(study.run(row.run), numbers["cohort"], task, seed)
                if cell.id not in dones:
                    dones[cell.id] = folder.done(cell)
                value, phrases = _published(dones[cell.id], published, row.name, column)
                why += phrases
                values |= set() if value is None else {value}
            if len(values) > 1:
                why.append("seeds of several models")
            if not why:
                printed.setdefault(row.name, {})[column] = min(values)
            for phrase in dict.fromkeys(why):
                rows = reasons.setdefault(f"{task}: {phrase}", [])
                rows += [] if row.title in rows else [row.title]
    return printed, reasons


def labels_alone(folder: StudyFolder, study: Study, numbers: Mapping[str, Any]) -> list[str]:
    """Titles of a table's rows that are, in some cell, trained on labels alone in place of explained answers."""
    tasks, titles = {column.split("/", 1)[0] for column in numbers["columns"]}, []
    for row in map(study.row, numbers["cells"]):
        cells = (Cell(study.run(row.run), numbers["cohort"], task, seed) for task in tasks for seed in study.seeds)
        if any(row.name in (folder.done(cell) or {}).get("labels_alone", ()) for cell in cells):
            titles.append(row.title)
    return titles


def _published(
    done: Mapping[str, Any] | None, published: Mapping[str, Any], row: str, column: str
) -> tuple[float | None, list[str]]:
    """The number beside a cell, and why it may not stand there. done: the cell's done.json."""
    if done is None or row not in done["rows"]:
        return None, ["not played"]
    if row not in done.get("differs", {}):
        return None, ["played before settings were held against the paper's"]
    return published_number(published, row, column, done.get("model_path"), done["differs"][row])


def lines_of(study: Study, numbers: Mapping[str, Any], published: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One line a number, with its test and what the paper has."""
    for row, columns in numbers["cells"].items():
        for column, parts in columns.items():
            task, metric = column.split("/", 1)
            for part, cell in parts.items():
                test = numbers["tests"].get(row, {}).get(column, {}).get(part, {})
                yield {
                    "row": row, "title": study.row(row).title, "task": task, "metric": metric, "part": part,
                    **{key: cell.get(key) for key in ("value", "low", "high", "patients", "samples", "hole")},
                    "seeds": len(cell["seeds"]) if "seeds" in cell else None,
                    "main_minus_it": test.get("difference"), "difference_low": test.get("low"),
                    "difference_high": test.get("high"), "p": test.get("p"), "p_holm": test.get("holm"),
                    "published": published.get(row, {}).get(column),
                }  # fmt: skip


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Numbers in full: they are what `verify` recomputes."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{key: line[key] for key in FIELDS} for line in lines])
    return out.getvalue()


def format_cell(cell: Mapping[str, Any], metric: str) -> str:
    """A number with its interval, a dash for a hole."""
    if "hole" in cell:
        return "-"
    if metric in MODEL_METRICS:  # no draw of patients changes it
        return f"{cell['value']:,.{int(metric != 'parameters')}f}"
    if metric == "seconds" and cell["high"] < 0.0005:
        return "<0.001"
    digits = 1 if metric in PLAIN else 3
    return f"{cell['value']:.{digits}f} [{cell['low']:.{digits}f}, {cell['high']:.{digits}f}]"


def grid(study: Study, numbers: Mapping[str, Any], published: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table as people read it: one a row and part."""
    parts = list(dict.fromkeys(p for columns in numbers["cells"].values() for c in columns.values() for p in c))
    lines = []
    for row in numbers["cells"]:
        for part in parts:
            cells = []
            for column in numbers["columns"]:
                cell = numbers["cells"][row][column].get(part, {"hole": "no such group"})
                test = numbers["tests"].get(row, {}).get(column, {}).get(part)
                cells.append({
                    "text": format_cell(cell, column.split("/", 1)[1]), "hole": cell.get("hole"),
                    "differs": test is not None and test["holm"] < SIGNIFICANT,
                    "p": None if test is None else test["holm"],
                    "paper": published.get(row, {}).get(column), "missing": cell.get("missing"),
                })  # fmt: skip
            lines.append({"title": study.row(row).title, "part": part, "main": row == numbers["main"], "cells": cells})
    return lines


def heads(numbers: Mapping[str, Any]) -> list[str]:
    """Titles of the columns."""
    return [f"{task}: {title_of(metric)}" for task, metric in (c.split("/", 1) for c in numbers["columns"])]


def as_latex(study: Study, table: StudyTable, numbers: Mapping[str, Any], remarks: Sequence[str]) -> str:
    """Booktabs tables, one a task and at most `ACROSS` columns, so that each fits a page. A dagger marks what differs
    from the main row at 5% after Holm's correction. remarks: comments above them."""
    lines = [f"% {' '.join(text.split())}" for text in (table.title, *remarks)]
    for task in dict.fromkeys(column.split("/", 1)[0] for column in numbers["columns"]):
        own = [column for column in numbers["columns"] if column.startswith(f"{task}/")]
        for at in range(0, len(own), ACROSS):
            lines += _latex_block(study, {**numbers, "columns": own[at : at + ACROSS]})
    return "\n".join(lines)


def _latex_block(study: Study, numbers: Mapping[str, Any]) -> list[str]:
    """The lines of one tabular."""
    lines = [
        f"\\begin{{tabular}}{{l{'c' * len(numbers['columns'])}}}", "\\toprule",
        " & ".join(["", *map(_escaped, heads(numbers))]) + " \\\\", "\\midrule",
    ]  # fmt: skip
    for line in grid(study, numbers, {}):
        if all(cell["hole"] for cell in line["cells"]):
            continue
        name = _escaped(line["title"] if line["part"] == "all" else f"{line['title']}, {line['part']}")
        cells = []
        for cell in line["cells"]:
            number, _, interval = cell["text"].partition(" ")
            text = number.replace("<", "$<$") + (f" {{\\scriptsize {interval}}}" if interval else "")
            cells.append(text + ("$^\\dagger$" if cell["differs"] else ""))
        lines.append(" & ".join([f"\\textbf{{{name}}}" if line["main"] else name, *cells]) + " \\\\")
    return [*lines, "\\bottomrule", "\\end{tabular}", ""]


def _escaped(text: str) -> str:
    return text.translate(LATEX)


def _page(study: Study, folder: StudyFolder, drawn: Sequence[Mapping[str, Any]]) -> str:
    holes, dones = {}, []
    for cell in cells_of(study):
        about = folder.done(cell)
        if about is None:
            holes[cell.id] = folder.reason(cell) or "not played"
        else:
            dones.append(about)
    kept = folder.about()
    html = pages("ghar.trainers.study", ".").get_template("study.html").render(
        study=study, drawn=drawn, heads=heads, title_of=title_of, few=FEW, holes=holes, one_seed=len(study.seeds) == 1,
        generated=any(about["generated"] for about in dones), scale=kept["scale"],
        credentialed=any(about["credentialed"] for about in dones), on_valid=UNOPENED in kept.get("more", ()),
        commits=sorted({str(about["commit"]) for about in dones if about.get("commit")}),
        hours=sum(about["seconds"] for about in dones) / 3600, cells=len(dones), resamples=kept["resamples"],
    )  # fmt: skip
    return html.encode("utf-8", "replace").decode()
