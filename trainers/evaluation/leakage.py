"""What a run's numbers rest on: what its task shows, held against the prediction and the outcome, in paper and strict
mode, and how right each variant is on patients with rare and with common diseases (GHAR, Fig. 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ghar.data.audit import as_plain
from ghar.data.groups import groups_of
from ghar.data.tasks.subsets import GROUPS, rarity_groups
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.records import Records
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, render_section

TITLES = {"rarity": "diseases", "visits": "visits shown"}  # kinds of groups whose names say little in a report
THIRDS: dict[str, str] = dict(zip(GROUPS, ("rarest third", "middle third", "commonest third"), strict=True))
LEAKS = 0.05  # share of samples from which on a page warns


def audited(records: Records) -> dict[str, Any]:
    """What summary.json holds under "audit" for a task of visits; other tasks' systems say it themselves."""
    exposures = records.exposures()
    return {"audit": as_plain(records.config.data.leakage, exposures)} if exposures else {}


def by_rarity(records: Records, folder: RunFolder, variants: Iterable[str]) -> dict[str, Any]:
    """What summary.json holds under "rarity": variant -> group -> [test samples, share that is right]; an empty
    dictionary for a task that shows no visits.

    variants: those of this evaluation. The folder may hold episodes of an earlier one, of other weights.
    """
    if records.config.task.name not in (*VISIT_TASKS, "labels"):
        return {}
    groups = rarity_groups(records.splits.train, records.splits.test)
    group_of = {sample.sample_id: name for name, samples in groups.items() for sample in samples}
    rarity: dict[str, dict[str, list[float]]] = {}
    for variant in sorted(variants):
        right: dict[str, list[bool]] = {name: [] for name in groups}
        for row in folder.episodes(variant):
            if row.get("split") == records.config.task.played and row["sample_id"] in group_of:
                right[group_of[row["sample_id"]]].append(bool(row["correct"]))
        rarity[variant] = {name: [len(own), sum(own) / len(own)] for name, own in right.items() if own}
    return {"rarity": rarity}


def keep_groups(records: Records, folder: RunFolder) -> None:
    """Write which groups the test samples of a task of visits belong to, for the page's filters and subgroups."""
    if records.config.task.name not in (*VISIT_TASKS, "labels"):
        return
    splits = records.splits
    groups = groups_of(records.cohort, records.tables, splits.train, splits.test)
    folder.write_groups({
        sample: {TITLES.get(kind, kind): THIRDS.get(name, name) for kind, name in own.items() if name is not None}
        for sample, own in groups.items()
    })  # fmt: skip


def in_words(summary: Mapping[str, Any]) -> list[str]:
    """A sentence for each mode; none where a run has no audit."""
    audit = summary.get("audit") or {}
    sentences = []
    for mode, row in (audit.get("modes") or {}).items():
        used = " (this run)" if mode == audit["used"] else ""
        sentences.append(
            f"leak score of {mode}{used}: {row['leak_score']:.2f}; of {row['facts']:,} facts shown {row['late']:,} "
            f"were recorded after the prediction and {row['with_outcome']:,} only with the outcome"
        )
    return sentences


def section(summary: Mapping[str, Any]) -> list[ReportSection]:
    """The parts of report.html; nothing where a run has none."""
    titles = summary.get("titles") or {}
    by_variant = {name: groups for name, groups in (summary.get("rarity") or {}).items() if groups}
    rarity = {titles.get(name, name): by_variant[name] for name in (*titles, *by_variant) if name in by_variant}
    return [*_exposed(summary.get("audit") or {}), *_rare(rarity)]


def _rare(rarity: Mapping[str, Any]) -> list[ReportSection]:
    if not rarity:
        return []
    html = render_section("ghar.metrics", "templates/rarity.html", rarity=rarity, groups=GROUPS)
    return [ReportSection("Rare and common diseases", html)]


def _exposed(audit: Mapping[str, Any]) -> list[ReportSection]:
    if not audit:
        return []
    leaks = audit["modes"].get(audit["used"], {}).get("leak_score", 0) >= LEAKS
    html = render_section("ghar.metrics", "templates/audit.html", used=audit["used"], modes=audit["modes"], leaks=leaks)
    return [ReportSection("What was known when", html)]
