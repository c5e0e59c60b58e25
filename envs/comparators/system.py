"""What GHAR is compared with, as one system: its methods are variants, one of them is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from ghar.config import Config
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.comparators.episode import AGENTS, ROLES, Comparators, ComparatorVariant, Spec
from ghar.envs.comparators.pruned_sft import DirectSamples, check_teacher, with_pruned_sft
from ghar.envs.comparators.rule import ComparatorRule
from ghar.envs.comparators.settings import Method, Settings
from ghar.envs.graph_cases import CutCases, graph_corpus
from ghar.envs.play import teacher_cases
from ghar.envs.questions import with_usual
from ghar.envs.real_patients import early_refusals, is_real, refuse, without_rules
from ghar.envs.records import Records
from ghar.envs.summaries import TRIVIAL, right_reply, with_summaries
from ghar.envs.system import WORDS, Example, Reporting, SftExamples, System, Training, Variant
from ghar.envs.worlds.severity_grades import RELATIONS, Knowledge, SpreadRule, exact_knowledge, follows
from ghar.episode import Episode
from ghar.llm.policy import FunctionPolicy
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

METHODS: tuple[Method, ...] = get_args(Method)
PRUNED: tuple[Method, ...] = ("rag", "lightrag", "medrag")
TITLES: dict[str, str] = {
    "direct": "LLM only", "cot": "Chain of thought", "rag": "Classic RAG", "search_r1": "Search-R1-like",
    "lightrag": "LightRAG-like", "medrag": "MedRAG-like", "pair": "Extractor and responder", "fixed_1": "One round",
    "fixed_2": "Two rounds", "fixed_3": "Three rounds",
}  # fmt: skip
RULE = "rule"
DEMO_WORDS = 48  # a look-up: the demo's small model reads no more
EXAMPLES = 300  # cases whose record the demo's tokenizer is made from


def build(records: Records, settings: Settings) -> System[None]:
    """All methods on the task of `records`, over GHAR's graph. BadInput where there is no graph, and where the SFT data
    of labels alone are to be pruned."""
    config = records.config
    pruned_by = None if settings.pruned_by is None else Path(settings.pruned_by)
    if pruned_by is not None:
        check_teacher(config, pruned_by)
    corpus, partitions = graph_corpus(records)
    words = settings.words or (DEMO_WORDS if config.scale.name == "demo" else None)
    wording = "questions" if records.asks_questions else "summaries" if records.asks_summaries else "records"
    shared = Spec(config.env.prompts, settings.max_iterations, words, config.retriever.top_n, wording)
    made_by = Comparators(shared, partitions)
    cut = CutCases(records)
    made = System(
        name="comparators",
        task=records.task,
        agents=AGENTS,
        roles=ROLES,
        cases=cut(WORDS),
        episode=made_by.episode,
        corpus=corpus,
        reward=partial(_outcome, config.reward.eta),
        variants=variants(settings.method),
        main=settings.method,
        read_by=lambda reader: replace(made, cases=cut(reader)),
        fixed={RULE: lambda: FunctionPolicy(ComparatorRule(knowledge_of(records)))},
        origin=records.provenance(),
        training=Training(
            teacher=RULE,
            texts=lambda: [case.text for case in made.cases.train[:EXAMPLES]],
            pretraining="ghar" if config.model.kind == "demo" else None,
        ),
        report=Reporting(
            listed=_listed(settings.method),
            counts=records.counts() | records.graph_counts(),
        ),
    )
    taught = without_rules(made, records, lambda reader: label_pairs(made_by, cut(reader)))
    if pruned_by is not None:
        direct = DirectSamples(
            pruned_by,
            lambda: [case.sample_id for case in made.cases.train],
            lambda: [case.sample_id for case in teacher_cases(made, config)],
        )
        taught = with_pruned_sft(taught, direct, lambda: ComparatorRule(knowledge_of(records)))
    if records.asks_questions:
        return with_usual(taught, ComparatorVariant("direct"))
    return with_summaries(taught, config.reward.eta, ComparatorVariant("direct")) if records.asks_summaries else taught


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` makes."""
    return (*TRIVIAL.get(config.task.name, ()), *variants(settings.method))


def refused_variants(config: Config, settings: Settings) -> Mapping[str, str]:
    """Map the variants of the rule to its refusal, for real patients and for texts."""
    own = variants(settings.method)
    return early_refusals(config.data, "comparators", own, _listed(settings.method), RULE)


def _listed(method: Method) -> tuple[str, ...]:
    """Variants of the table."""
    return f"{RULE}_{method}", f"base_{method}", method


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes."""
    return ROLES


def label_pairs(made_by: Comparators, cases: Splits[Case]) -> SftExamples:
    """Each record and its label, as the method "direct" asks."""
    direct, prefix = (
        Variant("direct", spec=ComparatorVariant("direct")),
        "answer: " if made_by.spec.prompts == "full" and made_by.spec.wording != "summaries" else "",
    )

    def examples(some: Sequence[Case]) -> tuple[Example, ...]:
        asked = [(next(made_by.episode(case, direct)), case) for case in some]
        return tuple(Example(act.prompt, f"{prefix}{right_reply(case)}") for act, case in asked)

    return SftExamples(examples(cases.train), examples(cases.valid))


def variants(trained: Method) -> dict[str, Variant]:
    """Every method by the trained weights, by the model before any training (base_...) and by the rule (rule_...); the
    one that is trained first."""
    all_variants: list[Variant] = []
    for name in sorted(METHODS, key=lambda method: method != trained):
        plain = [(name, TITLES[name], ComparatorVariant(name))]
        if name in PRUNED:
            plain.append((f"pruned_{name}", f"{TITLES[name]}, pruned", ComparatorVariant(name, pruned=True)))
        for own, title, spec in plain:
            all_variants += [
                Variant(own, title, spec),
                Variant(f"base_{own}", f"{title}, not trained", spec, "base"),
                Variant(f"{RULE}_{own}", f"{title}, by a rule", spec, RULE),
            ]
    return {variant.name: variant for variant in all_variants}


def knowledge_of(records: Records) -> Knowledge:
    """The true grades of common entities in the demo world; of labels that do not follow from them nothing, so that the
    rule answers by what it reads. BadInput for real patients."""
    if is_real(records):
        refuse("system=comparators' rule")
    if records.world is not None and follows(records.config.task.name):
        return exact_knowledge(records.world, records.names, records.config.task.name)
    return Knowledge({}, RELATIONS, SpreadRule(len(records.task.labels) - 1))


def _outcome(eta: float, episode: Episode, case: Case) -> EpisodeReward:
    """The outcome alone, as Search-R1 has it."""
    return score_outcome(episode, case.label, eta)
