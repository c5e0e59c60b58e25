"""What KARE teaches a model: which reply follows which prefix, what a pair weighs, and what the expert was asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading, both_prompt, label_prompt, parse_both, reason_prompt
from ghar.envs.kare.expert_chains import Chain
from ghar.envs.kare.training_examples import DistillationData, answers_of, class_weights, examples_of, look_up_all
from ghar.envs.system import WORDS
from ghar.episode import Evidence, Passage, Retrieve
from tests.envs.kare.playing import TINY, built

TASK = Task("read", "Will this patient come back?", ("no", "yes"))
NAMES = ("asthma", "gout", "mumps", "rickets")
GRADES: dict[str, int] = dict(zip(NAMES, (2, 7, 3, 9), strict=True))


def case(number: int, name: str) -> Case[KareReading]:
    topic = f"disease {name}"
    return Case(f"s{number}", number, number, f"now: {topic}", (topic,), TASK, int(GRADES[name] > 4), KareReading())


CASES = tuple(case(i, NAMES[(i * i + i // 3) % 4]) for i in range(24))


def knowledge_of(one: Case[KareReading]) -> str:
    name = one.topics[0].split(" ", 1)[1]
    return f"- {name} has a grade {GRADES[name]} course"


TAUGHT = DistillationData(
    CASES,
    {one.sample_id: knowledge_of(one) for one in CASES},
    {one.sample_id: Chain(f"so {one.topics[0]} decides", 0) for one in CASES[1:]},  # the first has none
)


def test_the_same_context_is_followed_by_what_its_prefix_asks_for() -> None:
    pairs = examples_of(TAUGHT, "multitask", "compact")
    assert len(pairs) == 23 + 24
    for one, (prompt, reply, choices, weight) in zip(CASES[1:], pairs[:23], strict=True):
        assert prompt == reason_prompt(one, knowledge_of(one), "compact") and prompt.startswith("[Reasoning]")
        assert reply == TAUGHT.chains[one.sample_id].text and choices == () and weight == 1
    for one, (prompt, reply, choices, weight) in zip(CASES, pairs[23:], strict=True):
        assert prompt == label_prompt(one, knowledge_of(one), "compact") and prompt.startswith("[Label Prediction]")
        assert reply == TASK.labels[one.label] and choices == TASK.labels and weight == 1


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=30))
def test_weighted_classes_count_the_same_together(names: list[str]) -> None:
    cases = [case(i, name) for i, name in enumerate(names)]
    retrieved = dict.fromkeys((one.sample_id for one in cases), "")
    taught = DistillationData(cases, retrieved, {cases[0].sample_id: Chain("a b c", 0)})
    pairs = examples_of(taught, "multitask_weighted", "compact")
    total: dict[int, float] = {}
    for one, (_, _, _, weight) in zip(cases, pairs[1:], strict=True):
        total[one.label] = total.get(one.label, 0) + weight
    assert list(total.values()) == pytest.approx([len(cases) / len(total)] * len(total))
    assert pairs[0][3] == class_weights(cases)[cases[0].label]


def test_the_ablations_teach_their_part_alone() -> None:
    both = examples_of(TAUGHT, "two_in_one", "compact")
    assert len(both) == 23  # without a chain there is nothing to join
    for one, (prompt, reply, choices, _) in zip(CASES[1:], both, strict=True):
        assert prompt == both_prompt(one, knowledge_of(one), "compact") and not choices
        assert parse_both(reply, TASK).value == one.label
    labels = examples_of(TAUGHT, "label_only", "compact")
    assert labels == examples_of(TAUGHT, "multitask", "compact")[23:]
    for tasks in ("multitask", "multitask_weighted", "label_only"):
        assert answers_of(TAUGHT, tasks, "compact") == labels
    assert answers_of(TAUGHT, "two_in_one", "compact") == both


class Communities:
    """Finds the grade of the patient's disease."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        found = [f"{request.query} has a grade {GRADES[request.query]} course" for request in requests]
        return [Evidence((Passage(text, "community", -1, 1.0, 0),)) for text in found]


def look_up(one: Case[KareReading]) -> Retrieve:
    return Retrieve(one.topics[0].split(" ", 1)[1], None, 1)


def count(text: str) -> int:
    return len(text.split())


def test_training_sees_the_knowledge_that_an_episode_would():
    assert look_up_all(CASES, look_up, Communities(), 50, count) == TAUGHT.knowledge
    assert set(look_up_all(CASES, lambda _: None, Communities(), 50, count).values()) == {""}
    assert set(look_up_all(CASES, look_up, Communities(), 3, count).values()) == {""}  # over the budget


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kare")


@pytest.mark.slow
@pytest.mark.parametrize("tasks", ["multitask", "two_in_one", "label_only"])
def test_the_expert_is_asked_once_for_what_a_model_is_taught(
    cache: Path, tmp_path: Path, tasks: str
) -> None:
    short = ("system.chains=2", "task.max_train=20", "task.max_valid=6", f"run_dir={tmp_path}", f"system.tasks={tasks}")
    system = built(*TINY, f"data.cache={cache}", *short)
    assert system.training.examples is not None
    found = system.training.examples(WORDS)
    wanted = {"multitask": {"training"}, "two_in_one": {"training", "validation"}, "label_only": set()}[tasks]
    chains, many = found.about["chains"], len(system.cases.train)
    assert set(chains) == wanted and 10 < many <= 20
    if wanted:
        assert chains["training"]["chains"] == 2 * many and chains["training"]["samples without a chain"] == 0
        assert sum(n for name, n in chains["training"].items() if name.startswith("kept")) == many
    assert len(found.train) == (2 * many if tasks == "multitask" else many) and len(found.valid) == 6
    stores = list((tmp_path / "expert").glob("*.jsonl"))
    before = [store.read_text() for store in stores]
    assert len(stores) == bool(wanted)
    again = system.training.examples(WORDS)
    assert [store.read_text() for store in stores] == before
    assert (again.train, again.valid) == (found.train, found.valid)


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "looked_up"), [("no_patients", True), ("base", False)])
def test_contexts_of_table_3_are_taught_and_asked_alike(
    cache: Path, tmp_path: Path, variant: str, looked_up: bool
) -> None:
    short = ("system.tasks=label_only", f"system.variant={variant}", "task.max_train=6", "task.max_valid=4")
    system = built(*TINY, f"data.cache={cache}", f"run_dir={tmp_path}", *short)
    assert system.training.examples is not None
    found = system.training.examples(WORDS)
    prompts = {pair[0] for pair in found.train}
    assert prompts and not any("outcome:" in prompt for prompt in prompts)
    for name in ("kare", "no_reasoning", "backbone"):
        effects = [next(system.episode(case, system.variants[name])) for case in system.cases.train]
        assert all(isinstance(effect, Retrieve) for effect in effects) == looked_up
        if not looked_up:
            assert {effect.prompt for effect in effects} == prompts
