"""Exercises that teach to read examples: what a rare code means holds in one of them alone, and no truth is in them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from ghar.data.cohort import Sample
from ghar.envs.graphwalker.pretraining import CASES, PretrainingPool, made_up, material_of
from ghar.envs.graphwalker.selectors.rare_items import items_of
from ghar.envs.graphwalker.system import build
from ghar.envs.records import Records
from ghar.envs.system import DemoPretraining
from ghar.episode import Act, Reply
from ghar.launch.entry import load


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    cache = tmp_path_factory.mktemp("cases")
    return Records(load(["system=graphwalker", "data=demo_cases", "task=labels", "data.patients=300", "system.k_g=4",
                         f"data.cache={cache}"]))  # fmt: skip


def practice_of(records: Records) -> DemoPretraining:
    found = build(records, records.config.system).training.pretraining  # type: ignore[arg-type]
    assert isinstance(found, DemoPretraining)
    return found


def test_rare_codes_are_the_phenotypes(records: Records) -> None:
    found = material_of(records.splits.known)
    assert found.rare[1] == () and all(code.startswith("ICD10CM/U") for code in found.rare[0])
    assert all(None in one for one, _ in found.visits)


def test_a_code_means_the_same_within_an_exercise_and_anything_beyond(records: Records) -> None:
    material, rng = material_of(records.splits.known), np.random.default_rng(0)
    rare = set(material.rare[0])
    ends: defaultdict[str, list[int]] = defaultdict(list)
    shared = 0
    for _ in range(400):
        own: defaultdict[str, set[int]] = defaultdict(set)
        cases = made_up(rng, material, 4)
        for case in cases:
            counting = [code for code in case.history[0].diagnoses if code in rare]
            assert counting
            if len(counting) == 1:
                own[counting[0]].add(case.label)
                ends[counting[0]].append(case.label)
        assert all(len(labels) == 1 for labels in own.values())
        for case in cases:
            for code in case.history[0].diagnoses:
                assert code not in own or min(own[code]) <= case.label
        last = set(cases[-1].history[0].diagnoses) & rare
        shared += any(last & set(case.history[0].diagnoses) for case in cases[:-1])
    assert shared > 200, "examples inform"
    often = [labels for labels in ends.values() if len(labels) >= 5]
    assert often and np.mean([len(set(labels)) > 1 for labels in often]) > 0.7, "nothing holds beyond"


def test_no_truth_is_in_them(records: Records) -> None:
    def turned(samples: tuple[Sample, ...]) -> list[Sample]:
        return [replace(sample, label=3 - sample.label) for sample in samples]

    train = tuple(records.splits.known)
    one, two = (made_up(np.random.default_rng(5), found, 4) for found in map(material_of, (train, turned(train))))
    assert one == two


def test_an_exercise_is_a_prompt_of_the_system(records: Records) -> None:
    system = build(records, records.config.system)  # type: ignore[arg-type]
    made = practice_of(records).exercises(256, 0)
    assert made.shares == {"recount": 1.0} and len(made.episodes) == 64
    names = set(made.names)
    for episode in made.episodes:
        [record] = episode.trace
        act, reply = record.effect, record.result
        assert isinstance(act, Act) and isinstance(reply, Reply)
        assert reply.text.count("Example:\n") == CASES - 1 and reply.text.count("Patient:\n") == 1
        assert act.prompt.startswith("Records of patients") and act.prompt.endswith("\n\n")
        said = [line.removeprefix("Answer: ") for line in reply.text.split("\n") if line.startswith("Answer: ")]
        assert len(said) == CASES and set(said) <= set(system.task.labels) <= names
        shown = [line for line in reply.text.split("\n") if line.startswith("now: ")]
        assert len(shown) == CASES and all(items_of(line) <= names for line in shown)


@pytest.mark.slow
def test_where_the_system_compares_exercises_do_too(records: Records) -> None:
    config = replace(records.config, system=replace(records.config.system, inference="compare"))  # type: ignore[type-var]
    system = build(Records(config), config.system)  # type: ignore[arg-type]
    practice = system.training.pretraining
    assert isinstance(practice, DemoPretraining) and practice.key != practice_of(records).key
    made, rare = practice.exercises(2000, 0), {f"disease {name}" for name in rare_names(records)}
    sizes, told = set(), 0
    for episode in made.episodes:
        recount, compare, predict = [record.result.text for record in episode.trace]  # type: ignore[union-attr]
        *shown, asked = [case for case in recount.replace("Patient:", "Example:").split("Example:\n") if case]
        ends = [case.rstrip().rpartition("Answer: ")[2] for case in shown]
        own = [item for item in asked.partition("\nAnswer")[0].removeprefix("now: ").split("; ") if item in rare]
        met = [(item, end) for case, end in zip(shown, ends, strict=True)
               for item in own if item in case.partition("\nAnswer")[0].removeprefix("now: ").split("; ")]  # fmt: skip
        assert compare == ("; ".join(f"{item} {end}" for item, end in met) or "nothing")
        assert asked.rstrip().endswith(f"Answer: {predict}")
        prompt = episode.trace[2].effect.prompt  # type: ignore[union-attr]
        assert prompt.endswith(f"\nShared: {compare}\nAnswer:")
        assert prompt.startswith(episode.trace[1].effect.prompt)  # type: ignore[union-attr]
        sizes.add(len(shown))
        told += bool(met)
    assert sizes == {1, 2, 3} and told > 0.8 * len(made.episodes)
    assert sum(made.shares.values()) == 1 and set(made.shares) == {"recount", "compare", "predict"}


def rare_names(records: Records) -> set[str]:
    return {records.described[code] for code in material_of(records.splits.known).rare[0]}


@pytest.mark.slow
def test_the_base_changes_with_what_it_practises(records: Records) -> None:
    key = practice_of(records).key
    assert practice_of(records).key == key
    fewer = replace(records.config, task=replace(records.config.task, max_train=5))
    assert practice_of(Records(fewer)).key != key
    assert isinstance(material_of(records.splits.known), PretrainingPool)
