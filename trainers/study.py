"""From a configuration to what every phase needs: task, patients, graph, retriever. No model yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.case import Case, build_cases
from envs.ghar.episode import GharEpisodes, GharSpec
from envs.rollout import Corpus
from ghar.config import Config
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.demo.world import World
from ghar.data.tasks.splits import Splits
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.metapaths import metapaths
from ghar.llm.tokens import Tokenizer
from ghar.retrieval.build import build_retriever
from ghar.retrieval.wire import Version
from rewards.compose import RewardSpec
from trainers.records import Records, counter, read_records


@dataclass(frozen=True)
class Study:
    """One task on one cohort with one graph.

    names: text of every code: the linked node's name, else the code's description. world: the truth of a generated
    cohort, None for real patients. counts: what was read, linked and repaired, for the report.
    """

    config: Config
    cohort: Cohort
    task: Task
    splits: Splits
    names: Mapping[str, str]
    graph: KnowledgeGraph
    retriever: Corpus
    episodes: GharEpisodes
    rewards: RewardSpec
    world: World | None
    counts: Mapping[str, int]

    def cases(self, samples: Sequence[Sample], tokenizer: Tokenizer | None) -> list[Case]:
        """Cases within the token budget as `tokenizer` counts (None: words, to train a tokenizer on)."""
        env = self.config.env
        return build_cases(
            samples,
            self.task,
            self.names,
            style=env.prompts,
            budget=env.history_tokens,
            count=counter(tokenizer),
        )


def prepare(config: Config) -> Study:
    """Read, link, split and index. BadInput names what is missing or does not fit."""
    records = read_records(config)
    env, reward = config.env, config.reward
    spec = GharSpec(env.prompts, env.rewrites, env.max_iterations, env.max_paths, config.retriever.top_n, env.ablation)
    retriever, partitions = _knowledge(records)
    return Study(
        config=config,
        cohort=records.cohort,
        task=records.task,
        splits=records.splits,
        names=records.names,
        graph=records.primekg,
        retriever=retriever,
        episodes=GharEpisodes(spec, partitions),
        rewards=RewardSpec(
            reward.eta,
            reward.alpha,
            reward.length,
            reward.normalise,
            reward.rank,
            reward.composition,
            env.max_iterations,
            env.max_paths,
        ),
        world=records.world,
        counts=records.counts,
    )


def _knowledge(records: Records) -> tuple[Corpus, Sequence[Any]]:
    """What is retrieved from and its partitions: meta-paths, or (policy=ghar_communities) parts of communities."""
    config = records.config
    if config.kare is None or config.policy.name != "ghar":
        return _retriever(config, records.primekg, records.cohort.credentialed), metapaths(records.primekg)
    from ghar.retrieval.community_index import partitions
    from trainers.kare_study import community_corpus

    corpus = community_corpus(records, config.kare)
    return corpus, partitions(corpus.index)


def _retriever(config: Config, graph: KnowledgeGraph, credentialed: bool) -> Corpus:
    """In this process, or the service that retriever.service names."""
    own = config.retriever
    if own.service is None:
        return build_retriever(graph, own.kind, cache=Path(config.data.cache) / "indexes", probes=own.probes)
    from ghar.retrieval.client import connect  # needs httpx

    expected = Version(graph.fingerprint, own.kind, own.probes)
    return connect(own.service, expected, credentialed=credentialed, allow=config.privacy.allow)
