"""How near a written text is to a reference: BLEU by sacreBLEU, ROUGE by rouge-score, SARI (Xu et al. 2016).

All count the same tokens: lower-case words; of Chinese, Japanese and Korean scripts every character is a word. SARI
is written here, with 0/0 = 1: the one package that has it, tensor2tensor, needs TensorFlow and counts an n-gram once
however often it stands there. Where none repeats, both agree.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sacrebleu.metrics.bleu import BLEU

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

_SINGLE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
TOKEN = re.compile(f"[{_SINGLE}]|(?:(?![{_SINGLE}])\\w)+")
KINDS = ("rouge1", "rouge2", "rougeL")
GRAMS = 4  # SARI's longest n-gram
Grams = Counter[tuple[str, ...]]


@dataclass(frozen=True)
class Rouge:
    """Recall: the share of the reference's n-grams, or of its longest common subsequence, that the text has; f: the
    harmonic mean with the same share of the text's."""

    recall: float
    f: float


def tokens(text: str) -> list[str]:
    """The words that all measures here count."""
    return TOKEN.findall(text.lower())


def bleu(prediction: str, reference: str, n: int) -> float:
    """BLEU-n in 0..1, of one text and without smoothing; 0 where some length up to n has no n-gram in common."""
    given, wanted = (" ".join(tokens(text)) for text in (prediction, reference))
    return _bleu(n).corpus_score([given], [[wanted]]).score / 100 if given and wanted else 0.0


def rouge(prediction: str, reference: str) -> dict[str, Rouge]:
    """rouge1, rouge2 and rougeL in 0..1; 0 for a reference without n-grams of the length."""
    scores = _scorer().score(reference, prediction)
    return {kind: Rouge(scores[kind].recall, scores[kind].fmeasure) for kind in KINDS}


def sari(source: str, prediction: str, reference: str) -> float:
    """SARI in 0..1 (Xu et al. 2016), with one reference: the mean over n-grams of 1 to 4 words of three scores.

    F1 of the n-grams that the prediction adds to the source, F1 of those it keeps, and precision of those it deletes,
    each against what the reference does.
    """
    texts = [tokens(text) for text in (source, prediction, reference)]
    return sum(_sari(*(_grams(text, n) for text in texts)) for n in range(1, GRAMS + 1)) / GRAMS


def _sari(source: Grams, given: Grams, wanted: Grams) -> float:
    kept, to_keep = source & given, source & wanted
    right = kept & wanted
    keep = _f1(_shares(right, kept), sum(right.values()) / sum(to_keep.values()) if to_keep else 1.0)
    deleted = source - given
    delete = _shares(deleted - wanted, deleted)
    added, to_add = set(given) - set(source), set(wanted) - set(source)
    both = len(added & to_add)
    add = _f1(both / len(added) if added else 1.0, both / len(to_add) if to_add else 1.0)
    return (add + keep + delete) / 3


def _shares(right: Grams, of: Grams) -> float:
    """The mean over distinct n-grams of the share of their number that is right; 1 where there are none."""
    return sum(right[gram] / count for gram, count in of.items()) / len(of) if of else 1.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _grams(words: list[str], n: int) -> Grams:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


@cache
def _scorer() -> RougeScorer:
    """With `tokens` for its own, which are ASCII letters and digits alone."""
    from rouge_score.rouge_scorer import RougeScorer  # NLTK comes with it, for seconds, and few runs compare texts
    from rouge_score.tokenizers import Tokenizer

    class Tokens(Tokenizer):
        def tokenize(self, text: str) -> list[str]:
            return tokens(text)

    return RougeScorer(list(KINDS), tokenizer=Tokens())


@cache
def _bleu(n: int) -> BLEU:
    return BLEU(smooth_method="none", tokenize="none", max_ngram_order=n, effective_order=False)
