"""Where the tables of a source lie, and what a folder seems to be that has not the ones that were looked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# A table's folder in MIMIC-IV -> where else it may lie: in core/ (versions 0.4 and 1.0), or all tables in one folder.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {"hosp": ("hosp", "core", ""), "icu": ("icu", ""), "core": ("core",)}
HINTS = (  # tables or folders that tell a source, and what to do with it
    ({"person", "visit_occurrence"}, "it looks like OMOP: choose data=omop"),
    ({"data", "metadata"}, "it looks like MEDS: choose data=meds"),
    ({"hosp", "icu"}, "it looks like MIMIC-IV: choose data=mimic4"),
    ({"patients", "d_icd_diagnoses", "noteevents"}, "it looks like MIMIC-III: choose data=mimic3"),
    ({"patients", "admissions", "callout"}, "it looks like MIMIC-III: choose data=mimic3"),
    ({"patient", "vitalperiodic"}, "it looks like eICU: choose data=eicu"),
    ({"patient", "apacheapsvar"}, "it looks like eICU: choose data=eicu"),
)
FIRST = ("patients", "patient", "person")
MAX_NAMES = 6  # names of a folder that an error lists


def places(root: Path, folder: str) -> tuple[str, ...]:
    """Folders below `root` where a table of `folder` may lie, "" for root itself; not where root is one of them, for
    the others would then be missed."""
    return (folder,) if root.name.lower() in ELSEWHERE else ELSEWHERE.get(folder, (folder,))


def looks_like(root: Path, wanted: str) -> str | None:
    """What a folder seems to be that has not the table `wanted`, and how to read it; None where its names say nothing.

    Only for the table of patients, which every reader opens first: where that is there, another one is just missing.
    """
    names = {path.name.lower().partition(".")[0] for path in _inside(root)}
    if wanted.rpartition("/")[2] not in FIRST:
        return None
    return next((advice for marks, advice in HINTS if marks <= names and not ("/" in wanted and "hosp" in marks)), None)


def seen(root: Path) -> str:
    """The first names in a folder, for a message."""
    names = sorted(path.name for path in _inside(root) if not path.name.startswith("."))
    if not names:
        return "it is empty"
    return f"it has {', '.join(names[:MAX_NAMES])}{', ...' if len(names) > MAX_NAMES else ''}"


def _inside(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except OSError:  # absent, or not ours to look into
        return []
