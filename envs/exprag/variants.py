"""EXPRAG's variants, the same for questions and labels.

direct            the language model without experience
label_sft         the same base model after SFT on labels alone, without experience (baselines.py)
exprag            the language model with experience: what is trained
exprag_base       the same before any training, exprag_sft after the warm-up
scripted_direct   a fixed rule without experience
scripted          the same rule with experience, which reads nothing else

Of questions also usual, options_only and background_only (baselines.py), and

experience_only   the same as exprag, from prompts that say nothing of the patient who asks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ghar.config import Config
from ghar.envs.exprag.episode import ExpragSpec, play_exprag
from ghar.envs.exprag.settings import Settings
from ghar.envs.rollout import Corpus, EpisodeJob, rollout
from ghar.envs.system import Variant
from ghar.episode import Act
from ghar.llm.policy import Policy

MAIN, RULE, ALONE = "exprag", "rule", "experience_only"
DIRECT, LABELS = "direct", "label_sft"  # LABELS: the weights' name too
LISTED = (DIRECT, LABELS, "exprag_base", "exprag_sft", "exprag", "scripted_direct", "scripted")
PAIRS = (("scripted", "scripted_direct"),)
WITHOUT = {  # of questions: baselines that look nothing up
    "usual": "Usual answer", "options_only": "Options only", "background_only": "Options and codes of the stay",
}  # fmt: skip
LISTED_QUESTIONS = (
    *WITHOUT, DIRECT, LABELS, ALONE, "exprag_base", "exprag_sft", MAIN, "scripted_direct", "scripted",
)  # fmt: skip
EXAMPLES = 200  # cases whose prompts the demo's tokenizer is made from


def spec_of(config: Config, settings: Settings) -> ExpragSpec:
    """The episode's settings with experience."""
    flare = settings.retriever == "flare"
    return ExpragSpec(config.env.prompts, settings.top_k, settings.excerpts, settings.words, flare)


def variants(spec: ExpragSpec, episodes: Callable[[ExpragSpec], Any]) -> dict[str, Variant]:
    """By name. A rule writes no draft, so it plays without FLARE; its look-up is then that of dense retrieval."""
    ruled, alone = replace(spec, flare=False), episodes(replace(spec, top_k=0))
    all_variants = (
        Variant(DIRECT, "LLM only", alone),
        Variant(LABELS, "Label-only SFT", alone, LABELS),
        Variant(MAIN, "EXPRAG", episodes(spec)),
        Variant("exprag_base", "EXPRAG before training", episodes(spec), "base"),
        Variant("exprag_sft", "EXPRAG after SFT", episodes(spec), "sft"),
        Variant("scripted_direct", "Rule without experience", episodes(replace(ruled, top_k=0)), RULE),
        Variant("scripted", "Rule with experience", episodes(ruled), RULE),
    )
    return {variant.name: variant for variant in all_variants}


def of_questions(spec: ExpragSpec, episodes: Callable[[ExpragSpec], Any]) -> dict[str, Variant]:
    """What only questions have, by name: baselines, each a policy of its own, and experience without the patient."""
    alone, unknown = episodes(replace(spec, top_k=0, flare=False)), episodes(replace(spec, background=False))
    baselines = {name: Variant(name, title, alone, name) for name, title in WITHOUT.items()}
    return {**baselines, ALONE: Variant(ALONE, "Experience only", unknown)}


def prompts_of(cases: Sequence[Any], variant: Variant, corpus: Corpus, rule: Policy, config: Config) -> list[str]:
    """The prompts that `variant` shows a rule of the first cases."""
    some = cases[:EXAMPLES]
    jobs = [EpisodeJob(case.sample_id, 0, partial(play_exprag, case, variant)) for case in some]
    in_flight = config.env.in_flight
    played = rollout(jobs, {"top": rule}, corpus, seed=config.seed, in_flight=in_flight, steady=True, timeout=3600.0)
    return [record.effect.prompt for e in played for record in e.trace if isinstance(record.effect, Act)]
