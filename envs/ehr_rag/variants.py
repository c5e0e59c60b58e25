"""EHR-RAG's variants: methods by the trained model and by a fixed rule, and what asks no one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from ghar.envs.ehr_rag.baselines import LINEAR
from ghar.envs.ehr_rag.episode import Method
from ghar.envs.ehr_rag.label_only import LABELS, USUAL
from ghar.envs.ehr_rag.settings import Settings
from ghar.envs.system import Variant

METHODS: tuple[Method, ...] = get_args(Method)
TITLES: Mapping[Method, str] = {
    "ehr_rag": "EHR-RAG", "no_ether": "without ETHER", "no_air": "without AIR", "no_der": "without DER",
    "direct": "newest rows", "rag": "similar chunks", "uniform": "random chunks", "rule": "frequent codes",
    "react": "ReAct",
}  # fmt: skip
MAIN = "ehr_rag"
READER = "reader"  # the fixed rule


def variants(settings: Settings) -> dict[str, Variant]:
    """Every method by the trained model and by the fixed rule, the method before RL and before the warm-up, label-only
    SFT, and the usual answer and regressions, which ask no one."""
    all_variants = [Variant(name, TITLES[name], name) for name in METHODS]
    all_variants += [
        Variant("ehr_rag_sft", "after SFT", MAIN, "sft"),
        Variant("ehr_rag_base", "before training", MAIN, "base"),
    ]
    all_variants += [
        Variant("scripted" if name == MAIN else f"scripted_{name}", f"Rule, {TITLES[name]}", name, READER)
        for name in METHODS
    ]
    all_variants.append(Variant(LABELS, "Label-only SFT, newest rows", "direct", LABELS))
    all_variants.append(Variant(USUAL, "Usual answer", USUAL, ""))
    all_variants += [Variant(name, f"Regression on {name}", name, "") for name in linear(settings)]
    return {variant.name: variant for variant in all_variants}


def linear(settings: Settings) -> tuple[str, ...]:
    """List the regressions that there are numbers for."""
    return LINEAR if settings.embeddings is not None else LINEAR[:1]
