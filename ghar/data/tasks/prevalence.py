"""Shares of positive samples that a paper's own tables allow, beside those of a run.

Accuracy and balanced accuracy of a binary task bound the share p of positives: accuracy = p TPR + (1 - p) TNR, and the
balanced accuracy is the mean of TPR and TNR, each from 0 to 1. Sensitivity, specificity and accuracy give p itself. All
are of the test samples: KARE draws 21.5% positive patients of MIMIC-IV and prints 19.16% among those it tests. A run
whose share is another says so, because its accuracy cannot be compared with the printed one. The numbers are
reckoned from conf/study/_published.yaml (tests/data/test_prevalence.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Share = tuple[float, float]  # lowest and highest share of positives
# Every system of GHAR's tables reads READ of MIMIC with an accuracy of 0.50 to 0.65, so that a constant answer has none
# of these; in eICU's table accuracy and balanced accuracy leave 7% at either end. GraphWalker's Table 5 counts the
# positives among 2,000 drawn patients: their share, and one standard error of it to either side.
MAJORITY = (0.35, 0.65)
ALLOWED: Mapping[tuple[str, str, str], Sequence[Share]] = {  # protocol, task, data
    ("ghar", "dec", "mimic3"): [(0, 0.0139)],
    ("ghar", "dec", "mimic4"): [(0, 0.0022)],
    ("ghar", "dec", "eicu"): [(0, 0.03)],
    ("ghar", "read", "mimic3"): [MAJORITY],
    ("ghar", "read", "mimic4"): [MAJORITY],
    ("ghar", "read", "eicu"): [(0, 0.0726), (0.9274, 1)],
    ("kare", "kare_mortality", "mimic3"): [(0.049, 0.059)],
    ("kare", "kare_mortality", "mimic4"): [(0.187, 0.197)],
    ("kare", "kare_readmission", "mimic3"): [(0.54, 0.556)],
    ("kare", "kare_readmission", "mimic4"): [(0.457, 0.473)],
    ("graphwalker", "series_mortality", "mimic3"): [(0.122, 0.137)],
    ("graphwalker", "series_readmission", "mimic4"): [(0.2379, 0.2571)],
}


def beside_the_paper(protocol: str, task: str, data: str, labels: Sequence[int]) -> str | None:
    """The share of positives among `labels`, and whether the paper's tables allow it; None where none is known."""
    if (protocol, task, data) not in ALLOWED or not labels:
        return None
    far = beyond_the_paper(protocol, task, data, labels)
    if far is None:
        return _beside(protocol, task, data, labels)
    return f"{far}: accuracies cannot be compared with the printed ones"


def beyond_the_paper(protocol: str, task: str, data: str, labels: Sequence[int]) -> str | None:
    """The share of positives where the paper's tables cannot have it; None where they can, or none is known.

    Three standard errors of the share are allowed for the number of samples.
    """
    allowed = ALLOWED.get((protocol, task, data))
    if allowed is None or not labels:
        return None
    share = sum(label == 1 for label in labels) / len(labels)
    room = 3 * (share * (1 - share) / len(labels)) ** 0.5
    if any(low - room <= share <= high + room for low, high in allowed):
        return None
    return _beside(protocol, task, data, labels)


def _beside(protocol: str, task: str, data: str, labels: Sequence[int]) -> str:
    share = sum(label == 1 for label in labels) / len(labels)
    theirs = " or ".join(f"{low:.2%} to {high:.2%}" for low, high in ALLOWED[protocol, task, data])
    return f"{share:.2%}; the paper's tables allow {theirs}"
