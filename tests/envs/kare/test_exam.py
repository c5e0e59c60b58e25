"""KARE on examination questions: what stands for records, codes and similar patients, and where answers may not be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ghar.envs.kare.build as kare_build
import ghar.envs.kare.training_examples as kare_examples
from ghar.config import Config
from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.exam import EXAM, exam_inputs, exam_splits
from ghar.envs.kare.graph.considerations import QUESTIONS
from ghar.envs.kare.mentions import MentionSample, NearestTexts
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, System, build
from ghar.episode import Act
from ghar.errors import BadInput
from ghar.launch.entry import check, load
from ghar.llm.engine import Engine
from ghar.llm.policy import FunctionPolicy
from ghar.llm.scripted import ScriptedEngine
from ghar.retrieval.encoders import HashingEncoder
from tests.envs.exams import write_exam
from tests.envs.refusals import assert_refused

OWN = ("system=kare", "task=medqa", "data=medqa", "threads=1", "system.leiden_runs=2")
PARTS = {"train": slice(0, 60), "dev": slice(60, 70), "test": slice(70, 80)}


def write_parts(folder: Path, shifts: Mapping[str, int] | None = None) -> list[str]:
    """Write the examination as three official parts; shifts: by how many letters the answers of a part are moved."""
    folder.mkdir(parents=True, exist_ok=True)
    file, graph = write_exam(folder)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    (folder / "parts").mkdir(exist_ok=True)
    for part, some in PARTS.items():
        moved = [_moved(row, (shifts or {}).get(part, 0)) for row in rows[some]]
        (folder / "parts" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in moved))
    return [f"data.root={folder / 'parts'}", f"kg.path={graph}"]


def _moved(row: dict[str, Any], by: int) -> dict[str, Any]:
    letter = "ABCD"[("ABCD".index(row["answer_idx"]) + by) % 4]
    return {**row, "answer_idx": letter, "answer": row["options"][letter]}


def config_of(folder: Path, *overrides: str, shifts: Mapping[str, int] | None = None) -> Config:
    return load([*OWN, *write_parts(folder, shifts), f"data.cache={folder / 'cache'}", *overrides])


def acts_of(system: System[Any], config: Config, variant: str, cases: Sequence[Case[Any]]) -> list[Act]:
    """What a variant asks about cases, answered "A" throughout."""
    policy = FunctionPolicy(lambda act: "A" if act.role == "predict" else "x\nanswer: A")
    played = play(stage_of(system, system.variant(variant), config), cases, policy, seed=0, title="")
    return [record.effect for episode in played for record in episode.trace if isinstance(record.effect, Act)]


def prompts_of(system: System[Any], config: Config, cases: Sequence[Case[Any]]) -> list[str]:
    """All prompts of some variants about cases."""
    names = ("kare", "zero_shot", "few_shot_4", "kare_few_shot")
    return [act.prompt for name in names for act in acts_of(system, config, name, cases)]


def test_a_question_stands_where_a_record_stands(tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.prompts=full", "env.history_tokens=100")
    system = build(Records(config))
    case = system.cases.test[0]
    reason, predict = acts_of(system, config, "kare", [case])
    assert reason.role == "reason" and predict.choices == ("A", "B", "C", "D")
    for act in (reason, predict):
        assert f"# Question\n<data>\n{case.text}\n</data>" in act.prompt and case.text.count("\n") == 4
        assert "# Similar questions\n" in act.prompt and act.prompt.count("right answer: ") == 2
        assert "# Medical knowledge\n" in act.prompt and " indication " in act.prompt
        assert "patient's" not in act.prompt and "Records" not in act.prompt and QUESTIONS[0] not in act.prompt
    [both] = acts_of(system, config, "kare_zero_shot", [case])
    assert QUESTIONS[0] in both.prompt and "right answer: " not in both.prompt
    factors = [passage.factors for passage in predict.facts["evidence"].passages]
    assert factors and {(one.recency, one.theme) for one in factors} == {(1.0, 1.0)}
    assert system.origin.credentialed == case.credentialed and not system.origin.generated


def test_the_graph_is_of_what_questions_mention(tmp_path: Path) -> None:
    records = Records(config_of(tmp_path, "task.max_test=1", "task.max_train=5"))
    splits = exam_splits(records)
    inputs = exam_inputs(records, splits)
    assert len(splits.train) == len(inputs.sets) == 5 and len(inputs.sets.names) == 20 == len(inputs.nodes)
    first = splits.train[0]
    own = {name for kind, name in (topic.split(" ", 1) for topic in first.topics)}
    assert set(inputs.sets.names_of(0)) == {name.lower() for name in own} and len(own) == 5
    graph = records.primekg
    assert all(graph.names[node] == topic.partition(" ")[2] for topic, node in inputs.nodes.items())


def test_no_answer_reaches_the_prompts_of_its_question(tmp_path: Path) -> None:
    first, cache = config_of(tmp_path / "a"), tmp_path / "a" / "cache" / "kare"
    one = build(Records(first))
    folders = sorted(path.name for path in cache.iterdir())
    hidden: dict[str, int] = {"dev": 1, "test": 1}
    other = config_of(tmp_path / "b", f"data.cache={tmp_path / 'a' / 'cache'}", shifts=hidden)
    two = build(Records(other))
    assert sorted(path.name for path in cache.iterdir()) == folders, "nothing is built anew"
    for before, after in ((one.cases.test, two.cases.test), (one.cases.valid, two.cases.valid)):
        assert all(a.label != b.label for a, b in zip(before, after, strict=True))
        assert prompts_of(one, first, before) == prompts_of(two, other, after)


def test_a_training_question_does_not_show_its_own_answer(tmp_path: Path) -> None:
    first = config_of(tmp_path / "a")
    file = tmp_path / "b" / "parts" / "train.jsonl"
    second = config_of(tmp_path / "b")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[7] = _moved(rows[7], 1)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, two = build(Records(first)), build(Records(second))
    assert one.cases.train[7].label != two.cases.train[7].label
    assert prompts_of(one, first, one.cases.train[7:8]) == prompts_of(two, second, two.cases.train[7:8])
    assert prompts_of(one, first, one.cases.train) != prompts_of(two, second, two.cases.train), "others show it"


def sample(number: int, text: str, *options: str) -> MentionSample[ChoiceQuestion]:
    return MentionSample(f"q{number}", number, ChoiceQuestion(f"q{number}", text, options, 0), 0, number, ())


def copies(one: ChoiceQuestion, other: ChoiceQuestion) -> bool:
    return one.text == other.text and sorted(one.options) == sorted(other.options)


def test_similar_questions_are_the_nearest_ones_and_no_copies() -> None:
    encoder = HashingEncoder(64)
    train = (
        sample(0, "which drug treats gout", "senna", "codeine"),
        sample(1, "which drug treats gout", "codeine", "senna"),  # the same, in another order
        sample(2, "which drug treats gout", "lithium", "insulin"),
        sample(3, "which gene causes scurvy", "none", "all"),
        sample(4, "which drug treats acute gout", "senna", "codeine"),
        sample(5, "where is the liver", "left", "right"),
        sample(6, "which test shows gout", "none", "all"),
    )
    near = NearestTexts(EXAM, Splits(train, (), ()), Any, ConceptNames({}), encoder, False)  # type: ignore[arg-type]
    vectors = encoder.passages([one.text.shown() for one in train])
    for asked, nearest in zip(train, near.of(train), strict=True):
        cosines = np.round(vectors @ encoder.passages([asked.text.shown()])[0], 5)
        others = [i for i, one in enumerate(train) if not copies(one.text, asked.text)]
        assert [one.subject_id for one in nearest] == sorted(others, key=lambda i: (-cosines[i], i))[:4]
    [new] = near.of([sample(9, "which drug treats gout", "senna", "codeine")])
    assert {0, 1}.isdisjoint(one.subject_id for one in new) and new[0].subject_id == 4


def test_prompts_show_two_or_four_similar_questions(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    system = build(Records(config))
    case: Case[KareReading] = system.cases.test[0]
    [two], [four] = (acts_of(system, config, name, [case]) for name in ("few_shot", "few_shot_4"))
    assert (two.prompt.count("right answer: "), four.prompt.count("right answer: ")) == (2, 4)
    disease = case.topics[0].partition(" ")[2]
    [rows] = [[json.loads(line) for line in (tmp_path / "parts" / "train.jsonl").read_text().splitlines()]]
    [right] = {row["answer"] for row in rows if disease in row["question"]}
    assert four.prompt.count(f"right answer: {right}") == 4, "questions about one disease read alike"
    [alone] = acts_of(system, config, "zero_shot", [case])
    assert "right answer" not in alone.prompt


def test_classic_rag_retrieves_abstracts_for_a_question(tmp_path: Path) -> None:
    (tmp_path / "abstracts").mkdir()
    paper = {"pmid": "1", "title": "Gout", "abstract": "Allopurinol is given for gout."}
    (tmp_path / "abstracts" / "some.jsonl").write_text(json.dumps(paper) + "\n")
    config = config_of(tmp_path, f"system.abstracts={tmp_path / 'abstracts'}")
    system = build(Records(config))
    assert {"rag", "rag_tuned"} < system.variants.keys() and "rag_tuned" in system.training.stages
    [act] = acts_of(system, config, "rag", system.cases.test[:1])
    assert "Allopurinol is given for gout." in act.prompt
    assert system.report.summary({})["build"]["graphs"]["triples"]["corpus"] == 1


def test_a_long_question_loses_words(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "env.history_tokens=17")))
    case = system.cases.test[0]
    assert case.reads.dropped > 0 and len(case.text.split()) <= 17 and case.text.count("\n") == 4


def test_labels_alone_are_learned_from_a_rule_and_chains_from_an_expert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, "env.prompts=full", "env.history_tokens=100", "system.chains=1", "task.max_train=6")
    system = build(Records(config))
    assert system.training.examples is not None
    made = system.training.examples(WORDS)
    assert {example.choices for example in made.train} == {("A", "B", "C", "D")} and len(made.train) == 6
    assert made.about["lessons"].startswith("labels alone")
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        if "# Right answer\n" in prompt:
            return "# Chain\n1. Question: a disease, and which of four drugs is given for it.\n# Confidence\nconfident"
        return "[]" if "Concepts:\n" in prompt else "These belong together."

    @contextmanager
    def expert(*_: Any) -> Iterator[Engine]:
        yield ScriptedEngine(reply)

    for module in (kare_build, kare_examples):
        monkeypatch.setattr(module, "named_engine", expert)
    taught = build(Records(load([*OWN, *write_parts(tmp_path), f"data.cache={tmp_path / 'other'}",
                                 "env.prompts=full", "env.history_tokens=100", "system.chains=1", "task.max_train=6",
                                 "system.expert=model@http://127.0.0.1:8000/v1"])))  # fmt: skip
    assert taught.training.examples is not None
    chained = taught.training.examples(WORDS)
    assert sum(not example.choices for example in chained.train) == 6 == len(chained.train) // 2
    assert "lessons" not in chained.about and any("one question and its options name" in prompt for prompt in asked)
    assert not any("hospital" in prompt or "patients" in prompt for prompt in asked), "the expert is asked of questions"
    [first, *_] = [prompt for prompt in asked if "# Right answer\n" in prompt]
    assert QUESTIONS[0] in first and "right answer: " in first


@pytest.mark.parametrize("name, reason", [
    ("scripted", "knows the grades of generated patients"), ("scripted_base", "knows the grades"),
    ("coagent", "learns what speaks for each outcome"), ("coagent_unregulated", "learns what speaks"),
])  # fmt: skip
def test_variants_that_need_patients_are_refused_early_and_late(name: str, reason: str, tmp_path: Path) -> None:
    said = rf"Variant {name} of system=kare {reason}.*task=medqa has none: choose others \(kare, "
    config = config_of(tmp_path, f"eval.variants=[{name}]")
    system = assert_refused(config, name, said)
    assert name not in system.listed and system.listed[0] == "usual" and system.report.baselines is None


@pytest.mark.parametrize("extra, said", [
    (["system.variant=no_theme"], "leaves out a factor of Eq. 3 that is 1 for questions"),
    (["system.variant=no_recency"], "leaves out a factor of Eq. 3 that is 1 for questions"),
    (["data.earlier=true"], "task=medqa has no dates"),
    (["protocol=kare"], "protocol=kare has no task=medqa"),
])  # fmt: skip
def test_settings_that_questions_have_no_sense_for(extra: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check([*OWN, "data.root=exam.jsonl", "kg.path=kg.csv", *extra])


def test_questions_that_mention_nothing_are_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    file = tmp_path / "parts" / "train.jsonl"
    rows = [json.loads(line) | {"question": "Why?", "options": dict(zip("ABCD", "wxyz", strict=True))}
            for line in file.read_text().splitlines()]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match=r"No training question of .* mentions a node of the graph: check kg\.path"):
        build(Records(config))


@pytest.mark.slow
def test_questions_of_medqa_get_communities_of_primekg(shared_data: Path, tmp_path: Path) -> None:
    root = shared_data / "text/medqa_us_4options/phrases_no_exclude_test.jsonl.gz"
    graph = shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz"
    config = load([*OWN, f"data.root={root}", f"kg.path={graph}", f"data.cache={tmp_path}", "env.prompts=full",
                   "env.history_tokens=400", "system.concepts=4", "task.max_train=200", "task.max_test=9"])  # fmt: skip
    system = build(Records(config))
    acts = acts_of(system, config, "kare_few_shot", system.cases.test)
    supplied = [act for act in acts if act.facts["evidence"].passages]
    assert 0.5 < len(supplied) / len(acts) < 1, "some questions mention nothing"
    assert all("# Medical knowledge\n" in act.prompt for act in supplied)
    assert all(act.prompt.count("right answer: ") == 2 for act in acts)
