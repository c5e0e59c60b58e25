"""KARE's practice: made-up patients in its own prompts, in which what is rare can only be read; one spelling."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.envs.case import Case
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareReading, parse_both
from ghar.envs.kare.pretraining import NamePlace, TemplateBuilder, cast_of
from ghar.envs.kare.rule import belief
from ghar.envs.kare.scripted_expert import topics_in
from ghar.envs.records import Records
from ghar.envs.system import DemoPretraining, PretrainingTasks, System, build
from ghar.envs.worlds.severity_grades import reading_of
from ghar.episode import Act, Episode
from ghar.kg.names import plain
from ghar.launch.entry import load

pytestmark = pytest.mark.slow

TINY = ("+experiment=kare_demo", "data.patients=60", "system.leiden_runs=5")
TOTAL = 800


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return Records(load([*TINY, f"data.cache={tmp_path_factory.mktemp('practice')}"]))


@pytest.fixture(scope="module")
def system(records: Records) -> System[KareReading]:
    return build(records)


@pytest.fixture(scope="module")
def made(system: System[KareReading]) -> PretrainingTasks:
    assert isinstance(system.training.pretraining, DemoPretraining)
    return system.training.pretraining.exercises(TOTAL, 3)


def acts(episode: Episode) -> list[tuple[Act, str]]:
    records: list[Any] = [r for r in episode.trace if isinstance(r.effect, Act)]
    return [(r.effect, r.result.text) for r in records]


def test_chains_and_labels_follow_from_what_is_shown_or_known_by_heart(
    records: Records, system: System[KareReading], made: PretrainingTasks
) -> None:
    known = belief(records).knowledge
    complete = 0
    for act, reply in (one for episode in made.episodes for one in acts(episode)):
        case, told = act.facts["case"], act.facts["knowledge"]
        assert case.text in act.prompt and topics_in(case.text) == case.topics[: len(topics_in(case.text))]
        grades = [known.grades.get(t, reading_of(t, told).grade) for t in case.topics]
        label = case.task.labels[case.label]
        if None not in grades and topics_in(case.text) == case.topics:
            complete += 1
            assert known.label_of(max(g for g in grades if g is not None)) == case.label
        if act.role == "predict":
            assert reply == label and act.choices == system.task.labels
        if act.role == "both":
            assert parse_both(reply, case.task).value == case.label
    assert complete > 100 and {act.role for e in made.episodes for act, _ in acts(e)} == {"both", "reason", "predict"}


def test_no_rare_name_of_a_patient_is_practised_and_no_grade_can_be_remembered(
    records: Records, made: PretrainingTasks
) -> None:
    world = records.world
    assert world is not None
    rare, spelt = set(world.rare_codes), ConceptNames(records.names).of_all
    of_patients = {name for code, name in spelt.items() if code in rare} | {
        world.target[code] for code in spelt if code in world.target
    }
    texts = [f"{act.prompt}\n{reply}" for episode in made.episodes for act, reply in acts(episode)]
    practised = {" ".join(pair) for text in texts for line in text.split("\n") for pair in _pairs(line)}
    assert not practised & of_patients
    stated: dict[str, list[str]] = {}
    cast = cast_of(world, records.names)
    for text in texts:
        for name, grade in re.findall(r"disease (\w+ \w+) grade (\d)", text):
            if cast.kind.get(name) == "rare disease":
                stated.setdefault(name, []).append(grade)
    often = [grades for grades in stated.values() if len(grades) > 3]
    assert often and np.mean([len(set(grades)) > 1 for grades in often]) > 0.9


def _pairs(line: str) -> list[tuple[str, str]]:
    return list(pairwise(re.findall(r"[a-z0-9]+", line)))


def test_what_is_common_is_known_by_heart_against_the_context(records: Records, made: PretrainingTasks) -> None:
    known, against = belief(records).knowledge.grades, 0
    for act, reply in (one for episode in made.episodes for one in acts(episode)):
        if act.role != "both":
            continue
        for topic in (topic for topic in act.facts["case"].topics if topic in known):
            if topic in topics_in(act.facts["case"].text):
                assert f"{topic} grade {known[topic]} course" in reply
                against += reading_of(topic, act.facts["knowledge"]).grade not in (None, known[topic])
    assert against > 20, "a context that misleads"


def test_the_same_seed_gives_the_same_exercises(system: System[KareReading], made: PretrainingTasks) -> None:
    assert isinstance(system.training.pretraining, DemoPretraining)
    again = system.training.pretraining.exercises(TOTAL, 3)
    assert [acts(e)[0][0].prompt for e in again.episodes] == [acts(e)[0][0].prompt for e in made.episodes]
    assert acts(system.training.pretraining.exercises(TOTAL, 4).episodes[0]) != acts(made.episodes[0])


def test_one_sentence_states_its_grades_of_the_name_it_begins_with(records: Records) -> None:
    assert records.world is not None
    cast = cast_of(records.world, records.names)
    first, second = cast.common["disease"][:2]
    text = f"{first} phenotype absent grade 1 course. {second} of {first} phenotype present grade 2 course."
    case = Case("s", 1, 1, text, (), records.task, 0, KareReading())
    [pieces, *_] = TemplateBuilder(cast).template(case, []).texts
    assert [piece for piece in pieces if isinstance(piece, NamePlace)] == [
        NamePlace(first), NamePlace(first, "absent"), NamePlace(second), NamePlace(first), NamePlace(second, "own"),
    ]  # fmt: skip


def test_record_and_community_spell_a_name_alike(records: Records, system: System[KareReading]) -> None:
    """106 of 310 names were spelt with a comma or bracket in the record, and without in the community."""
    written = {topic.split(" ", 1)[1] for case in system.cases.test for topic in case.topics}
    described = {name for name in records.names.values() if plain(name) in written}
    assert any(name != plain(name) for name in described), "some names have a comma"
    assert written == {plain(name) for name in written}
    for case in system.cases.test:
        for name in re.findall(r"(?:disease|drug) ([^;\n]+)", case.text.splitlines()[-1]):
            assert name in written
    assert ConceptNames({"x": "???"})("x") == "???" and ConceptNames({})("ICD10CM/X") == "ICD10CM/X"


def test_elsewhere_it_practises_as_ghar_does(tmp_path: Path) -> None:
    assert build(Records(load([*TINY, f"data.cache={tmp_path}", "task=new_acutemi"]))).training.pretraining == "ghar"


def test_concepts_that_only_later_patients_have_are_in_the_graph(records: Records, system: System[KareReading]) -> None:
    """Nearly every rare entity is shown by one patient: communities of training patients' concepts alone know none."""
    seen = {code for s in records.splits.train for v in s.history for code in (*v.diagnoses, *v.medications)}
    new = {code for s in records.splits.test for v in s.history for code in (*v.diagnoses, *v.medications)} - seen
    graphs, name_of = system.corpus.communities.graphs, ConceptNames(records.names)  # type: ignore[attr-defined]
    unknown = {name for s in records.splits.test for name in graphs[s.sample_id].unknown}
    assert new and not {name_of(code) for code in new} & unknown
