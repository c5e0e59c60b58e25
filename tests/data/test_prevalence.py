"""The shares of positives that papers' tables allow, reckoned again from the printed numbers; and what a run says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ghar.data.tasks.prevalence import ALLOWED, MAJORITY, beside_the_paper

PUBLISHED = yaml.safe_load((Path(__file__).resolve().parents[2] / "conf/study/_published.yaml").read_text())
TABLES = {"mimic3": "ghar.IV", "mimic4": "ghar.V", "eicu": "ghar.VI"}
SHARES = np.linspace(0.0001, 0.9999, 9999)
ROUNDED = 0.00005


def cells(table: str) -> list[dict[str, Any]]:
    """Of all models; two of Tables IV to VI have a row of their own, too."""
    own = list(PUBLISHED[table]["cells"].values())
    others = [row for rows in PUBLISHED[table].get("models", {}).values() for row in rows.values()]
    return [*own, *(row for row in others if row not in own)]


def possible(accuracy: float, balanced: float) -> np.ndarray:
    """Whether some TPR and TNR have this accuracy and mean, at each of SHARES."""
    rates = max(0, 2 * balanced - 1), min(1, 2 * balanced)
    ends = [tpr * (2 * SHARES - 1) + 2 * balanced * (1 - SHARES) for tpr in rates]
    return (np.minimum(*ends) - ROUNDED <= accuracy) & (accuracy <= np.maximum(*ends) + ROUNDED)


@pytest.mark.parametrize("data", TABLES)
def test_decompensation_is_rare_in_ghars_tables(data: str) -> None:
    rows = [(row["dec/accuracy"], row["dec/balanced_accuracy"]) for row in cells(TABLES[data]) if "dec/accuracy" in row]
    allowed = np.logical_and.reduce([possible(*row) for row in rows])
    [(_, highest)] = ALLOWED["ghar", "dec", data]
    assert SHARES[allowed & (SHARES < 0.5)].max() == pytest.approx(highest, abs=1e-4) and len(rows) == 16


@pytest.mark.parametrize("data", ["mimic3", "mimic4"])
def test_no_constant_answer_beats_ghars_readmissions(data: str) -> None:
    found = [row["read/accuracy"] for row in cells(TABLES[data]) if "read/accuracy" in row]
    assert 0.5 <= min(found) <= max(found) <= MAJORITY[1] and ALLOWED["ghar", "read", data] == [MAJORITY]


def test_readmissions_of_eicu() -> None:
    rows = [(row["read/accuracy"], row["read/balanced_accuracy"]) for row in cells("ghar.VI") if "read/accuracy" in row]
    allowed = SHARES[np.logical_and.reduce([possible(*row) for row in rows])]
    (_, low), (high, _) = ALLOWED["ghar", "read", "eicu"]
    assert allowed[allowed < 0.5].max() == pytest.approx(low, abs=1e-4)
    assert allowed[allowed > 0.5].min() == pytest.approx(high, abs=1e-4)


@pytest.mark.parametrize("task", ["kare_mortality", "kare_readmission"])
@pytest.mark.parametrize("data", ["mimic3", "mimic4"])
def test_kares_table_2(task: str, data: str) -> None:
    """The share follows from accuracy, sensitivity and specificity; the median over rows, whose rounding differs."""
    shares = [
        (row[f"{task}/accuracy"] - row[f"{task}/specificity"]) / gap
        for row in cells(f"kare.2.{data}")
        if f"{task}/accuracy" in row
        and abs(gap := row[f"{task}/sensitivity"] - row[f"{task}/specificity"]) > 0.1
    ]
    [(low, high)] = ALLOWED["kare", task, data]
    assert low <= np.median(shares) <= high, np.median(shares)


@pytest.mark.parametrize(("task", "data", "positive"), [
    ("series_mortality", "mimic3", 35 + 195 + 29),  # dead of test, training and validation samples, Table 5
    ("series_readmission", "mimic4", 53 + 391 + 51),
])  # fmt: skip
def test_graphwalkers_table_5(task: str, data: str, positive: int) -> None:
    share = positive / 2000
    error = (share * (1 - share) / 2000) ** 0.5
    assert ALLOWED["graphwalker", task, data] == [pytest.approx((share - error, share + error), abs=1e-4)]


def test_what_a_run_says() -> None:
    rare, even = [1] * 2 + [0] * 998, [0, 1] * 500
    assert beside_the_paper("ghar", "dec", "mimic4", rare) == "0.20%; the paper's tables allow 0.00% to 0.22%"
    said = beside_the_paper("ghar", "dec", "mimic4", [1] * 75 + [0] * 925)
    assert said is not None and said.startswith("7.50%; ") and said.endswith("cannot be compared with the printed ones")
    assert beside_the_paper("ghar", "read", "mimic4", even) == "50.00%; the paper's tables allow 35.00% to 65.00%"
    assert beside_the_paper("none", "read", "mimic4", even) is None
    assert beside_the_paper("ghar", "los", "eicu", even) is None
