"""GraphWalker on medical questions, from a file to numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ghar.errors import BadInput
from ghar.metrics.texts import text_scores
from launch.entry import check, load
from trainers.graphwalker import evaluate

OWN = ("policy=graphwalker", "task=medqa", "selector.encoder=text", "selector.k=2", "selector.k_g=3", "threads=1")
TINY = ("model.hidden=16", "model.layers=1", "model.heads=2", "model.vocab=1100", "eval.bootstrap=20")
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


@pytest.mark.parametrize("name", ["graphwalker", "zero_shot", "ids", "cone"])
def test_an_evaluation_writes_answers_and_the_examples_they_had(name: str, tmp_path: Path) -> None:
    file = write_questions(tmp_path / "exam.jsonl")
    run = tmp_path / "run"
    found = evaluate(load([*OWN, *TINY, f"data.root={file}", f"run_dir={run}", f"selector.name={name}"]))
    rows = [json.loads(line) for line in (run / "episodes" / f"{name}.jsonl").read_text().splitlines()]
    assert len(rows) == found["policies"][name]["n"] == found["data"]["test samples"]
    assert found["clinical"]["exact_match"][0] == pytest.approx(sum(row["correct"] for row in rows) / len(rows))
    assert found["clinical"]["rouge_l"][0] > found["clinical"]["exact_match"][0], "options share words"
    chosen = json.loads((run / "selection.json").read_text())["rows"]
    for row in chosen:
        shown = [shot["sample_id"] for shot in row["shots"]]
        assert row["sample_id"] not in shown and len(set(shown)) == len(shown) <= (0 if name == "zero_shot" else 2)
    assert "Exact match" in (run / "report.html").read_text()


def test_the_questions_of_medqa(shared_data: Path, tmp_path: Path) -> None:
    root = shared_data / "text/medqa_us_4options/phrases_no_exclude_test.jsonl.gz"
    own = (*OWN, *TINY, f"data.root={root}", f"run_dir={tmp_path}", "task.max_train=40", "task.max_test=5")
    found = evaluate(load(own))
    assert found["task"]["labels"] == ["A", "B", "C", "D"] and found["policies"]["graphwalker"]["n"] == 5
    assert set(found["clinical"]) == set(text_scores(["a"], ["a"], resamples=2))


def test_questions_of_different_numbers_of_options_are_refused(tmp_path: Path) -> None:
    file = write_questions(tmp_path / "exam.jsonl")
    other = write_questions(tmp_path / "other.jsonl", options=3)
    file.write_text(file.read_text() + other.read_text())
    with pytest.raises(BadInput, match=r"exam\.jsonl has questions of \[3, 4\] options"):
        evaluate(load([*OWN, *TINY, f"data.root={file}", f"run_dir={tmp_path / 'run'}"]))


@pytest.mark.parametrize("extra, said", [
    (["selector.encoder=smart"], "selector.encoder=text"),
    (["selector.inference=react"], "selector.inference=react"),
    (["selector.name=time_series"], "selector.name=time_series"),
    (["data.name=mimic3"], "leave data.name as the task has it"),
])  # fmt: skip
def test_what_questions_cannot_be_asked_with_is_named(extra: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check([*OWN, "data.root=exam.jsonl", *extra])


def test_questions_need_their_file() -> None:
    with pytest.raises(BadInput, match=r"set data\.root to a file of MedQA"):
        check([*OWN])
