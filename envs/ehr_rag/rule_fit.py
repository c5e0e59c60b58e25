"""What EHR-RAG's fixed rule learns from the training patients: which features of a record go with which label.

Four kinds of features: an event is there; the last value of an indicator is in the lower, middle or upper third; its
last values fall or rise by more than they scatter, or are steady; two events are linked, which means that their names
share one rare word and are else of certain patterns ("* disease" with "* exchange", whatever the word). Those whose
share differs between a label and the others by more than the largest of so many would by chance, and links that tell
more than a row of theirs, enter a logistic regression.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from ghar.retrieval.event_store import PatientRecord
from ghar.retrieval.sparse import words

SEEN = 3  # training patients that a feature needs
SURE = 2.0  # standard errors by which its share must differ between a label and the others
STRENGTH = 1.0  # C of scikit-learn's logistic regression
FEWEST = 3  # values of a slope
CLEAR = 2.0  # standard errors from 0 at which it is no steady one
COMMON = 24  # names that share a word at most for it to link two of them
SHORTEST = 4  # letters of such a word
THIRDS = ("low", "middle", "high")
TRENDS = ("falling", "steady", "rising")
Cut = tuple[float, float]


@dataclass(frozen=True)
class EventRules:
    """prior: f64[classes], the score of the average patient. weights: feature -> f64[classes]. share: of the training
    patients that have a feature. cuts: indicator -> bounds of the middle third of its last values. links: feature ->
    its two patterns. shared: words that may link names. values: of an indicator that its slope is of. events: features
    that are a row's name. names: of codes."""

    prior: np.ndarray
    weights: Mapping[str, np.ndarray]
    share: Mapping[str, float]
    cuts: Mapping[str, Cut]
    names: Mapping[str, str]
    links: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    values: int = 5

    def measured(self, indicator: str, values: Sequence[float]) -> list[str]:
        """The features of an indicator's last value and of how its last values go."""
        return self.named(indicator, values[-1], trend_of(values))

    def named(self, indicator: str, last: float, trend: str | None) -> list[str]:
        """The features of an indicator's last value, and of its trend where it has one."""
        low, high = self.cuts[indicator]
        features = [f"{indicator} {THIRDS[(last > low) + (last > high)]}"]
        return features if trend is None else [*features, f"{indicator} {trend}"]

    def score(self, present: Iterable[str], absent: Iterable[str]) -> np.ndarray:
        """f64[classes] of a patient: every feature in neither of both counts with its share in training, so that the
        prior has it already."""
        scores = self.prior.copy()
        for feature in present:
            scores += (1 - self.share[feature]) * self.weights[feature]
        for feature in absent:
            scores -= self.share[feature] * self.weights[feature]
        return scores

    def leaning(self, feature: str) -> float:
        """How much more a feature speaks for the outcome than against it."""
        weight = self.weights[feature]
        return float(weight[1:].max() - weight[0])

    def worth(self, feature: str, sign: float) -> float:
        """How much it tells one side, +1 or -1, to know whether a patient has a feature; below 0 for the other."""
        share = self.share[feature]
        return sign * self.leaning(feature) * math.sqrt(share * (1 - share))

    def instead(self, feature: str) -> list[str]:
        """The features that a patient cannot have who has this one: the other thirds."""
        name, _, third = feature.rpartition(" ")
        others = next((kind for kind in (THIRDS, TRENDS) if third in kind), ()) if name in self.cuts else ()
        return [other for each in others if each != third and (other := f"{name} {each}") in self.weights]

    def spread(self, indicator: str) -> float:
        """How much an indicator's numbers can tell."""
        named = [self.weights.get(f"{indicator} {third}") for third in (*THIRDS, *TRENDS)]
        return max((float(np.ptp(weight)) for weight in named if weight is not None), default=0.0)


@dataclass(frozen=True)
class RecordFeatures:
    """What a record says before anything is fitted. events: names of its rows. last, trends: of each indicator the last
    value, and one of `TRENDS` or None."""

    events: frozenset[str]
    last: Mapping[str, float]
    trends: Mapping[str, str | None]


