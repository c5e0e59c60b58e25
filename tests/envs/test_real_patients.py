"""Rules that know a generated world refuse real patients, who are taught by their labels alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ghar.config import Config
from ghar.envs.ghar.pretraining import teacher_knowledge
from ghar.envs.ghar.teacher import ScriptedTeacher, TeacherErrors
from ghar.envs.records import Records
from ghar.envs.system import WORDS, build, refused_variants
from ghar.envs.worlds.severity_grades import MeanLabels
from ghar.errors import BadInput
from tests.envs.parts import make_case

pytestmark = pytest.mark.slow

SYSTEMS = {"ghar": "task=los", "kare": "task=kare_readmission", "comparators": "task=los"}
RULES = {"ghar": "teacher", "kare": "rule", "comparators": "rule"}
REFUSED = r"knows the grades of the demo world and nothing of these patients.*trainer\.warmup\.teacher.*labels alone"
LABELS_ALONE = r"pruned_by=.*labels alone: set trainer\.warmup\.teacher .*or leave"


@pytest.fixture(scope="module")
def real(small_records, small_config, tmp_path_factory) -> Callable[..., Config]:
    """The small world's tables without its signature, which makes them a hospital's."""
    world, folder = small_records.world.root, tmp_path_factory.mktemp("unsigned")
    for name in ("hosp", "icu", "kg"):
        (folder / name).symlink_to(world / name)
    return lambda *overrides: small_config("data=mimic4", f"data.root={folder}", *overrides)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_rule_refuses_and_labels_alone_are_taught(real, name: str) -> None:
    records = Records(real(f"system={name}", SYSTEMS[name]))
    made = build(records)
    training = made.training
    assert not made.origin.generated and training.teacher is None and training.pretraining is None
    assert not training.rehearsal
    with pytest.raises(BadInput, match=REFUSED) as refused:
        made.fixed[RULES[name]]()
    assert f"evaluate other variants ({', '.join(made.listed)})" in str(refused.value)
    assert refused_variants(records.config) == made.refused  # known before anything was built
    ruled = [variant for variant in made.variants.values() if variant.who == RULES[name]]
    for variant in ruled:  # what eval.variants names is looked up before the training begins
        with pytest.raises(BadInput, match=REFUSED):
            made.variant(variant.name)
    assert ruled and made.variant(made.main)
    assert made.listed and not [variant for variant in made.listed if made.variants[variant].who in made.fixed]
    assert made.training.examples is not None
    examples = made.read_by(WORDS).training.examples(WORDS)  # type: ignore[misc]
    assert len(examples.train) == len(records.splits.train) and len(examples.valid) == len(records.splits.valid)
    labels = set(made.task.labels)
    for _, reply, _, weight in (*examples.train, *examples.valid):
        assert reply.removeprefix("answer: ") in labels and weight > 0
    assert "labels alone" in examples.about["lessons"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_generated_patients_keep_their_rule(small_config, name: str) -> None:
    made = build(Records(small_config(f"system={name}", SYSTEMS[name])))
    assert made.training.teacher == RULES[name] and made.training.pretraining is not None
    assert [variant for variant in made.listed if made.variants[variant].who == RULES[name]]
    assert name == "kare" or made.training.examples is None


def test_a_model_teaches_real_patients_where_one_is_named(real) -> None:
    made = build(Records(real("system=ghar", "task=los", "trainer.warmup.teacher=qwen@http://127.0.0.1:9/v1")))
    assert made.training.examples is None and made.training.teacher is None


def test_labels_alone_cannot_be_pruned(real, tmp_path, monkeypatch) -> None:
    keys = "system=comparators", "task=los", f"system.pruned_by={tmp_path / 'retrievals.parquet'}"
    with monkeypatch.context() as early, pytest.raises(BadInput, match=LABELS_ALONE):
        early.setattr("ghar.envs.comparators.system.graph_corpus", lambda *_: pytest.fail("a graph is read"))
        build(Records(real(*keys)))
    taught = build(Records(real(*keys, "trainer.warmup.teacher=qwen@http://127.0.0.1:9/v1")))
    assert taught.teacher_variant().name == "search_r1_pruned_sft" and taught.training.teacher is None


def test_decisions_as_numbers_are_of_the_demo_world_alone(real) -> None:
    made = build(Records(real("system=ghar", "task=los")))
    assert made.truth.decisions is not None
    with pytest.raises(BadInput, match=r"grades of the demo world, which these patients lack"):
        made.truth.decisions()


def test_knowledge_from_labels_leaves_the_patients_own_out(small_config) -> None:
    """Of generated patients, for a task whose labels do not follow from grades."""
    records = Records(small_config("task=guo_los"))
    known = teacher_knowledge(records)
    assert isinstance(known, MeanLabels) and known.grades
    subject = records.splits.train[0].subject_id
    about = known.about(subject)
    assert all(owner != subject for found in about.labels.values() for owner, _ in found)  # type: ignore[attr-defined]
    assert subject in {owner for found in known.labels.values() for owner, _ in found}


def test_a_label_never_reaches_the_rule_that_is_asked_about_its_patient() -> None:
    labels = {"disease d1": [(1, 1)] * 9 + [(2, 0)] * 9}
    known = MeanLabels({"disease d1": 4}, {}, lambda grade: int(grade >= 5), labels=labels, top=1)
    assert known.about(1).grades == {"disease d1": 0} and known.about(2).grades == {"disease d1": 9}
    assert known.about(3).grades == {"disease d1": 4}  # half and half, rounded to even
    teacher = ScriptedTeacher(known, TeacherErrors(0, 0, 0, 0, 0, 0))
    assert teacher._of(make_case(1)).knowledge.grades == {"disease d1": 0}
