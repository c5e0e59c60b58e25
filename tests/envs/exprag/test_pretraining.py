"""What EXPRAG's demo model practises on: made-up reports that tell nothing of a patient."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ghar.data.sections import sentences
from ghar.envs.exprag.baselines import OptionRegression, of_option
from ghar.envs.exprag.dischargeqa import ASKED, DischargeQuestion
from ghar.envs.exprag.episode import (
    ExpragEpisodes,
    ExpragSpec,
    own_pieces,
    quoted,
    short_menu,
    shortened,
    times_advised,
)
from ghar.envs.exprag.options import parse_options
from ghar.envs.exprag.pretraining import made_up, names_of, pieces_of, practice
from ghar.episode import Act, Parsed
from ghar.launch.entry import load

SPEC = ExpragSpec("compact", top_k=5, excerpts=6, words=150)
SETS = [tuple(f"Rest. Take {n} and {m}." for m in range(4)) for n in range(9)]
ADVICE = [
    DischargeQuestion(f"{n}", n, n, "instruction", options, 1, f"background {n}") for n, options in enumerate(SETS)
]
DIAGNOSES = [
    DischargeQuestion(f"{n}", n, n, "diagnosis", (f"Gout {n}", f"Sepsis {n}", f"Asthma {n}"), 0b001, "")
    for n in range(9)
]


def asked(train: list[DischargeQuestion], total: int = 300) -> list[tuple[str, str, Any]]:
    made = practice(load(["system=exprag"]), train, ExpragEpisodes(SPEC)).exercises(total, 3)
    traces = [record for episode in made.episodes for record in episode.trace]
    records: list[Any] = [record for record in traces if isinstance(record.effect, Act)]
    return [(r.effect.prompt, r.result.text, r.effect.facts["question"]) for r in records]


@pytest.mark.slow
@pytest.mark.parametrize("train", [ADVICE, DIAGNOSES])
def test_the_truth_of_a_patient_is_no_part_of_the_exercises(train: list[DischargeQuestion]) -> None:
    other = [replace(question, answer=0b010) for question in train]
    assert [pair[:2] for pair in asked(train)] == [pair[:2] for pair in asked(other)]
    answers = [case.answer for _, _, case in asked(train)]
    assert len(set(answers)) > 2  # drawn anew


@pytest.mark.parametrize("train", [ADVICE, DIAGNOSES])
def test_exercises_are_the_rooms_own_prompts(train: list[DischargeQuestion]) -> None:
    pairs = asked(train)
    assert np.mean([chosen_by(reply, case) == case.answer for _, reply, case in pairs]) > 0.5  # if not always
    for prompt, reply, case in pairs:
        assert short_menu(case) in prompt and re.search(r"\n\d+: ", prompt) and prompt.endswith("answer:")
        assert reply in prompt or set(reply.replace(", ", "")) <= set("ABCD")
    assert len({prompt for prompt, _, _ in pairs}) > 0.9 * len(pairs)  # one report of one piece is met again


def chosen_by(reply: str, case: DischargeQuestion) -> int | None:
    """What a reply chooses: of sets of advice by quoting, of names by letters."""
    found = quoted(reply, own_pieces(case)) if case.single else None
    return parse_options(reply, len(case.options), case.single).value if found is None else found.value


def experience_of(prompt: str) -> Counter[str]:
    """Pieces of advice by how often the reports of a prompt list them."""
    lines = [line.partition(": ") for line in prompt.partition("\npatient:")[0].splitlines()[1:]]
    return Counter({piece: int(times) for times, found, piece in lines if found})


@pytest.mark.slow
def test_neither_options_nor_reports_alone_tell_the_answer() -> None:
    """Four readers without thought on exercises with sets of advice: each is near chance or fails."""
    pairs = asked(ADVICE, 3600)
    learn, test = pairs[:900], pairs[900:]
    cases = [case for _, _, case in test]

    def right(said: Sequence[int | None]) -> float:
        return float(np.mean([one == case.answer for one, case in zip(said, cases, strict=True)]))

    options_only = OptionRegression([case for _, _, case in learn], of_option)
    assert right([options_only.chosen(case) for case in cases]) < 0.32  # chance is 0.25
    assert all(right([1 << letter] * len(cases)) < 0.32 for letter in range(4))  # no position is right more often
    most_listed = [experience_of(prompt).most_common(1)[0][0] for prompt, _, _ in test]
    assert right([chosen_by(piece, case) for piece, case in zip(most_listed, cases, strict=True)]) < 0.7
    both = [max(own_pieces(case), key=lambda own: sum(experience_of(prompt)[piece] for piece in own))
            for prompt, _, case in test]  # fmt: skip
    assert right([1 << own_pieces(case).index(own) for own, case in zip(both, cases, strict=True)]) > 0.85


def test_names_are_what_lists_have() -> None:
    assert names_of(ADVICE[:1]) == ["Rest.", *(f"Take 0 and {m}." for m in range(4))]
    assert names_of(DIAGNOSES[:1]) == ["Gout 0", "Sepsis 0", "Asthma 0"]


def test_made_up_reports_list_the_right_option_most() -> None:
    rng, often = np.random.default_rng(0), []
    for number in range(200):
        question, texts = made_up(rng, ADVICE, pieces_of(ADVICE), 6, number)
        own = [sentences(option)[1] for option in question.options]
        counts = [sum(piece in text for text in texts) for piece in own]
        often.append(counts[question.answer.bit_length() - 1] >= max(counts))
        assert all(text.startswith(f"{ASKED['instruction'][2]}: - ") for text in texts) and len(texts) == 6
    assert np.mean(often) > 0.7


def test_advice_stands_once_behind_the_number_of_reports_that_give_it() -> None:
    reports = [["Rest. Walk."], ["Walk.", "Walk. Sit."], ["Walk."]]
    assert times_advised(reports) == [("Walk.", 3), ("Rest.", 1), ("Sit.", 1)]


def test_a_short_menu_leaves_out_what_all_options_advise() -> None:
    assert short_menu(ADVICE[2]).splitlines()[:2] == ["A Take 2 and 0.", "B Take 2 and 1."]
    assert short_menu(DIAGNOSES[2]) == DIAGNOSES[2].menu


def test_a_question_whose_pieces_are_few_keeps_its_sets() -> None:
    alone = ADVICE[:1]
    few = pieces_of(alone)._replace(telling=("Take 0 and 0.", "Take 0 and 1."))
    question, _ = made_up(np.random.default_rng(0), alone, few, 2, 0)
    assert question.options == alone[0].options


def test_a_set_is_chosen_by_quoting_a_piece_that_it_alone_has() -> None:
    options = own_pieces(ADVICE[2])
    assert options == [["Take 2 and 0."], ["Take 2 and 1."], ["Take 2 and 2."], ["Take 2 and 3."]]
    assert quoted("Take 2 and 1.", options) == Parsed(0b10) == quoted("Rest. Take 2 and 1.", options)
    assert quoted("Rest.", options) is None and quoted("B", options) is None and quoted("", options) is None
    assert quoted("Take 2 and 1. Take 2 and 3.", options) == Parsed(None, "several_options")


def test_a_short_piece_has_neither_heading_nor_bullets() -> None:
    text = "discharge instructions: - Rest.\n- Walk."
    assert shortened(text, "discharge instructions") == "Rest. Walk."
    assert shortened("past medical history: - Gout", "discharge instructions") == "past medical history: Gout"
    assert shortened(text, "discharge instructions", {"Rest."}) == "Walk."
    assert shortened(text, "discharge instructions", {"Rest.", "Walk."}) == ""
