"""The baselines of examination questions: what each can learn and cannot, that no copy teaches, and the system."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.config import Config
from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.exam import EXAM_FITS, EXAM_TITLES
from ghar.envs.baselines.features import labels_of
from ghar.envs.baselines.options import choice_shares, fit_options, shared_words, wording
from ghar.envs.baselines.questions import Question, fit_nearest, question_data
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import NoPolicy
from tests.envs.baselines.exams import exam, exam_splits, question
from tests.envs.exams import exam_keys
from tests.envs.refusals import assert_refused

ODDS = st.lists(st.lists(st.floats(-4, 4), min_size=1, max_size=5), min_size=1, max_size=4)


def config_of(folder: Path, *overrides: str) -> Config:
    keys = exam_keys(folder)
    return load([*keys, "system=baselines", "threads=1", f"data.cache={folder / 'cache'}", *overrides])


@given(ODDS)
def test_shares_are_those_of_independent_options_of_which_one_is_right(scores: list[list[float]]) -> None:
    """By the chances of all options being wrong but one."""
    shares = choice_shares(np.concatenate(scores), list(map(len, scores)), 5)
    for row, own in zip(shares, scores, strict=True):
        right = 1 / (1 + np.exp(-np.array(own)))
        alone = [p * prod(1 - q for j, q in enumerate(right) if j != i) for i, p in enumerate(right)]
        np.testing.assert_allclose(row[: len(own)], np.array(alone) / sum(alone), rtol=1e-9)
        assert (row[len(own) :] == 0).all()


@pytest.mark.parametrize("options", [2, 4])
@pytest.mark.parametrize("name, kind", [("options_lr", "wording"), ("words_lr", "question")])
def test_a_regression_learns_what_its_features_hold(name: str, kind: str, options: int) -> None:
    splits = exam_splits(kind, options)
    model = EXAM_FITS[name](question_data(splits, options))
    shares = model(splits.test)
    assert shares.shape == (40, options) and np.allclose(shares.sum(axis=1), 1)
    assert (shares.argmax(axis=1) == labels_of(splits.test)).mean() > 0.9 and model.about["C"] > 0


def test_the_options_alone_hide_the_question() -> None:
    """Another question above the same options changes nothing."""
    splits = exam_splits("question")
    model = fit_options(question_data(splits, 4))
    others = [replace(one, text=replace(one.text, text="entirely other words")) for one in splits.test]
    np.testing.assert_array_equal(model(splits.test), model(others))


def test_options_without_a_word_are_refused() -> None:
    signs = tuple(question(i, "Which sign is it?", ["+", "-", "=", "%"], i % 4) for i in range(6))
    with pytest.raises(BadInput, match="No option of the training questions has a word: leave options_lr out"):
        fit_options(question_data(Splits(signs[:1], exam(4, 100, "question"), ()), 4))


def test_features_of_options_by_hand() -> None:
    table = wording(["no", "Take 20 mg", "take water"])
    np.testing.assert_allclose(table[:, 0], np.log1p([2, 10, 10]))
    np.testing.assert_allclose(table[:, 1], np.log1p([1, 3, 2]))
    assert table[:, 2:5].T.tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 0]]
    np.testing.assert_allclose(table[:, 5], [0, 1 / 8, 1 / 8])
    shared = shared_words(question(1, "Which water is drunk?", ["water", "salt water", "gold"], 0).text)
    np.testing.assert_allclose(shared, [[np.log(2), 1], [np.log(2), 0.5], [0, 0]])


def test_the_longest_option_knows_no_probability(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path)))
    for case in system.cases.test:
        with pytest.raises(StopIteration) as end:
            next(system.episode(case, system.variant("longest")))
        options = case.reads.text.options
        assert end.value.value.label == max(range(4), key=lambda i: len(options[i]))
        assert end.value.value.probabilities is None


def test_memory_is_the_slow_sum_over_neighbours() -> None:
    splits = exam_splits("noise")
    data = question_data(splits, 4)
    model, some = fit_nearest(data), splits.test[:4]
    for number in (1, 3, 100):
        votes = model.votes(some, (number,))[0]
        for one, row in zip(some, votes, strict=True):
            own = model.vectorizer.transform([one.text.text]).toarray()[0]
            alike = [float(own @ v) for v in model.vectorizer.transform(t.text.text for t in data.train).toarray()]
            nearest = sorted(range(len(alike)), key=lambda i: -alike[i])[:number]
            for option, vote in zip(model.vectorizer.transform(one.text.options).toarray(), row, strict=True):
                right = [data.train[i].text.options[data.train[i].label] for i in nearest]
                likeness = model.vectorizer.transform(right).toarray() @ option
                assert vote == pytest.approx(sum(alike[i] * x for i, x in zip(nearest, likeness, strict=True)))
    assert set(model.about) == {"neighbours", "prior"}


def test_memory_answers_as_similar_questions_were_answered() -> None:
    subjects = ["gout", "asthma", "scurvy", "malaria"]
    drugs = ["allopurinol", "salbutamol", "vitamin", "chloroquine"]

    def part(first: int, years: int) -> tuple[Question, ...]:
        turned = [drugs[i:] + drugs[:i] for i in range(4)]
        return tuple(
            question(first + 4 * i + j, f"{years + i} years {name} which drug", turned[i], turned[i].index(drug))
            for i in range(4) for j, (name, drug) in enumerate(zip(subjects, drugs, strict=True))
        )  # fmt: skip

    splits = Splits(part(100, 20), part(200, 40), part(300, 60))
    model = fit_nearest(question_data(splits, 4))
    assert (model(splits.test).argmax(axis=1) == labels_of(splits.test)).all()


def copy_of(one: Question, number: int) -> Question:
    """The same question, its options in another order, its letters in another case."""
    options = tuple(option.upper() for option in one.text.options[::-1])
    return question(number, f" {one.text.text.upper()}", options, len(options) - 1 - one.label)


@pytest.mark.parametrize("name", EXAM_FITS)
def test_a_copy_of_a_question_teaches_nothing(name: str) -> None:
    """Neither does a copy of a test question in training, nor in validation, nor one of a validation question."""
    plain = exam_splits("noise")
    train = (*plain.train, *(copy_of(one, 5000 + i) for i, one in enumerate((*plain.test, *plain.valid))))
    valid = (*plain.valid, *(copy_of(one, 6000 + i) for i, one in enumerate(plain.test)))
    copied = EXAM_FITS[name](question_data(Splits(train, valid, plain.test), 4))
    np.testing.assert_array_equal(copied(plain.test), EXAM_FITS[name](question_data(plain, 4))(plain.test))


def test_memory_reads_no_copy_of_a_training_question_either() -> None:
    train = exam(30, 1000, "noise")
    twice = (*train, copy_of(train[0], 7000))
    model = fit_nearest(question_data(Splits(twice, exam(10, 2000, "noise"), ()), 4))
    data = replace(model.data, train=train[1:])
    without = replace(model, data=data, texts=model.texts[1:30], answers=model.answers[1:30])
    np.testing.assert_array_equal(model.votes(train[:1], (1, 5)), without.votes(train[:1], (1, 5)))


@pytest.mark.parametrize("name", EXAM_FITS)
def test_labels_of_the_test_change_nothing(name: str) -> None:
    splits = exam_splits("wording")
    wrong = tuple(question(one.subject_id, one.text.text, one.text.options, (one.label + 1) % 4) for one in splits.test)
    first, second = (EXAM_FITS[name](question_data(s, 4))(s.test) for s in (splits, replace(splits, test=wrong)))
    np.testing.assert_array_equal(first, second)


def test_validation_questions_may_be_what_is_evaluated() -> None:
    splits = exam_splits("noise")
    data = question_data(replace(splits, test=splits.valid), 4)
    assert data.valid == splits.valid and data.train == splits.train


def test_copies_alone_are_refused() -> None:
    splits = exam_splits("noise")
    train = tuple(copy_of(one, 5000 + i) for i, one in enumerate(splits.test))
    with pytest.raises(BadInput, match=r"data\.root has no training question that is no copy"):
        question_data(replace(splits, train=train), 4)
    with pytest.raises(BadInput, match=r"data\.root has no validation question that is no copy"):
        question_data(replace(splits, valid=train), 4)


def test_the_system_plays_every_baseline_without_a_model(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    system = build(Records(config))
    test = system.cases.test
    assert tuple(system.variants) == system.listed == tuple(EXAM_TITLES) and not system.is_trainable
    accuracy = {}
    for name, variant in system.variants.items():
        prepared = system.prepare(variant, NoPolicy())
        episodes = play(stage_of(system, prepared, config), test, NoPolicy(), seed=0, title="")
        accuracy[name] = np.mean([one.prediction.label == case.label for one, case in zip(episodes, test, strict=True)])
        assert all(not one.turns for one in episodes)
    assert accuracy["memory"] > 0.8, "questions about one disease have one answer"
    assert system.report.summary({"memory": [], "usual": []})["chosen"]["memory"]["neighbours"] > 0


@pytest.mark.parametrize("name", ["gru", "counts_lr", "severities", "lead"])
def test_what_reads_no_question_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    said = f"system baselines has no variant {name}: choose among usual, longest, options_lr, words_lr, memory"
    assert_refused(config_of(tmp_path, f"eval.variants=[usual,{name}]"), name, said)


def test_notes_are_refused_where_there_are_no_stays(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"system\.notes=/notes names summaries of stays, and task=medqa has texts alone"
    ):
        build(Records(config_of(tmp_path, "system.notes=/notes")))


def test_the_baselines_stand_beside_another_system(tmp_path: Path) -> None:
    from ghar.trainers.evaluation.compare import ComparedSystem, compare  # brings torch

    configs = {name: config_of(tmp_path, f"system={name}", "eval.bootstrap=20") for name in ("ghar", "baselines")}
    entries = [ComparedSystem(name, config, "") for name, config in configs.items()]
    summary = compare(entries, [], ["usual", "memory", "words_lr"], tmp_path / "compared")
    policies = summary["policies"]
    assert {"ghar.usual", "baselines.usual", "baselines.memory", "baselines.words_lr"} == set(policies)
    assert policies["ghar.usual"]["accuracy"][0] == policies["baselines.usual"]["accuracy"][0]
