"""Wrong options written by an engine: what is asked, what is checked, what is told where a check fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ghar.envs.exprag.dischargeqa import DischargeQuestion
from ghar.envs.exprag.engine_options import checked, options_by_engine, read_wrong
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.cached_llm import UnreadableAnswer
from tests.llm.api_server import chat, listening, prompt_of

NAMES = ("Sepsis", "Gout", "Acute kidney failure", "Asthma, mild")
DIAGNOSIS = DischargeQuestion("5-diagnosis", 1, 5, "diagnosis", NAMES, 0b0001, "chief complaint: fever")
SETS = ("Rest. Walk 3 km.", "Rest. Swim daily.", "Rest. Eat fruit.", "Rest. Drink tea.")
ADVICE = DischargeQuestion("6-instruction", 2, 6, "instruction", SETS, 0b0100, "")


def config(tmp_path: Path, *overrides: str) -> Any:
    return load(["system=exprag", f"data.cache={tmp_path}", *overrides])


def says(*replies: str) -> Any:
    left = list(replies)

    def reply(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        return 200, chat(left.pop(0) if len(left) > 1 else left[0])

    return reply


def test_an_engine_writes_the_wrong_options(tmp_path: Path) -> None:
    with listening(says('Here: {"wrong": ["kidney failure", "Gout"]}')) as (address, server):
        made, counts = options_by_engine(config(tmp_path), f"judge@{address}", [DIAGNOSIS], False)
        again, _ = options_by_engine(config(tmp_path), f"judge@{address}", [DIAGNOSIS], False)
    [question] = made
    assert set(question.options) == {"Sepsis", "Kidney failure", "Gout"} and counts == {"options by engine": 1}
    assert question.options[question.answer.bit_length() - 1] == "Sepsis"
    assert again == made and len(server.came) == 1  # no answer is paid for twice
    prompt = prompt_of(server.came[0][1])
    assert all(name in prompt for name in NAMES) and "chief complaint: fever" in prompt


def test_an_answer_that_fails_is_told_and_the_rules_options_stay(tmp_path: Path) -> None:
    other = replace(DIAGNOSIS, sample_id="7-diagnosis")
    with listening(says('{"wrong": ["Malaria"]}', "no list at all")) as (address, server):
        one = options_by_engine(config(tmp_path), f"judge@{address}", [DIAGNOSIS], False)
        two = options_by_engine(config(tmp_path), f"judge@{address}", [other], False)
    assert one == ([DIAGNOSIS], {"options by rule, engine: not in the tables": 1})
    assert two == ([other], {"options by rule, engine: no_list": 1}) and len(server.came) == 4  # it was asked again


@pytest.mark.parametrize("wrong, fault", [
    (["Gout"], None), (["septic Sepsis"], "the same twice"), (["Gout", "gout"], "the same twice"),
    (["Plague"], "not in the tables"), (["Gout"] * 60, "too many"),
])  # fmt: skip
def test_names_are_of_the_tables_and_not_right(wrong: list[str], fault: str | None) -> None:
    assert checked(DIAGNOSIS, wrong) == fault


@pytest.mark.parametrize("wrong, fault", [
    (["Rest. Run.", "Rest. Jump.", "Rest. Sing."], None), (["Rest. Run.", "Rest. Jump."], "other sets"),
    (["Rest. Run.", "Rest. Jump. Cry.", "Rest. Sing."], "other sets"),
    (["Rest. Run.", "Sit. Jump.", "Rest. Sing."], "unequal sets"), ([SETS[2]] * 3, "unequal sets"),
])  # fmt: skip
def test_sets_lie_at_equal_distance(wrong: list[str], fault: str | None) -> None:
    assert checked(ADVICE, wrong) == fault


@pytest.mark.parametrize("said", ["", "{", '{"wrong": []}', '{"wrong": "Gout"}', '{"wrong": [1]}', "[1]", '{"a": 1}'])
def test_what_is_no_list_is_unreadable(said: str) -> None:
    with pytest.raises(UnreadableAnswer, match="no_list"):
        read_wrong(said)
    assert read_wrong(json.dumps({"wrong": [" a  b "]})) == ("a b",)


def test_patients_text_goes_to_no_host_that_is_not_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"example\.org"):
        options_by_engine(config(tmp_path), "judge@https://example.org/v1", [DIAGNOSIS], True)
    with pytest.raises(BadInput, match="names no server"):
        config(tmp_path, "system.options=gpt")
