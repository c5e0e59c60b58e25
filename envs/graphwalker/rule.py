"""Fixed rules in place of a language model: what happened to most of the examples, or to those that share the rarest
item with the patient; of texts the summary of the best example. They see no truth of the patient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ghar.envs.graphwalker.corpus import Examples
from ghar.envs.graphwalker.episode import NOTHING, comparison
from ghar.envs.graphwalker.selectors.rare_items import RARE, items_in, items_of
from ghar.episode import Act

THOUGHT = "The earlier patients tell."


def majority_of_examples(act: Act) -> str:
    """Answer the outcome with the largest share of the examples (`shares`), the lower label among equals."""
    return _reply(act)


@dataclass(frozen=True)
class RarestShared:
    """The same, where an example weighs e to the power of the weight of the rarest item that it shares with the
    patient, over its place in the prompt. weights: of items (`ghar.envs.graphwalker.selectors.rare_items`).

    Its comparison names the shared items that at most `RARE` of the weighed records have.
    """

    weights: Mapping[str, float]

    def __call__(self, act: Act) -> str:
        return self._compared(act) if act.role == "compare" else _reply(act, self._weighed(act))

    def _weighed(self, act: Act) -> list[float]:
        if act.role != "predict":
            return []
        rarest = [max((self.weights.get(item, 0.0) for item in items), default=0.0) for items in _shared(act)]
        return [math.exp(weight) / place for place, weight in enumerate(rarest, 1)]

    def _compared(self, act: Act) -> str:
        least = -math.log(RARE)
        counting = [[item for item in items if self.weights.get(item, 0.0) >= least] for items in _shared(act)]
        ends = [act.facts["labels"][case.label] for case in act.facts["evidence"].demonstrations]
        return comparison(list(zip(counting, ends, strict=True)))


@dataclass(frozen=True)
class CopiedSummary:
    """Copy the whole summary of the first example, the best one; the text itself where there is none.

    summaries: of texts that may be shown, by sample id.
    """

    summaries: Mapping[str, str]

    def __call__(self, act: Act) -> str:
        examples = act.facts["evidence"].demonstrations
        return self.summaries[examples[0].sample_id] if examples else act.facts["case"].text


def _shared(act: Act) -> list[list[str]]:
    """Items that the patient shares with each example, in the patient's order."""
    own = items_in(act.facts["case"].text)
    return [[item for item in own if item in items_of(case.text)] for case in act.facts["evidence"].demonstrations]


def _reply(act: Act, weights: Sequence[float] = ()) -> str:
    if act.role == "predict":
        labels, usual = act.facts["labels"], act.facts["usual"]
        probabilities = shares(act.facts["evidence"], len(labels), usual, weights)
        if act.facts["reply"] == "probability":
            return f"{probabilities[1]:.2f}"
        return labels[probabilities.index(max(probabilities))]
    if act.role == "compare":
        return NOTHING
    return "answer" if "answer" in act.choices else THOUGHT


def shares(examples: Examples, labels: int, usual: int, weights: Sequence[float] = ()) -> tuple[float, ...]:
    """Each outcome's share of the examples' weight; without examples, all of it to the usual label.

    weights: of the examples; without them an example weighs its information gain where the selector measured one above
    0 for any of them, else the inverse of its place in the prompt, since the best stand first.
    """
    gains = [max(passage.score, 0.0) for passage in examples.passages]
    weights = weights or (gains if any(gains) else [1 / place for place in range(1, len(gains) + 1)])
    total = sum(weights)
    if not total:
        return tuple(float(label == usual) for label in range(labels))
    sums = [0.0] * labels
    for case, weight in zip(examples.demonstrations, weights, strict=True):
        sums[case.label] += weight
    return tuple(weight / total for weight in sums)
