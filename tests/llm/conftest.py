"""A demo model small enough for tests: 2 layers of 32, a byte-level tokenizer with whole names."""

from __future__ import annotations

from typing import Any

import pytest
import torch

NAMES = ("heart failure", "heart failure, late onset", "warfarin", "no", "grade 7 course")
TEXTS = [
    "retrieve? disease heart failure\nknown: nothing\ndecide: no",
    "retrieve? drug warfarin\nknown: drug warfarin grade 3 course\ndecide: yes",
    "enough? length of stay\nconditions: gout; asthma | drugs: warfarin\ndecide: continue",
    "enough? readmission\nconditions: none | drugs: none\ndecide: terminate",
]


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from ghar.llm.demo_model import build_tokenizer

    return build_tokenizer(TEXTS, NAMES, 400)


@pytest.fixture(scope="session")
def model(tokenizer: Any) -> Any:
    """Weights spread out, so that every reply has its own distribution."""
    from ghar.llm.demo_model import build_model

    made = build_model(tokenizer, hidden=32, layers=2, heads=4, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return made
