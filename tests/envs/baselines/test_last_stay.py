"""The length of the last stay as a baseline: which stays count, where it cuts, and what it answers without one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from ghar.data.cohort import Sample, Visit
from ghar.envs.baselines.features import TrainingData, labels_of
from ghar.envs.baselines.last_stay import fit_last_stay
from ghar.envs.baselines.stay_lengths import StayLengths, read_lengths
from ghar.envs.records import Records
from ghar.launch.entry import load

START, DAY = datetime(2020, 1, 1), timedelta(days=1)


def after(number: int, days: float, label: int, outcome: timedelta | None = 9 * DAY) -> tuple[Sample, datetime]:
    """A sample that is predicted at the end of its one stay, with this end."""
    end = START + days * DAY
    known = None if outcome is None else end + outcome
    return Sample(f"s{number}", number, number, end, (Visit(number, START),), label, known), end


def known_of(stays: list[tuple[Sample, datetime]], classes: int = 2) -> TrainingData:
    train = [sample for sample, _ in stays]
    return TrainingData(
        train, train[:1], classes, 0, lengths=lambda: StayLengths({s.visit_id: end for s, end in stays})
    )


def test_it_cuts_where_the_training_labels_change():
    stays = [after(i, days, int(days >= 5)) for i, days in enumerate([1, 2, 4.9, 5, 6, 9] * 5)]
    model = fit_last_stay(known_of(stays))
    assert model.about == {"days": 5.0, "without a stay": 0}
    # 15 of 15 samples, and one with the shares of all
    np.testing.assert_allclose(model([stays[2][0], stays[3][0]]), [[15.5 / 16, 0.5 / 16], [0.5 / 16, 15.5 / 16]])


def test_a_patient_without_a_stay_gets_shares_of_their_own():
    stays = [after(i, days, int(days >= 3)) for i, days in enumerate([1, 2, 3, 4] * 5)]
    known = known_of(stays)
    first = [replace(stays[0][0], sample_id=f"first-{i}", visit_id=-1, history=(), label=1) for i in range(9)]
    model = fit_last_stay(replace(known, train=[*known.train, *first]))
    usual = np.array([10, 19]) / 29
    assert model.about == {"days": 3.0, "without a stay": 9}
    np.testing.assert_allclose(model(first[:1]), [(np.array([0, 9]) + usual) / 10])


def test_without_lengths_it_gives_the_usual_label():
    known = TrainingData([after(i, i + 1, i % 3)[0] for i in range(6)], [], 3, 0)
    model = fit_last_stay(known)
    np.testing.assert_allclose(model(known.train), np.full((6, 3), 1 / 3))
    assert model.about == {"days": None, "without a stay": 6}


def test_the_end_of_a_stay_that_is_asked_for_is_not_read():
    """Length of stay, predicted at the discharge with the paper's leakage."""
    stays = [after(i, days, int(days >= 5), timedelta(0)) for i, days in enumerate([1, 2, 6, 7] * 5)]
    earlier = {100 + i: START - 10 * DAY + (1 + i % 2) * DAY for i in range(20)}
    train = [
        replace(sample, history=(Visit(100 + i, START - 10 * DAY), *sample.history))
        for i, (sample, _) in enumerate(stays)
    ]
    lengths = StayLengths({**earlier, **{sample.visit_id: end for sample, end in stays}})
    told = lengths.without_outcomes(train)
    assert told(train).tolist() == [1, 2] * 10 and lengths(train).tolist() == [1, 2, 6, 7] * 5


def test_the_own_stay_is_not_read_where_no_outcome_has_a_time():
    """A label file of long stay, asked at the discharge; a few outcomes that are known later do not open the task."""
    stays = [after(i, days, int(days >= 5), None) for i, days in enumerate([1, 2, 6, 7] * 5)]
    later = [after(20 + i, days, 1) for i, days in enumerate([6, 7])]
    for known in (known_of(stays), known_of([*stays, *later])):
        model = fit_last_stay(known)
        assert not model.lengths.own and np.isnan(model.lengths(known.train)).all()
    assert fit_last_stay(known_of([*later, stays[0]])).lengths.own


def test_a_stay_that_is_not_over_is_not_read():
    sample, end = after(1, 4, 0)
    lengths = StayLengths({1: end})
    assert lengths([sample]).tolist() == [4]
    assert np.isnan(lengths([replace(sample, prediction_time=end - timedelta(minutes=1))])).all()
    assert np.isnan(StayLengths()([sample])).all()


def test_only_training_labels_teach():
    stays = [after(i, days, int(days >= 5)) for i, days in enumerate([1, 2, 5, 6] * 5)]
    known = known_of(stays)
    wrong = [replace(sample, label=1 - sample.label) for sample in known.train]
    np.testing.assert_array_equal(fit_last_stay(known)(wrong), fit_last_stay(replace(known, valid=wrong))(known.train))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "leakage"), [("read", "paper"), ("los", "paper"), ("dec", "strict")])
def test_on_generated_patients(task: str, leakage: str, tmp_path: Path):
    """Readmission follows from the length of the own stay there; the other two may not read it."""
    own = ["system=baselines", "data.patients=200", f"data.cache={tmp_path}", f"task={task}", f"data.leakage={leakage}"]
    records = Records(load(own))
    splits, visits = records.splits, records.cohort.visits
    known = TrainingData(splits.train, splits.valid, len(records.task.labels), 0, lengths=lambda: read_lengths(visits))
    model = fit_last_stay(known)
    assert model.lengths.own == (task != "los")
    alone = [sample for sample in splits.test if len(sample.history) == 1]
    if task == "read":
        right = (model(splits.test).argmax(axis=1) == labels_of(splits.test)).mean()
        assert model.about["days"] == pytest.approx(5, abs=0.5) and right > 0.8
    else:
        assert np.isnan(model.lengths(alone)).all(), "what is asked for was read"
