"""How EXPRAG's demo model learns to read how similar stays ended: its own prompts, with outcomes that are drawn anew.

An exercise is the prompt of a training patient with some of the similar stays, each beside an outcome that was drawn
for this exercise. The base model imitates a rule that answers the most frequent of them. So it learns to count what a
prompt states; of what is true of a patient it learns nothing, for no true outcome is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np

from ghar.envs.case import Case
from ghar.envs.exprag.episode import play_exprag
from ghar.envs.exprag.label_episode import LabelEpisodes
from ghar.envs.exprag.report_corpus import RankReports
from ghar.envs.exprag.rule import MajorityOfOutcomes
from ghar.envs.exprag.settings import Settings
from ghar.envs.play import PlayContext, play
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus, derive_seed
from ghar.envs.system import DemoPretraining, PretrainingTasks, Variant
from ghar.episode import Episode, Evidence, Retrieve
from ghar.llm.policy import FunctionPolicy

FORMAT = 1  # raise it when the exercises change
FEWEST, PASSES = 64, 4  # exercises at least; times one is seen
WHOLE = 0.5  # of the exercises with as many stays as are ranked
EASIER = 3  # of the others: draws of the number, of which the fewest are taken, for counting is learned from few


def practice(
    records: Records, settings: Settings, corpus: Corpus, train: Sequence[Case[None]], episodes: LabelEpisodes
) -> DemoPretraining:
    """Exercises over the prompts of training patients; their randomness is the world's. episodes: with experience."""
    config, task = records.config, records.task
    key = (
        "exprag labels", FORMAT, (WHOLE, EASIER, PASSES), (task.name, task.question, task.labels),
        asdict(replace(config.data, cache="")), asdict(replace(settings, label_epochs=1, judged=0)), episodes.spec,
        (config.env.prompts, config.env.history_tokens, config.retriever.kind),
        [(case.sample_id, case.text) for case in train],
    )  # fmt: skip
    return DemoPretraining(key, partial(_exercises, records, corpus, train, episodes))


def _exercises(
    records: Records, corpus: Corpus, train: Sequence[Case[None]], episodes: LabelEpisodes, total: int, seed: int
) -> PretrainingTasks:
    labels, most = records.task.labels, episodes.spec.top_k
    stage = PlayContext(records.config, ("top",), play_exprag, Variant("base", spec=episodes), corpus)
    teacher = FunctionPolicy(MajorityOfOutcomes((0,) * len(labels)))
    cache, played = AnswerCache(corpus), list[Episode]()
    wanted = max(FEWEST, -(-total // PASSES))
    for attempt in range(-(-wanted // len(train))):
        rng = np.random.default_rng(derive_seed(seed, "drawn outcomes", attempt))
        some = train[: wanted - len(played)]
        drawn = DrawnOutcomes(cache, {case.sample_id: draw_outcomes(rng, most, len(labels)) for case in some})
        played += play(stage, some, teacher, seed=seed, title="Base exercises", attempt=attempt, corpus=drawn)
    return PretrainingTasks(played, [*labels, *_shown_names(records)], {"predict": 1.0}, copying=True)


def draw_outcomes(rng: np.random.Generator, most: int, labels: int) -> tuple[int, ...]:
    """Outcomes of up to `most` stays, in shares that are drawn first: any outcome may be the frequent one."""
    size = most if rng.random() < WHOLE else 1 + int(rng.integers(most, size=EASIER).min())
    return tuple(rng.choice(labels, size, p=rng.dirichlet(np.ones(labels))).tolist())


@dataclass(frozen=True)
class DrawnOutcomes:
    """A corpus that shows the first of the stays it ranks, with other outcomes. outcomes: by who asks, in order.

    Each stay weighs 1 and what is less than all behind it, so that the most similar one decides between equals.
    """

    corpus: Corpus
    outcomes: Mapping[int | str, Sequence[int]]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """As the corpus itself answers, but for how ranked stays ended."""
        pairs = zip(requests, self.corpus.retrieve(requests), strict=True)
        return [self._drawn(one, own) if isinstance(one, RankReports) else own for one, own in pairs]

    def _drawn(self, request: RankReports, ranked: Evidence) -> Evidence:
        outcomes = self.outcomes[request.stay]
        first = enumerate(zip(ranked.passages, outcomes, strict=False), 1)  # as many as the shorter has
        return Evidence(tuple(replace(stay, partition=end, score=1 + 0.5**place) for place, (stay, end) in first))


@dataclass(frozen=True, eq=False)
class AnswerCache:
    """A corpus that remembers what it has answered, for exercises ask the same of it many times."""

    corpus: Corpus
    answers: dict[Retrieve, Evidence] = field(default_factory=dict)

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """Answer as the corpus does."""
        unknown = [request for request in dict.fromkeys(requests) if request not in self.answers]
        self.answers.update(zip(unknown, self.corpus.retrieve(unknown), strict=True))
        return [self.answers[request] for request in requests]


def _shown_names(records: Records) -> list[str]:
    """Names of the diagnoses, procedures and drugs that training patients' records show, in order."""
    visits = [visit for sample in records.splits.train for visit in sample.history]
    codes = {code for visit in visits for code in (*visit.diagnoses, *visit.procedures, *visit.medications)}
    return sorted({records.described.get(code, code) for code in codes})
