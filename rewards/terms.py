"""One pure function per reward term of GHAR (Eqs. 8, 12, 15), without weights or normalisation."""

from collections.abc import Sequence

from ghar.episode import Episode, Step
from rewards.similarity import similarity


def reason(history: Sequence[Step], length: int = 3) -> float:
    """R_reason = 1 - len(H_rea) / L (Eq. 8, GHAR), high for short chains; `length` is L, the expected number of steps.

    The fraction does not survive in the paper's text ("1 - len(H_rea)" over "L - 1"). Every reading of it falls in a
    straight line with the number of steps, so they are one and the same after normalisation.
    """
    return 1.0 - len(history) / length


def path(step: Step) -> float:
    """R_path = |O_c| - 0.5 |O_e| - 0.5 |O_r| (Eq. 8, GHAR): correct, non-existing and repeated meta-path ids."""
    return len(step.paths) - 0.5 * step.path_errors - 0.5 * step.path_duplicates


def relevance(answer: str, query: str, evidence: str) -> float:
    """R_rel = Sim(a, q) + Sim(a, G) (Eq. 12, GHAR), in [0, 2]: the summary against its sub-query and its evidence."""
    return similarity(answer, query) + similarity(answer, evidence)


def orm(episode: Episode, label: int) -> float:
    """R_orm = I(y, ŷ) + I(format, ŷ) + I(format, a_t) (Eq. 15, GHAR), in [0, 3].

    Right answer, readable answer, and the share of all turns whose action was readable (Eq. 15 counts the indicator at
    every t; the share is its mean, so that a long episode earns no more than a short one).
    """
    predicted = episode.prediction.label
    readable = sum(turn.format_ok for turn in episode.turns) / max(len(episode.turns), 1)
    return float(predicted == label) + float(predicted is not None) + readable


def rank(history: Sequence[Step], positive: str, negative: str, alpha: float, form: str = "sound") -> float:
    """R_rank of Eq. 15, GHAR, from d = Sim(H_rea, H_pos) - Sim(H_rea, H_neg), in [-1, 1].

    form "literal": max(α, d), as printed. That is a floor: every chain closer than α, even one that equals the negative
        reference, earns α, so nothing pushes away from wrong paths.
    form "sound": min(α, d), the margin that "maintain the distance α" asks for: the term grows until the chain is α
        closer to the positive than to the negative reference, and stops there.
    """
    text = chain(history)
    distance = similarity(text, positive) - similarity(text, negative)
    return max(alpha, distance) if form == "literal" else min(alpha, distance)


def chain(history: Sequence[Step]) -> str:
    """H_rea as one text: every sub-query and intermediate answer in order, one step a line (Eq. 6, GHAR)."""
    return "\n".join(step.text for step in history)
