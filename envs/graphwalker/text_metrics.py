"""How near a generated answer is to the reference: exact match, BLEU, ROUGE (GraphWalker, Appendix M.1).

BLEU-N is the paper's: geometric mean of the clipped n-gram precisions n = 1..N times the brevity penalty, without
smoothing, a sample at a time. ROUGE-1, -2 and -L are recalls, as the paper defines its ROUGE: the share of the
reference's n-grams, or of its longest common subsequence, that the answer has. Counted as `ghar.metrics.texts` counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.bootstrap import RESAMPLES, BootstrapSpread, Patients, spreads, weighted_mean
from ghar.metrics.texts import bleu, rouge


def exact_match(prediction: str, reference: str) -> float:
    """1 if both are the same but for case and the space around them, else 0."""
    return float(prediction.strip().casefold() == reference.strip().casefold())


def rouge_n(prediction: str, reference: str, n: int) -> float:
    """Share of the reference's n-grams (n = 1 or 2) that the prediction has, in 0..1; 0 for a reference without any."""
    return rouge(prediction, reference)[f"rouge{n}"].recall


def rouge_l(prediction: str, reference: str) -> float:
    """Length of the longest common subsequence over that of the reference, in 0..1; 0 for an empty reference."""
    return rouge(prediction, reference)["rougeL"].recall


def text_scores(
    predictions: Sequence[str | None],
    references: Sequence[str],
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, BootstrapSpread]:
    """exact_match, bleu_1, bleu_4, rouge_1, rouge_2, rouge_l: means over the samples; no answer (None) scores 0.

    patients: see ghar.metrics.bootstrap; resamples draw them whole.
    Raises BadInput for unequal lengths and for no samples.
    """
    if len(predictions) != len(references) or not references:
        raise BadInput(
            f"{len(predictions)} answers and {len(references)} references: give one answer each, at least 1."
        )
    measures = {
        "exact_match": exact_match,
        "bleu_1": lambda p, r: bleu(p, r, 1),
        "bleu_4": lambda p, r: bleu(p, r, 4),
        "rouge_1": lambda p, r: rouge_n(p, r, 1),
        "rouge_2": lambda p, r: rouge_n(p, r, 2),
        "rouge_l": rouge_l,
    }
    pairs = list(zip(predictions, references, strict=True))
    values = {
        name: np.array([0.0 if answer is None else measure(answer, wanted) for answer, wanted in pairs])
        for name, measure in measures.items()
    }
    return spreads(
        lambda w: {name: weighted_mean(w, array) for name, array in values.items()},
        len(pairs),
        patients=patients,
        seed=seed,
        resamples=resamples,
    )
