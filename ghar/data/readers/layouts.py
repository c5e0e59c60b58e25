"""Where the tables of a source lie, and what a folder seems to be that has not the ones that were looked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# A table's folder in MIMIC-IV -> where else it may lie: in core/ (versions 0.4 and 1.0), or all tables in one folder.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {"hosp": ("hosp", "core", ""), "icu": ("icu", ""), "core": ("core",)}
OMOP, MEDS, EICU = (f"it looks like {name}: choose data={name.lower()}" for name in ("OMOP", "MEDS", "eICU"))
MIMIC3, MIMIC4 = (f"it looks like MIMIC-{name}: choose data=mimic{number}" for name, number in (("III", 3), ("IV", 4)))
HINTS = (  # tables or folders that tell a source, and what to do with it
    ({"person", "visit_occurrence"}, OMOP),
    ({"data", "metadata"}, MEDS),
    ({"hosp", "icu"}, MIMIC4),
    ({"patients", "d_hcpcs"}, MIMIC4),  # all tables in one folder, or in hosp/
    ({"patients", "d_icd_diagnoses", "noteevents"}, MIMIC3),
    ({"patients", "admissions", "callout"}, MIMIC3),
    ({"patient", "vitalperiodic"}, EICU),
    ({"patient", "apacheapsvar"}, EICU),
)
OWN = {"hosp/patients": MIMIC4, "patients": MIMIC3, "patient": EICU, "person": OMOP}  # of whose reader a table is
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
    return None if wanted.rpartition("/")[2] not in FIRST else other_source(root, OWN.get(wanted))


def other_source(root: Path, own: str | None) -> str | None:
    """Which source a folder seems to be of, and how to read it; None where its names say nothing, or `own`."""
    names = {path.name.lower().partition(".")[0] for path in _inside(root)}
    advice = next((advice for marks, advice in HINTS if marks <= names and advice != own), None)
    return f"{MIMIC4} and data.root={root.absolute().parent}" if advice == MIMIC4 and _is_part(root) else advice


def is_foreign(folder: Path, wanted: str) -> bool:
    """Whether the table `wanted` of a folder is another source's: of MIMIC-IV's hosp/, or of a folder that looks so."""
    return looks_like(folder, wanted) is not None or (wanted == "patients" and _is_part(folder))


def _is_part(folder: Path) -> bool:
    return folder.name.lower() in ELSEWHERE


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
