"""BLEU and ROUGE against slow direct evaluations of Appendix M.1 of GraphWalker."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.graphwalker.text_metrics import exact_match, rouge_l, rouge_n, text_scores
from ghar.errors import BadInput
from ghar.metrics.texts import bleu, tokens

WORDS = st.lists(st.sampled_from("abcd"), max_size=9)


def grams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def shared(a: list[tuple[str, ...]], b: list[tuple[str, ...]]) -> int:
    """Each n-gram of b is used once."""
    left, count = list(b), 0
    for gram in a:
        if gram in left:
            left.remove(gram)
            count += 1
    return count


def slow_bleu(given_: list[str], wanted: list[str], n: int) -> float:
    precisions = []
    for size in range(1, n + 1):
        mine = grams(given_, size)
        precisions.append(shared(mine, grams(wanted, size)) / len(mine) if mine else 0.0)
    if 0 in precisions:
        return 0.0
    penalty = 1.0 if len(given_) > len(wanted) else math.exp(1 - len(wanted) / len(given_))
    return penalty * math.prod(precisions) ** (1 / n)


def slow_subsequence(a: list[str], b: list[str]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if x == y else max(table[i - 1][j], table[i][j - 1])
    return table[-1][-1]


@settings(max_examples=150)
@given(WORDS, WORDS)
def test_as_written_in_the_paper(a: list[str], b: list[str]) -> None:
    mine, reference = " ".join(a), " ".join(b)
    for n in (1, 2, 4):
        assert bleu(mine, reference, n) == pytest.approx(slow_bleu(a, b, n))
    for n in (1, 2):
        wanted = grams(b, n)
        recall = shared(wanted, grams(a, n)) / len(wanted) if wanted else 0.0
        assert rouge_n(mine, reference, n) == pytest.approx(recall)
    assert rouge_l(mine, reference) == pytest.approx(slow_subsequence(a, b) / len(b) if b else 0.0)


def test_a_perfect_answer_and_none() -> None:
    text = "Start heparin and repeat the scan in two days"
    assert bleu(text, text, 4) == pytest.approx(1) and rouge_n(text, text, 2) == rouge_l(text, text) == 1
    assert bleu("", text, 1) == rouge_l("", text) == rouge_l(text, "") == 0


def test_tokens_of_both_scripts() -> None:
    assert tokens("Na+ 135, 血钠偏低 mmol_L") == ["na", "135", "血", "钠", "偏", "低", "mmol_l"]


@pytest.mark.parametrize("answer, reference, same", [
    ("B", "B", 1), (" b\n", "B", 1), ("B.", "B", 0), ("", "B", 0), ("Cross-linking of DNA", "cross-linking of dna", 1),
])  # fmt: skip
def test_exact_match(answer: str, reference: str, same: int) -> None:
    assert exact_match(answer, reference) == same


def test_means_over_samples_with_missing_answers() -> None:
    got = text_scores(
        ["A", "B", None, "give aspirin now"], ["A", "C", "D", "give aspirin"], patients=None, resamples=200
    )
    assert got["exact_match"].value == 0.25 and 0.1 < got["exact_match"].deviation < 0.3
    assert got["rouge_1"].value == got["rouge_l"].value == 0.5
    assert got["bleu_1"].value == pytest.approx((1 + 2 / 3) / 4) and got["bleu_4"].value == 0
    with pytest.raises(BadInput, match="at least 1"):
        text_scores([], [], patients=None)
    with pytest.raises(BadInput, match="2 answers and 1 references"):
        text_scores(["A", "B"], ["A"], patients=None)
