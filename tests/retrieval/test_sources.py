"""One menu over several corpora: numbers, order, and each source against a direct look at what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Cohort, Sample, Visit
from ghar.envs.ghar.joined_sources import JoinedSources, KnowledgeSource, MenuPart
from ghar.envs.ghar.sources import FolderCorpus, _own_past, samples_of
from ghar.envs.records import Records
from ghar.episode import Evidence, Passage, Retrieve, RetrieveFor
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from ghar.retrieval.patient_history import PatientHistory, movement
from ghar.retrieval.similar_stays import SimilarStays, index_stays, weight_of

START = datetime(2140, 1, 1)
FAILING = "OMR/failing kidney clearance"


@dataclass(frozen=True)
class Echo:
    """Says which of its partitions it was asked."""

    name: str
    size: int

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        found = []
        for request in requests:
            own = range(self.size) if request.partitions is None else request.partitions
            assert all(0 <= part < self.size for part in own)
            found.append(Evidence(tuple(Passage(f"{self.name}{p} {request.query}", "line", p, 1.0, p) for p in own)))
        return found


def echo(name: str, size: int) -> KnowledgeSource:
    return KnowledgeSource(name, Echo(name, size), tuple((f"{name}-{i}", f"{name} number {i}") for i in range(size)))


JOINED = JoinedSources((echo("a", 2), echo("b", 1), echo("c", 3)))


def test_the_menu_is_numbered_through() -> None:
    assert [part.index for part in JOINED.partitions] == list(range(6))
    assert JOINED.partitions[2] == MenuPart(2, "b-0", "b number 0", "b")
    assert JOINED.partitions[5].label == "c number 2"


def test_each_source_is_asked_for_its_own_partitions_alone() -> None:
    one, two, three = JOINED.retrieve([Retrieve("x", (1, 2)), Retrieve("y", (5,)), Retrieve("z")])
    assert [p.text for p in one.passages] == ["a1 x", "b0 x"] and [p.partition for p in one.passages] == [1, 2]
    assert [p.text for p in two.passages] == ["c2 y"] and two.passages[0].partition == 5
    assert [p.partition for p in three.passages] == [0, 1, 2, 3, 4, 5]


def test_who_asks_is_passed_on_and_a_text_is_shown_once() -> None:
    twice = JoinedSources((echo("a", 1), echo("a", 1)))
    found = twice.retrieve([RetrieveFor("q", None, 1, "s1")])[0]
    assert [p.text for p in found.passages] == ["a0 q"] and found.passages[0].partition == 0


@pytest.mark.parametrize("partition", [-1, 6])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match="ids run from 0 to 5"):
        JOINED.retrieve([Retrieve("x", (partition,))])


def test_a_folder_of_texts_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "advice.txt").write_text("Grafts need rest.\n\nKeep  wounds   dry.\n")
    (tmp_path / "zoo.txt").write_text("Lions need meat.\n")
    folder = FolderCorpus.read(tmp_path)
    assert folder.names == ("advice", "zoo")
    asked = [Retrieve("need", None, 2), Retrieve("wounds", (0,)), Retrieve("wounds", (1,))]
    whole, inside, nothing = folder.retrieve(asked)
    assert {p.text for p in whole.passages} == {"Grafts need rest.", "Lions need meat."}
    assert [(p.text, p.partition) for p in inside.passages] == [("Keep wounds dry.", 0)] and not nothing.passages


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no NAME"):
        FolderCorpus.read(tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(BadInput, match="no UTF-8"):
        FolderCorpus.read(tmp_path)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> PatientHistory:
    """Two patients: the first with a graft ten years before, a pain two years before, and a graft row of today."""
    rows = [
        (1, START - timedelta(days=3650), "OMR/earlier graft", None, "grade 6 course"),
        (1, START - timedelta(days=700), "OMR/earlier graft", None, "grade 3 pain"),
        (1, START - timedelta(days=30), "LAB/1", 4.5, None),
        (1, START, "OMR/earlier graft", None, "grade 9 course"),
        (2, START - timedelta(days=3650), "OMR/earlier graft", None, "grade 1 course"),
        *((1, START - timedelta(days=365 * n), FAILING, 42.5 + 6 * n, None) for n in (4, 3, 2, 1)),
        (1, START + timedelta(days=1), FAILING, 90.0, None),
        *((2, START - timedelta(days=365 * n), FAILING, 42.5 + 6 * n, None) for n in (2, 1)),
    ]
    events = pl.DataFrame(
        [(s, t, c, n, x, None, t) for s, t, c, n, x in sorted(rows, key=lambda row: row[:2])],
        schema={
            "subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "numeric_value": pl.Float32,
            "text_value": pl.String, "visit_id": pl.Int64, "recorded": pl.Datetime("us"),
        },
        orient="row",
    )  # fmt: skip
    codes = pl.DataFrame(
        {
            "code": ["OMR/earlier graft", "LAB/1", FAILING],
            "description": ["Earlier graft", "Haemoglobin", "Failing kidney clearance"],
            "parents": [[], [], []],
        },
        schema_overrides={"parents": pl.List(pl.String)},
    )
    visits = pl.DataFrame({"subject_id": [1, 2], "visit_id": [11, 12], "start": [START, START], "end": [START, START]})
    visits = visits.with_columns(died=pl.lit(False), death_time=pl.lit(None, pl.Datetime("us")))
    cohort = Cohort("made", events, codes, visits, generated=True, credentialed=False)
    store = build_event_store(cohort, tmp_path_factory.mktemp("past"), None, StoreLayout(1, 0, False, "time"))
    return PatientHistory(store, {"one": (1, START), "two": (2, START)})


def test_the_past_ends_where_the_newest_visit_begins(past: PatientHistory) -> None:
    early, recent, both = past.retrieve(
        [RetrieveFor("disease earlier graft", part, 3, "one") for part in ((0,), (1,), None)]
    )
    assert [p.text for p in early.passages] == ["earlier graft - 10 years before - grade 6 course"]
    assert [p.text for p in recent.passages] == ["earlier graft - 23 months before - grade 3 pain"]
    assert {p.text for p in both.passages} == {p.text for p in (*early.passages, *recent.passages)}
    assert [p.partition for p in recent.passages] == [1]


def test_the_past_is_the_patient_s_own_and_shares_a_word_with_the_query(past: PatientHistory) -> None:
    [other] = past.retrieve([RetrieveFor("disease earlier graft", (0,), 1, "two")])
    assert [p.text for p in other.passages] == ["earlier graft - 10 years before - grade 1 course"]
    assert not past.retrieve([RetrieveFor("fracture", None, 1, "one")])[0].passages
    with pytest.raises(KeyError):
        past.retrieve([RetrieveFor("graft", None, 1, "three")])


class Texts(dict[int, str]):
    """Reports by stay."""

    def text(self, stay: int) -> str:
        return self[stay]


def sample(subject: int, visit: int, diagnoses: tuple[str, ...], drugs: tuple[str, ...] = ()) -> Sample:
    earlier = Visit(visit - 1, START, ("z",) * 1)
    return Sample(f"s{visit}", subject, visit, START, (earlier, Visit(visit, START, diagnoses, (), drugs)), 0)


def like_stays() -> SimilarStays:
    stays = [
        sample(1, 11, ("a", "b", "c")), sample(2, 21, ("a", "b", "d")), sample(3, 31, ("a", "x", "y"), ("m",)),
        sample(4, 41, ("a", "b", "c")),
    ]  # fmt: skip
    texts = Texts({
        11: "Course:\nHe rested. The odd syndrome ran a grade 2 course.",
        21: "Course:\nThe odd syndrome ran a grade 5 course. All well.",
        31: "Course:\nThe odd syndrome ran a grade 8 course.",
        41: "Course:\nNothing to tell.",
    })  # fmt: skip
    return SimilarStays(index_stays(stays, texts), texts, {s.sample_id: s for s in stays})  # type: ignore[arg-type]


def test_the_most_similar_stay_that_speaks_of_it_comes_first_and_never_one_s_own() -> None:
    corpus = like_stays()
    [found] = corpus.retrieve([RetrieveFor("disease odd syndrome", (0,), 2, "s41")])
    assert [p.ident for p in found.passages] == [11, 21] and found.passages[0].score == 1.0
    assert found.passages[0].text == "like stay - The odd syndrome ran a grade 2 course."
    [own] = corpus.retrieve([RetrieveFor("disease odd syndrome", (0,), 1, "s11")])
    assert [p.ident for p in own.passages] == [21]


def test_a_query_is_compared_by_the_kind_of_code_it_is_about() -> None:
    assert weight_of("disease x") == (1.0, 0.0, 0.0) and weight_of("drug x") == (0.0, 1.0, 0.0)
    assert weight_of("x") == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert not like_stays().retrieve([RetrieveFor("drug odd syndrome", None, 2, "s41")])[0].passages


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 400), st.floats(-200, 200)), min_size=0, max_size=9))
def test_a_movement_is_the_slope_of_the_last_values(steps: list[tuple[int, float]]) -> None:
    days = np.cumsum([step for step, _ in steps])
    values = [round(value, 1) for _, value in steps]
    text = movement([float(day) / 365 for day in days], values)
    if len(values) < 3:
        assert text is None
        return
    x, y = days[-4:] / 365, np.array(values[-4:])
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()  # least squares, written out
    assert text is not None and text.startswith(f"{len(values)} values, the last ")
    moves = text.rsplit(" - lately ", 1)[1]
    if moves == "steady":
        assert abs(slope) < 1e-6
    else:
        word, size, *_ = moves.split()
        assert word == ("rising" if slope > 0 else "falling")
        digit = 1.0 if abs(slope) >= 0.95 else 10 ** np.floor(np.log10(abs(slope)))
        assert abs(float(size) - abs(slope)) <= 0.5 * digit + 1e-6


def test_values_of_one_day_move_nowhere() -> None:
    assert movement([1.0, 1.0, 1.0], [3.0, 4.0, 5.0]) is None
    assert movement([0.0, 1.0, 2.0], [3.0, 3.0, 3.0]) == "3 values, the last 3 - lately steady"
    fallen = movement([0.0, 1.0, 2.0, 3.0, 4.0], [99.0, 9.0, 6.0, 3.0, 0.0])
    assert fallen == "5 values, the last 0 - lately falling 3 a year"


def test_numbers_of_the_past_are_those_before_the_newest_visit(past: PatientHistory) -> None:
    [own] = past.retrieve([RetrieveFor("disease failing kidney", (2,), 3, "one")])
    told = "failing kidney clearance - 4 values, the last 48.5 - lately falling 6 a year"
    assert [p.text for p in own.passages] == [told] and own.passages[0].partition == 2
    assert not past.retrieve([RetrieveFor("disease failing kidney", (2,), 3, "two")])[0].passages  # two values
    assert not past.retrieve([RetrieveFor("haemoglobin", (2,), 3, "one")])[0].passages  # one value


def test_the_past_of_an_icu_stay_is_that_of_its_hospital_stay(shared_data: Path, tmp_path: Path) -> None:
    """The open eICU demo, whose hospital stays have no order."""
    records = Records(load([
        "data=eicu", f"data.root={shared_data / 'eicu-crd-demo-2.0.1'}", f"data.cache={tmp_path}", "task=los",
    ]))  # fmt: skip
    history, visits, events = _own_past(records), records.charted.visits, records.charted.events
    several = visits.filter(pl.col("group").n_unique().over("subject_id") > 1)
    asked = [(name, one) for name, one in samples_of(records).items() if one.subject_id in several["subject_id"]]
    assert asked
    for name, sample in asked:
        newest = sample.history[-1]
        [group] = visits.filter(pl.col("visit_id") == newest.visit_id)["group"]
        theirs = visits.filter(pl.col("group") == group)["visit_id"]
        codes = events.filter(pl.col("visit_id").is_in(theirs.implode()), pl.col("time") <= newest.start)["code"]
        record = history.store.record(*history.cases[name])
        assert {record.store.codes[int(code)] for code in record.row_codes()} <= set(codes)
        assert record.rows <= len(codes)
