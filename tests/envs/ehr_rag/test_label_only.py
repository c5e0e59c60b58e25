"""The usual answer and the examples of label-only SFT, on generated patients."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from ghar.config import Config
from ghar.envs.ehr_rag.label_only import USUAL, label_examples, usual_answer
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import Reader, System, build, words
from ghar.episode import Act
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import NoPolicy
from tests.envs.ehr_rag.test_system import TINY

pytestmark = pytest.mark.slow  # whole systems are built

EPOCHS = 3
Made = tuple[System[Any], Config]


@pytest.fixture(scope="module", params=["compact", "full"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    cache = tmp_path_factory.mktemp("label-only")
    config = load([*TINY, f"data.cache={cache}", f"env.prompts={request.param}", f"system.label_epochs={EPOCHS}"])
    return build(Records(config)), config


def test_the_usual_answer_is_the_most_frequent_label_of_training(made: Made) -> None:
    system, config = made
    counts = Counter(case.label for case in system.cases.train)
    episodes = play(stage_of(system, system.variants[USUAL], config), system.cases.test, NoPolicy(), seed=0, title="")
    shares = tuple(counts[label] / len(system.cases.train) for label in range(len(system.task.labels)))
    assert counts.most_common(1)[0][1] > counts.total() / 2
    for episode in episodes:
        assert episode.prediction.label == counts.most_common(1)[0][0] and not episode.trace
        assert episode.prediction.probabilities == pytest.approx(shares)


def test_of_equal_labels_the_first_is_usual() -> None:
    cases: Any = [SimpleNamespace(label=label) for label in (2, 1, 1, 2, 0)]
    assert usual_answer(cases, 4).label == 1 and usual_answer(cases, 4).probabilities == (0.2, 0.4, 0.4, 0.0)
    assert usual_answer([], 2).label == 0


def test_a_label_example_is_the_question_of_direct_and_its_label(made: Made) -> None:
    """As its prompts are when it plays, so that what was learned is asked for; each reply is read as the label."""
    system, config = made
    pairs = label_examples(system, config, EPOCHS)
    assert (len(pairs.train), len(pairs.valid)) == (len(system.cases.train), len(system.cases.valid))
    assert pairs.epochs == EPOCHS
    stage = stage_of(system, system.variants["scripted_direct"], config)
    rule = system.fixed["reader"]()
    for case, pair, episode in zip(
        system.cases.valid, pairs.valid, play(stage, system.cases.valid, rule, seed=9, title=""), strict=True
    ):
        [act] = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
        assert pair.prompt == act.prompt and act.parse(pair.reply).value == case.label


def test_examples_keep_to_what_a_reader_reads(made: Made) -> None:
    system, _ = made
    short = system.training.stages["label_sft"](Reader(words, 60)).train
    long = system.training.stages["label_sft"](Reader(words)).train
    assert len(short) == len(long) and sum(len(one.prompt) for one in short) < sum(len(one.prompt) for one in long)
