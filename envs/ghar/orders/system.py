"""GHAR on task=order_check: questions, partitions about drugs, variants, rewards and baselines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ghar.config import Config
from ghar.data.tasks.order_check import SQUARE, OrderQuestion
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.ghar.label_only import STAGE
from ghar.envs.ghar.orders.baselines import (
    AnswerMemory,
    DegreeThreshold,
    FactRegression,
    LexicalRule,
    OrderRule,
    SentenceRule,
    sentence_encoder,
)
from ghar.envs.ghar.orders.episode import (
    NAME,
    ORDERS,
    ROLES,
    OrderEpisodes,
    OrderSpec,
    order_case,
    play_order,
    score_order,
)
from ghar.envs.ghar.orders.numbers import MAIN, by_group, order_numbers, order_row
from ghar.envs.ghar.orders.teacher import OrderTeacher
from ghar.envs.ghar.settings import Settings
from ghar.envs.graph_cases import graph_corpus
from ghar.envs.records import Records
from ghar.envs.system import Example, Reporting, SftExamples, System, Training, Variant
from ghar.episode import Act, Episode, EpisodeGenerator, Evidence, Retrieve
from ghar.errors import BadInput
from ghar.kg.contraindications import CONTRAINDICATION, contraindications
from ghar.llm.policy import FunctionPolicy, Policy
from ghar.rewards.compose import EpisodeReward

READS = "reads"
BASELINES = {
    "usual": "Usual answer", "drug_memory": "Memory of drugs", "patient_memory": "Memory of patients",
    "degree": "Many contraindications", "lexical": "Lexical rule, all facts of the drug",
    "minilm": "MiniLM rule, all facts of the drug",
}  # fmt: skip
SCRIPTED = {  # conditions of a search, whether facts are read by the links, whether a confirmed one ends the search
    "scripted": ("Scripted teacher", None, True, True),
    "scripted_one": ("One condition a search, read exactly", 1, True, True),
    "scripted_all": ("All conditions in one search, read exactly", 6, True, True),
    "scripted_first": ("One condition a search, any fact of the drug", 1, False, True),
    "upper_bound": ("Every condition searched, read exactly", 1, True, False),
}
REGRESSION = "facts_regression"
LISTED = (*BASELINES, *SCRIPTED, REGRESSION, "llm_only", "always_rag", READS, "ghar_base", STAGE, "ghar_sft", MAIN)


class DirectAnswer:
    """`Variant.spec` of an answer without a search."""

    def __init__(self, episodes: OrderEpisodes):
        self.episodes = episodes

    def episode(self, case: Case[OrderQuestion]) -> EpisodeGenerator:
        """The answer alone."""
        return self.episodes.direct(case)


def build_order_system(records: Records, settings: Settings) -> System[OrderQuestion]:
    """The system of task=order_check. BadInput where no question can be made, and for other sources than the graph."""
    config, (every, counts) = records.config, records.order_questions
    if settings.sources != ("graph",) or settings.ablation != "none" or settings.decision == "everyone":
        raise BadInput(
            f"task={NAME} asks the graph alone: leave system.sources, system.ablation and system.decision=everyone out."
        )
    corpus, partitions = graph_corpus(records)
    splits, graph = records.limited(every, SQUARE), records.primekg
    cases = Splits(*(tuple(map(order_case, part)) for part in (splits.train, splits.valid, splits.test)))
    price = settings.prices[0] if settings.prices else 0.0
    spec = OrderSpec(settings.max_iterations or _most_conditions(every), config.retriever.top_n)
    edges = contraindications(graph)
    name_of: Callable[[int], str] = graph.names.__getitem__
    scripted = {
        name: partial(FunctionPolicy, OrderTeacher(name_of, edges.parents, at_once, exact, stops))
        for name, (_, at_once, exact, stops) in SCRIPTED.items()
    }
    path = next(part.index for part in partitions if part.relation == CONTRAINDICATION)

    def search(queries: Sequence[str]) -> list[Evidence]:
        return corpus.retrieve([Retrieve(query, (path,), spec.top_n) for query in queries])

    diseases: dict[int, list[str]] = defaultdict(list)
    for disease, drugs in sorted(edges.drugs.items()):
        for drug in drugs:
            diseases[drug].append(name_of(disease))
    made = System(
        name="ghar",
        task=ORDERS,
        agents=("top", "low"),
        roles=ROLES,
        cases=cases,
        episode=play_order,
        corpus=corpus,
        reward=partial(_reward, config, price),
        variants=_variants(spec, partitions, settings),
        main=MAIN,
        read_by=lambda reader: made,
        fixed={
            **scripted, **_baselines(every.train, diseases),
            REGRESSION: lambda: FunctionPolicy(FactRegression(every.train, search)),
        },
        partitions=partitions,
        block=SQUARE,
        origin=records.provenance(),
        training=Training(
            teacher="scripted",
            rehearsal={READS: 1.0},
            stages={STAGE: lambda reader: _label_pairs(OrderEpisodes(spec, partitions), cases, settings.label_epochs)},
            texts=lambda: _prompts(OrderEpisodes(spec, partitions), cases.train),
        ),
        report=Reporting(
            listed=LISTED,
            row=order_row,
            numbers=order_numbers,
            summary=partial(by_group, draw={"seed": config.seed, "resamples": config.eval.bootstrap}),
            counts={**counts, **records.graph_counts()},
        ),
    )
    return made


def order_names(settings: Settings) -> tuple[str, ...]:
    """List the variants that `build_order_system` makes."""
    return tuple(_variants(OrderSpec(1, 1), (), settings))


def _most_conditions(splits: Splits[OrderQuestion]) -> int:
    return max(len(question.conditions) for part in (splits.train, splits.valid, splits.test) for question in part)


def _variants(spec: OrderSpec, partitions: Sequence[Any], settings: Settings) -> dict[str, Variant]:
    """Baselines, scripted readers, decisions that are fixed for the trained weights, and the stages of training."""

    def episodes(decision: Any, reads: bool = False) -> OrderEpisodes:
        return OrderEpisodes(replace(spec, decision=decision, reads=reads), partitions)

    learned = episodes(settings.decision)
    direct = DirectAnswer(learned)
    variants = [Variant(name, title, direct, name) for name, title in BASELINES.items()]
    variants += [
        Variant(name, title, episodes("learned" if stops else "always"), name)
        for name, (title, _, _, stops) in SCRIPTED.items()
    ]
    variants += [
        Variant(
            REGRESSION, "Searches are fixed, a regression reads", episodes("always", reads=True), REGRESSION
        ),
        Variant("llm_only", "Trained weights, never searching", episodes("never")),
        Variant("always_rag", "Trained weights, a search for each condition", episodes("always")),
        Variant(READS, "Trained weights read, searches are fixed", episodes("always", reads=True)),
        Variant("ghar_base", "Model before SFT", learned, "base"),
        Variant(STAGE, "Label-only SFT", direct, STAGE),
        Variant("ghar_sft", "GHAR after SFT", learned, "sft"),
        Variant(MAIN, "GHAR after RL", learned),
    ]
    return {variant.name: variant for variant in variants}


def _baselines(
    train: Sequence[OrderQuestion], diseases: Mapping[int, Sequence[str]]
) -> dict[str, Callable[[], Policy]]:
    numbers: dict[str, Callable[[], Callable[[OrderQuestion], int]]] = {
        "usual": lambda: AnswerMemory(train, lambda question: "all"),
        "drug_memory": lambda: AnswerMemory(train, lambda question: question.drug_node),
        "patient_memory": lambda: AnswerMemory(train, lambda question: question.subject_id),
        "degree": lambda: DegreeThreshold(train),
        "lexical": lambda: LexicalRule(diseases),
        "minilm": lambda: SentenceRule(train, diseases, sentence_encoder()),
    }
    return {name: lambda make=make: FunctionPolicy(OrderRule(make())) for name, make in numbers.items()}


def _label_pairs(episodes: OrderEpisodes, cases: Splits[Case[OrderQuestion]], epochs: int) -> SftExamples:
    """Each question without a search, and its answer with the first condition against the drug."""
    return SftExamples(_pairs(episodes, cases.train), _pairs(episodes, cases.valid), epochs=epochs)


def _pairs(
    episodes: OrderEpisodes, cases: Sequence[Case[OrderQuestion]]
) -> list[Example]:
    asked: list[tuple[Act, OrderQuestion]] = [(next(episodes.direct(case)), case.reads) for case in cases]
    return [
        Example(act.prompt, f"yes {question.against[0] + 1}" if question.against else "no", act.choices)
        for act, question in asked
    ]


def _prompts(episodes: OrderEpisodes, cases: Sequence[Case[OrderQuestion]]) -> list[str]:
    return [next(episodes.direct(case)).prompt for case in cases]


def _reward(config: Config, price: float, episode: Episode, case: Case[OrderQuestion]) -> EpisodeReward:
    return score_order(episode, case.reads, config.reward.eta, price)
