"""How near a generated answer is to the reference: exact match, BLEU, ROUGE (GraphWalker, Appendix M.1).

BLEU-N is the paper's: geometric mean of the clipped n-gram precisions n = 1..N times the brevity penalty, without
smoothing, a sample at a time. ROUGE-1, -2 and -L are recalls, as the paper defines its ROUGE: the share of the
reference's n-grams, or of its longest common subsequence, that the answer has. Tokens: lower-case words; of Chinese,
Japanese and Korean scripts every character is a word.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.bootstrap import RESAMPLES, Patients, Spread, spreads, weighted_mean

_SINGLE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
TOKEN = re.compile(f"[{_SINGLE}]|(?:(?![{_SINGLE}])\\w)+")


def tokens(text: str) -> list[str]:
    """The words that all measures here count."""
    return TOKEN.findall(text.lower())


def exact_match(prediction: str, reference: str) -> float:
    """1 if both are the same but for case and the space around them, else 0."""
    return float(prediction.strip().casefold() == reference.strip().casefold())


def bleu(prediction: str, reference: str, n: int) -> float:
    """BLEU-n in 0..1; 0 where some length up to n has no n-gram in common."""
    given, wanted = tokens(prediction), tokens(reference)
    logs = 0.0
    for size in range(1, n + 1):
        mine = _grams(given, size)
        shared = (mine & _grams(wanted, size)).total()
        if not shared:
            return 0.0
        logs += math.log(shared / mine.total()) / n
    return math.exp(logs + min(0.0, 1 - len(wanted) / len(given)))


def rouge_n(prediction: str, reference: str, n: int) -> float:
    """Share of the reference's n-grams that the prediction has, in 0..1; 0 for a reference without any."""
    wanted = _grams(tokens(reference), n)
    return (wanted & _grams(tokens(prediction), n)).total() / wanted.total() if wanted else 0.0


def rouge_l(prediction: str, reference: str) -> float:
    """Length of the longest common subsequence over that of the reference, in 0..1; 0 for an empty reference."""
    wanted = tokens(reference)
    return common_subsequence(tokens(prediction), wanted) / len(wanted) if wanted else 0.0


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence, by rows of bits (Crochemore et al. 2001): |a| steps."""
    places: dict[str, int] = {}
    for i, token in enumerate(b):
        places[token] = places.get(token, 0) | 1 << i
    everything = (1 << len(b)) - 1
    row = everything  # a 0 at place i: the subsequence grows at token i of b
    for token in a:
        met = row & places.get(token, 0)
        row = (row + met | row - met) & everything
    return len(b) - row.bit_count()


def text_scores(
    predictions: Sequence[str | None],
    references: Sequence[str],
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Spread]:
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


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
