"""What a base model has learned of its exercises, against asking it token by token."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ghar.trainers.base_replies import COMPARED, base_replies, compare_replies
from ghar.trainers.sft.pairs import TokenExample
from tests.trainers.tiny import VOCAB, tiny_model

PAD = SimpleNamespace(pad_token_id=0)


def by_hand(model: Any, pairs: list[TokenExample]) -> tuple[float, float]:
    """The shares of right replies, and of the most common one, without batches and padding."""
    right = 0
    for pair in pairs:
        ids, replied = [*pair.prompt_ids], True
        for token in pair.completion_ids:
            with torch.no_grad():
                replied = replied and int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)
        right += replied
    texts = [tuple(pair.completion_ids) for pair in pairs]
    return right / len(pairs), max(texts.count(text) for text in texts) / len(texts)


def own_words(model: Any, prompt: list[int], tokens: int) -> list[int]:
    ids = list(prompt)
    for _ in range(tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("seed", range(3))
def test_the_shares_are_those_of_asking_one_by_one(seed: int) -> None:
    rng, model = np.random.default_rng(seed), tiny_model(seed)
    pairs = []
    for i in range(37):
        prompt = rng.integers(1, VOCAB, int(rng.integers(1, 30))).tolist()
        reply = own_words(model, prompt, int(rng.integers(1, 4)))
        pairs.append(TokenExample(prompt, reply if i % 3 else [int(rng.integers(1, 4))]))
    shares = compare_replies(model, PAD, {"weigh": pairs, "never": []})
    assert list(shares) == ["weigh"] and shares["weigh"]["replies"] == len(pairs)
    right, usual = by_hand(model, pairs)
    assert (shares["weigh"]["right"], shares["weigh"]["usual"]) == pytest.approx((right, usual))
    assert right > 0.5


def test_of_many_exercises_some_of_all_are_compared() -> None:
    pairs = [TokenExample([1, 2], [3 if i < 900 else 4]) for i in range(1000)]
    [shares] = compare_replies(tiny_model(), PAD, {"weigh": pairs}).values()
    assert 300 < shares["replies"] <= COMPARED and shares["usual"] == pytest.approx(0.9, abs=0.01)


def test_a_base_of_an_earlier_version_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"base_steps": 3}))
    assert base_replies(tmp_path) == {}
