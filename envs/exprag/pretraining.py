"""How EXPRAG's demo model learns to read: made-up reports, and questions whose right options are drawn anew.

A made-up question has the options and the background of a training question, but the right options are drawn. Reports
are made up around them: some of them list what is right, some what other questions offer, a few what is wrong. Of sets
of advice the options are drawn anew too, each piece from all that training questions have, and the reports that list
something else share a few habits: so neither an option nor what most reports list tells what is right, only what both
have. The base model imitates the rule that chooses what the reports list. So it learns to read excerpts and to say
which options they support; of what is true of a patient it learns nothing, for nothing of that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ghar.config import Config
from ghar.data.sections import sentences
from ghar.envs.exprag.dischargeqa import ASKED, DischargeQuestion, question_case
from ghar.envs.exprag.episode import ExpragEpisodes, common_pieces, own_pieces, play_exprag
from ghar.envs.exprag.report_corpus import RankReports
from ghar.envs.exprag.rule import majority_of_experiences
from ghar.envs.play import PlayContext, play
from ghar.envs.rollout import derive_seed
from ghar.envs.system import DemoPretraining, PretrainingTasks, Variant
from ghar.episode import Evidence, Passage, Retrieve
from ghar.llm.policy import FunctionPolicy

FORMAT = 7  # raise it when the exercises change
PASSES = 3  # times an exercise is seen
WHOLE = 0.5  # of the exercises with as many reports as are looked for
EASIER = 3  # of the others: draws of the number, of which the fewest are taken, for matching is learned from few
SUPPORT = (0.1, 0.15, 0.2, 0.3, 0.5)  # shares of the reports that list what is right; one is drawn for each question
STRAY = 0.05  # of reports that list a wrong option instead, and of pieces that are another one's
HABITS = (1, 17)  # what other reports list: one to sixteen sets of advice that are no options
LISTED, LISTED_WRONG, MORE = 0.85, 0.02, 2  # of several options: a right one's share, a wrong one's, further names


def practice(config: Config, train: Sequence[DischargeQuestion], episodes: ExpragEpisodes) -> DemoPretraining:
    """Exercises over the options of training questions; their randomness is the world's."""
    key = FORMAT, config.task.name, config.env.prompts, episodes.spec, [(q.options, q.background) for q in train]
    return DemoPretraining(key, partial(_exercises, config, train, episodes))


def _exercises(
    config: Config, train: Sequence[DischargeQuestion], episodes: ExpragEpisodes, total: int, seed: int
) -> PretrainingTasks:
    rng = np.random.default_rng(derive_seed(seed, "made-up reports"))
    most, pieces = episodes.spec.excerpts, pieces_of(train)
    count = max(64, total // PASSES)
    sizes = np.where(rng.random(count) < WHOLE, most, 1 + rng.integers(most, size=(EASIER, count)).min(axis=0))
    made = [made_up(rng, train, pieces, size, number) for number, size in enumerate(sizes.tolist())]
    corpus = GeneratedReports([reports for _, reports in made])
    stage = PlayContext(config, ("top",), play_exprag, Variant("base", spec=episodes), corpus)
    cases = [question_case(question) for question, _ in made]
    played = play(stage, cases, FunctionPolicy(majority_of_experiences), seed=seed, title="Base exercises")
    return PretrainingTasks(played, names_of(train), {"predict": 1.0}, copying=True)


class Pieces(NamedTuple):
    """Of the advice of questions: what some sets have and not all, and what all sets of a question have."""

    telling: tuple[str, ...]
    usual: tuple[str, ...]


def pieces_of(train: Sequence[DischargeQuestion]) -> Pieces:
    """The pieces of advice of `train`, each once; none is of both kinds."""
    telling = dict.fromkeys(piece for question in train for own in own_pieces(question) for piece in own)
    usual = dict.fromkeys(piece for question in train for piece in sorted(common_pieces(question)))
    return Pieces(tuple(piece for piece in telling if piece not in usual), tuple(usual))


def names_of(questions: Sequence[DischargeQuestion]) -> list[str]:
    """What a list has: the pieces of advice, or the names of diagnoses or drugs, each once."""
    return list(dict.fromkeys(item for question in questions for items in _items(question) for item in items))


def _items(question: DischargeQuestion) -> list[list[str]]:
    """What each option holds."""
    return [sentences(option) if question.single else [option] for option in question.options]


@dataclass(frozen=True)
class GeneratedReports:
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
    rng: np.random.Generator, train: Sequence[DischargeQuestion], pieces: Pieces, reports: int, number: int
) -> tuple[DischargeQuestion, list[str]]:
    """A question with drawn right options, and the excerpts of `reports` made-up reports."""
    own, other = train[int(rng.integers(len(train)))], train[int(rng.integers(len(train)))]
    if own.single:
        own, answer, lists = _clear_advice(rng, own, pieces, reports)
    else:
        answer = int(rng.integers(1, (1 << len(own.options)) - 1))
        lists = [_names(rng, own, answer, other) for _ in range(reports)]
    heading = ASKED[own.kind][2]
    texts = [f"{heading}: " + "\n".join(f"- {item}" for item in items) for items in lists]
    made = replace(own, sample_id=f"made-up-{number}", subject_id=-1, visit_id=number, answer=answer)
    return made, texts


