"""The exact reader: what it says of a case by hand, and that no selector spends more than its effort."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.effort import ExactReader, effort
from ghar.envs.graphwalker.selectors.protocol import Entropy, Labels, Patient
from ghar.envs.worlds.cases.story import COURSES, EXACT, GeneratedPatient


def patient(number: int, text: str, label: int) -> Patient:
    return Patient(f"s{number}", number, label, text, (), (), None, answer=str(label))


def test_the_reader_by_hand() -> None:
    pool = [patient(0, "now: disease a; disease m", 3), patient(1, "now: disease a; disease n", 0)]
    asked = patient(2, "now: disease a; disease m", 3)
    people = {0: GeneratedPatient((), (7,), 3), 1: GeneratedPatient((), (8,), 0), 2: GeneratedPatient((), (7,), 3)}
    reader = ExactReader(pool, people)
    [[bare, alike, other]] = reader.answer([Entropy(asked, ((), (0,), (1,)))])
    assert bare == pytest.approx(-(math.log(2 / 4) + math.log(1 / 4)) / 2)
    assert alike == pytest.approx(-(math.log(1 / 2) + math.log((1 / 4 + 1 / 2) / 2)) / 2)
    assert other == pytest.approx(-(math.log(1 / 2) + math.log(1 / 8)) / 2) and alike < bare < other
    [found] = reader.answer([Labels(asked, ((), (0,)))])
    shares = np.exp(found)
    wrong = (1 - EXACT) / (COURSES - 1)
    assert shares[0] == pytest.approx([1 / COURSES] * COURSES)
    assert shares[1, 3] == pytest.approx(EXACT**2 + (COURSES - 1) * wrong**2)
    assert reader.prompts == 3 + 2 * COURSES and reader.outcome(asked, (0,)).argmax() == 3


@pytest.mark.slow
def test_every_selector_at_a_small_effort(tmp_path: Path) -> None:
    own = ["data.patients=200", "system.k_g=4", f"data.cache={tmp_path}", "threads=1"]
    found = effort(1, own, efforts=(8,))
    for name, row in found["selectors"].items():
        assert row["prompts"] <= 8 and 0 <= row["accuracy"][0] <= found["ceilings"]["truth"] + 0.05, name
        assert ("walk at 8 less it" in row) == (not name.startswith("graphwalker"))
    assert found["patients"] == 60 and found["selectors"]["zero_shot"]["prompts"] == 0
