"""Sim(a, b): how much of two texts is the same, by counting words."""

import re
from collections import Counter

WORD = re.compile(r"\w+")


def words(text: str) -> Counter[str]:
    """The multiset of a text's lower-cased word tokens (letters, digits and underscore of any script)."""
    return Counter(WORD.findall(text.lower()))


def similarity(a: str, b: str) -> float:
    """Normalised token overlap count (Eqs. 12, 15, GHAR): 2 |a ∩ b| / (|a| + |b|) over word multisets, in [0, 1].

    The paper names neither the tokens nor the norm. Dividing by the mean length (the F1 of overlap) keeps the measure
    symmetric and makes 1 mean "the same words"; dividing by the shorter text would give a single copied word full
    marks. Two texts without words share nothing: 0.
    """
    left, right = words(a), words(b)
    size = left.total() + right.total()
    return 2.0 * (left & right).total() / size if size else 0.0
