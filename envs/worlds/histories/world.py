"""Write the world of long histories as a MEDS folder with a label file, and its truth beside it.

data/*.parquet, metadata/codes.parquet, metadata/subject_splits.parquet (5:1:4), visits.parquet, ghar.json as the reader
of MEDS takes them; labels/critical.parquet and labels/critical.json, the question in words; truth.parquet (one row a
patient: kind, trigger, slope, exculpated, label), gold.parquet (subject_id, evidence, time, name: the rows that tell),
and manifest.json, which says that every patient is generated. The story: story.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from ghar.envs.worlds.generated import generate_folder
from ghar.envs.worlds.histories.story import EXCULPATED, KINDS, SLOPE, TRIGGER, critical
from ghar.envs.worlds.severity.vocabulary import load_vocabulary
from ghar.progress import track

FORMAT = 2  # raise it when the same parameters would give another world
Size = Literal["demo_long", "demo_long_small"]
EVENTS: Mapping[str, tuple[int, int]] = {"demo_long": (5_000, 60_000), "demo_long_small": (500, 2_500)}  # of a patient
YEARS = (10, 30)
SHARD = 100  # patients a file
SPLIT = {"train": 0.5, "tuning": 0.1, "held_out": 0.4}
FIRST_ID = 70_000_001
EXCHANGES, MENTIONS = 6, 10  # rows of pumps, and of the disease's name that tell nothing
READINGS, LAST = 12, 5  # of the measurement a year; those whose slope tells
BLOCK = 10  # older readings that rise or fall together
MICROS = 86_400_000_000  # a day
START = np.datetime64("1990-01-01T08:00:00", "us").astype(np.int64)
INDEX = "Storage index"
GRAFT = "Curative stem cell graft"
NAMED = ("{kind} lipid storage disease", "{kind} lamellar thesaurosis")  # two names of the disease
PUMP = "{kind} pump exchange"
MENTIONED = ("Storage disease screening", "Family history of lipid storage disease", "Lipid storage disease leaflet")
BESIDE = ("Leucocyte enzyme assay", "Metabolic clinic referral", "Enzyme infusion", "Foam cell biopsy")
TASK = "critical"  # name of the files of labels
QUESTION = {
    "question": "Will the patient's storage disease become critical within a year?",
    "labels": ["no", "yes"],
    "title": "Critical storage disease",
    "category": "Progression of disease",
    "factual": "onset of lipid storage disease and what drives it",
    "counterfactual": "graft or other event that has ended the disease",
    "advice": "The kind of disease named at its onset matters: a pump of the same kind that was exchanged drives it. "
    "So does a storage index whose last five values rise. A curative graft ends it.",
}


@dataclass(frozen=True)
class _EventWords:
    """Codes and names of all that occurs. common: places of background codes; numeric: of them, those with numbers."""

    codes: list[str]
    names: list[str]
    common: int
    numeric: int

    def place(self, name: str) -> int:
        return self.names.index(name)


def long_folder(cache: Path, name: Size, seed: int, patients: int) -> Path:
    """Where the world of these parameters is kept."""
    return cache / "worlds" / f"{name}-v{FORMAT}-seed{seed}-patients{patients}"


def generate_long(root: Path, *, name: Size, seed: int, patients: int) -> None:
    """Write the world under `root`, whole or not at all; a finished one of the same parameters is kept.

    Raises BadInput when `root` holds anything else.
    """
    about = {"generated": True, "format": FORMAT, "name": name, "seed": seed, "patients": patients}
    generate_folder(Path(root), about, partial(_write, about=about, size=EVENTS[name]))


def _write(folder: Path, about: Mapping[str, Any], size: tuple[int, int]) -> None:
    for part in ("data", "metadata", "labels"):
        (folder / part).mkdir()
    words = _words()
    people: list[dict[str, Any]] = []
    gold: list[tuple[int, str, int, str]] = []
    visits: list[pl.DataFrame] = []
    shards = range(0, about["patients"], SHARD)
    for shard, first in enumerate(track(list(shards), "Generate long histories")):
        frames = []
        for number in range(first, min(first + SHARD, about["patients"])):
            rng = np.random.default_rng(np.random.SeedSequence(about["seed"], spawn_key=(11, number)))
            person, events, stays, rows = _patient(rng, FIRST_ID + number, words, size)
            people.append(person)
            frames.append(events)
            visits.append(stays)
            gold += rows
        pl.concat(frames).write_parquet(folder / "data" / f"{shard}.parquet")
    pl.concat(visits).write_parquet(folder / "visits.parquet")
    codes = pl.DataFrame({"code": words.codes, "description": words.names}).with_columns(
        parent_codes=pl.lit([], pl.List(pl.String))
    )
    codes.write_parquet(folder / "metadata" / "codes.parquet")
    truth = pl.DataFrame(people)
    _split(truth["subject_id"].to_numpy(), about["seed"]).write_parquet(folder / "metadata" / "subject_splits.parquet")
    at = pl.col("prediction_time").cast(pl.Datetime("us"))
    labels = truth.select("subject_id", at, boolean_value=pl.col("label") == 1)
    labels.write_parquet(folder / "labels" / f"{TASK}.parquet")
    (folder / "labels" / f"{TASK}.json").write_text(json.dumps(QUESTION, indent=1) + "\n")
    truth.with_columns(at).write_parquet(folder / "truth.parquet")
    schema = {"subject_id": pl.Int64, "evidence": pl.String, "time": pl.Int64, "name": pl.String}
    timeline = pl.DataFrame(gold, schema, orient="row").with_columns(pl.col("time").cast(pl.Datetime("us")))
    timeline.write_parquet(folder / "gold.parquet")
    ours = {"generated": True, "credentialed": False, "stay": "hospital", "counts": {}}
    (folder / "ghar.json").write_text(json.dumps(ours, indent=1) + "\n")
    (folder / "manifest.json").write_text(json.dumps(dict(about)) + "\n")


def _words() -> _EventWords:
    v = load_vocabulary(0)
    common = [(f"ICD10CM/{c}", n) for c, n in zip(v.conditions["code"], v.conditions["name"], strict=True)]
    common += [(f"DRUG/{name}", name) for name in v.drugs["name"]]
    common += [(f"ICD10PCS/{c}", n) for c, n in zip(v.procedures["code"], v.procedures["name"], strict=True)]
    labs = [(f"LAB/{c}", n) for c, n in zip(v.labs["code"], v.labs["name"], strict=True)]
    own = [*MENTIONED, *BESIDE, GRAFT]
    own += [pattern.format(kind=kind) for pattern in (*NAMED, PUMP) for kind in KINDS]
    rows = [*common, *labs, *((f"LONG/{name.lower().replace(' ', '-')}", name) for name in own)]
    rows += [(f"LAB/{INDEX.lower()}", INDEX), ("MEDS_BIRTH", "Birth"), ("GENDER/F", "Female"), ("GENDER/M", "Male")]
    codes, names = zip(*rows, strict=True)
    return _EventWords(list(codes), list(names), len(common), len(labs))


def _patient(
    rng: np.random.Generator, subject: int, words: _EventWords, size: tuple[int, int]
) -> tuple[dict[str, Any], pl.DataFrame, pl.DataFrame, list[tuple[int, str, int, str]]]:
    """Truth, events, visits and gold rows of one patient."""
    many = int(np.exp(rng.uniform(*np.log(size))))
    days = float(rng.uniform(*YEARS)) * 365.25
    stays = np.sort(rng.uniform(0, days, max(12, many // 60)))
    stays[0] = 0.0
    which = np.sort(rng.integers(0, len(stays), many))
    offset = rng.uniform(0, 2.0, many)
    background = stays[which] + offset
    code, value = _background(rng, words, many)
    trigger, rising, ended = (bool(rng.random() < share) for share in (TRIGGER, SLOPE, EXCULPATED))
    kind = int(rng.integers(len(KINDS)))
    label = int(rng.random() < critical(trigger, rising, ended))
    story = _story(rng, days, kind, trigger, ended)
    times, readings = _readings(rng, days, rising)
    end = float(max(days + 3.0, background.max(), times[-1]))
    day = np.concatenate([background, [at for _, at, _ in story], times])
    names = [name for name, _, _ in story]
    code = np.concatenate([code, [words.place(name) for name in names], np.full(len(times), words.place(INDEX))])
    value = np.concatenate([value, np.full(len(story), np.nan), readings])
    order = np.argsort(day, kind="stable")
    stay = np.searchsorted(stays, day, side="right") - 1
    micros = START + (day * 86_400).astype(np.int64) * 1_000_000
    birth = START - int(rng.uniform(20, 60) * 365.25 * MICROS)
    sex = words.place("Female" if rng.random() < 0.5 else "Male")
    events = pl.DataFrame({
        "subject_id": np.full(len(day) + 2, subject),
        "time": pl.Series([None, birth, *micros[order].tolist()], dtype=pl.Int64).cast(pl.Datetime("us")),
        "code": pl.Series([words.codes[i] for i in (sex, words.place("Birth"), *code[order].tolist())]),
        "visit_id": pl.Series([None, None, *(subject * 10_000 + stay[order]).tolist()], dtype=pl.Int64),
        "numeric_value": pl.Series([None, None, *value[order].tolist()], dtype=pl.Float32).fill_nan(None),
    })  # fmt: skip
    begins = START + (stays * 86_400).astype(np.int64) * 1_000_000
    visits = pl.DataFrame({
        "subject_id": np.full(len(stays), subject),
        "visit_id": subject * 10_000 + np.arange(len(stays)),
        "start": pl.Series(begins).cast(pl.Datetime("us")),
        "end": pl.Series(begins + 2 * MICROS).cast(pl.Datetime("us")),
        "died": np.zeros(len(stays), bool),
        "death_time": pl.Series([None] * len(stays), dtype=pl.Datetime("us")),
    })  # fmt: skip
    stamps = START + (np.array([at for _, at, _ in story]) * 86_400).astype(np.int64) * 1_000_000
    gold = [(subject, why, int(at), name) for (name, _, why), at in zip(story, stamps.tolist(), strict=True) if why]
    last = START + (times[-LAST:] * 86_400).astype(np.int64) * 1_000_000
    gold += [(subject, "slope", int(at), INDEX) for at in last.tolist()]
    person = {
        "subject_id": subject, "kind": KINDS[kind], "trigger": trigger, "slope": rising, "exculpated": ended,
        "label": label, "prediction_time": int(START + (int(end) + 2) * MICROS),
    }  # fmt: skip
    return person, events, visits, gold


def _background(rng: np.random.Generator, words: _EventWords, many: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes and values of what says nothing: a patient has some 150 codes, a few of them far more often than others."""
    own = rng.permutation(words.common)[:150]
    weights = 1.0 / (1.0 + np.arange(len(own)))
    code = own[rng.choice(len(own), many, p=weights / weights.sum())]
    measured = rng.random(many) < 0.3
    code[measured] = words.common + rng.integers(0, words.numeric, int(measured.sum()))
    value = np.where(measured, np.round(rng.normal(10, 2, many), 1), np.nan)
    return code, value


