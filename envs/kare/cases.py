"""Cases from samples: the record and the similar patients, each cut to a budget, as whoever reads them counts tokens.

Vectors of base contexts are made once for all readers; texts are cut again for each. In a base context (the task, every
visit with its conditions, procedures and drugs, and similar patients) the order of parts and the three lists a visit
are the paper's (kare.txt, Section 3.2.1 and Figure 11); visits count from 0. The wording is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol, TypeVar

import numpy as np

from ghar.config import EnvConfig
from ghar.data.cohort import Sample, Task, Visit
from ghar.data.tasks.splits import S, Splits
from ghar.data.views.visits import TextView, fitted, visit_lists
from ghar.envs.case import Case, topics_of
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.retrieval.similar import SimilarPatients
from ghar.retrieval.encoders import Encoder

ASKED = 256  # patients whose contexts are encoded together
UNCUT = 10**9  # tokens: an encoder cuts its text itself
EACH = 2  # similar patients of a label that a case knows: few-shot prompts with N = 4 show them all
S_contra = TypeVar("S_contra", contravariant=True)  # samples that are put into words
KINDS = (("Conditions", "diagnoses"), ("Procedures", "procedures"), ("Drugs", "medications"))


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Similar training patients of any sample of the splits. Nothing reads the label of who is asked about."""

    splits: Splits[Sample]
    task: Task
    name_of: ConceptNames
    encoder: Encoder
    earlier: bool = False  # only those whose outcome was known before

    def of(self, samples: Sequence[Sample]) -> list[tuple[tuple[Sample, ...], ...]]:
        """For each sample its `EACH` nearest training patients of each label, by label, nearest first."""
        neighbours = []
        for sample, vector in zip(samples, self.vectors(samples), strict=True):
            nearest = self.trained.find(sample, vector, each=EACH)
            neighbours.append(tuple(tuple(group) for _, group in groupby(nearest, key=lambda other: other.label)))
        return neighbours

    @cached_property
    def trained(self) -> SimilarPatients:
        return SimilarPatients(self.splits.train, self._encoded(self.splits.train), earlier=self.earlier)

    def writer(self, env: EnvConfig, count: Callable[[str], int], similar: int = 1) -> Writer:
        """Make a `Writer` with these arguments."""
        return Writer(self, env, count, similar)

    def vectors(self, samples: Sequence[Sample]) -> np.ndarray:
        """f32[n, d]: embeddings of the base contexts without similar patients."""
        return self.trained.vectors if samples is self.splits.train else self._encoded(samples)

    def _encoded(self, samples: Sequence[Sample]) -> np.ndarray:
        parts = [np.empty((0, self.encoder.dimension), np.float32)]
        for at in range(0, len(samples), ASKED):
            some = samples[at : at + ASKED]
            texts = [base_context(sample, self.task, self.name_of, budget=UNCUT, count=len).text for sample in some]
            parts.append(self.encoder.passages(texts))
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Writer:
    """Puts samples into words that fit into env.history_tokens as `count` counts them."""

    near: Neighbourhood
    env: EnvConfig
    count: Callable[[str], int]
    similar: int = 1  # similar patients of each label in the context that is fine-tuned on

    def cases(self, samples: Sequence[Sample]) -> tuple[Case[KareReading], ...]:
        """The cases, in order; the context of each shows `similar` patients of each label."""
        texts, groups = self._views(samples), self.near.of(samples)
        neighbours = list({id(other): other for each in groups for group in each for other in group}.values())
        ended = self._with_outcomes(neighbours)
        return tuple(
            Case(
                sample.sample_id, sample.subject_id, sample.visit_id, view.text,
                topics_of(sample, self.near.name_of), self.near.task, sample.label,
                KareReading(
                    neighbours=tuple(tuple(ended[id(other)] for other in group) for group in each),
                    dropped=view.dropped_visits + view.dropped_codes,
                ).showing(self.similar),
                credentialed=sample.credentialed,
            )
            for sample, view, each in zip(samples, texts, groups, strict=True)
        )  # fmt: skip

    def _with_outcomes(self, samples: Sequence[Sample]) -> dict[int, str]:
        """id() of a training sample -> its record and outcome, put into words once however many cases show it."""
        views, labels = self._views(samples), self.near.task.labels
        return {
            id(sample): f"{view.text}\noutcome: {labels[sample.label]}"
            for sample, view in zip(samples, views, strict=True)
        }

    def _views(self, samples: Sequence[Sample]) -> Iterator[TextView]:
        style, budget = self.env.prompts, self.env.history_tokens
        return visit_lists(samples, self.near.name_of, style=style, budget=budget, count=self.count)


class CaseWriter(Protocol[S_contra]):
    """Puts samples into words."""

    def cases(self, samples: Sequence[S_contra]) -> tuple[Case[KareReading], ...]: ...


class CutSplits(Splits[Case[KareReading]]):
    """Cases by split, each split put into words when it is first read: an evaluation reads the test patients alone."""

    _samples: Splits[Any]
    _writer: CaseWriter[Any]

    def __init__(self, samples: Splits[S], writer: CaseWriter[S]):
        object.__setattr__(self, "_samples", samples)
        object.__setattr__(self, "_writer", writer)

    @property
    def uncut(self) -> Splits[Any]:
        """The samples that the cases are put into words from."""
        return self._samples

    @cached_property
    def train(self) -> tuple[Case[KareReading], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._writer.cases(self._samples.train)

    @cached_property
    def valid(self) -> tuple[Case[KareReading], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._writer.cases(self._samples.valid)

    @cached_property
    def test(self) -> tuple[Case[KareReading], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._writer.cases(self._samples.test)


def base_context(
    sample: Sample,
    task: Task,
    name_of: Callable[[str], str],
    *,
    budget: int,
    count: Callable[[str], int],
    similar: Sequence[tuple[Sample, str]] = (),
) -> TextView:
    """The context in at most `budget` tokens as `count` counts them; the oldest visits of the patient go first.

    similar: patients of the training set with their labels as text, in the order to show them; they are never cut, so a
    budget that does not hold them and a visit without codes is a BadInput (as in
    `ghar.data.views.visits.visit_list`).
    """
    visits = sample.history
    head = f"Task: {task.question}\nPossible answers: {', '.join(task.labels)}\n\nPatient:\n"
    tail = "".join(
        f"\n\nSimilar patient {i} (answer: {label}):\n{_lines(other.history, 0, name_of)}"
        for i, (other, label) in enumerate(similar, start=1)
    )

    def text(kept: Sequence[Visit]) -> str:
        return head + _lines(kept, len(visits) - len(kept), name_of) + tail

    return fitted(visits, text, "kare", budget, count)


def _lines(visits: Sequence[Visit], first: int, name_of: Callable[[str], str]) -> str:
    """Visits from number `first` on, a line a list."""
    lines = []
    for number, visit in enumerate(visits, start=first):
        lines.append(f"Visit {number}:")
        for (title, kind), omitted in zip(KINDS, visit.omitted, strict=False):
            names = dict.fromkeys(name_of(code) for code in getattr(visit, kind))  # several codes may share a name
            lines.append(f"  {title}: {'; '.join(names) or ('omitted' if omitted else 'none')}")
    return "\n".join(lines) or "no visit on record"
