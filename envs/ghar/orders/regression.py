"""A logistic regression on retrieved facts: what searching for every condition is worth to a reader of words alone.

It learns from training questions whether the facts that a search for a condition brings speak against the drug. It
knows no links between charts and nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ghar.data.tasks.order_check import OrderQuestion
from ghar.envs.ghar.orders.episode import NONE, confirmed, fact_ends, fixed_query
from ghar.episode import Act, Evidence
from ghar.kg.names import disease_key

MOST_QUESTIONS = 1000  # of training; more change nothing


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
