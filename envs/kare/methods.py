"""KARE, its ablations and its language-model baselines (Table 2) as variants of one episode.

system.variant=no_patients and base take similar patients, and communities too, from all variants of a trained model.

variant            looks up      similar patients  reasoning         whose answers
kare               communities   1 of each label   as system.tasks   the trained model's
no_reasoning       communities   1 of each label   none              the trained model's
no_knowledge       nothing       1 of each label   as system.tasks   the trained model's
no_similar         communities   no                as system.tasks   the trained model's
kare_sft           communities   1 of each label   as system.tasks   the distilled model's, before RL
label_only         communities   1 of each label   none              the base model's after SFT on labels alone
rag_tuned          abstracts     1 of each label   none              the same, of contexts with abstracts
backbone           communities   1 of each label   none              the model's before any training
kare_base          communities   1 of each label   as system.tasks   the same
kare_zero_shot     communities   no                in one reply      the same; the prompt says what to weigh
kare_few_shot      communities   1 of each label   in one reply      ... N = 2
zero_shot          nothing       no                in one reply      ... base context only
few_shot           nothing       1 of each label   in one reply      ... N = 2; few_shot_4: N = 4
rag                abstracts     no                in one reply      ... classic RAG
coagent            nothing       1 of each label   in one reply      ... the prompt says what EHR-CoAgent's critic has
                                                                     learned, and how rare each outcome is;
                                                                     coagent_unregulated: not how rare
scripted           communities   1 of each label   beside            a fixed rule's, which knows common grades
scripted_base      nothing       1 of each label   beside            the same
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ghar.envs.case import Case
from ghar.envs.kare.corpus import SearchAbstracts
from ghar.envs.kare.episode import KareEpisodes, KareReading, KareSpec, Prompts, Reasoning, base_text
from ghar.envs.kare.retrieval.community_corpus import SelectCommunities
from ghar.envs.kare.settings import Settings
from ghar.envs.records import Records
from ghar.envs.system import Variant
from ghar.episode import EpisodeGenerator, Retrieve

LooksUp = Literal["communities", "abstracts", "nothing"]
RULE = "rule"  # of System.fixed
LABELS, TUNED_RAG = "label_only", "rag_tuned"  # of Training.stages
REASONING: dict[str, Reasoning] = {
    "multitask": "beside", "multitask_weighted": "beside", "two_in_one": "within", "label_only": "none"
}  # fmt: skip
LISTED = (
    "kare", "kare_base", "no_reasoning", "zero_shot", "kare_zero_shot", "few_shot", "rag", "scripted", "scripted_base",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One line of the table above. similar: patients shown of each label. advice: what its prompts begin with.

    learns: whether EHR-CoAgent's critic has still to write the advice, and with the shares of the outcomes or without
    (`System.prepare`).
    """

    looks_up: LooksUp
    similar: int
    reasoning: Reasoning
    advice: str = ""
    learns: Literal["no", "regulated", "unregulated"] = "no"


def prompts_of(records: Records) -> Prompts:
    """Name the set of prompts: env.prompts, or for texts, and full ones of questions, their own sets."""
    prompts = records.config.env.prompts
    if records.asks_summaries:
        return "texts" if prompts == "full" else "compact_texts"
    return "questions" if prompts == "full" and records.asks_questions else prompts


def variants_of(own: Settings, advice: str, abstracts: bool) -> dict[str, Variant]:
    """All variants, in the order of tables. advice: for prompts to an untrained model. abstracts: there are some."""
    how, full = REASONING[own.tasks], partial(Method, own.looks_up, own.similar)
    variants = {
        "kare": Variant("kare", "KARE", full(how)),
        "no_reasoning": Variant("no_reasoning", "KARE without reasoning", full("none")),
        "no_knowledge": Variant("no_knowledge", "KARE without communities", Method("nothing", own.similar, how)),
        "no_similar": Variant("no_similar", "KARE without similar patients", Method(own.looks_up, 0, how)),
        "kare_sft": Variant("kare_sft", "KARE before RL", full(how), "sft"),
        LABELS: Variant(LABELS, "labels alone", full("none"), LABELS),
        TUNED_RAG: Variant(TUNED_RAG, "fine-tuned, classic RAG", Method("abstracts", own.similar, "none"), TUNED_RAG),
        "backbone": Variant("backbone", "backbone in KARE's context", full("none"), "base"),
        "kare_base": Variant("kare_base", "backbone that reasons", full(how), "base"),
        "kare_zero_shot": _asked("kare_zero_shot", "zero-shot with communities", "communities", 0, advice),
        "kare_few_shot": _asked("kare_few_shot", "few-shot with communities", "communities", 1, advice),
        "zero_shot": _asked("zero_shot", "zero-shot", "nothing", 0, advice),
        "few_shot": _asked("few_shot", "few-shot, N=2", "nothing", 1, advice),
        "few_shot_4": _asked("few_shot_4", "few-shot, N=4", "nothing", 2, advice),
        "rag": _asked("rag", "classic RAG", "abstracts", 0, advice),
        "coagent": _learning("coagent", "EHR-CoAgent", "regulated"),
        "coagent_unregulated": _learning("coagent_unregulated", "EHR-CoAgent, unregulated", "unregulated"),
        "scripted": Variant("scripted", "rule with communities", Method("communities", 1, "beside"), RULE),
        "scripted_base": Variant("scripted_base", "rule without communities", Method("nothing", 1, "beside"), RULE),
    }
    return {name: variant for name, variant in variants.items() if abstracts or name not in ("rag", TUNED_RAG)}


def _asked(name: str, title: str, looks_up: LooksUp, similar: int, advice: str) -> Variant:
    return Variant(name, title, Method(looks_up, similar, "within", advice), "base")


def _learning(name: str, title: str, learns: Literal["regulated", "unregulated"]) -> Variant:
    return Variant(name, title, Method("nothing", 1, "within", learns=learns), "base")


def method_of(variant: Variant) -> Method:
    """What a variant of this system holds."""
    assert isinstance(variant.spec, Method)
    return variant.spec


def look_up(what: LooksUp, top_n: int, case: Case[KareReading]) -> Retrieve | None:
    """The request of a case: Algorithm 1's, the nearest abstracts, or none."""
    if what == "communities":
        return SelectCommunities(base_text(case), None, top_n, case.sample_id)
    return SearchAbstracts(base_text(case), None, top_n) if what == "abstracts" else None


@dataclass(frozen=True)
class KarePlayer:
    """Makes the episodes of all variants. tokens: of looked-up knowledge in a prompt; top_n: passages asked for.
    kind: of episodes."""

    prompts: Prompts
    tokens: int
    top_n: int
    count: Callable[[str], int]
    kind: type[KareEpisodes] = KareEpisodes

    def episode(self, case: Case[KareReading], variant: Variant) -> EpisodeGenerator:
        """ValueError for a variant whose advice has still to be learned."""
        method = method_of(variant)
        if method.learns != "no":
            raise ValueError(f"variant {variant.name} has no guidelines yet: System.prepare learns them")
        spec = KareSpec(self.prompts, method.reasoning, self.tokens, method.advice)
        episodes = self.kind(spec, partial(look_up, method.looks_up, self.top_n), self.count)
        return episodes.episode(replace(case, reads=case.reads.showing(method.similar)))
