"""GHAR as a system: its cases, variants, teacher, rewards and ceilings, from the records of a task of visits or of
texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from ghar.config import Config
from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.envs.baseline_table import borrowed_names
from ghar.envs.case import Case
from ghar.envs.ghar.episode import AGENTS, ROLES, GharEpisodes, GharSpec, Partition, Wording, play_ghar
from ghar.envs.ghar.grounding import NameMatcher, counted, names_of
from ghar.envs.ghar.label_only import STAGE, LabelOnly, label_pairs
from ghar.envs.ghar.navigation import Chart, ExactTeacher, navigation
from ghar.envs.ghar.navigator import Navigator, rules
from ghar.envs.ghar.orders.episode import ROLES as ORDER_ROLES
from ghar.envs.ghar.orders.system import NAME as ORDERS
from ghar.envs.ghar.orders.system import build_order_system, order_names
from ghar.envs.ghar.pretraining import MISLED, TEACHER, practice, teacher_knowledge
from ghar.envs.ghar.question_teacher import with_question_teacher
from ghar.envs.ghar.routing import ASKING, EverySource, asking, by_source, routed
from ghar.envs.ghar.rows import GharRows
from ghar.envs.ghar.settings import Settings
from ghar.envs.ghar.source_usage import AskedSources, budget_summary, needed_sources, source_of
from ghar.envs.ghar.sources import lacking, open_sources
from ghar.envs.ghar.teacher import NO_ERROR, ScriptedTeacher
from ghar.envs.ghar.upper_bounds import ghar_ceilings
from ghar.envs.graph_cases import CutCases
from ghar.envs.questions import with_usual
from ghar.envs.real_patients import early_no_numbers, early_refusals, is_real, without_rules
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus
from ghar.envs.stepper import Scene
from ghar.envs.summaries import TRIVIAL, with_summaries
from ghar.envs.system import (
    WORDS,
    Decisions,
    GroundTruth,
    Reporting,
    RewardShaping,
    System,
    Training,
    Variant,
    no_numbers,
)
from ghar.envs.worlds.severity.world import World
from ghar.envs.worlds.severity_grades import exact_knowledge, follows, pointers
from ghar.episode import Episode
from ghar.llm.policy import OppositePolicy
from ghar.rewards.compose import EpisodeReward, Reference, RewardSpec, costs, score_episode
from ghar.rewards.terms import balanced_weights, chain

ABLATIONS = ("ni", "nt", "nl", "nm")  # Table VII; NS is system.composition=separate
FIXED = (1, 2, 3)  # retrievals of Fig. 9(b), by the trained agent's weights
FORCED = ("llm_only", "always_rag")  # the trained agent's weights, their decision to retrieve replaced
DECIDED = {  # what the trained agent is called
    "learned": "GHAR after RL", "always": "Trained to always retrieve", "never": "Trained to never retrieve",
    "everyone": "Trained to ask every source",
}  # fmt: skip
LABELS_ALONE = "Label-only SFT (Medical-SFT)"
LABEL_ONLY = {"summaries": "SFT on references, no retrieval"}  # titles where a reply is no label
WORDINGS: Mapping[str, Wording] = {MEDQA: "questions", SUMMARY: "summaries"}  # of prompts, by task
BASELINES = "baselines"  # the system whose variants stand in the same table, but for tasks of texts
EXAMPLES = 300  # records that the tokenizer of a model without a base is made from
ITERATIONS = {"full": 6, "laptop": 3, "demo": 4}  # where system.max_iterations is null; the paper leaves it open


def build(records: Records, settings: Settings) -> System[Any]:
    """GHAR on the task of `records`: orders (envs/ghar/orders), any task of visits, questions, or summaries."""
    return build_order_system(records, settings) if records.config.task.name == ORDERS else _build(records, settings)


def _build(records: Records, settings: Settings) -> System[None]:
    """GHAR over the partitions of `settings.sources`: the meta-paths of a graph, and whatever else is named."""
    config, (corpus, partitions) = records.config, open_sources(records, settings.sources)
    spec = spec_of(config, settings)
    every = EverySource(tuple(by_source(partitions).values()))
    episodes = GharEpisodes(spec, partitions, every if spec.decision == "everyone" else None)
    needed = needed_sources(records.world)
    whole = replace(spec, ablation="none", decision="learned")  # one base model, whatever is left out after it
    cut = CutCases(records)
    names = names_of(records)
    rewards = rewards_of(records, settings, names, partitions)
    asked = AskedSources(tuple(settings.sources), tuple(map(source_of, partitions)), needed)
    rows = GharRows(names, records.task.labels, _tail(records.world, records.names), asked)
    several = len(settings.sources) > 1
    habits = MISLED if settings.planted_errors else TEACHER
    made = System(
        name="ghar",
        task=records.task,
        agents=AGENTS,
        roles=ROLES,
        cases=cut(WORDS),
        episode=play_ghar,
        corpus=corpus,
        reward=partial(_reward, rewards),
        variants=_variants(episodes, every, several, needed is not None),
        main="ghar_rl",
        read_by=lambda reader: replace(made, cases=cut(reader)),
        fixed={"teacher": lambda: ScriptedTeacher(teacher_knowledge(records), habits)},
        prepare=lambda variant, policy: routed(made, config, episodes, needed, variant),
        partitions=partitions,
        origin=records.provenance(),
        training=Training(
            teacher="teacher",
            stages={STAGE: lambda reader: label_pairs(episodes, cut(reader), settings.label_epochs)},
            shaping=shaping(rewards),
            pretraining=None if is_real(records) else practice(records, GharEpisodes(whole, partitions), corpus),
            texts=lambda: [case.text for case in made.cases.train[:EXAMPLES]],
        ),
        report=Reporting(
            listed=_listed(spec, several),
            row=rows.row,
            numbers=rows.numbers,
            summary=lambda rows_by_variant: budget_summary(records, settings, made.cases.test, rows_by_variant),
            counts=records.counts() | records.graph_counts() | lacking(corpus),
            baselines=BASELINES,
        ),
        truth=GroundTruth(
            needs=partial(_needs, _truth(records)),
            upper_bounds=partial(_ceilings, records, episodes, corpus),
            decisions=None if spec.decision == "everyone" else lambda: decisions(records, made),
        ),
    )
    if records.asks_questions:
        return with_usual(with_question_teacher(made), LabelOnly(episodes))
    taught = without_rules(made, records, lambda reader: label_pairs(episodes, cut(reader), None))
    return with_summaries(taught, config.reward.eta, LabelOnly(episodes)) if records.asks_summaries else taught


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` may make, on generated patients too, with those of the baselines beside them."""
    if config.task.name == ORDERS:
        return order_names(settings)
    own = _possible_variants(config, settings)
    return (*own, *(TRIVIAL.get(config.task.name) or borrowed_names(BASELINES, config)))


