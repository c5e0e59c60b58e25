"""A fixed rule in place of a language model: what happened to most of the examples. It sees no truth of the patient."""

from __future__ import annotations

from collections.abc import Sequence

from envs.graphwalker.corpus import Examples
from ghar.episode import Act, Completion

THOUGHT = "The earlier patients tell."


class MajorityOfExamples:
    """Answers the outcome with the largest share of the examples (`shares`), the lower label among equals."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(_reply(act)) for act in acts]


def _reply(act: Act) -> str:
    if act.role == "predict":
        labels, usual = act.facts["labels"], act.facts["usual"]
        found = shares(act.facts["evidence"], len(labels), usual)
        return labels[found.index(max(found))]
    return "answer" if "answer" in act.choices else THOUGHT


def shares(examples: Examples, labels: int, usual: int) -> tuple[float, ...]:
    """Each outcome's share of the examples' weight; without examples, all of it to the usual label.

    An example weighs its information gain where the selector measured one above 0 for any of them, else the inverse of
    its place in the prompt, since the best stand first.
    """
    gains = [max(passage.score, 0.0) for passage in examples.passages]
    weights = gains if any(gains) else [1 / place for place in range(1, len(gains) + 1)]
    total = sum(weights)
    if not total:
        return tuple(float(label == usual) for label in range(labels))
    found = [0.0] * labels
    for case, weight in zip(examples.shown, weights, strict=True):
        found[case.label] += weight
    return tuple(weight / total for weight in found)