def _story(
    rng: np.random.Generator, days: float, kind: int, trigger: bool, ended: bool
) -> list[tuple[str, float, str]]:
    """(name, day, evidence or "") of the rows of the story."""
    onset = float(rng.uniform(3, 100))
    others = [i for i in rng.permutation(len(KINDS)).tolist() if i != kind]
    pumps = [*([kind] if trigger else []), *others][:EXCHANGES]
    middle = rng.uniform(0.25, 0.75, EXCHANGES + MENTIONS + 1) * days
    rows = [(NAMED[int(rng.integers(len(NAMED)))].format(kind=KINDS[kind]), onset, "onset")]
    rows += [(name, onset + 0.01 * i, "") for i, name in enumerate(BESIDE, 1)]
    for i, pump in enumerate(pumps):
        rows.append((PUMP.format(kind=KINDS[pump]), float(middle[i]), "trigger" if pump == kind else ""))
    for i in range(MENTIONS):
        rows.append((MENTIONED[int(rng.integers(len(MENTIONED)))], float(middle[EXCHANGES + i]), ""))
    if ended:
        rows.append((GRAFT, float(middle[-1]), "exculpating"))
    return rows


def _readings(rng: np.random.Generator, days: float, rising: bool) -> tuple[np.ndarray, np.ndarray]:
    """Days and values of the measurement: blocks that rise or fall, the last five as the story has it."""
    many = max(BLOCK + LAST, int(days / 365.25 * READINGS))
    times = np.linspace(10, days, many) + rng.uniform(0, 5, many)
    blocks = -(-(many - LAST) // BLOCK)
    values = np.concatenate([_block(rng, BLOCK, bool(rng.random() < 0.5)) for _ in range(blocks)])[: many - LAST]
    return times, np.round(np.concatenate([values, _block(rng, LAST, rising)]), 2)


def _block(rng: np.random.Generator, length: int, rising: bool) -> np.ndarray:
    """Values whose level says nothing of their direction: they are centred on a level that is drawn apart."""
    steps = np.arange(length) - rng.integers(0, length)  # any of them is at the level
    slope = rng.uniform(0.3, 0.6) * (1 if rising else -1)
    return rng.uniform(20, 40) + slope * steps + rng.normal(0, 0.1, length)


def _split(subjects: np.ndarray, seed: int) -> pl.DataFrame:
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(12,))).permutation(subjects)
    cuts = np.round(np.cumsum(list(SPLIT.values())[:2]) * len(order)).astype(int)
    parts = np.split(order, cuts)
    names = [name for name, part in zip(SPLIT, parts, strict=True) for _ in range(len(part))]
    return pl.DataFrame({"subject_id": np.concatenate(parts), "split": names}).sort("subject_id")