def refused_variants(config: Config, settings: Settings) -> Mapping[str, str]:
    """Map the variants of the scripted teacher to its refusal, for real patients; it knows questions and orders."""
    if config.task.name in (ORDERS, MEDQA):
        return {}
    listed = _listed(spec_of(config, settings), len(settings.sources) > 1)
    return early_refusals(config.data, "ghar", _possible_variants(config, settings), listed, "teacher")


def refused_numbers(config: Config, settings: Settings) -> str | None:
    """Say why there are no decisions as numbers: of texts, where all sources are asked, of real patients, and of labels
    that the grades of generated ones do not decide."""
    task = config.task.name
    if task in (ORDERS, MEDQA) or settings.decision == "everyone":
        return no_numbers("ghar")
    reason = early_no_numbers(config.data, "ghar")
    if reason is None and not follows(task):
        reason = (
            f"Decisions of system=ghar as numbers end with a grade, which tells no label of task={task}: choose "
            "task=los, read, dec, kare_mortality or kare_readmission."
        )
    return reason


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes."""
    return ORDER_ROLES if config.task.name == ORDERS else ROLES


def spec_of(config: Config, settings: Settings) -> GharSpec:
    """The episode's settings."""
    iterations = settings.max_iterations or ITERATIONS[config.scale.name]
    limits = settings.rewrites, iterations, settings.max_paths, config.retriever.top_n
    wording = WORDINGS.get(config.task.name, "records")
    summary = config.env.budgets.get("summarise")
    return GharSpec(
        config.env.prompts, *limits, settings.ablation, settings.decision, wording, summary_tokens=summary
    )


