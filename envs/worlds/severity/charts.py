"""Bedside charts of the demo world's ICU stays: icu/chartevents in MIMIC-IV 2.2's columns, in a copy of the world.

The world itself stays as it is, byte for byte; the copy shares its files (hard links) and has this one more. Unlike
labs and codes' order, charts do tell: with each point of acuity above 5 a patient is a little sicker in most variables
(faster heart, lower pressure, lower coma scale, lower pH). Every patient has levels of his own, so one value says
little and a mean over steps says more. MIMIC-IV charts no total of the coma scale, and neither does this.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from ghar.envs.worlds.severity.tables import ICU_FROM_ACUITY
from ghar.envs.worlds.severity.world import load_world
from ghar.progress import track
from ghar.provenance import GENERATED, signed_mark
from ghar.seal import SEAL, sound
from ghar.storage import new_folder

STREAM = 8  # of the world's seed; the world draws from streams 0 to 2, its notes from 7
CHUNK = 2_000  # ICU stays in memory at once
EVERY, AT_MOST = 6 * 60, 40  # minutes between charting times, times a stay
COLUMNS = (
    *("subject_id", "hadm_id", "stay_id", "caregiver_id", "charttime", "storetime", "itemid"),
    *("value", "valuenum", "valueuom", "warning"),
)


@dataclass(frozen=True)
class Charted:
    """How one variable is charted: its item, level at acuity 6 and change for each point more, spread between patients
    and between times, limits, decimals, the chance of each time to have it, unit. once: the first time only."""

    item: int
    level: float
    per_point: float
    between: float
    within: float
    low: float
    high: float
    decimals: int
    chance: float
    unit: str
    once: bool = False


CHARTED = (
    Charted(220045, 85, 5, 10, 6, 20, 220, 0, 0.9, "bpm"),
    Charted(220179, 125, -8, 12, 8, 40, 240, 0, 0.9, "mmHg"),
    Charted(220180, 65, -4, 8, 6, 20, 140, 0, 0.9, "mmHg"),
    Charted(220181, 82, -5, 9, 6, 25, 170, 0, 0.9, "mmHg"),
    Charted(220210, 18, 1.5, 3, 2, 4, 60, 0, 0.9, "insp/min"),
    Charted(220277, 97, -0.8, 1, 1, 60, 100, 0, 0.9, "%"),
    Charted(223761, 98.4, 0.3, 0.5, 0.4, 90, 107, 1, 0.5, "°F"),
    Charted(220739, 3.7, -0.4, 0.3, 0.4, 1, 4, 0, 0.5, ""),
    Charted(223900, 4.5, -0.5, 0.4, 0.5, 1, 5, 0, 0.5, ""),
    Charted(223901, 5.7, -0.5, 0.3, 0.5, 1, 6, 0, 0.5, ""),
    Charted(220621, 130, 10, 25, 20, 30, 800, 0, 0.3, "mg/dL"),
    Charted(223835, 32, 6, 5, 4, 21, 100, 0, 0.25, ""),
    Charted(223830, 7.4, -0.03, 0.03, 0.03, 6.8, 7.8, 2, 0.25, "units"),
    Charted(226512, 80, 0, 15, 0, 35, 200, 1, 0.7, "kg", once=True),
    Charted(226730, 170, 0, 10, 0, 140, 205, 0, 0.5, "cm", once=True),
)
REFILL, REFILL_CHANCE, REFILL_SLOW = 223951, 0.2, 0.1  # charted in words; slow in 1 of 10, and 1 more a point


def charted_world(root: Path) -> Path:
    """Folder of the world `root` with charts, made when first asked for. Raises BadInput when `root` is no world."""
    target = root.with_name(f"{root.name}-charts")
    if sound(target) and signed_mark(target).generated:
        return target
    world = load_world(root)
    stays = pl.read_csv(root / "icu/icustays.csv.gz", try_parse_dates=True, glob=False).join(
        world.truth.select(hadm_id="visit_id", points=pl.col("acuity") - ICU_FROM_ACUITY), on="hadm_id"
    )
    stays = stays.sort("stay_id").select("subject_id", "hadm_id", "stay_id", "intime", "outtime", "points")
    with new_folder(target, GENERATED, keep=True) as folder:
        for path in root.rglob("*"):
            if path.is_file() and path.name != SEAL:
                (folder / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
                os.link(path, folder / path.relative_to(root))
        with (folder / "icu/chartevents.csv.gz").open("wb") as file:
            for number in track(range(-(-max(stays.height, 1) // CHUNK)), "Chart the demo's ICU stays"):
                key = (STREAM, number)
                rng = np.random.default_rng(np.random.SeedSequence(world.manifest["seed"], spawn_key=key))
                rows, text = _charts(rng, stays.slice(number * CHUNK, CHUNK)), BytesIO()
                rows.write_csv(text, include_header=number == 0, datetime_format="%Y-%m-%d %H:%M:%S")
                file.write(gzip.compress(text.getbuffer(), compresslevel=3, mtime=0))
    return target


def _charts(rng: np.random.Generator, stays: pl.DataFrame) -> pl.DataFrame:
    """The rows of some stays, in the order of stay, time and item."""
    minutes = ((stays["outtime"] - stays["intime"]).dt.total_minutes()).to_numpy()
    counts = np.clip(minutes // EVERY, 1, AT_MOST)
    stay = np.repeat(np.arange(stays.height), counts)
    time = np.arange(len(stay)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = time == 0
    late = np.minimum(time * EVERY + rng.integers(0, 60, len(stay)), np.maximum(minutes[stay] - 1, 0))
    points = stays["points"].to_numpy()
    parts = []
    for about in CHARTED:
        own = about.level + about.per_point * points + about.between * rng.standard_normal(stays.height)
        value = own[stay] + about.within * rng.standard_normal(len(stay))
        rows = np.flatnonzero((rng.random(len(stay)) < about.chance) & (first | (not about.once)))
        number = np.clip(value, about.low, about.high).round(about.decimals)[rows]
        parts.append(_rows(stay, late, rows, about.item, pl.Series(number), about.unit, about.decimals))
    slow = rng.random(len(stay)) < REFILL_SLOW * (1 + points[stay])
    rows = np.flatnonzero(rng.random(len(stay)) < REFILL_CHANCE)
    words = np.where(slow, "Abnormal >3 Seconds", "Normal <3 Seconds")[rows]
    parts.append(_rows(stay, late, rows, REFILL, pl.Series(words), "", 0))
    table = pl.concat(parts).sort("row", "late", "itemid")
    table = table.with_columns(delay=pl.Series(rng.integers(1, 90, table.height)))
    table = table.with_columns(stays[table["row"].to_numpy()].select("subject_id", "hadm_id", "stay_id", "intime"))
    charted = pl.col("intime") + pl.duration(minutes=pl.col("late"))
    return table.with_columns(
        charttime=charted,
        storetime=charted + pl.duration(minutes=pl.col("delay")),
        caregiver_id=pl.lit(None, pl.Int64),
        warning=pl.lit(0),
    ).select(COLUMNS)


def _rows(
    stay: np.ndarray, late: np.ndarray, rows: np.ndarray, item: int, value: pl.Series, unit: str, decimals: int
) -> pl.DataFrame:
    """row (of the stay), late (minutes after its beginning), itemid, value, valuenum, valueuom."""
    numeric = value.dtype != pl.String
    text = value if not numeric else pl.Series(np.char.mod(f"%.{decimals}f", value.to_numpy()))
    return pl.DataFrame(
        {
            "row": stay[rows],
            "late": late[rows],
            "itemid": np.full(len(rows), item),
            "value": text.cast(pl.String),
            "valuenum": value.cast(pl.Float64) if numeric else pl.Series([None] * len(rows), dtype=pl.Float64),
            "valueuom": pl.Series([unit or None] * len(rows), dtype=pl.String),
        }
    )