def _clear_advice(
    rng: np.random.Generator, own: DischargeQuestion, pieces: Pieces, reports: int
) -> tuple[DischargeQuestion, int, list[list[str]]]:
    """Sets of advice drawn anew, the right one, and what each report lists; drawn until that set is listed most."""
    while True:
        sets = _drawn_sets(rng, own, pieces)
        made, answer = replace(own, options=tuple(" ".join(one) for one in sets)), int(rng.integers(len(sets)))
        half = [[piece for piece in one if piece in pieces.telling] for one in sets]
        lists = _reports(rng, half, answer, pieces, reports)
        listed = [sum(piece in items for items in lists for piece in one) for one in half]
        if listed.pop(answer) > max(listed):
            return made, 1 << answer, lists


def _drawn_sets(rng: np.random.Generator, own: DischargeQuestion, pieces: Pieces) -> list[list[str]]:
    """The sets of a question with other pieces in place of those that tell; the usual ones stay."""
    common = common_pieces(own)
    sets = [sentences(option) for option in own.options]
    wanted = sum(piece not in common for one in sets for piece in one)
    if wanted > len(pieces.telling):
        return sets
    fresh = iter(_draw(rng, pieces.telling, wanted))
    return [[piece if piece in common else next(fresh) for piece in one] for one in sets]


def _reports(
    rng: np.random.Generator, half: Sequence[Sequence[str]], answer: int, pieces: Pieces, reports: int
) -> list[list[str]]:
    """The advice of each report: the right one, seldom a wrong one, else that of one of a few other habits, which
    several reports may have; at times a piece is another one's. Some of the usual advice stands behind it."""
    share, size = SUPPORT[int(rng.integers(len(SUPPORT)))], len(half[answer])
    others = [_draw(rng, pieces.telling, size) for _ in range(int(rng.integers(*HABITS)))]
    lists = []
    for drawn in rng.random(reports):
        if drawn < share:
            advice = half[answer]
        elif drawn < share + STRAY:
            advice = half[int(rng.integers(len(half)))]
        else:
            advice = others[int(rng.integers(len(others)))]
        advice = [piece if rng.random() > STRAY else _draw(rng, pieces.telling, 1)[0] for piece in advice]
        lists.append([*advice, *_draw(rng, pieces.usual, min(size, len(pieces.usual)))])
    return lists


def _draw(rng: np.random.Generator, pool: Sequence[str], count: int) -> list[str]:
    return [pool[int(i)] for i in rng.choice(len(pool), count, replace=False)]


def _names(rng: np.random.Generator, own: DischargeQuestion, answer: int, other: DischargeQuestion) -> list[str]:
    """The names that one report lists: right ones mostly, wrong ones seldom, and some of another question."""
    names = [
        option
        for i, option in enumerate(own.options)
        if rng.random() < (LISTED if answer >> i & 1 else LISTED_WRONG)
    ]
    names += list(other.options[:MORE])
    return [names[i] for i in rng.permutation(len(names))]
