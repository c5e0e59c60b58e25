"""The model card says how its intervals were made."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import Environment, PackageLoader, StrictUndefined

CONFIG = {
    "model": {"path": None, "lora_rank": 8}, "data": {"name": "demo", "leakage": "paper"},
    "trainer": {"warmup": {"teacher": "scripted", "epochs": 1}, "rl": {"updates": 3}},
}  # fmt: skip


def card(counts: dict[str, int], best: bool = True) -> str:
    """As ghar.trainers.export renders it."""
    pages = Environment(
        loader=PackageLoader("ghar.metrics"), undefined=StrictUndefined, trim_blocks=True, autoescape=False
    )
    pages.filters["interval"] = str
    pages.filters["in_words"] = str
    summary: dict[str, Any] = {
        "experiment": "los", "generated": True, "seed": 0, "commit": None, "ceilings": None, "data": {"patients": 5},
        "task": {"name": "los", "question": None, "labels": ["a", "b"]},
        "policies": {"main": {**counts, "accuracy": [0.5, 0.4, 0.6]}},
    }  # fmt: skip
    return pages.get_template("card.md").render(
        summary=summary, config=CONFIG, lora=False, base_model="x", credentialed=False, step=3, best=best,
        metrics=["accuracy"], vllm_rank=None, adapter_on=None,
    )  # fmt: skip


@pytest.mark.parametrize("best", [True, False])
def test_intervals_are_over_patients_where_they_were_counted(best: bool) -> None:
    text = card({"n": 934, "patients": 400}, best)
    assert "\n934 stays of 400 patients. Means with 95% intervals by\nresampling patients" in text
    assert ("not necessarily with these" in text) != best
    assert "patients were not counted" in card({"n": 934}, best) and "resampling patients" not in card({"n": 934}, best)
    assert "| policy | accuracy |\n|---|---|" in text
