"""A fixed rule that answers EHR-RAG's acts, so that its episodes mean something without a language model.

What it knows is fitted to the training patients: how much more often each event, and each third of an indicator's last
values, is found with a label than without it (naive Bayes, smoothed, of what can hardly be chance). It sees of a
patient what the prompt shows and nothing else, so its answers are as good as what was retrieved. Of two arguments it
weighs every piece of evidence that either names, also one that the budget left out of the prompt's record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.ehr_rag.context import Shown
from ghar.episode import Act, Completion
from ghar.llm.event_replies import MOST_WORDS
from ghar.retrieval.event_store import Record

SMOOTHING = 4.0  # imagined patients of every label, for each feature
SEEN = 3  # training patients that a feature needs
SURE = 2.0  # standard errors by which its share must differ between a label and the others
ARGUED = 5  # pieces of evidence an argument names
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
VALUE = re.compile(rf"\(value: {NUMBER}(?: |\)$)")  # of a row; "0-2" is none
LAST = re.compile(rf"\] {NUMBER}(?: [^;]*)?$")  # of a trajectory
THIRDS = ("low", "middle", "high")
Found = dict[str, tuple[str, np.ndarray]]  # feature -> where it stands in the prompt, and its weights


@dataclass(frozen=True)
class Piece:
    """A row or a trajectory that a prompt shows. name: of its code or indicator. number: how its value is found."""

    name: str
    line: str
    number: re.Pattern[str]


@dataclass(frozen=True)
class EventRules:
    """prior: f64[classes], log shares of the labels. weights: feature -> f64[classes], log P(feature | label) less
    log P(feature). cuts: indicator -> bounds of its middle third. names: of codes."""

    prior: np.ndarray
    weights: Mapping[str, np.ndarray]
    cuts: Mapping[str, tuple[float, float]]
    names: Mapping[str, str]

    def feature(self, indicator: str, value: float) -> str:
        """The third that a value of an indicator lies in, as a feature."""
        low, high = self.cuts[indicator]
        return f"{indicator} {THIRDS[(value > low) + (value > high)]}"


def fit_rules(records: Iterable[Record], labels: Sequence[int], classes: int, names: Mapping[str, str]) -> EventRules:
    """Count over training patients; `records` are of a store with numbers apart."""
    seen, last = [], []
    for record in records:
        seen.append({names[record.store.codes[code]] for code in np.unique(record.row_codes()).tolist()})
        last.append(_last_values(record))
    values: dict[str, list[float]] = {}
    for found in last:
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    thirds = {name: np.quantile(some, [1 / 3, 2 / 3]) for name, some in values.items() if len(some) >= SEEN}
    cuts = {name: (float(low), float(high)) for name, (low, high) in thirds.items()}
    n = np.bincount(labels, minlength=classes).astype(float)
    rules = EventRules(np.log((n + 1) / (n.sum() + classes)), {}, cuts, names)
    counts: dict[str, np.ndarray] = {}
    for shown, found, label in zip(seen, last, labels, strict=True):
        features = shown | {rules.feature(name, value) for name, value in found.items() if name in cuts}
        for feature in features:
            counts.setdefault(feature, np.zeros(classes))[label] += 1
    weights = {}
    for feature, count in counts.items():
        if count.sum() >= SEEN and _difference(count, n) >= SURE:
            share = count.sum() / n.sum()
            weights[feature] = np.log((count + SMOOTHING * share) / (n + SMOOTHING) / share)
    return EventRules(rules.prior, weights, cuts, names)


def _difference(count: np.ndarray, n: np.ndarray) -> float:
    """The largest difference between a label's share and that of all others, in standard errors."""
    share = count.sum() / n.sum()
    others = n.sum() - n
    known = (n > 0) & (others > 0)
    error = np.sqrt(share * (1 - share) * (1 / n[known] + 1 / others[known]))
    apart = np.abs(count / n.clip(1) - (count.sum() - count) / others.clip(1))[known]
    return float((apart / error).max()) if known.any() and share < 1 else 0.0


def _last_values(record: Record) -> dict[str, float]:
    return {record.store.indicators[i]: record.trajectory(i, 1)[1][0] for i in record.indicators}


