"""Reference ranges of items whose table marks results as abnormal and names no ranges (MIMIC-III's `flag`).

The range of an item is the interval whose results are without a flag. Of the open demo's potassium that is 3.3 to 5.1,
of its hematocrits 36 and more of women and 40 and more of men: a result below both is "(low)", where the flag alone
tells no direction. A flag says more than none; an item that was flagged in some years alone (INR) has no range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

ABNORMAL = "abnormal"  # "delta", the other flag of MIMIC-III, is a change
FLAG = 3  # results without a flag that one with a flag outweighs
LEAST, SHARE = 3, 2 / 3  # of an item's results without a flag, how many a range holds; those of vancomycin are no range

Ends = tuple[float | None, float | None]


def flag_ranges(rows: pl.LazyFrame, ends: Mapping[str | None, Sequence[str]]) -> pl.DataFrame:
    """Return code, unit and the ends of their ranges, a row for each code and unit.

    rows: code, unit, sex, value, flag. ends: names of the columns of the lower and upper end, by sex; None for the
    range of all results.
    """
    flagged = (pl.col("flag").str.strip_chars().str.to_lowercase() == ABNORMAL).fill_null(False)
    counts = (
        rows.filter(pl.col("value").is_finite())
        .with_columns(flagged=flagged.cast(pl.Int64))
        .group_by("code", "unit", "sex", "value")
        .agg(pl.len().cast(pl.Int64), pl.col("flagged").sum())
        .collect(engine="streaming")
    )
    numbers = {name: pl.Float64() for pair in ends.values() for name in pair}
    types = {"code": pl.String(), "unit": pl.String(), **numbers}
    lines = []
    for (code, unit), part in counts.group_by("code", "unit"):
        ranges = _ranges(part, [sex for sex in ends if sex is not None])
        named = (zip(ends[sex], ranges[sex], strict=True) for sex in ends)
        lines.append({"code": code, "unit": unit} | dict(pair for pairs in named for pair in pairs))
    return pl.DataFrame(lines, types, orient="row")


def _ranges(counts: pl.DataFrame, sexes: Sequence[str]) -> dict[str | None, Ends]:
    """Of one item's results by sex and value the range of all, under None, and of each sex.

    Where results of a sex tell none, there is none of all: of the demo's blood gases all hemoglobins of men are
    flagged, and 13 would be high for women. An end that no result of a sex is beyond is the one of all, if none is
    beyond that either.
    """
    every, ranges, parts = _range(counts), dict[str | None, Ends](), {sex: counts.filter(sex=sex) for sex in sexes}
    for sex, part in parts.items():
        ranges[sex] = _range(part)
        if ranges[sex] == (None, None) and int(part["len"].sum()) >= LEAST and int(part["flagged"].sum()):
            every = (None, None)
    low, high = every
    for sex, part in parts.items():
        own_low, own_high = ranges[sex]
        if own_low is None and low is not None and (part["value"] >= low).all():
            own_low = low
        if own_high is None and high is not None and (part["value"] <= high).all():
            own_high = high
        ranges[sex] = own_low, own_high
    return ranges | {None: every}


def _range(counts: pl.DataFrame) -> Ends:
    """The range that results by value tell, whatever the sex."""
    values = counts.group_by("value").agg(pl.col("len", "flagged").sum()).sort("value")
    return unflagged(*(values[name].to_numpy() for name in ("value", "len", "flagged")))


def unflagged(values: np.ndarray, counts: np.ndarray, flagged: np.ndarray) -> Ends:
    """Return the ends of the interval in which results without a flag less `FLAG` times those with one are most, the
    widest of several; None for an end that no result is beyond.

    values: float64 [n], ascending, all different; counts, flagged: int64 [n], results of each value, and those of them
    with a flag. Both are None where the interval holds too few results without a flag (`LEAST`, `SHARE`).
    """
    bare = counts - flagged
    best, low, high = 0, 0, -1
    total, first = 0, 0
    for place, gain in enumerate((bare - FLAG * flagged).tolist()):
        if total < 0:
            total, first = 0, place
        total += gain
        if total > best or (total == best > 0 and place - first > high - low):
            best, low, high = total, first, place
    inside = int(bare[low : high + 1].sum())
    if inside < LEAST or inside < SHARE * bare.sum():
        return None, None
    return (float(values[low]) if low else None), (float(values[high]) if high < len(values) - 1 else None)
