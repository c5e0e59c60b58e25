"""One pure function per reward term: GHAR's (Eqs. 8, 12, 15) and two of our own, without normalisation."""

import re
from collections import Counter
from collections.abc import Sequence

from ghar.episode import Episode, ReasoningStep

WORD = re.compile(r"\w+")  # letters, digits and underscore of any script


def reason(history: Sequence[ReasoningStep], length: int = 3) -> float:
    """R_reason = 1 - len(H_rea) / L (Eq. 8, GHAR), high for short chains; `length` is L, the expected number of steps.

    The fraction does not survive in the paper's text ("1 - len(H_rea)" over "L - 1"). Every reading of it falls in a
    straight line with the number of steps, so they are one and the same after normalisation.
    """
    return 1.0 - len(history) / length


def path(step: ReasoningStep) -> float:
    """R_path = |O_c| - 0.5 |O_e| - 0.5 |O_r| (Eq. 8, GHAR): correct, non-existing and repeated meta-path ids."""
    return len(step.paths) - 0.5 * step.path_errors - 0.5 * step.path_duplicates


def relevance(answer: str, query: str, evidence: str) -> float:
    """R_rel = Sim(a, q) + Sim(a, G) (Eq. 12, GHAR), in [0, 2]: the summary against its sub-query and its evidence."""
    return similarity(answer, query) + similarity(answer, evidence)


def similarity(a: str, b: str) -> float:
    """Sim, the normalised token overlap count (Eqs. 12, 15, GHAR): 2 |a ∩ b| / (|a| + |b|) over the multisets of their
    words in lower case, in [0, 1].

    The paper names neither the tokens nor the norm. Dividing by the mean length (the F1 of overlap) keeps the measure
    symmetric and makes 1 mean "the same words"; dividing by the shorter text would give a single copied word full
    marks. Two texts without words share nothing: 0.
    """
    left, right = Counter(WORD.findall(a.lower())), Counter(WORD.findall(b.lower()))
    size = left.total() + right.total()
    return 2.0 * (left & right).total() / size if size else 0.0


def grounding(ungrounded: int, queries: int) -> float:
    """Minus the share of a reply's sub-queries that name what neither the record nor the evidence so far has: in
    [-1, 0]. No term of the paper: a policy without it was measured to ask about conditions that 9% of its patients did
    not have."""
    return -ungrounded / queries if queries else 0.0


def repeats(step: ReasoningStep) -> float:
    """Minus the share of the ids named for a look-up that repeat another: in (-1, 0]. No term of the paper, whose
    R_path is worth as much for "4 1 1 1" as for "4"."""
    named = len(step.paths) + step.path_errors + step.path_duplicates
    return -step.path_duplicates / named if named else 0.0


def orm(episode: Episode, label: int, weight: float = 1.0) -> float:
    """R_orm = w I(y, ŷ) + I(format, ŷ) + I(format, a_t) (Eq. 15, GHAR, with w = 1), in [0, 2 + w].

    weight: of the label's class (`balanced_weights`).

    Right answer, readable answer, and the share of all turns whose action was readable (Eq. 15 counts the indicator at
    every t; the share is its mean, so that a long episode earns no more than a short one).
    """
    predicted = episode.prediction.label
    readable = sum(turn.format_ok for turn in episode.turns) / max(len(episode.turns), 1)
    return weight * (predicted == label) + float(predicted is not None) + readable


def balanced_weights(labels: Sequence[int], classes: int) -> tuple[float, ...]:
    """w_c = n / (K n_c) of each class c, with n labels, n_c of them c, and K classes that occur; 1 of others.

    The mean of w_y I(y, ŷ) over these labels is then the balanced accuracy (King and Zeng 2001, as scikit-learn's
    class_weight="balanced").
    """
    counts = Counter(labels)
    return tuple(len(labels) / (len(counts) * counts[c]) if counts[c] else 1.0 for c in range(classes))


def rank(history: Sequence[ReasoningStep], positive: str, negative: str, alpha: float, form: str = "sound") -> float:
    """R_rank of Eq. 15, GHAR, from d = Sim(H_rea, H_pos) - Sim(H_rea, H_neg), in [-1, 1].

    form "literal": max(α, d), as printed. That is a floor: every chain closer than α, even one that equals the negative
        reference, earns α, so nothing pushes away from wrong paths.
    form "sound": min(α, d), the margin that "maintain the distance α" asks for: the term grows until the chain is α
        closer to the positive than to the negative reference, and stops there.
    """
    text = chain(history)
    distance = similarity(text, positive) - similarity(text, negative)
    return max(alpha, distance) if form == "literal" else min(alpha, distance)


def chain(history: Sequence[ReasoningStep]) -> str:
    """H_rea as one text: every sub-query and intermediate answer in order, one step a line (Eq. 6, GHAR)."""
    return "\n".join(step.text for step in history)