@dataclass(frozen=True, eq=False)
class RuleReader:
    """The policy. A side's evidence is what is commoner with its labels: 0 for "oppose", any other for "support"."""

    rules: EventRules

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(getattr(self, f"_{act.role}")(act)) for act in acts]

    def _indicators(self, act: Act) -> str:
        """Those whose thirds tell most; of equals the ones most like the question."""
        told = {name: max(np.ptp(self._weight(f"{name} {third}")) for third in THIRDS) for name in act.facts["names"]}
        order = sorted(told, key=lambda name: -told[name])  # stable
        return json.dumps(order[: act.facts["keep"]])

    def _refine(self, act: Act) -> str:
        """The most telling event of the side that was neither shown nor asked for; ENOUGH where none is left.

        Thirds of an indicator are no words of any row, so that no search would find them.
        """
        sign = -1.0 if act.facts["path"] == "oppose" else 1.0
        shown, asked = act.facts["shown"].text.lower(), set(act.facts["asked"])
        leanings = {feature: sign * _leaning(self.rules.weights[feature]) for feature in self._events}
        for feature in sorted(leanings, key=lambda f: (-leanings[f], f)):
            query = " ".join(feature.split()[:MOST_WORDS])
            if leanings[feature] > 0 and query not in asked and feature.lower() not in shown:
                return query
        return "ENOUGH"

    @cached_property
    def _events(self) -> tuple[str, ...]:
        """The features that a row has in words."""
        thirds = {f"{indicator} {third}" for indicator in self.rules.cuts for third in THIRDS}
        return tuple(feature for feature in self.rules.weights if feature not in thirds)

    def _support(self, act: Act) -> str:
        return self._argue(act.facts["shown"], 1.0)

    def _oppose(self, act: Act) -> str:
        return self._argue(act.facts["shown"], -1.0)

    def _argue(self, shown: Shown, sign: float) -> str:
        found = self._found(shown)
        best = sorted(found, key=lambda f: (-sign * _leaning(found[f][1]), f))[:ARGUED]
        lines = [f"{found[f][0]} ({_leaning(found[f][1]):+.2f})" for f in best if sign * _leaning(found[f][1]) > 0]
        return "\n".join(lines) or "The evidence for this side is weak."

    def _weigh(self, act: Act) -> str:
        argued = (line for argument in act.facts["arguments"] for line in argument.splitlines())
        found = self._of(_piece(line) for line in argued) | self._found(act.facts["shown"])
        scores = self.rules.prior + sum((weight for _, weight in found.values()), np.zeros(len(self.rules.prior)))
        told = ", ".join(f"{score:.2f}" for score in scores)
        return f"Reasoning: {len(found)} pieces of evidence give the labels {told}.\nAnswer: {int(scores.argmax())}"

    _predict = _weigh

    def _react(self, act: Act) -> str:
        query = self._refine(act)
        more = query != "ENOUGH"
        return f"Thought: more evidence may exist.\nSearch: {query}" if more else self._weigh(act)

    def _weight(self, feature: str) -> np.ndarray:
        return self.rules.weights.get(feature, np.zeros(len(self.rules.prior)))

    def _found(self, shown: Shown) -> Found:
        """The features that a prompt shows, each with the last line that has it."""
        rows = (Piece(self.rules.names.get(code, code), row, VALUE) for code, row in shown.rows.values())
        return self._of((*rows, *(Piece(name, line, LAST) for name, line in shown.indicators)))

    def _of(self, pieces: Iterable[Piece]) -> Found:
        found: Found = {}
        values: dict[str, tuple[str, float]] = {}
        for piece in pieces:
            number = piece.number.search(piece.line)
            if piece.name in self.rules.cuts and number:
                values[piece.name] = piece.line, float(number[1])
            elif piece.name in self.rules.weights and piece.number is VALUE:
                found[piece.name] = piece.line, self.rules.weights[piece.name]
        for name, (line, value) in values.items():
            feature = self.rules.feature(name, value)
            if feature in self.rules.weights:
                found[feature] = line, self.rules.weights[feature]
        return found


def _piece(line: str) -> Piece:
    """A line of an argument, as `RuleReader._argue` writes it: a row or a trajectory, and its leaning."""
    shown = line.rpartition(" (")[0]
    if not shown.startswith("["):
        return Piece(shown.partition(": [")[0], shown, LAST)
    label = shown.partition(" - ")[2]
    return Piece(label.rpartition(" (value: ")[0] or label, shown, VALUE)


def _leaning(weight: np.ndarray) -> float:
    """How much more a feature speaks for the outcome than against it."""
    return float(weight[1:].max() - weight[0])
