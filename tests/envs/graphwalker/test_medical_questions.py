"""GraphWalker on medical questions, from a file to numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ghar.config import Config
from ghar.envs.graphwalker.react import Looks
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.system import build
from ghar.envs.graphwalker.text_metrics import text_scores
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import Reader, System
from ghar.errors import BadInput
from ghar.launch.entry import check, load
from ghar.llm.engines import served
from ghar.llm.models import load_backbone
from ghar.llm.policy import EnginePolicy, Policy

OWN = ("system=graphwalker", "task=medqa", "data=medqa", "system.k=2", "system.k_g=3", "threads=1")
TINY = ("model.hidden=16", "model.layers=1", "model.vocab=1100", "eval.bootstrap=20")
PLACES = ("heart", "lung", "liver", "kidney", "brain")


def write_questions(path: Path, count: int = 50, options: int = 4) -> Path:
    """Questions about a place, whose answer depends on it."""
    rows = []
    for i in range(count):
        place, answer = PLACES[i % 5], "ABCD"[(i % 5 + i // 25) % options]
        choices = {letter: f"treat the {place} by way {letter.lower()}" for letter in "ABCD"[:options]}
        text = f"A patient of {20 + i} years has pain near the {place}. What comes next?"
        rows.append({"question": text, "answer": choices[answer], "options": choices, "answer_idx": answer})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made(config: Config) -> System[Looks]:
    assert isinstance(config.system, Settings)
    return build(Records(config), config.system)


def rows_of(config: Config, system: System[Looks], name: str, policy: Policy) -> list[dict[str, Any]]:
    """The columns of an evaluation's rows that the numbers read."""
    variant, rows = system.variant(name), []
    for case, episode in zip(
        system.cases.test,
        play(stage_of(system, variant, config), system.cases.test, policy, seed=0, title=name),
        strict=True,
    ):
        assert episode.failure is None
        label, said = system.in_words(case, case.label), system.in_words(case, episode.prediction.label)
        about = {"sample_id": case.sample_id, "subject_id": case.subject_id, "label": label, "prediction": said}
        rows.append({**about, "label_probabilities": None, **system.report.row(episode, case, variant)})
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graphwalker", "zero_shot", "ids", "cone"])
def test_answers_and_the_examples_they_had(name: str, tmp_path: Path) -> None:
    config = load([*OWN, *TINY, f"data.root={write_questions(tmp_path / 'exam.jsonl')}"])
    system = made(config)
    network, tokenizer = load_backbone(config, system.training.texts)
    with served(config, network, tokenizer) as engine:
        reader = Reader(lambda text: len(tokenizer.encode(text)), 4096, engine, tokenizer)
        rows = rows_of(config, system.read_by(reader), name, EnginePolicy(engine, 0))
    found = system.report.summary({name: rows})["selection"]
    right = sum(row["prediction"] == row["label"] for row in rows) / len(rows)
    assert found["clinical"]["exact_match"][0] == pytest.approx(right)
    assert found["clinical"]["rouge_l"][0] > found["clinical"]["exact_match"][0], "options share words"
    for row in found["rows"]:
        shown = [shot["sample_id"] for shot in row["shots"]]
        assert row["sample_id"] not in shown and len(set(shown)) == len(shown) <= (0 if name == "zero_shot" else 2)


@pytest.mark.slow
def test_the_questions_of_medqa(shared_data: Path) -> None:
    root = shared_data / "text/medqa_us_4options/phrases_no_exclude_test.jsonl.gz"
    config = load([*OWN, *TINY, f"data.root={root}", "task.max_train=40", "task.max_test=5"])
    system = made(config)
    rows = rows_of(config, system, "scripted_semantic_emb", system.fixed["majority"]())
    assert system.task.labels == ("A", "B", "C", "D") and len(rows) == 5
    found = system.report.summary({"scripted_semantic_emb": rows})["selection"]["clinical"]
    assert set(found) == set(text_scores(["a"], ["a"], patients=[1], resamples=2))


def test_questions_of_different_numbers_of_options_are_refused(tmp_path: Path) -> None:
    file = write_questions(tmp_path / "exam.jsonl")
    other = write_questions(tmp_path / "other.jsonl", options=3)
    file.write_text(file.read_text() + other.read_text())
    with pytest.raises(BadInput, match=r"several numbers of options, first 3 \(exam-\d+\), 4 \(exam-1\)"):
        made(load([*OWN, *TINY, f"data.root={file}"]))


def test_a_long_question_loses_its_first_words(tmp_path: Path) -> None:
    """As of any other system, within env.history_tokens; its options stay."""
    file = write_questions(tmp_path / "exam.jsonl")
    whole = made(load([*OWN, *TINY, f"data.root={file}", "env.history_tokens=1000"])).cases.test[0].text
    words, _, options = whole.partition("\n")
    budget = len(whole.split()) - 3
    cut = made(load([*OWN, *TINY, f"data.root={file}", f"env.history_tokens={budget}"])).cases.test[0].text
    assert cut == " ".join(words.split()[3:]) + "\n" + options
    last = made(load([*OWN, *TINY, f"data.root={file}", "env.history_tokens=1"])).cases.test[0].text
    assert last == f"What comes next?\n{options}", "the sentence that asks stays"


@pytest.mark.parametrize("extra, said", [
    (["system.encoder=smart"], "has no time series"),
    (["system.inference=react"], "has no time series"),
    (["data.name=mimic3"], "task=medqa and data=medqa go together"),
    (["data.earlier=true"], "task=medqa has no dates: leave it out"),
])  # fmt: skip
def test_what_questions_cannot_be_asked_with_is_named(extra: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check([*OWN, "data.root=exam.jsonl", *extra])


def test_questions_have_no_measurements_to_compare(tmp_path: Path) -> None:
    system = made(load([*OWN, *TINY, f"data.root={write_questions(tmp_path / 'exam.jsonl')}"]))
    with pytest.raises(BadInput, match="has no variant time_series"):
        system.variant("time_series")


def test_questions_need_their_file() -> None:
    with pytest.raises(BadInput, match=r"set data\.root to a file of MedQA"):
        check([*OWN])
