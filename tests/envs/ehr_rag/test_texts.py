"""EHR-RAG on questions and on texts to be summarised: the text is the record that is searched, without its answer."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.config import Config
from ghar.data.sections import sentences
from ghar.envs.ehr_rag.context import rows_text
from ghar.envs.ehr_rag.ether import EventQuery, RowPassage
from ghar.envs.ehr_rag.rows import used_lines
from ghar.envs.ehr_rag.text_pieces import TextPieces, TextRecord, fit_words
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.summaries import written
from ghar.envs.system import WORDS, System, build, check_variants, refused_variants
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.kg.names import FILLERS
from ghar.launch.entry import load
from ghar.retrieval.sparse import words
from tests.envs.exams import write_exam
from tests.envs.refusals import assert_refused
from tests.envs.test_summaries import SHORT, write_texts

LIST = st.lists(st.sampled_from(["fever", "cough", "rash", "fever and cough", "no rash", "the", "pain on walking"]))
ROLES = ["refine"] * 4 + ["support", "oppose", "weigh"]


def config_of(folder: Path, task: str, *overrides: str) -> Config:
    root = write_exam(folder)[0] if task == "medqa" else write_texts(folder / "bhc.csv")
    return load(["system=ehr_rag", f"task={task}", f"data={task}", f"data.root={root}", "threads=1", *overrides])


def played(system: System[Any], config: Config, name: str) -> list[Episode]:
    variant = system.variant(name)
    return play(stage_of(system, variant, config), system.cases.test, system.fixed[variant.who](), seed=0, title="")


def acts(episode: Episode) -> list[Act]:
    return [record.effect for record in episode.trace if isinstance(record.effect, Act)]


def cosines(pieces: list[str], train: list[str], query: str) -> list[float]:
    """TF-IDF by its definition (smoothed, as scikit-learn has it), one word at a time."""
    telling = [[word for word in words(text) if word not in FILLERS] for text in train]
    known = sorted({word for text in telling for word in text})
    idf = {word: log((1 + len(train)) / (1 + sum(word in text for text in telling))) + 1 for word in known}

    def vector(text: str) -> dict[str, float]:
        weights = {word: n * idf[word] for word, n in Counter(words(text)).items() if word in idf}
        length = sqrt(sum(value * value for value in weights.values())) or 1.0
        return {word: value / length for word, value in weights.items()}

    asked = vector(query)
    return [sum(value * asked.get(word, 0.0) for word, value in vector(piece).items()) for piece in pieces]


@settings(max_examples=40, deadline=None)
@given(LIST.filter(bool), st.integers(1, 3), st.integers(1, 4), st.sampled_from(["fever at night", "rash", "pain"]))
def test_pieces_are_ranked_by_the_words_of_training_texts(rows: list[str], size: int, most: int, query: str) -> None:
    train = ["fever and cough for days", "no rash", "pain on walking, fever"]
    corpus = TextPieces({3: TextRecord(tuple(rows), 1)}, lambda: fit_words(train), size, seed=0)
    found = corpus.retrieve([EventQuery(query, None, most, place=3, view="chunks")])[0].passages
    pieces = [" ".join(rows[i : i + size]) for i in range(0, len(rows), size)]
    expected = cosines(pieces, train, query)
    order = sorted(range(len(pieces)), key=lambda i: (-round(expected[i], 5), i))[:most]
    assert [passage.ident for passage in found] == order
    scores = [passage.score for passage in found]
    np.testing.assert_allclose(scores, [round(expected[i], 5) for i in order], atol=1.1e-5)
    for passage in found:
        assert isinstance(passage, RowPassage)
        assert [rows[i] for i in passage.numbers] == [line.partition("] ")[2] for line in passage.rows]
        assert passage.rows[0].startswith(f"[{passage.ident * size + 1}]")


def test_random_pieces_and_the_last_sentences_need_no_encoder() -> None:
    def refuse() -> Any:
        raise AssertionError("asked for")

    corpus = TextPieces({0: TextRecord(tuple("abcdefgh"), 5), 1: TextRecord((), 6)}, refuse, 2, seed=1)
    last, drawn, again, none = corpus.retrieve([
        EventQuery("q", None, 3, place=0, view="newest"), EventQuery("q", None, 2, place=0, view="uniform"),
        EventQuery("other", None, 2, place=0, view="uniform"), EventQuery("q", None, 2, place=1, view="newest"),
    ])  # fmt: skip
    assert last.text == "[6] f\n[7] g\n[8] h" and not none.passages
    assert len(drawn.passages) == 2 and drawn == again
    assert drawn.passages[0].score > drawn.passages[1].score  # shown in the order of the draw


def test_a_corpus_travels_without_its_encoder() -> None:
    corpus = TextPieces({0: TextRecord(("a fever", "a rash"), 1)}, FitOnce(), 1, seed=0)
    query = EventQuery("rash", None, 1, place=0, view="similar")
    before = corpus.retrieve([query])
    assert pickle.loads(pickle.dumps(corpus)).retrieve([query]) == before and before[0].text == "[2] a rash"


class FitOnce:
    """A loader that can be sent, unlike a lambda."""

    def __call__(self) -> Any:
        return fit_words(["a fever", "a rash"])


def test_sentences_stand_by_their_numbers_and_arguments_name_them_so() -> None:
    assert rows_text(["[10] later", "[2] earlier"], False) == "[2] earlier\n[10] later"
    passage = RowPassage("", "chunks", 0, 1.0, 0, (0, 10), ("[1] a fever", "[11] a rash"), ("", ""))
    assert used_lines(passage, "As [11] has it") == ["[11] a rash"]
    assert used_lines(passage, "As [1, 11] have it") == list(passage.rows)
    assert used_lines(passage, "From [2-11], and [12]") == ["[11] a rash"] and not used_lines(passage, "[1/2] [x, 1]")


@pytest.mark.parametrize("task", ["medqa", "summary"])
def test_two_paths_search_the_text_and_argue(tmp_path: Path, task: str) -> None:
    config = config_of(tmp_path, task, "task.max_test=2")
    system = build(Records(config))
    for episode, case in zip(played(system, config, "scripted"), system.cases.test, strict=True):
        turns = acts(episode)
        assert sorted(act.role for act in turns) == sorted(ROLES) and turns[-1].role == "weigh"
        for act in turns:
            assert "{" not in act.prompt and "[1] " in act.prompt
        first = case.reads.source.split("\n")[0] if task == "summary" else case.text.split(". ")[0]
        assert f"[1] {first}" in turns[-1].prompt
    assert {act.role for act in turns} <= set(system.roles)


def test_a_text_is_searched_whole_however_little_of_it_a_report_shows(tmp_path: Path) -> None:
    config = config_of(tmp_path, "summary", "env.history_tokens=3", "task.max_test=1")
    system = build(Records(config))
    (episode,), case = played(system, config, "scripted"), system.cases.test[0]
    assert len(case.text.split()) <= 3 and case.reads.source.rsplit(". ", 1)[1] in acts(episode)[-1].prompt
    assert written(episode).split("\n") == sentences(case.reads.source)


def exam_of(folder: Path, questions: list[str], *overrides: str) -> System[Any]:
    path = folder / "exam.jsonl"
    options = {"A": "Gout of the toe", "B": "Asthma", "C": "Scurvy", "D": "Malaria"}
    rows = [{"question": text, "options": options, "answer_idx": "A"} for text in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = ["system=ehr_rag", "task=medqa", "data=medqa", f"data.root={path}", "threads=1", *overrides]
    return build(Records(load(keys)))


def test_questions_of_one_sentence_are_played(tmp_path: Path) -> None:
    """Nothing stands before what is asked, of no question; what is searched by are words of whole questions."""
    questions = [f"What has a man of {age} with a red toe?" for age in range(20, 40)]
    system = exam_of(tmp_path, questions)
    config = load(["system=ehr_rag", "threads=1"])
    for episode in played(system, config, "scripted"):
        assert episode.failure is None and "(nothing)" in acts(episode)[-1].prompt
        assert episode.prediction.label is not None


def test_what_is_asked_begins_with_the_last_question(tmp_path: Path) -> None:
    text = "A man has gout. What is the dose? Round to the nearest number. Give one of these."
    system = exam_of(tmp_path, [f"{age} years. {text}" for age in range(20, 40)])
    card = system.cases.test[0].reads.card
    assert card.description == "What is the dose? Round to the nearest number. Give one of these."
    assert "A man has gout." not in card.description


def test_a_sentence_without_an_end_is_searched_in_parts(tmp_path: Path) -> None:
    talk = " ".join(f"word{i}" for i in range(130))
    system = exam_of(tmp_path, [f"{talk}. A man of {age}. What is it?" for age in range(20, 40)])
    corpus: Any = system.corpus
    assert [len(row.split()) for row in corpus.texts[0].rows] == [60, 60, 10, 4]


def test_single_passes_read_as_many_pieces_as_a_path_may_find(tmp_path: Path) -> None:
    case = " ".join(f"Finding number {i} of the chart." for i in range(60))
    system = exam_of(tmp_path, [f"{case} Age {age}. What is it?" for age in range(20, 40)])
    config = load(["system=ehr_rag", "threads=1"])
    shown = {}
    for name in ("scripted_direct", "scripted_rag", "scripted_uniform"):
        shown[name] = [len(acts(one)[-1].facts["shown"].rows) for one in played(system, config, name)]
    assert set(shown["scripted_direct"]) == {61} and set(shown["scripted_rag"]) == {30}
    assert set(shown["scripted_uniform"]) <= {29, 30}


@pytest.mark.parametrize("reply", ["Answer: A", "Answer: A. Gout of the toe", "Reasoning: x\nAnswer: **A**"])
def test_letters_answer_questions(tmp_path: Path, reply: str) -> None:
    system = exam_of(tmp_path, [f"A man of {age}. What is it?" for age in range(20, 40)])
    act = acts(played(system, load(["system=ehr_rag", "threads=1"]), "scripted")[0])[-1]
    assert act.parse(reply).value == 0 and act.options is not None and act.options.texts == ("A", "B", "C", "D")


@pytest.mark.parametrize("task", ["medqa", "summary"])
def test_no_prompt_depends_on_the_answers(tmp_path: Path, task: str) -> None:
    config = config_of(tmp_path, task, "task.max_test=40", "task.split_seed=1")

    def prompts() -> list[list[str]]:
        return [[act.prompt for act in acts(episode)] for episode in played(build(Records(config)), config, "scripted")]

    before, path = prompts(), Path(str(config.data.root))
    if task == "summary":
        path.write_text(path.read_text().replace("A patient with", "Somebody with"))
        assert prompts() == before
        return
    # the answers decide the split, so the cases are compared by their text
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row | {"answer_idx": "A"}) + "\n" for row in rows))
    after = [[act.prompt for act in acts(episode)] for episode in played(build(Records(config)), config, "scripted")]
    old = {turns[0]: turns for turns in before}
    same = [turns for turns in after if turns[0] in old]
    assert same and all(turns == old[turns[0]] for turns in same)


def test_the_rule_answers_by_what_the_case_names(tmp_path: Path) -> None:
    path = tmp_path / "exam.jsonl"
    options = {"A": "Gout of the toe", "B": "Asthma", "C": "Scurvy", "D": "Malaria"}
    stem = "The toe is red from gout. What is it?"
    rows = [{"question": f"A man of {i} years. {stem}", "options": options, "answer_idx": "A"} for i in range(20, 40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = load(["system=ehr_rag", "task=medqa", "data=medqa", f"data.root={path}", "threads=1", "task.max_test=1"])
    system = build(Records(config))
    (episode,) = played(system, config, "scripted")
    assert episode.prediction.label == 0
    row = system.report.row(episode, system.cases.test[0], system.variant("scripted"))
    assert row["arguments"]["support"] == "[2] The toe is red from gout."
    used = [passage["used"] for lookup in row["found"] for passage in lookup["passages"]]
    assert {"support": ["[2] The toe is red from gout."]} in used and "prediction_time" not in row


@pytest.mark.parametrize(
    ("task", "name", "sentence"),
    [
        ("medqa", "no_ether", "no_ether of system=ehr_rag ranks without times"),
        ("medqa", "scripted_rule", "most frequent codes"),
        ("medqa", "counts", "counts codes of patients"),
        ("medqa", "embeddings", "reads vectors of patients"),
        ("summary", "react", "ends with the number of a label: choose lead|ends with the number of a label: choose"),
        ("summary", "usual", "usual label"),
    ],
)
def test_what_texts_lack_is_refused(tmp_path: Path, task: str, name: str, sentence: str) -> None:
    assert_refused(config_of(tmp_path, task, f"eval.variants=[{name}]"), name, sentence)


def test_what_is_refused_is_not_suggested_for_a_variant_that_is_not_there(tmp_path: Path) -> None:
    config = config_of(tmp_path, "summary", "eval.variants=[reacts]")
    with pytest.raises(BadInput, match="choose among") as refusal:
        check_variants(config)
    suggested = str(refusal.value).partition("choose among ")[2].replace(".", ",").replace(" ", "").split(",")
    assert "lead" in suggested and not set(suggested) & set(refused_variants(config))


def test_vectors_of_patients_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="texts have none: leave it out"):
        config_of(tmp_path, "medqa", "system.embeddings=x.npz", "eval.variants=[embeddings]")


@pytest.mark.parametrize("name", ["lead", "nearest"])
def test_what_is_copied_from_a_text_looks_nothing_up(tmp_path: Path, name: str) -> None:
    config = config_of(tmp_path, "summary", "task.max_test=1", "task.max_train=4")
    system = build(Records(config))
    row = system.report.row(played(system, config, name)[0], system.cases.test[0], system.variant(name))
    assert row["summary"] and not row["retrieved"] and row["iterations"] == 0 and row["found"] == []


def test_label_only_sft_and_the_warm_up_learn_what_is_right(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "medqa", "task.max_train=5")))
    pairs = system.training.stages["label_sft"](WORDS).train
    assert [pair.reply for pair in pairs] == [f"Answer: {'ABCD'[case.label]}" for case in system.cases.train]
    assert all("letters A, B, C, D" in pair.prompt and "\nB. " in pair.prompt for pair in pairs)
    texts = build(Records(config_of(tmp_path, "summary", "task.max_train=4", "task.max_valid=2")))
    assert texts.training.examples is not None
    examples = texts.training.examples(WORDS)
    last = [example for example in examples.train if example.prompt.startswith("You summarise")]
    assert sorted(example.reply for example in last) == sorted(case.reads.summary for case in texts.cases.train)
    assert len(examples.train) == len(ROLES) * 4


@pytest.mark.slow
@pytest.mark.parametrize("task", ["medqa", "summary"])
def test_a_training_from_texts_to_a_report(tmp_path: Path, task: str) -> None:
    from ghar.trainers.recipe import train  # brings torch

    names = "usual,label_sft,ehr_rag_sft,ehr_rag,scripted" if task == "medqa" else "lead,ehr_rag_sft,ehr_rag,scripted"
    short = [key for key in SHORT if not key.startswith("system.")]
    config = config_of(tmp_path, task, *short, "system.tokens=60", f"eval.variants=[{names}]",
                       f"run_dir={tmp_path / 'run'}", f"data.cache={tmp_path / 'cache'}")  # fmt: skip
    train(config)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["policies"]) == set(names.split(","))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Sentences looked up" in page and "which sentences each argument names by number" in page and "[1] " in page
