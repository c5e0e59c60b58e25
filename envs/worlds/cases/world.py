"""Write the world of cases as a MEDS folder with a label file, and its truth beside it.

data/0.parquet, metadata/codes.parquet, metadata/subject_splits.parquet (train, pool, tuning and held_out, 3:3:1:3),
visits.parquet, ghar.json as the reader of MEDS takes them; labels/course.parquet and labels/course.json, the question
in words; truth.parquet (one row a patient: subject_id, phenotypes, outcome), courses.parquet (code, course), and
manifest.json, which says that every patient is generated. The story: story.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.envs.worlds.cases import story
from ghar.envs.worlds.cases.story import GeneratedPatient
from ghar.envs.worlds.generated import generate_folder
from ghar.envs.worlds.severity.vocabulary import load_vocabulary
from ghar.errors import BadInput

NAME = "demo_cases"
TASK = "course"  # name of the files of labels
FORMAT = 2  # raise it when the same parameters would give another world
SPLIT = {"train": 0.3, "pool": 0.3, "tuning": 0.1, "held_out": 0.3}
FIRST_ID = 60_000_001
DAY = 86_400_000_000  # microseconds
START = np.datetime64("2150-01-01T08:00:00", "us").astype(np.int64)
LABELS = ("brief", "short", "long", "lasting")
QUESTION = {
    "question": "How long will the illness last?",
    "labels": list(LABELS),
    "title": "Course of the illness",
    "category": "Progression of disease",
    "advice": "The rare condition tells, and only patients who had the same one show what it means.",
}


@dataclass(frozen=True)
class CasesTruth:
    """people: patient -> phenotypes and outcome. For ceilings ONLY, never for a policy or its prompts."""

    people: Mapping[int, GeneratedPatient]

    def ceilings(
        self, asked: Iterable[int], pool: Iterable[int], trained: Iterable[int], k: int
    ) -> dict[str, float]:
        """`story.ceilings` of patients by their ids."""
        first, candidates, learned = ([self.people[i] for i in some] for some in (asked, pool, trained))
        return story.ceilings(first, candidates, learned, k)


def cases_folder(cache: Path, seed: int, patients: int) -> Path:
    """Where the world of these parameters is kept."""
    return cache / "worlds" / f"{NAME}-v{FORMAT}-seed{seed}-patients{patients}"


def generate_cases(root: Path, *, seed: int, patients: int) -> None:
    """Write the world under `root`, whole or not at all; a finished one of the same parameters is kept.

    Raises BadInput when `root` holds anything else.
    """
    about = {"generated": True, "format": FORMAT, "name": NAME, "seed": seed, "patients": patients}
    generate_folder(Path(root), about, partial(_write, about=about))


def load_cases(root: Path) -> CasesTruth:
    """The truth beside a generated folder. BadInput where there is none."""
    path = Path(root) / "truth.parquet"
    if not path.is_file():
        raise BadInput(f"{path} does not exist: {root} is no finished world of cases.")
    rows = pl.read_parquet(path, glob=False).iter_rows()
    people = {subject: GeneratedPatient((), tuple(phenotypes), outcome) for subject, phenotypes, outcome in rows}
    return CasesTruth(people)


def _write(folder: Path, about: Mapping[str, Any]) -> None:
    for part in ("data", "metadata", "labels"):
        (folder / part).mkdir()
    rng = np.random.default_rng(np.random.SeedSequence(about["seed"], spawn_key=(21,)))
    courses = story.draw_courses(rng)
    ids = [FIRST_ID + number for number in range(about["patients"])]
    split = _split(ids, rng)
    people = [story.draw_person(rng, courses, new=part != "train") for part in split["split"]]
    starts = START + np.sort(rng.integers(0, 3650, len(people))) * DAY
    signs, phenotypes = _codes()
    rows = []
    for subject, person, start in zip(ids, people, starts.tolist(), strict=True):
        codes = [signs[sign][0] for sign in person.signs] + [phenotypes[p][0] for p in person.phenotypes]
        rows.append((subject, start - 50 * 365 * DAY, "MEDS_BIRTH", None))
        rows += [(subject, start + DAY, code, subject) for code in codes]
    time = pl.col("time").cast(pl.Datetime("us"))
    schema = {"subject_id": pl.Int64, "time": pl.Int64, "code": pl.String, "visit_id": pl.Int64}
    events = pl.DataFrame(rows, schema, orient="row").with_columns(time, numeric_value=pl.lit(None, pl.Float32))
    events.write_parquet(folder / "data" / "0.parquet")
    named = [*signs.values(), *phenotypes, ("MEDS_BIRTH", "Birth")]
    names = pl.DataFrame(named, {"code": pl.String, "description": pl.String}, orient="row")
    names.with_columns(parent_codes=pl.lit([], pl.List(pl.String))).write_parquet(folder / "metadata" / "codes.parquet")
    at = pl.Series(starts + 2 * DAY).cast(pl.Datetime("us"))
    visits = {"subject_id": ids, "visit_id": ids, "start": pl.Series(starts).cast(pl.Datetime("us")), "end": at}
    pl.DataFrame(visits).with_columns(died=pl.lit(False), death_time=pl.lit(None, pl.Datetime("us"))).write_parquet(
        folder / "visits.parquet"
    )
    outcomes = [person.outcome for person in people]
    labels = pl.DataFrame({"subject_id": ids, "prediction_time": at, "integer_value": outcomes})
    labels.write_parquet(folder / "labels" / f"{TASK}.parquet")
    (folder / "labels" / f"{TASK}.json").write_text(json.dumps(QUESTION, indent=1) + "\n")
    split.write_parquet(folder / "metadata" / "subject_splits.parquet")
    columns = {"subject_id": ids, "phenotypes": [list(person.phenotypes) for person in people], "outcome": outcomes}
    pl.DataFrame(columns).write_parquet(folder / "truth.parquet")
    pl.DataFrame({"code": [code for code, _ in phenotypes], "course": courses}).write_parquet(
        folder / "courses.parquet"
    )
    ours = {"generated": True, "credentialed": False, "stay": "hospital", "counts": {}}
    (folder / "ghar.json").write_text(json.dumps(ours, indent=1) + "\n")
    (folder / "manifest.json").write_text(json.dumps(dict(about)) + "\n")


def _codes() -> tuple[dict[tuple[int, int], tuple[str, str]], list[tuple[str, str]]]:
    """Code and name of each sign, by (family, number), and of each phenotype."""
    v = load_vocabulary(story.FAMILIES * story.PHENOTYPES)
    conditions = [(f"ICD10CM/{c}", n) for c, n in zip(v.conditions["code"], v.conditions["name"], strict=True)]
    common = len(conditions) - story.FAMILIES * story.PHENOTYPES
    places = [(family, number) for number in range(story.SIGNS) for family in range(story.FAMILIES)]
    return dict(zip(places, conditions[:common], strict=False)), conditions[common:]


def _split(ids: list[int], rng: np.random.Generator) -> pl.DataFrame:
    order = rng.permutation(ids)
    cuts = np.round(np.cumsum([*SPLIT.values()][:-1]) * len(order)).astype(int)
    parts = np.split(order, cuts)
    names = [name for name, part in zip(SPLIT, parts, strict=True) for _ in range(len(part))]
    return pl.DataFrame({"subject_id": np.concatenate(parts), "split": names}).sort("subject_id")
