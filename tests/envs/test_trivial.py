"""Policies that take no thought: what they say, and the tables that say what it is worth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.trivial import CHOOSING, PAGES, choosing_cases, trained, trivial, write_section
from benchmarks.trivial_walks import table, walks
from ghar.envs.trivial import largest_number, replies, trivial_decisions, trivial_policies
from ghar.episode import Act
from ghar.errors import BadInput


@given(st.lists(st.integers(0, 10**6), max_size=6), st.sampled_from([" ", " and ", "\n", "mg, "]))
def test_the_largest_number_of_a_prompt(numbers: list[int], between: str) -> None:
    assert largest_number(f"told: {between.join(map(str, numbers))}") == str(max(numbers, default=0))


def test_the_cases_that_choose_the_one_reply_are_drawn(small_system: Any, small_config: Any) -> None:
    train = small_system.cases.train
    chosen = choosing_cases(small_system, small_config())
    assert len(chosen) == CHOOSING and chosen != train[:CHOOSING] and set(chosen) <= set(train)


def test_what_they_say(small_system: Any) -> None:
    assert {"3", "answer: 3"} <= set(replies(small_system))
    policies = trivial_policies(small_system, "answer: 3")
    acts = [
        Act("top", "rewrite", "rewrite\ndisease gout; drug warfarin 5\nqueries:"),
        Act("top", "retrieve", "?", ("yes", "no")),
        Act("top", "metapaths", "0 a\n12 b"),
        Act("top", "continue", "?", ("terminate", "continue")),
        Act("top", "predict", "stay\nknown: grade 7 course, 2 drugs\nanswer:"),
    ]

    def said(name: str) -> list[str]:
        return [reply.text for reply in policies[name].answer(acts, range(len(acts)))]

    assert said("always the same reply") == ["answer: 3"] * 5 and said("never acting") == [""] * 5
    assert said("always retrieving") == [
        "disease gout; drug warfarin 5", "yes", "0 1 2", "continue", "answer: 3",
    ]  # fmt: skip
    assert said("largest number seen")[-1] == "answer: 7" and said("largest number seen")[0].endswith("5 5")


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), min_size=1, max_size=5))
def test_decisions_as_numbers_are_allowed_ones(masks: list[list[bool]]) -> None:
    table = np.array(masks, np.int8)
    for decide in trivial_decisions().values():
        assert all(mask[action] for mask, action in zip(table, decide(table, table, []), strict=True))


def test_a_table_is_written_between_its_marks_and_nothing_else_changes(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Room\n\nText.\n")
    write_section(readme, "first")
    once = readme.read_text()
    assert once.startswith("# Room\n\nText.\n\n## ") and "first" in once
    readme.write_text(f"{once}\n## More\n")
    write_section(readme, "second")
    assert readme.read_text() == f"{once}\n## More\n".replace("first", "second")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ghar"])
def test_one_command_scores_them_and_writes_the_table(name: str, small_config: Any, tmp_path: Path) -> None:
    own = ["data.patients=150", f"data.cache={small_config().data.cache}", "task.max_test=30", "eval.bootstrap=50"]
    found = trivial([*own, "task.max_valid=20"], tmp_path / "runs", tmp_path, [name])
    assert set(found) == {name, "Navigation"}
    assert found[name]["never acting"]["accuracy"][0] == 0 and found[name]["always retrieving"]["lookups"][0] >= 1
    assert found["Navigation"]["always the same action, 0"]["lookups"][0] == 0
    text = (tmp_path / PAGES[name]).read_text()
    assert "python benchmarks/run.py trivial" in text and "30 test samples of" in text
    assert text.count("| never acting |") == 1 and text.count("| its best rule |") == 1


def test_the_trained_agent_of_a_run_stands_beside_them_where_it_saw_the_same_samples(
    small_system: Any, small_config: Any, tmp_path: Path
) -> None:
    config = replace(small_config(), run_dir=str(tmp_path))
    assert trained(small_system, config) is None
    (tmp_path / "episodes").mkdir()
    rows = [{"sample_id": case.sample_id} for case in small_system.cases.test]
    path = tmp_path / "episodes" / f"{small_system.main}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert trained(small_system, config) == rows
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    with pytest.raises(BadInput, match="other samples"):
        trained(small_system, config)


@pytest.mark.slow
def test_the_walk_pays_for_no_thought_less_than_for_its_rule() -> None:
    pytest.importorskip("sb3_contrib", reason="needs the extra test")
    found = walks(steps=64, scenes=1)
    assert found["always the same action, 0"]["reward"][0] == found["always the same action, 0"]["picks"][0] == 0
    assert found["its own rule (greedy)"]["reward"][1] > found["always the first candidate"]["reward"][2] > 0
    assert "less_trained" in found["largest action allowed"] and "less_trained" not in found["the trained agent"]
    assert table(found).count("\n") == 1 + len(found)