def rewards_of(records: Records, settings: Settings, names: NameMatcher, partitions: Sequence[Partition]) -> RewardSpec:
    """The rewards' settings, with the limits of the episode that bound them, and what training labels weigh."""
    config, classes = records.config, len(records.task.labels)
    balanced = settings.class_weights == "balanced"
    return RewardSpec(
        eta=config.reward.eta,
        alpha=settings.alpha,
        length=settings.length,
        normalise=settings.normalise,
        rank=settings.rank,
        composition=settings.composition,
        max_iterations=settings.max_iterations or ITERATIONS[config.scale.name],
        max_paths=settings.max_paths,
        grounding=settings.grounding,
        repeats=settings.repeats,
        ungrounded=partial(counted, names),
        prices=tuple(dict(zip(settings.sources, settings.prices, strict=True))[source_of(p)] for p in partitions)
        if settings.prices
        else (),
        classes=balanced_weights(records.train_labels, classes) if balanced else (),
    )


def _possible_variants(config: Config, settings: Settings) -> dict[str, Variant]:
    """The system's own variants, whatever the data lack, before the sources are opened."""
    several = len(settings.sources) > 1
    return _variants(GharEpisodes(spec_of(config, settings), ()), EverySource(()), several, has_truth=True)


def _listed(spec: GharSpec, several: bool) -> tuple[str, ...]:
    """Variants of the table. several: whether there is more than one source."""
    forced = (*FORCED, *(ASKING if several else ())) if spec.decision == "learned" else ()
    return (*forced, "scripted", "ghar_base", STAGE, "ghar_sft", "ghar_rl")


def _variants(episodes: GharEpisodes[Any], every: EverySource, several: bool, has_truth: bool) -> dict[str, Variant]:
    """Those of any sources, and of several ones what asks them all or routes between them (`asking`)."""
    return variants(episodes) | (asking(episodes, every, has_truth) if several else {})


def variants(episodes: GharEpisodes[Any]) -> dict[str, Variant]:
    """Stages of training, decisions forced on the trained agent, ablations, and the scripted teacher."""
    entries = [
        Variant("llm_only", "RL weights, retrieval forced off", episodes, forced={"retrieve": "no"}),
        Variant("always_rag", "RL weights, retrieval forced on", episodes, forced={"retrieve": "yes"}),
        Variant("scripted", "Scripted teacher", episodes, "teacher"),
        Variant("ghar_base", "Model before SFT", episodes, "base"),
        Variant(STAGE, LABEL_ONLY.get(episodes.spec.wording, LABELS_ALONE), LabelOnly(episodes), STAGE),
        Variant("ghar_sft", "GHAR after SFT", episodes, "sft"),
        Variant("ghar_rl", DECIDED[episodes.spec.decision], episodes),
    ]
    for name in ABLATIONS:
        ablated = GharEpisodes(replace(episodes.spec, ablation=name), episodes.metapaths)
        entries.append(Variant(name, f"GHAR, {name.upper()}", ablated))
        entries.append(Variant(f"scripted_{name}", f"Scripted teacher, {name.upper()}", ablated, "teacher"))
    for rounds in FIXED if episodes.spec.decision == "learned" else ():
        fixed = GharEpisodes(replace(episodes.spec, max_iterations=rounds, fixed=True), episodes.metapaths)
        title = f"{rounds} retrievals fixed"
        entries.append(Variant(f"fixed_{rounds}", f"RL weights, {title}", fixed))
        entries.append(Variant(f"scripted_fixed_{rounds}", f"Scripted teacher, {title}", fixed, "teacher"))
    return {variant.name: variant for variant in entries}


