"""The baselines of clinical texts: the most central sentences by a slow sum, what they copy, and the system."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.config import Config
from ghar.envs.baselines.summary import CentralSentences
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.summaries import written
from ghar.envs.system import System, build, check_budgets, role_names
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.retrieval.matching import fit_tfidf
from tests.envs.refusals import assert_refused

NAMES, PARTS = ("gout", "asthma", "scurvy", "malaria"), ("toe", "chest", "gums", "head")
NOTES = [
    f"[doctor] You have {name} .\n[patient] Yes , it hurts in my {part} and my back .\n[doctor] We treat {name} ."
    for name, part in zip(NAMES, PARTS, strict=True)
]
LINES = st.lists(st.lists(st.sampled_from("aa bb cc dd ee".split()), min_size=1, max_size=5), min_size=1, max_size=6)
VECTORIZER, _ = fit_tfidf(["aa bb", "bb cc", "cc dd ee", "aa"])


def config_of(folder: Path, *overrides: str) -> Config:
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    for number, part in enumerate(("train", "valid", "test")):
        with (parts / f"{part}.csv").open("w", newline="") as file:
            rows = [
                (f"{part}{i}", f"{note} {part} {number}.", f"{note.split()[3]} hurts") for i, note in enumerate(NOTES)
            ]
            csv.writer(file).writerows([("encounter_id", "dialogue", "note"), *rows])
    keys = ["task=summary", "data=summary", f"data.root={parts}", "system=baselines", "threads=1", "eval.bootstrap=20"]
    return load([*keys, f"data.cache={folder / 'cache'}", *overrides])


def texts_of(system: System, config: Config, name: str) -> list[str]:
    variant = system.variant(name)
    played = play(stage_of(system, variant, config), system.cases.test, system.fixed[name](), seed=0, title="")
    assert all(one.prediction.label == 0 for one in played)
    return [written(one) for one in played]


@given(LINES, st.integers(1, 12))
def test_the_most_central_sentences_by_a_slow_sum(lines: list[list[str]], length: int) -> None:
    """Each different sentence's mean likeness to all of them, itself too, is its likeness to their centroid."""
    pieces = list(dict.fromkeys(" ".join(line) for line in lines))
    vectors = [VECTORIZER.transform([piece]).toarray()[0] for piece in pieces]
    near = [sum(float(a @ b) for b in vectors) for a in vectors]
    kept, words = [], 0
    for i in sorted(range(len(near)), key=lambda i: (-round(near[i], 9), i)):
        if words + len(pieces[i].split()) <= length:
            kept, words = [*kept, i], words + len(pieces[i].split())
    found = CentralSentences(VECTORIZER, length).extract("\n".join(map(" ".join, lines)))
    assert len(found.split()) <= length and found
    if kept and len({round(value, 9) for value in near}) == len(near):  # equal ones may differ in the last bit
        assert found.split("\n") == [pieces[i] for i in sorted(kept)]


def test_a_text_without_a_sentence_or_with_a_long_one() -> None:
    assert CentralSentences(VECTORIZER, 5).extract(" \n ") == ""
    assert CentralSentences(VECTORIZER, 2).extract("aa bb cc") == "aa bb"


def test_the_system_copies_the_own_text_alone(tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.history_tokens=4")
    system = build(Records(config))
    assert system.listed == ("lead", "nearest", "sentences") and not system.is_trainable
    assert system.report.metric == "rouge_l" and system.roles == role_names(config)
    for text, case in zip(texts_of(system, config, "sentences"), system.cases.test, strict=True):
        assert text and len(text.split()) <= 2 and text in case.reads.source.replace("\n", " ")
    nearest = texts_of(system, config, "nearest")
    assert nearest == [case.reads.summary for case in system.cases.test], "texts differ in the last words alone"
    assert all(len(text.split()) == 2 for text in texts_of(system, config, "lead"))


def test_test_references_change_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    before = texts_of(build(Records(config)), config, "sentences")
    path = tmp_path / "parts" / "test.csv"
    path.write_text(path.read_text().replace("hurts\n", "of other words and longer\n"))
    assert texts_of(build(Records(config)), config, "sentences") == before


def test_an_evaluation_measures_likeness(tmp_path: Path) -> None:
    from ghar.trainers.evaluation.evaluate import evaluate  # brings torch

    summary = evaluate(config_of(tmp_path, f"run_dir={tmp_path / 'run'}"))
    assert summary["main"] == "sentences" and set(summary["policies"]) == {"lead", "nearest", "sentences"}
    assert summary["policies"]["nearest"]["rouge_l"] == [1, 1, 1]
    assert np.isfinite(summary["differences"]["sentences - lead"]["rouge_l"]).all()


def test_a_rule_is_not_trained(tmp_path: Path) -> None:
    from ghar.trainers.recipe import require_agents  # brings torch

    with pytest.raises(BadInput, match="system baselines has no agents that learn"):
        require_agents(build(Records(config_of(tmp_path))))


@pytest.mark.parametrize("name", ["usual", "gru", "longest"])
def test_what_writes_no_text_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    said = f"system baselines has no variant {name}: choose among .*sentences"
    assert_refused(config_of(tmp_path, f"eval.variants=[{name}]"), name, said)


def test_notes_and_strange_roles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"system\.notes=/notes names summaries of stays, and task=summary has texts"):
        build(Records(config_of(tmp_path, "system.notes=/notes")))
    with pytest.raises(BadInput, match="names summarise, a role that system baselines has not"):
        check_budgets(config_of(tmp_path, "env.reply_tokens={summarise: 9}"))
