"""Write the demo world to disk, and read back what is true in it.

A world folder holds MIMIC-IV's hosp/ and icu/ csv.gz files, kg/kg.csv.gz, kg/mondo_references.csv.gz, entities.csv
(true and textbook severities), truth.parquet (one row per visit) and manifest.json.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.progress import track

from ghar.config import DataConfig
from ghar.envs.worlds.severity import sources, story
from ghar.envs.worlds.severity.graph import build_graph
from ghar.envs.worlds.severity.simulate import NOBODY, Visits, simulate, tail_of
from ghar.envs.worlds.severity.sources import Phenotypes, SourceShares, chunk_of, draw_phenotypes
from ghar.envs.worlds.severity.story import Severities, draw_severities
from ghar.envs.worlds.severity.tables import chunk_tables, dictionary_tables
from ghar.envs.worlds.severity.upper_bounds import Ceilings, all_ceilings, world_ceilings
from ghar.envs.worlds.severity.vocabulary import WorldVocabulary, load_vocabulary
from ghar.errors import BadInput
from ghar.provenance import GENERATED, signed_mark
from ghar.seal import sound
from ghar.storage import new_folder

FORMAT = 4  # raise it when the same parameters would give another world
CHUNK = 5_000  # patients in memory at once


def world_folder(
    cache: Path, seed: int, patients: int, two_steps: float = story.TWO_STEPS, further: Sequence[float] = sources.NONE
) -> Path:
    """Where the world of these parameters is kept."""
    share = "" if two_steps == story.TWO_STEPS else f"-two_steps{two_steps:g}"
    if SourceShares(*further).any:
        share += "-sources" + "-".join(f"{part:g}" for part in further)
    return cache / "worlds" / f"v{FORMAT}-seed{seed}-patients{patients}{share}"


def configured_world(data: DataConfig) -> World:
    """The world of data.world_seed, data.patients and data.mix, in the cache; generated where it is not there."""
    two_steps, further = sources.MIXES[data.mix]
    root = world_folder(Path(data.cache), data.world_seed, data.patients, two_steps, further)
    return generate_world(root, seed=data.world_seed, patients=data.patients, two_steps=two_steps, further=further)


@dataclass(frozen=True)
class World:
    """What is true in a generated world: for scripted teachers and evaluation ONLY, never for a policy or its prompts.

    severity, textbook, tier: by code string of the cohort contract ("ICD10CM/I509", "DRUG/furosemide"); tier is
        "common" or "rare"; the graph states the textbook grade, which for rare ones is the true one.
    target: code of a rare drug -> name of the protein behind which its grade stands.
    truth: one row per visit: visit_id (= hadm_id), subject_id, acuity, common_acuity, needs_retrieval, look_ups (how
        many it needs: one for a rare condition, two for a rare drug), rare_1, rare_2 (the rare condition and the rare
        drug, as numbers of the tail's entities, null where none), los, read (null where censored), dec; in a world of
        further sources also past, chain, slope, asks, tells (`sources.Drawn`, null where none) and asks_grade.
    """

    root: Path
    severity: Mapping[str, int]
    textbook: Mapping[str, int]
    tier: Mapping[str, str]
    target: Mapping[str, str]
    truth: pl.DataFrame
    manifest: Mapping[str, Any]

    @property
    def tail(self) -> int:
        """Rare entities of each kind, as `load_vocabulary` takes it."""
        made = self.manifest["parameters"]
        return story.whole_tail(made["patients"], made["two_steps"])

    @property
    def further(self) -> SourceShares:
        """Of the visits, those that ask further sources."""
        return SourceShares(*self.manifest["parameters"].get("sources", sources.NONE))

    @property
    def rare_severity(self) -> np.ndarray:
        """True severities of the tail, int64, in the order in which `truth` numbers it."""
        return np.array([grade for code, grade in self.severity.items() if self.tier[code] == "rare"])

    @property
    def rare_codes(self) -> list[str]:
        """Codes of the tail, in the same order."""
        return [code for code, tier in self.tier.items() if tier == "rare"]


def generate_world(
    root: Path,
    *,
    seed: int,
    patients: int = 2000,
    labs_per_visit: int = 8,
    two_steps: float = story.TWO_STEPS,
    further: Sequence[float] = sources.NONE,
) -> World:
    """Write a world under `root`, whole or not at all; a finished one with the same parameters is reused.

    Patients are made in chunks of 5,000 with their own seeds; only the truth (about 80 bytes a visit) is held whole.
    two_steps: share of visits whose outcome asks for two look-ups, the second named by the first alone.
    further: shares of what asks the patients' own past and other patients' reports (`sources.SourceShares`).
    Raises BadInput for impossible parameters or when `root` holds anything else.
    """
    if patients < 1 or labs_per_visit < 0 or seed < 0 or not 0 <= two_steps <= 1:
        raise BadInput(
            f"A demo world needs patients >= 1, labs_per_visit >= 0, seed >= 0 and two_steps between 0 and 1, not "
            f"patients={patients}, labs_per_visit={labs_per_visit}, seed={seed}, two_steps={two_steps}."
        )
    shares = SourceShares(*further)
    possible = shares.reports * (1 + sources.TOLD_BY) <= 1 and shares.chained + shares.slopes <= 1
    if not possible or not all(0 <= share <= 1 for share in further):
        raise BadInput(
            f"past, reports, chained and slopes are {list(further)} and must be shares between 0 and 1, reports at "
            "most 1/3 (for each visit whose syndrome no one recognised there are two in which it was treated in time), "
            "chained and slopes together at most 1 (shares of the same pasts)."
        )
    root = Path(root)
    vocabulary = load_vocabulary(story.whole_tail(patients, two_steps))
    wanted = {
        "format": FORMAT, "seed": seed, "patients": patients, "labs_per_visit": labs_per_visit,
        "two_steps": two_steps, "vocabulary": vocabulary.digest,
    }  # fmt: skip
    if shares.any:
        wanted["sources"] = list(further)
    if _is_finished(root, wanted):
        return load_world(root)
    with new_folder(root, GENERATED, keep=True) as partial:  # somebody else may finish the same world meanwhile
        _write_world(partial, vocabulary, wanted)
    return load_world(root)


def load_world(root: Path) -> World:
    """Read the truth of a finished world. For scripted teachers and evaluation ONLY (see World).

    Raises BadInput when `root` is not a finished demo world.
    """
    manifest = _manifest(Path(root))
    entities = pl.read_csv(Path(root) / "entities.csv", glob=False)
    codes = entities["code"].to_list()
    return World(
        root=Path(root),
        severity=dict(zip(codes, entities["severity"].to_list(), strict=True)),
        textbook=dict(zip(codes, entities["textbook"].to_list(), strict=True)),
        tier=dict(zip(codes, entities["tier"].to_list(), strict=True)),
        target=dict(entities.filter(pl.col("target").is_not_null()).select("code", "target").iter_rows()),
        truth=pl.read_parquet(Path(root) / "truth.parquet", glob=False),
        manifest=manifest,
    )


def ceilings(root: Path, visit_ids: Iterable[int], task: str, *, seen: Iterable[int] | None = None) -> Ceilings:
    """Best expected accuracy on exactly these visits (leakage=paper), task "los", "read" or "dec".

    seen: visits whose labels a learner was trained on; then `memory` is filled in (see Ceilings).
    Raises BadInput for an unknown task, a visit that is not in the world or that has no label in the task.
    """
    world = load_world(root)
    chosen = _rows_of(world, visit_ids)
    remembered = None if seen is None else _rows_of(world, seen)
    return world_ceilings(chosen, world.rare_severity, task, remembered)


def truth_of(world: World, visit_ids: Iterable[int]) -> pl.DataFrame:
    """Rows of `world.truth` of these visits, in their order. BadInput for a visit that is not in the world."""
    return _rows_of(world, visit_ids)


def _rows_of(world: World, visit_ids: Iterable[int]) -> pl.DataFrame:
    wanted = pl.DataFrame({"visit_id": list(visit_ids)}, schema={"visit_id": pl.Int64})
    unknown = wanted.join(world.truth, on="visit_id", how="anti")
    if not unknown.is_empty():
        raise BadInput(
            f"Visit {unknown['visit_id'][0]} is not in {world.root / 'truth.parquet'}; "
            f"use visit ids of the cohort that was generated there."
        )
    return wanted.join(world.truth, on="visit_id", how="left", maintain_order="left")


def _manifest(root: Path) -> dict[str, Any]:
    path = root / "manifest.json"
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError) as problem:
        raise BadInput(f"{path} is missing or unreadable, so {root} is no demo world; generate it first.") from problem


def _is_finished(root: Path, wanted: Mapping[str, Any]) -> bool:
    """Whether `root` holds just this world; BadInput when it holds something else."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    parameters = _manifest(root).get("parameters", {}) if (root / "manifest.json").exists() else {}
    differing = [key for key in wanted if parameters.get(key) != wanted[key]]
    if differing:
        raise BadInput(
            f"{root} already holds something else (it differs in {', '.join(differing)}); "
            f"delete it or name another folder."
        )
    return sound(root) and signed_mark(root).generated  # else it is made again, and signed by this machine


def _write_world(folder: Path, vocabulary: WorldVocabulary, parameters: Mapping[str, Any]) -> None:
    seed, patients = parameters["seed"], parameters["patients"]
    severities = draw_severities(_stream(seed, 0), vocabulary.tail)
    for name in ("hosp", "icu", "kg"):
        (folder / name).mkdir()
    kg, references = build_graph(_stream(seed, 1), vocabulary, severities)
    sizes = {"kg_edges": _append(folder / "kg/kg.csv.gz", kg)}
    _append(folder / "kg/mondo_references.csv.gz", references)
    shares = SourceShares(*parameters.get("sources", sources.NONE))
    phenotypes = draw_phenotypes(_stream(seed, 3)) if shares.any else None
    for name, table in dictionary_tables(vocabulary, shares.pointers if shares.any else None).items():
        sizes[name] = _append(folder / f"{name}.csv.gz", table)
    truths = []
    starts = range(0, patients, CHUNK)
    quiet = len(starts) == 1 or not sys.stdout.isatty()
    for number, first in enumerate(track(starts, "demo patients", transient=True, disable=quiet)):
        rng = _stream(seed, 2, number)
        some = min(CHUNK, patients - first)
        tail = tail_of(rng, first, some, patients, vocabulary.tail, parameters["two_steps"])
        chunk = None
        if phenotypes is not None:
            spare = story.patient_tail(patients, parameters["two_steps"])
            grades = severities.drugs[story.N_COMMON_DRUGS :]
            chunk = chunk_of(_stream(seed, 4, number), shares, first, some, patients, grades, spare), phenotypes
        visits = simulate(rng, vocabulary, severities, tail, first, some, chunk)
        truths.append(_truth(visits, phenotypes))
        for name, table in chunk_tables(rng, vocabulary, visits, parameters["labs_per_visit"]).items():
            sizes[name] = sizes.get(name, 0) + _append(folder / f"{name}.csv.gz", table)
    entities = _entities(vocabulary, severities)
    entities.write_csv(folder / "entities.csv")
    truth = pl.concat(truths)
    truth.write_parquet(folder / "truth.parquet")
    manifest = _describe(parameters, sizes, truth, entities)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def _stream(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _append(path: Path, table: pl.DataFrame) -> int:
    """Append the rows as one more gzip member (no time stamp in it: same seed, same bytes); returns their number."""
    text = BytesIO()
    table.write_csv(text, include_header=not path.exists(), datetime_format="%Y-%m-%d %H:%M:%S")
    with path.open("ab") as file:
        file.write(gzip.compress(text.getbuffer(), compresslevel=3, mtime=0))
    return table.height


def _truth(visits: Visits, phenotypes: Phenotypes | None = None) -> pl.DataFrame:
    rare = pl.DataFrame(visits.rare, schema=["rare_1", "rare_2"])
    look_ups = (visits.rare != NOBODY) @ np.array([1, 2])
    further: dict[str, pl.Series] = {}
    if phenotypes is not None:
        drawn = {name: pl.Series(getattr(visits, name)) for name in ("chain", "asks", "tells")}
        further = {name: numbers.replace(NOBODY, None) for name, numbers in drawn.items()}
        further["past"] = pl.Series(visits.past).replace(0, None)
        grades = pl.Series(phenotypes.grade)
        further["asks_grade"], further["tells_grade"] = (grades.gather(further[name]) for name in ("asks", "tells"))
        further["slope"] = pl.Series(visits.slope > 0)
        look_ups = look_ups + (visits.past > 0) + (visits.chain != NOBODY) + (visits.asks != NOBODY)
    return pl.DataFrame(
        {
            "visit_id": visits.hadm_id,
            "subject_id": visits.subject_id,
            "acuity": visits.acuity,
            "common_acuity": visits.common_acuity,
            "needs_retrieval": look_ups > 0,
            "look_ups": look_ups,
            **{name: rare[name].replace(NOBODY, None) for name in rare.columns},
            "los": visits.los,
            "read": pl.Series(visits.read).replace(NOBODY, None),
            "dec": visits.died,
            **further,
        }
    )


def _entities(vocabulary: WorldVocabulary, severities: Severities) -> pl.DataFrame:
    """code, name, tier, severity, textbook, target; rare ones in the order in which truth.parquet numbers them."""
    none = pl.lit(None, pl.String)
    conditions = vocabulary.conditions.select(
        "name", "tier", code="ICD10CM/" + pl.col("code"), severity=pl.Series(severities.conditions),
        textbook=pl.Series(severities.textbook_conditions), target=none,
    )  # fmt: skip
    targets = [None] * story.N_COMMON_DRUGS + vocabulary.targets["name"].to_list()
    drugs = vocabulary.drugs.select(
        "name", "tier", code="DRUG/" + pl.col("name").str.to_lowercase(), severity=pl.Series(severities.drugs),
        textbook=pl.Series(severities.textbook_drugs), target=pl.Series(targets, dtype=pl.String),
    )  # fmt: skip
    return pl.concat([conditions, drugs]).select("code", "name", "tier", "severity", "textbook", "target")


def _describe(
    parameters: Mapping[str, Any], sizes: Mapping[str, int], truth: pl.DataFrame, entities: pl.DataFrame
) -> dict[str, Any]:
    los = truth["los"].value_counts().sort("los")
    return {
        "generated": True,
        "seed": parameters["seed"],
        "patients": parameters["patients"],
        "parameters": dict(parameters),
        "sizes": dict(sizes),
        "rates": {
            "needs_retrieval": truth["needs_retrieval"].mean(),
            "two_steps": truth["rare_2"].is_not_null().mean(),
            "los": {str(label): count / truth.height for label, count in los.rows()},
            "read": truth["read"].mean(),
            "dec": truth["dec"].mean(),
        },
        "story": story.__doc__,
        "ceilings": {
            c.task: {"visits": c.visits, "parametric": c.parametric, "retrieval": c.retrieval}
            for c in all_ceilings(truth, entities.filter(pl.col("tier") == "rare")["severity"].to_numpy())
        },
    }
