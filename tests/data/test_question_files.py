"""The sets' own files as questions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ghar.data.tasks.question_files import read_parts, read_question_set, read_questions
from ghar.envs.graphwalker.text_metrics import text_scores
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.launch.entry import load
from ghar.sanitize import readable

LINE = '{"question": "Which?", "answer": "two", "options": {"A": "one", "B": "two"}, "answer_idx": "B"}\n'


def test_the_test_questions_of_medqa(shared_data: Path) -> None:
    questions = read_questions(shared_data / "text/medqa_us_4options/phrases_no_exclude_test.jsonl.gz")
    assert len(questions) == 1273 == len({question.question_id for question in questions})
    assert all(len(question.options) == 4 and 0 <= question.answer < 4 for question in questions)
    first = questions[0]
    assert first.question_id == "phrases_no_exclude_test-1" and first.letter == "B"
    assert first.options[first.answer] == "Tell the attending that he cannot fail to disclose this mistake"
    always_b = text_scores(["B"] * 1273, [question.letter for question in questions], patients=None)["exact_match"]
    assert always_b.value == sum(question.answer == 1 for question in questions) / 1273
    assert always_b.deviation == pytest.approx((always_b.value * (1 - always_b.value) / 1273) ** 0.5, rel=0.1)


def test_plain_and_gzipped(tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(LINE + "\n" + LINE)
    (tmp_path / "dev.jsonl.gz").write_bytes(gzip.compress(LINE.encode()))
    plain, zipped = read_questions(tmp_path / "dev.jsonl"), read_questions(tmp_path / "dev.jsonl.gz")
    assert [question.question_id for question in plain] == ["dev-1", "dev-3"] and zipped == plain[:1]
    assert plain[0].shown() == "Which?\nA. one\nB. two"


@pytest.mark.parametrize("line", [
    "no json", "[1]", '{"question": "Which?"}', LINE.replace('"B"}', '"E"}'), LINE.replace('"A": ', '"F": '),
])  # fmt: skip
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(LINE + line)
    with pytest.raises(BadInput, match="line 2"):
        read_questions(tmp_path / "dev.jsonl")


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(LINE.encode() * 50)[:60])
    for name in ("absent.jsonl", "cut.jsonl.gz"):
        with pytest.raises(BadInput, match=name):
            read_questions(tmp_path / name)


FORMS = {
    "MedQA": (json.loads(LINE), 1),
    "MIRAGE": ({"question": "Which?", "options": {"A": "one", "B": "two", "C": "three"}, "answer": "C"}, 2),
    "MMLU": ({"question": "Which?", "subject": "anatomy", "choices": ["one", "two"], "answer": 1}, 1),
    "MMLU by letter": ({"question": "Which?", "choices": ["one", "two"], "answer": "A"}, 0),
    "MedMCQA": ({"question": "Which?", "opa": "1", "opb": "2", "opc": "3", "opd": "4", "cop": 4, "exp": None}, 3),
    "PubMedQA": ({"QUESTION": "Does it?", "CONTEXTS": ["We tried.", "It did."], "final_decision": "yes"}, 0),
    "PubMedQA, a copy": ({"question": "Does it?", "context": {"contexts": ["x"]}, "final_decision": "maybe"}, 2),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_each_set(tmp_path: Path, form: str) -> None:
    row, answer = FORMS[form]
    lines, table, ids = tmp_path / "a.jsonl", tmp_path / "a.json", tmp_path / "b.json"
    lines.write_text(json.dumps(row) + "\n" + json.dumps(row))
    table.write_text(json.dumps([row, row], indent=1))
    ids.write_text(json.dumps({"7": row, "8": row}))
    read = [read_questions(path) for path in (lines, table, ids)]
    assert all([q.answer for q in questions] == [answer, answer] for questions in read)
    assert [q.question_id for q in read[2]] == ["b-7", "b-8"] and read[0] == read[1]


def test_mirages_one_file_of_several_sets(tmp_path: Path) -> None:
    row = FORMS["MIRAGE"][0]
    (tmp_path / "benchmark.json").write_text(json.dumps({"mmlu": {"1": row}, "bioasq": {"1": row, "2": row}}))
    questions = read_questions(tmp_path / "benchmark.json")
    assert [q.question_id for q in questions] == ["benchmark-mmlu-1", "benchmark-bioasq-1", "benchmark-bioasq-2"]


def test_one_of_mirages_sets(tmp_path: Path) -> None:
    """FILE/NAME reads one set of a file whose sets have other numbers of options, with the same ids."""
    row = FORMS["MIRAGE"][0]
    two = {"options": {"A": "yes", "B": "no"}, "answer": "A"}
    sets = {"mmlu": {"1": row}, "bioasq": {str(i): {**two, "question": f"Is {i} even?"} for i in range(30)}}
    path = tmp_path / "benchmark.json"
    path.write_text(json.dumps(sets))
    config = load(["system=baselines", "task=medqa", "data=medqa", f"data.root={path}/bioasq"])
    assert missing(config) == []
    records = Records(config)
    assert records.texts.task.labels == ("A", "B") and records.provenance().credentialed
    splits = records.texts.splits
    ids = {one.sample_id for part in (splits.train, splits.valid, splits.test) for one in part}
    assert ids == {f"benchmark-bioasq-{i}" for i in range(30)}
    with pytest.raises(BadInput, match=r"has no set medqa: choose among bioasq, mmlu\."):
        read_question_set(path / "medqa", config.task)
    for name, text in (("a.json", json.dumps([row])), ("b.jsonl", json.dumps(row)), ("c.csv", "Which?,one,two,A")):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput, match="is no file of several sets: leave /mmlu out"):
            read_question_set(tmp_path / name / "mmlu", config.task)
    assert missing(load(["system=baselines", "task=medqa", "data=medqa", f"data.root={tmp_path}/nowhere.json/mmlu"]))


def test_medmcqa_that_counts_from_nought(tmp_path: Path) -> None:
    row = FORMS["MedMCQA"][0]
    for cops in ((0, 3), ("0", "3"), (0.0, 3.0)):
        (tmp_path / "dev.jsonl").write_text("\n".join(json.dumps({**row, "cop": cop}) for cop in cops))
        assert [q.letter for q in read_questions(tmp_path / "dev.jsonl")] == ["A", "D"]


def test_medmcqa_that_counts_from_nought_or_from_one_is_refused(tmp_path: Path) -> None:
    for cops in ((1, 3), (1.0, 3.0), ("1", "3")):
        _refused(tmp_path, cops)


def _refused(tmp_path: Path, cops: tuple[object, ...]) -> None:
    (tmp_path / "dev.jsonl").write_text("\n".join(json.dumps({**FORMS["MedMCQA"][0], "cop": cop}) for cop in cops))
    with pytest.raises(BadInput, match=r"dev\.jsonl: no cop is 0 and none is 4, so it counts from 0 or from 1"):
        read_questions(tmp_path / "dev.jsonl")


def test_an_abstract_stands_before_its_question(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(FORMS["PubMedQA"][0]))
    [question] = read_questions(tmp_path / "a.jsonl")
    assert question.text == "We tried.\nIt did.\nDoes it?" and question.options == ("yes", "no", "maybe")


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b"])
def test_signs_that_end_lines_elsewhere(tmp_path: Path, sign: str) -> None:
    line = json.dumps({**FORMS["MedQA"][0], "question": f"Which{sign}?"}, ensure_ascii=False)
    (tmp_path / "a.jsonl").write_text(line + "\n" + line, encoding="utf-8")
    assert [q.text for q in read_questions(tmp_path / "a.jsonl")] == [readable(f"Which{sign}?")] * 2


@pytest.mark.parametrize("row, said", [
    ({**FORMS["MedQA"][0], "question": " "}, "an empty question"),
    ({**FORMS["MedMCQA"][0], "cop": -1}, "MedMCQA's test, whose answers are not public: take dev for it"),
    ({**FORMS["MedMCQA"][0], "cop": 7}, "of 4 options"),
    ({**FORMS["MedQA"][0], "question": None}, "an empty question"),
    ({**FORMS["MedQA"][0], "options": {"A": "one"}, "answer_idx": "A"}, "1 options, where a question has 2 to 10"),
    ({**FORMS["MedQA"][0], "options": {"A": "one", "B": None}, "answer_idx": "A"}, "option B is empty"),
    ({**FORMS["MedQA"][0], "options": [{"key": "A"}, {"key": "B"}]}, "no letters from A on with a text each"),
    ({**FORMS["MedQA"][0], "options": {"A": "one", "B": "two"}, "answer_idx": "b"}, "the answer 'b' is none of A, B"),
    ({"question": "Which?", "choices": ["one", "two", "three"], "answer": "BC"}, "the answer 'BC' is none of A, B, C"),
    ({"QUESTION": "Is it?", "final_decision": "perhaps"}, "the answer 'perhaps' is none of yes, no, maybe"),
    ({"text": "Which?"}, "a question is a row of MedQA .* or PubMedQA"),
])  # fmt: skip
def test_a_row_that_is_no_question_names_the_forms(tmp_path: Path, row: dict, said: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps([row]))
    with pytest.raises(BadInput, match=said):
        read_questions(tmp_path / "a.jsonl")


def test_a_file_that_begins_with_a_mark_and_options_of_two_lines(tmp_path: Path) -> None:
    """Excel writes the mark; MedQA has options that end with a line end and a quotation mark."""
    row = {"question": "Which?", "options": {"A": "one\ntwo", "B": 'three\n"', "C": '"four"'}, "answer_idx": "B"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row), encoding="utf-8-sig")
    [question] = read_questions(tmp_path / "a.jsonl")
    assert question.options == ("one two", "three", '"four"') and question.shown().count("\n") == 3


def test_copies_of_a_question_stand_in_one_part(tmp_path: Path) -> None:
    """With turned options, too; those of the official parts are counted."""
    options = {"A": "one", "B": "two"}
    rows = [{"question": f"Which of {i}?", "options": options, "answer": "AB"[i % 2]} for i in range(20)]
    copies = [{**row, "options": {"A": "two", "B": "one"}, "answer": "BA"["AB".index(row["answer"])]} for row in rows]
    (tmp_path / "a.json").write_text(json.dumps([*rows, *copies]))
    config = load(["task=medqa", "data=medqa", f"data.root={tmp_path / 'a.json'}"])
    splits = read_question_set(tmp_path / "a.json", config.task).splits
    parts = [{one.text.content for one in part} for part in (splits.train, splits.valid, splits.test)]
    assert sum(map(len, parts)) == 20 and sum(map(len, (splits.train, splits.valid, splits.test))) == 40
    assert not any(name.startswith("test questions ") for name in Records(config).counts())
    folder = tmp_path / "parts"
    folder.mkdir()
    for name, some in (("train", rows), ("dev", rows[:2]), ("test", copies[:3])):
        (folder / f"{name}.json").write_text(json.dumps(some))
    config = load(["task=medqa", "data=medqa", f"data.root={folder}"])
    assert Records(config).counts()["test questions with a copy in training"] == 3


def test_sets_without_a_question_or_with_several_sizes_are_named(tmp_path: Path) -> None:
    cut = load(["task=medqa", "data=medqa", f"data.root={tmp_path / 'a.json'}"]).task
    (tmp_path / "a.json").write_text("")
    with pytest.raises(BadInput, match="has no question: a question is a row of MedQA"):
        read_question_set(tmp_path / "a.json", cut)
    asked = {"question": "Which?", "answer": "A"}
    two, three = ({**asked, "options": dict.fromkeys(names, "x")} for names in ("AB", "ABC"))
    (tmp_path / "a.json").write_text(json.dumps({"one": {"1": two}, "other": {"7": three}}))
    said = r"first 2 \(a-one-1\), 3 \(a-other-7\): give those of one number; .* MIRAGE's, one set: .*a\.json/NAME"
    with pytest.raises(BadInput, match=said):
        read_question_set(tmp_path / "a.json", cut)


def test_the_official_parts_of_a_folder(tmp_path: Path) -> None:
    for name, rows in (("train.jsonl", 3), ("validation.jsonl", 2), ("test.json", 1)):
        (tmp_path / name).write_text((LINE * rows).strip())
    assert {part: len(found) for part, found in read_parts(tmp_path).items()} == {"train": 3, "valid": 2, "test": 1}
    (tmp_path / "train_metadata.json").write_text("{}")  # as ACI-BENCH has beside its texts
    (tmp_path / "test-2.jsonl").write_text(LINE)
    assert len(read_parts(tmp_path)["test"]) == 2
    (tmp_path / "dev-test.jsonl").write_text(LINE)
    with pytest.raises(BadInput, match=r"dev-test\.jsonl could be of valid or test"):
        read_parts(tmp_path)


def test_mmlu_as_its_authors_distribute_it(shared_data: Path) -> None:
    parts = read_parts(shared_data / "text/mmlu_medical")
    assert {part: len(found) for part, found in parts.items()} == {"train": 35, "valid": 141, "test": 1255}
    ids = [question.question_id for part in parts.values() for question in part]
    assert len(set(ids)) == len(ids) and ids[0] == "anatomy_dev-1"
    assert all(len(question.options) == 4 for part in parts.values() for question in part)
    codons = read_questions(shared_data / "text/mmlu_medical/dev/medical_genetics_dev.csv")
    assert codons[0].text == "Large triplet repeat expansions can be detected by:"
    assert codons[0].options[codons[0].answer] == "Southern blotting."


def test_a_table_keeps_quoted_commas_and_lines(tmp_path: Path) -> None:
    (tmp_path / "a_test.csv").write_text('"Which, of\nthese?","one, two",three,B\n\nWhich?,yes,no,A\n')
    first, second = read_questions(tmp_path / "a_test.csv")
    assert first.text == "Which, of\nthese?" and first.options == ("one, two", "three") and first.answer == 1
    assert second.question_id == "a_test-3" and second.letter == "A"


@pytest.mark.parametrize("text, said", [
    ("Which?,one,A\n", "row 1: 3 cells"), ("Which?,one,two,C\n", "row 1: the answer 'C' is none of A, B"),
    ("question,A,B,answer\n", "row 1"),
])  # fmt: skip
def test_a_damaged_table_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a_test.csv").write_text(text)
    with pytest.raises(BadInput, match=said):
        read_questions(tmp_path / "a_test.csv")


def test_a_folder_of_subjects_needs_its_tables(tmp_path: Path) -> None:
    for name in ("dev", "val", "test"):
        (tmp_path / name).mkdir()
    with pytest.raises(BadInput, match=r"dev has no csv file of questions: put MMLU's SUBJECT_dev\.csv there"):
        read_parts(tmp_path)
