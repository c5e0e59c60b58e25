"""What EXPRAG's demo model practises on: made-up reports that tell nothing of a patient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.exprag.episode import ExpragEpisodes, ExpragSpec, short_menu, shortened
from envs.exprag.practice import made_up, names_of, practice
from ghar.data.sections import sentences
from ghar.data.tasks.dischargeqa import ASKED, Question, letters
from ghar.episode import Act
from launch.entry import load

SPEC = ExpragSpec("compact", top_k=5, excerpts=6, words=150)
SETS = [tuple(f"Rest. Take {n} and {m}." for m in range(4)) for n in range(9)]
ADVICE = [Question(f"{n}", n, n, "instruction", options, 1, f"background {n}") for n, options in enumerate(SETS)]
DIAGNOSES = [
    Question(f"{n}", n, n, "diagnosis", (f"Gout {n}", f"Sepsis {n}", f"Asthma {n}"), 0b001, "") for n in range(9)
]


def asked(train: list[Question], total: int = 300) -> list[tuple[str, str, Any]]:
    made = practice(load(["system=exprag"]), train, ExpragEpisodes(SPEC)).exercises(total, 3)
    traces = [record for episode in made.episodes for record in episode.trace]
    records: list[Any] = [record for record in traces if isinstance(record.effect, Act)]
    return [(r.effect.prompt, r.result.text, r.effect.facts["case"]) for r in records]


@pytest.mark.parametrize("train", [ADVICE, DIAGNOSES])
def test_the_truth_of_a_patient_is_no_part_of_the_exercises(train: list[Question]) -> None:
    other = [replace(question, answer=0b010) for question in train]
    assert [pair[:2] for pair in asked(train)] == [pair[:2] for pair in asked(other)]
    answers = [case.answer for _, _, case in asked(train)]
    assert len(set(answers)) > 2  # drawn anew


@pytest.mark.parametrize("train", [ADVICE, DIAGNOSES])
def test_exercises_are_the_rooms_own_prompts(train: list[Question]) -> None:
    pairs = asked(train)
    right = np.mean([reply.replace(", ", "") == letters(case.answer) for _, reply, case in pairs])
    assert right > 0.5  # the reports speak for what was drawn, if not always
    for prompt, reply, case in pairs:
        assert short_menu(case) in prompt and "\n1: " in prompt and prompt.endswith("answer:")
        assert set(reply.replace(", ", "")) <= set("ABCD")
    assert len({prompt for prompt, _, _ in pairs}) > 0.9 * len(pairs)  # one report of one piece is met again


def test_names_are_what_lists_have() -> None:
    assert names_of(ADVICE[:1]) == ["Rest.", *(f"Take 0 and {m}." for m in range(4))]
    assert names_of(DIAGNOSES[:1]) == ["Gout 0", "Sepsis 0", "Asthma 0"]


def test_made_up_reports_list_the_right_option_most() -> None:
    rng, often = np.random.default_rng(0), []
    for number in range(200):
        question, texts = made_up(rng, ADVICE, 6, number)
        own = [sentences(option)[1] for option in question.options]
        counts = [sum(piece in text for text in texts) for piece in own]
        often.append(counts[question.answer.bit_length() - 1] >= max(counts))
        assert all(text.startswith(f"{ASKED['instruction'][2]}: - ") for text in texts) and len(texts) == 6
    assert np.mean(often) > 0.7


def test_a_short_menu_leaves_out_what_all_options_advise() -> None:
    assert short_menu(ADVICE[2]).splitlines()[:2] == ["A Take 2 and 0.", "B Take 2 and 1."]
    assert short_menu(DIAGNOSES[2]) == DIAGNOSES[2].menu


def test_a_short_piece_has_neither_heading_nor_bullets() -> None:
    text = "discharge instructions: - Rest.\n- Walk."
    assert shortened(text, "discharge instructions") == "Rest. Walk."
    assert shortened("past medical history: - Gout", "discharge instructions") == "past medical history: Gout"
