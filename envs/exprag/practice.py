"""How EXPRAG's demo model learns to read: made-up reports, and questions whose right options are drawn anew.

A made-up question has the options and the background of a training question, but the right options are drawn. Reports
are made up around them: some of them list what is right, some what other questions offer, a few what is wrong. The base
model imitates the rule that chooses what the reports list. So it learns to read excerpts and to say which options they
support; of what is true of a patient it learns nothing, for nothing of that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from envs.exprag.episode import ExpragEpisodes, play_exprag
from envs.exprag.rule import MajorityOfExperiences
from envs.play import Stage, play
from envs.rollout import derive_seed
from envs.system import Exercises, Practice, Variant
from ghar.config import Config
from ghar.data.sections import sentences
from ghar.data.tasks.dischargeqa import ASKED, Question
from ghar.episode import Evidence, Passage, Retrieve
from ghar.retrieval.report_corpus import RankReports

FORMAT = 3  # raise it when the exercises change
PASSES = 3  # times an exercise is seen
SUPPORT = (0.3, 0.6, 0.8, 1.0)  # shares of the reports that list what is right; one is drawn for each question
STRAY = 0.05  # of reports that list a wrong option instead
LISTED, LISTED_WRONG, MORE = 0.85, 0.02, 2  # of several options: a right one's share, a wrong one's, further names


def practice(config: Config, train: Sequence[Question], episodes: ExpragEpisodes) -> Practice:
    """Exercises over the options of training questions; their randomness is the world's."""
    key = FORMAT, config.task.name, config.env.prompts, episodes.spec, [(q.options, q.background) for q in train]
    return Practice(key, partial(_exercises, config, train, episodes))


def _exercises(
    config: Config, train: Sequence[Question], episodes: ExpragEpisodes, total: int, seed: int
) -> Exercises:
    rng = np.random.default_rng(derive_seed(seed, "made-up reports"))
    most = episodes.spec.excerpts
    made = [made_up(rng, train, 1 + int(rng.integers(most)), number) for number in range(max(64, total // PASSES))]
    corpus = MadeUpReports([reports for _, reports in made])
    stage = Stage(config, ("top",), play_exprag, Variant("base", spec=episodes), corpus)
    questions = [question for question, _ in made]
    played = play(stage, questions, MajorityOfExperiences(), seed=seed, title="Base exercises")
    return Exercises(played, names_of(train), {"predict": 1.0})


def names_of(questions: Sequence[Question]) -> list[str]:
    """What a list has: the pieces of advice, or the names of diagnoses or drugs, each once."""
    return list(dict.fromkeys(item for question in questions for items in _items(question) for item in items))


def _items(question: Question) -> list[list[str]]:
    """What each option holds."""
    return [sentences(option) if question.single else [option] for option in question.options]


@dataclass(frozen=True)
class MadeUpReports:
    """A corpus whose every stay has reports of its own. reports: texts by the stay that asks."""

    reports: Sequence[Sequence[str]]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        return [self._one(request) for request in requests]

    def _one(self, request: Retrieve) -> Evidence:
        texts = self.reports[int(getattr(request, "stay"))]  # noqa: B009 - of both kinds of request
        if isinstance(request, RankReports):
            return Evidence(tuple(Passage("", "report", -1, 1.0, number) for number in range(len(texts))))
        return Evidence(tuple(Passage(text, "excerpt", n, 1.0, n) for n, text in enumerate(texts)))


def made_up(
    rng: np.random.Generator, train: Sequence[Question], reports: int, number: int
) -> tuple[Question, list[str]]:
    """A question with drawn right options, and the excerpts of `reports` made-up reports."""
    own, other = train[int(rng.integers(len(train)))], train[int(rng.integers(len(train)))]
    share = SUPPORT[int(rng.integers(len(SUPPORT)))]
    if own.single:
        answer = 1 << int(rng.integers(len(own.options)))
        lists = [_advice(rng, own, answer, train, share) for _ in range(reports)]
    else:
        answer = int(rng.integers(1, (1 << len(own.options)) - 1))
        lists = [_names(rng, own, answer, other) for _ in range(reports)]
    heading = ASKED[own.kind][2]
    texts = [f"{heading}: " + "\n".join(f"- {item}" for item in items) for items in lists]
    made = replace(own, sample_id=f"made-up-{number}", subject_id=-1, visit_id=number, answer=answer)
    return made, texts


def _advice(
    rng: np.random.Generator, own: Question, answer: int, train: Sequence[Question], share: float
) -> list[str]:
    """The advice of one report: the right one, seldom a wrong one, else one of another question's; at times a piece is
    another one's."""
    drawn = rng.random()
    if drawn < share:
        option = own.options[answer.bit_length() - 1]
    elif drawn < share + STRAY:
        option = own.options[int(rng.integers(len(own.options)))]
    else:
        option = _any_option(rng, train)
    pieces = sentences(option)
    if rng.random() < STRAY:
        pieces[int(rng.integers(len(pieces)))] = sentences(_any_option(rng, train))[0]
    return pieces


def _any_option(rng: np.random.Generator, train: Sequence[Question]) -> str:
    options = train[int(rng.integers(len(train)))].options
    return options[int(rng.integers(len(options)))]


def _names(rng: np.random.Generator, own: Question, answer: int, other: Question) -> list[str]:
    """The names that one report lists: right ones mostly, wrong ones seldom, and some of another question."""
    found = [
        option
        for i, option in enumerate(own.options)
        if rng.random() < (LISTED if answer >> i & 1 else LISTED_WRONG)
    ]
    found += list(other.options[:MORE])
    return [found[i] for i in rng.permutation(len(found))]
