"""A system over the run's graph from two functions, an episode and a rule: the short way to write one.

What it fills in stands in envs/system.py: cases from records, the graph as corpus, the outcome as reward, one variant
played by the model and one by the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ghar.envs.case import Case
from ghar.envs.graph_cases import CutCases, graph_corpus
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, System, Training, Variant
from ghar.episode import Act, Episode, EpisodeGenerator
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

PROMPTS = 200  # training episodes whose prompts the demo's tokenizer is made from


def graph_system(
    records: Records,
    settings: Any,
    episode: Callable[[Case, Any], EpisodeGenerator],
    rule: Callable[[Act], str],
    *,
    roles: tuple[str, ...],
    agents: tuple[str, ...] = ("agent",),
    decides: tuple[str, ...] = ("answer",),
    **parts: Any,
) -> System[None]:
    """Build a `System` that retrieves from `records`' graph, in this process or behind retriever.service.

    settings: the system's keys, whose `name` is its module's. episode: a function of the module, of a case and the
    settings; it is sent to other processes. rule: the reply to an act, as the text that a model would write; it is the
    variant "scripted" and the teacher of the warm-up. agents, roles: all that acts name; decides: roles whose reply is
    the prediction. parts: any other part of `System` by name, such as a reward, or a corpus with its partitions.
    BadInput without a graph, for a corpus that would have the graph's partitions, and for `listed`, a part of `report`.
    """
    if "listed" in parts:
        raise BadInput("graph_system(listed=...) is no part of a System: give report=Reporting(listed=...).")
    if "corpus" in parts and "partitions" not in parts:
        raise BadInput(
            "graph_system(corpus=...) would have the graph's partitions: give those of your corpus too, () for none."
        )
    cut, config, main = CutCases(records), records.config, settings.name.rpartition(".")[2]
    corpus, partitions = graph_corpus(records)
    played = Variant(main, spec=settings)
    made = System(
        settings.name, records.task, agents, roles, cut(WORDS), partial(_episode, episode), corpus,
        partial(_reward, eta=config.reward.eta),
        {main: played, "scripted": replace(played, name="scripted", who="rule")},
        main, read_by=lambda reader: replace(system, cases=cut(reader)),
        fixed={"rule": partial(FunctionPolicy, rule)}, decides=decides,
        partitions=partitions, origin=records.provenance(),
        training=Training(teacher="rule", texts=lambda: _prompts(system, records)),
    )  # fmt: skip
    system = replace(made, **parts)
    return system


def usual_label(records: Records) -> str:
    """The most frequent label of the training samples."""
    counts = Counter(records.train_labels)
    return records.task.labels[counts.most_common(1)[0][0]]


def _episode(episode: Callable[[Case, Any], EpisodeGenerator], case: Case, variant: Variant) -> EpisodeGenerator:
    return episode(case, variant.spec)


def _reward(done: Episode, case: Case, eta: float) -> EpisodeReward:
    return score_outcome(done, case.label, eta)


def _prompts(system: System[None], records: Records) -> list[str]:
    """Prompts and replies of the rule on training cases, and the labels."""
    scripted, cases = system.variants["scripted"], system.cases.train[:PROMPTS]
    stage = stage_of(system, scripted, records.config)
    played = play(stage, cases, system.fixed["rule"](), seed=records.config.seed, title="Prompts")
    acts: list[Any] = [record for one in played for record in one.trace if isinstance(record.effect, Act)]
    return [*(f"{record.effect.prompt} {record.result.text}" for record in acts), *system.task.labels]
