"""DischargeQA: options, right ones, filters, and backgrounds that tell nothing of a later phase."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.notes import Notes, read_notes
from ghar.data.sections import PARTS, sentences, split_sections
from ghar.envs.exprag.discharge_items import diagnoses, instructions, medications, same, styled
from ghar.envs.exprag.dischargeqa import (
    SECTIONS,
    DischargeQuestion,
    Kind,
    build_questions,
    count_leaked_options,
    letters,
)
from ghar.envs.exprag.options import LETTERS
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.world import generate_world
from ghar.errors import BadInput

KINDS: tuple[Kind, ...] = ("diagnosis", "medication", "instruction")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cohort, Notes]:
    root = tmp_path_factory.mktemp("qa")
    generate_world(root / "world", seed=1, patients=60)
    write_notes(root / "world", root / "notes")
    return read_mimic4(root / "world", charts=False), read_notes(root / "notes", root / "cache")


def built(generated: tuple[Cohort, Notes], kind: Kind, seed: int = 0) -> tuple[list[DischargeQuestion], dict[str, int]]:
    return build_questions(*generated, kind, rows=(1, 40), words=400, seed=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_right_options_are_what_the_report_lists(generated: tuple[Cohort, Notes], kind: Kind) -> None:
    questions, counts = built(generated, kind)
    assert counts["questions"] == len(questions) > 10
    left = sum(n for name, n in counts.items() if name.startswith("left_out."))
    assert counts["stays"] == left + len(questions)
    for question in questions:
        cut = split_sections(generated[1].text(question.visit_id))
        right = {o for i, o in enumerate(question.options) if question.answer >> i & 1}
        wrong = set(question.options) - right
        if kind == "instruction":
            assert right == {" ".join(instructions(cut))} and len(question.options) == 4
        else:
            assert right == set(map(styled, {"diagnosis": diagnoses, "medication": medications}[kind](cut)))
            assert not any(same(a, b) for a in right for b in wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_later_phase_is_shown(generated: tuple[Cohort, Notes], kind: Kind) -> None:
    """Every sentence of the background stands in a part that was known, none only in a later one."""
    questions, _ = built(generated, kind)
    for question in questions:
        cut = split_sections(generated[1].text(question.visit_id))
        late = [s for s in cut if s.part not in SECTIONS[kind]]
        assert late and set(SECTIONS[kind]) < set(PARTS)
        known = " ".join(" ".join(s.text.split()) for s in cut if s.part in SECTIONS[kind])
        for section in late:
            for line in section.text.split("\n"):
                told = " ".join(line.split())
                if len(told) > 3 and told not in known:
                    assert told not in question.background
        if kind == "instruction":
            assert "Discharge Instructions" not in question.background


def test_the_same_seed_gives_the_same_questions(generated: tuple[Cohort, Notes]) -> None:
    first, again, other = (built(generated, "medication", seed)[0] for seed in (0, 0, 1))
    assert first == again
    assert [q.options for q in first] != [q.options for q in other]
    assert [set(q.options) for q in first] == [set(q.options) for q in other]


def test_the_row_filter_is_named_when_nothing_is_left(generated: tuple[Cohort, Notes]) -> None:
    with pytest.raises(BadInput, match=r"left_out\.rows .*widen system\.fewest_rows=30, system\.most_rows=40"):
        build_questions(*generated, "diagnosis", rows=(30, 40), words=100, seed=0)


@pytest.mark.parametrize("answer, options, said", [
    (0, 3, "no option is right"), (7, 3, "every option is right"), (3, 60, "more options than letters"),
])  # fmt: skip
def test_a_list_with_nothing_to_choose_is_refused(answer: int, options: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        DischargeQuestion("q", 1, 2, "diagnosis", tuple(map(str, range(options))), answer, "")
    with pytest.raises(BadInput, match="several right ones"):
        DischargeQuestion("q", 1, 2, "instruction", ("a", "b", "c"), 3, "")


def test_letters() -> None:
    assert letters(0b101) == "AC" and letters(1 << 26) == "a" and len(LETTERS) == 52


Write = Callable[..., Path]
REPORT = "Discharge Medications:\n1. {drug} 5 mg PO DAILY\nDischarge Diagnosis:\n{diagnosis}\nFacility:\nnone\n"


def real(tmp_path: Path, write_tables: Write, **said: str) -> tuple[Cohort, Notes]:
    """Stay 90 of the small tables has heart failure twice (two codes) and takes aspirin and senna."""
    (tmp_path / "note").mkdir(parents=True)
    rows = f'n,1,90,DS,1,2150-01-04,,"{REPORT.format(**said)}"'
    header = "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text"
    (tmp_path / "note" / "discharge.csv").write_text(f"{header}\n{rows}\n")
    return read_mimic4(write_tables(tmp_path / "tables")), read_notes(tmp_path, tmp_path / "cache")


def test_options_of_real_tables(tmp_path: Path, write_tables: Write) -> None:
    cohort, notes = real(tmp_path, write_tables, drug="Aspirin EC", diagnosis="Primary diagnosis:\n- Sepsis\n- ___")
    [question], _ = build_questions(cohort, notes, "diagnosis", rows=(1, 3), words=50, seed=0)
    assert set(question.options) == {"Sepsis", "Congestive heart failure"}  # "Heart failure" may mean the same
    assert question.options[question.answer.bit_length() - 1] == "Sepsis"
    [question], counts = build_questions(cohort, notes, "medication", rows=(1, 3), words=50, seed=0)
    assert set(question.options) == {"Aspirin EC", "Senna"} and counts["left_out.no_report"] == 2


@pytest.mark.parametrize("diagnosis, rule", [("None", "nothing_right"), ("Heart failure", "everything_right")])
def test_nothing_or_everything_right_is_left_out(
    tmp_path: Path, write_tables: Write, diagnosis: str, rule: str
) -> None:
    cohort, notes = real(tmp_path, write_tables, drug="Aspirin", diagnosis=diagnosis)
    with pytest.raises(BadInput, match=rule):
        build_questions(cohort, notes, "diagnosis", rows=(1, 3), words=50, seed=0)


@pytest.mark.parametrize("one, other, alike", [
    ("Heart failure, unspecified", "Congestive heart failure", True), ("Aspirin", "aspirin EC", True),
    ("Sepsis", "Pneumonia", False), ("Other", "other", True), ("Unspecified", "Sepsis", False),
])  # fmt: skip
def test_names_that_may_mean_the_same(one: str, other: str, alike: bool) -> None:
    assert same(one, other) is same(other, one) is alike


def test_items_of_a_real_looking_list() -> None:
    text = (
        "Discharge Medications:\n1. Metoprolol Tartrate 25 mg PO BID \nRX *metoprolol 25 mg 1 tablet\n"
        "2. Insulin SC \n3. Vitamin D 1000 UNIT PO DAILY\n4. Acetaminophen w/Codeine 1 TAB PO Q6H\n"
        "Discharge Diagnosis:\nPRIMARY:\n# NSTEMI\n\nSECONDARY DIAGNOSES:\n1) Diabetes; gout.\nnstemi\n"
    )
    cut = split_sections(text)
    assert medications(cut) == ("Metoprolol Tartrate", "Insulin", "Vitamin D", "Acetaminophen w/Codeine")
    assert diagnoses(cut) == ("NSTEMI", "Diabetes", "gout")


@pytest.mark.slow
def test_the_options_of_an_instruction_do_not_tell_which_is_right(generated: tuple[Cohort, Notes]) -> None:
    """Whoever takes the set that has most sentences in common with the others is right as often as by chance."""
    right = []
    for seed in range(6):
        for question in built(generated, "instruction", seed)[0]:
            sets = [set(sentences(option)) for option in question.options]
            common = [sum(len(one & other) for other in sets if other is not one) for one in sets]
            assert len(set(common)) == 1  # any two sets share the same half
            best = [i for i, n in enumerate(common) if n == max(common)]
            right.append(sum(question.answer >> i & 1 for i in best) / len(best))
    assert len(right) > 60 and sum(right) / len(right) <= 0.30


@pytest.mark.parametrize("text, expected", [
    ("PRIMARY DIAGNOSIS: Ascites\nSECONDARY DIAGNOSES: HCV cirrhosis, COPD, HIV",
     ("Ascites", "HCV cirrhosis", "COPD", "HIV")),
    ("1) Pneumonia 2) Heart failure 3) Gout", ("Pneumonia", "Heart failure", "Gout")),
    ("Primary:\nPneumonia\nSecondary:\n- Chronic kidney disease, stage 3",
     ("Pneumonia", "Chronic kidney disease, stage 3")),
    ("1. Sepsis; gout", ("Sepsis", "gout")),
    ("Pneumonia, unspecified organism", ("Pneumonia, unspecified organism",)),
])  # fmt: skip
def test_lists_and_prefixes_are_read(text: str, expected: tuple[str, ...]) -> None:
    assert diagnoses(split_sections(f"Discharge Diagnosis:\n{text}\n")) == expected


def test_a_letter_is_no_advice_and_lab_work_no_drug() -> None:
    advice = "Dear Ms. ___,\nYou were seen by Dr. Smith. Drink much water.\nSincerely,\nYour ___ Team\n___,"
    assert instructions(split_sections(f"Discharge Instructions:\n{advice}\n")) == (
        "You were seen by Dr. Smith.", "Drink much water.",
    )  # fmt: skip
    drugs = "1. Metoprolol Tartrate 25 mg PO BID\n2. Vitamin D ___ UNIT PO DAILY\n3. Outpatient Lab Work"
    assert medications(split_sections(f"Discharge Medications:\n{drugs}\n")) == ("Metoprolol Tartrate", "Vitamin D")


@pytest.mark.parametrize("name, one_style", [
    ("PNEUMONIA", "Pneumonia"), ("COPD", "COPD"), ("Metoprolol Tartrate", "Metoprolol tartrate"),
    ("metoprolol tartrate", "Metoprolol tartrate"), ("HCV cirrhosis", "HCV cirrhosis"),
    ("Pneumonia, unspecified", "Pneumonia"), ("ACUTE KIDNEY FAILURE", "Acute kidney failure"),
])  # fmt: skip
def test_names_are_in_one_style(name: str, one_style: str) -> None:
    assert styled(name) == one_style


def test_what_the_text_gives_away() -> None:
    def asked(shown: str) -> DischargeQuestion:
        return DischargeQuestion("1-diagnosis", 1, 1, "diagnosis", ("Acute kidney injury", "Gout"), 0b01, shown)

    found = count_leaked_options([asked("History of acute  kidney\ninjury."), asked("Gout in the past.")])
    assert list(found.values()) == [2, 1, 1]