def read_features(record: PatientRecord, names: Mapping[str, str], values: int) -> RecordFeatures:
    """Read a record of a store with numbers apart. names: of codes; values: of an indicator that its trend is of."""
    events = frozenset(names[record.store.codes[code]] for code in np.unique(record.row_codes()).tolist())
    trajectories = {record.store.indicators[i]: record.numbers(i, values) for i in record.indicators}
    last = {name: numbers[-1] for name, numbers in trajectories.items()}
    return RecordFeatures(events, last, {name: trend_of(numbers) for name, numbers in trajectories.items()})


def fit_rules(
    records: Iterable[PatientRecord], labels: Sequence[int], classes: int, names: Mapping[str, str], values: int = 5
) -> EventRules:
    """Fit to training patients; `records` are of a store with numbers apart. values: of an indicator that are shown."""
    return fit_features([read_features(record, names, values) for record in records], labels, classes, names, values)


def fit_features(
    patients: Sequence[RecordFeatures], labels: Sequence[int], classes: int, names: Mapping[str, str], values: int
) -> EventRules:
    """`fit_rules` to records that have been read, as by a fit to other folds of the same patients."""
    event_sets = [patient.events for patient in patients]
    cuts = _cuts([patient.last for patient in patients])
    n = np.bincount(labels, minlength=classes).astype(float)
    empty = EventRules(np.log((n + 1) / (n.sum() + classes)), {}, {}, cuts, names, values=values)
    having: list[set[str]] = []
    for patient in patients:
        features = set(patient.events)
        for name in patient.last.keys() & cuts.keys():
            features.update(empty.named(name, patient.last[name], patient.trends[name]))
        having.append(features)
    shared = _shared(event_sets)
    linked = [links_of(dict.fromkeys(events, ""), shared) for events in event_sets]
    alone = _telling(having, labels, n)
    pairs = {feature for own_links in linked for feature in own_links}
    kept = alone.keys() | _beyond_rows(_telling(linked, labels, n), linked, alone)
    kept |= {third for name in cuts for thirds in (THIRDS, TRENDS) for third in (f"{name} {one}" for one in thirds)
             if any(f"{name} {one}" in kept for one in thirds)}  # thirds are one variable  # fmt: skip
    every = [own | own_links.keys() for own, own_links in zip(having, linked, strict=True)]
    prior, weights, share = _regress(every, labels, sorted(kept), n)
    links = {feature: patterns for feature in weights if len(patterns := tuple(feature.split(" & "))) == 2
             and feature in pairs}  # fmt: skip
    events = frozenset(feature for feature in weights if any(feature in some for some in event_sets))
    return EventRules(prior, weights, share, cuts, names, links, shared, events, values)


def slope(numbers: Sequence[float]) -> tuple[float, float] | None:
    """Least squares over the order of values, and its standard error; None of fewer than `FEWEST`."""
    if len(numbers) < FEWEST:
        return None
    place, values = np.arange(len(numbers)) - (len(numbers) - 1) / 2, np.asarray(numbers, float)
    steep = float(place @ values / (place @ place))
    left = values - values.mean() - steep * place
    return steep, float(np.sqrt(left @ left / (len(numbers) - 2) / (place @ place)))


def trend_of(numbers: Sequence[float]) -> str | None:
    """One of `TRENDS`; None where there is no slope."""
    fit = slope(numbers)
    if fit is None:
        return None
    steep, error = fit
    return TRENDS[1] if abs(steep) <= CLEAR * error else TRENDS[0 if steep < 0 else 2]


