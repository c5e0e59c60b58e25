"""docs/papers.md from the studies: every table and figure of the five papers, what makes it, and in what it differs.

benchmarks/papers.yaml names the items; the studies say which rows play by rules, which need a model, and in what a row
is another than the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ghar.errors import BadInput
from ghar.metrics.runfolder import write_whole
from ghar.trainers.study.schema import Study, StudyRow, read_study

ROOT = Path(__file__).resolve().parents[1]
STUDIES, PAGE = ROOT / "conf" / "study", ROOT / "docs" / "papers.md"


def papers() -> dict[str, int]:
    """Write the page anew, behind what it says before its first paper; how many items each paper has on it."""
    write_whole(PAGE, page())
    return {paper: len(items) for paper, items in _items().items()}


def page() -> str:
    """The page as it should be."""
    head = PAGE.read_text().partition("\n## ")[0].rstrip()
    return head + "\n" + tables()


def tables() -> str:
    """A section a paper. BadInput for an item of a study or a table that does not exist."""
    lines = []
    for paper, items in _items().items():
        lines += ["", f"## {paper}", *_settings(items), ""]
        lines += ["| item | made by | state | what differs |", "|---|---|---|---|"]
        for item in items:
            status, why = state(item)
            lines.append(f"| {item['item']} | {_made_by(item)} | {status} | {'. '.join(why)} |")
    return "\n".join(lines) + "\n"


def _settings(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A paragraph for each study of a paper, whence its settings are, and a list of what differs in its numbers."""
    for name in dict.fromkeys(item["study"] for item in items if "study" in item):
        study = _study(name)
        paper, printed = study.paper, any(table.published for table in study.tables)
        if paper is None:
            continue
        closed = {key: value for part in paper.where for key, value in part.closed.items()} if printed else {}
        asked = ", ".join(f"`{key}={value}`" for key, value in closed.items())
        sentences = [
            f"**`study={name}`** takes its settings from {paper.source}.",
            *(["The paper trains no language model here, and neither does `scale=full`."] if paper.frozen else []),
            *([f"Published numbers need {asked}, which `scale=full` cannot set by itself."] if closed else []),
        ]
        yield from ("", " ".join(sentences), "", *(f"- {sentence}" for sentence in paper.differs))


def state(item: Mapping[str, Any]) -> tuple[str, list[str]]:
    """How far an item runs without a trained model, and in what it differs from the paper."""
    why = [item["differs"]] if "differs" in item else []
    if "study" not in item or "state" in item:
        return item.get("state", ""), why
    rows = list(_rows(item))
    why += [f"{row.title}: {row.differs}" for row in rows if row.differs]
    study = _study(item["study"])
    played = sum(row.rule is not None or not study.run(row.run).train for row in rows)
    if played == len(rows):
        return "runs", why
    return f"{played} of {len(rows)} rows" if played else "needs a model", why


def _made_by(item: Mapping[str, Any]) -> str:
    if "study" not in item:
        return item.get("where", "")
    beside = f"; {item['beside']}" if "beside" in item else ""
    return f"`{item['study']}`, {', '.join(item['tables'])}{beside}"


def _rows(item: Mapping[str, Any]) -> Iterator[StudyRow]:
    """The rows of an item's tables, each once."""
    study, seen = _study(item["study"]), set()
    tables = {table.name: table for table in study.tables}
    for name in item["tables"]:
        if name not in tables:
            raise BadInput(f"benchmarks/papers.yaml: study={study.name} has no table {name}, of {item['item']}.")
        for row in tables[name].rows or tuple(row.name for row in study.rows):
            if row not in seen:
                seen.add(row)
                yield study.row(row)


def _study(name: str) -> Study:
    return read_study(name, yaml.safe_load((STUDIES / f"{name}.yaml").read_text()))


def _items() -> dict[str, list[dict[str, Any]]]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