def shaping(rewards: RewardSpec) -> RewardShaping:
    """References of Eq. 15 and the running normaliser."""
    return RewardShaping(
        opposite=OppositePolicy,
        reference=lambda right, other: Reference(chain(right.prediction.history), chain(other.prediction.history)),
        costs=lambda episode: ((term, value) for _, term, value in costs(episode, rewards)),
        reward=lambda episode, case, reference, running: score_episode(
            episode, case.label, rewards, reference, running
        ),
        running=rewards.normalise == "running",
    )


def _reward(rewards: RewardSpec, episode: Episode, case: Case) -> EpisodeReward:
    return score_episode(episode, case.label, replace(rewards, normalise=_alone(rewards)))


def _alone(rewards: RewardSpec) -> Any:
    return "none" if rewards.normalise == "running" else rewards.normalise  # nothing has run yet


def _truth(records: Records) -> Mapping[int, bool] | None:
    """Visit -> whether it needs a look-up, as the generated world knows."""
    if records.world is None:
        return None
    return dict(records.world.truth.select("visit_id", pl.col("needs_retrieval")).iter_rows())


def _needs(truth: Mapping[int, bool] | None, case: Case) -> bool | None:
    return None if truth is None else bool(truth[case.visit_id])


def _tail(world: World | None, names: Mapping[str, str]) -> dict[str, int] | None:
    """Sub-query about an entity of the tail -> look-ups that its grade takes. None for real patients."""
    if world is None:
        return None
    codes = [code for code in world.rare_codes if code in names]
    further = {topic: 1 for topic, part in pointers(world, names).items() if part}
    conditions = {f"disease {names[code]}": 1 for code in codes if code not in world.target}
    drugs = {f"drug {names[code]}": 2 for code in codes if code in world.target}
    return further | conditions | drugs | {f"gene {target}": 1 for target in world.target.values()}


def _ceilings(
    records: Records, episodes: GharEpisodes[Any], corpus: Corpus, cases: Sequence[Case]
) -> dict[str, float] | None:
    """Best possible accuracy on exactly these cases; known for the demo world under leakage=paper only."""
    config = records.config
    if records.world is None or config.data.leakage != "paper" or config.task.name not in ("los", "read", "dec"):
        return None
    seen = [sample.visit_id for sample in records.splits.train]
    return ghar_ceilings(records.world, records.names, config.task.name, cases, seen, episodes, corpus)


def decisions(records: Records, made: System[None]) -> Decisions:
    """Navigation: what observations are made from is the truth of a generated world."""
    spec: GharSpec = made.variants[made.main].spec.spec
    assert records.world is not None  # `without_rules`: real patients have no such truth
    knowledge = exact_knowledge(records.world, records.names, records.config.task.name)
    chart = Chart(knowledge, spec.max_iterations, spec.max_paths, len(made.partitions))

    def game(cases: Sequence[Case]) -> Any:
        return navigation(scene(made, cases), knowledge, chart, AGENTS)

    def policy(decide: Any) -> Navigator:
        return Navigator(chart, decide, ExactTeacher(knowledge, NO_ERROR), AGENTS)

    return Decisions(game, policy, tuple(rules(chart, made.partitions)))


def scene(made: System[None], cases: Sequence[Case]) -> Scene:
    """The main variant on some cases, for the views."""
    variant = made.variants[made.main]
    return Scene("GHAR", AGENTS, ROLES, cases, variant.spec.episode, made.corpus, made.reward)