def links_of(names: Iterable[str], shared: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Feature -> the two names behind it, of all pairs of names that share a word of `shared`: "* a & * b"."""
    by_word: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in sorted(names):
        for word in name.split():
            if word in shared:
                by_word[word].append((" ".join("*" if one == word else one for one in name.split()), name))
    links = {}
    for having in by_word.values():
        for (one, first), (other, second) in permutations(having, 2):
            if one < other:
                links.setdefault(f"{one} & {other}", (first, second))
    return links


def _shared(event_sets: Sequence[frozenset[str]]) -> frozenset[str]:
    """Words of several names, not so many that they say nothing."""
    counts: defaultdict[str, int] = defaultdict(int)
    for name in {name for some in event_sets for name in some}:
        for word in set(name.split()):
            counts[word] += 1
    return frozenset(
        w for w, n in counts.items() if 2 <= n <= COMMON and len(w) >= SHORTEST and w.isalpha() and words(w)
    )


def _cuts(last_values: Sequence[Mapping[str, float]]) -> dict[str, Cut]:
    """Bounds of the middle third of each indicator that enough patients have."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for some in last_values:
        for name, value in some.items():
            values[name].append(value)
    thirds = {name: np.quantile(some, [1 / 3, 2 / 3]) for name, some in sorted(values.items()) if len(some) >= SEEN}
    return {name: (float(low), float(high)) for name, (low, high) in thirds.items()}


def _telling(having: Sequence[Iterable[str]], labels: Sequence[int], n: np.ndarray) -> dict[str, float]:
    """The features whose share differs between a label and all others, and by how many standard errors: by `SURE`, and
    by more than the largest of so many that differ by chance alone."""
    counts: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(n)))
    for features, label in zip(having, labels, strict=True):
        for feature in features:
            counts[feature][label] += 1
    often = {feature: count for feature, count in counts.items() if count.sum() >= SEEN}
    sure = max(SURE, math.sqrt(2 * math.log(max(len(often), 1))))
    differences = {feature: _difference(count, n) for feature, count in often.items()}
    return {feature: difference for feature, difference in differences.items() if difference >= sure}


def _beyond_rows(
    differences: Mapping[str, float], linked: Sequence[Mapping[str, tuple[str, str]]], alone: Mapping[str, float]
) -> set[str]:
    """The links that tell more than any single row behind them: one of a telling row and a usual one tells nothing."""
    rows: defaultdict[str, float] = defaultdict(float)
    for own_links in linked:
        for feature in own_links.keys() & differences.keys():
            rows[feature] = max(rows[feature], *(alone.get(name, 0.0) for name in own_links[feature]))
    return {feature for feature, difference in differences.items() if difference > rows[feature]}


def _difference(count: np.ndarray, n: np.ndarray) -> float:
    """The largest difference between a label's share and that of all others, in standard errors."""
    share = count.sum() / n.sum()
    others = n.sum() - n
    is_defined = (n > 0) & (others > 0)
    error = np.sqrt(share * (1 - share) * (1 / n[is_defined] + 1 / others[is_defined]))
    apart = np.abs(count / n.clip(1) - (count.sum() - count) / others.clip(1))[is_defined]
    return float((apart / error).max()) if is_defined.any() and share < 1 else 0.0


def _regress(
    having: Sequence[Iterable[str]], labels: Sequence[int], kept: Sequence[str], n: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, float]]:
    """Score of the average patient, weights and shares. Labels that no one has keep a score of their own."""
    from sklearn.linear_model import LogisticRegression

    place = {feature: i for i, feature in enumerate(kept)}
    prior = np.log((n + 1) / (n.sum() + len(n)))
    there = np.flatnonzero(n > 0)
    if not kept or len(there) < 2:
        return prior, {}, {}
    table = np.zeros((len(labels), len(kept)))
    for row, features in enumerate(having):
        table[row, [place[f] for f in features if f in place]] = 1.0
    share = table.mean(axis=0)
    model = LogisticRegression(C=STRENGTH, max_iter=1000).fit(table - share, labels)
    coefficient, intercept = model.coef_, model.intercept_
    if len(there) == 2:  # scikit-learn gives the second label's alone
        coefficient, intercept = np.vstack([-coefficient, coefficient]) / 2, np.array([-1.0, 1.0]) * intercept[0] / 2
    weights, scores = np.zeros((len(n), len(kept))), prior - 10.0
    weights[there], scores[there] = coefficient, intercept
    return scores, {f: weights[:, i] for f, i in place.items()}, {f: float(share[i]) for f, i in place.items()}
