"""From a configuration to what every phase needs: task, patients, graph, retriever. No model yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from envs.case import Case, build_cases
from envs.ghar import GharEpisodes, GharSpec
from envs.rollout import Corpus
from ghar.config import Config
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.demo.world import World, generate_world, load_world, world_folder
from ghar.data.source import read_source
from ghar.data.splits import Splits, split_by_patient
from ghar.data.visit_tasks import visit_samples
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.linking import link_codes
from ghar.kg.metapaths import metapaths
from ghar.kg.primekg import open_primekg
from ghar.llm.tokens import Tokenizer, encode_prompt
from ghar.retrieval.build import build_retriever
from ghar.retrieval.wire import Version
from rewards.compose import RewardSpec


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
            count=(lambda text: len(text.split())) if tokenizer is None else _counter(tokenizer),
        )


def prepare(config: Config) -> Study:
    """Read, link, split and index. BadInput names what is missing or does not fit."""
    cache = Path(config.data.cache)
    root, graph_path, references = sources(config)
    # The tasks are about visits and their codes: chart measurements would cost memory for nothing.
    name = "mimic4" if config.data.name == "demo" else config.data.name
    cohort = read_source(replace(config.data, name=name, root=str(root)), charts=False)
    task, samples = visit_samples(cohort, config.task, config.data.leakage)
    splits = split_by_patient(samples, config.task.split, config.task.split_seed)
    splits = Splits(
        train=splits.train[: config.task.max_train],
        valid=splits.valid[: config.task.max_valid],
        test=splits.test[: config.task.max_test],
    )
    graph = open_primekg(graph_path, cache / "graphs")
    links = link_codes(cohort.codes, graph, references)
    env, reward = config.env, config.reward
    spec = GharSpec(env.prompts, env.rewrites, env.max_iterations, env.max_paths, config.retriever.top_n, env.ablation)
    return Study(
        config=config,
        cohort=cohort,
        task=task,
        splits=splits,
        names=links.names_of(cohort.names(), graph),
        graph=graph,
        retriever=_retriever(config, graph, cohort.credentialed),
        episodes=GharEpisodes(spec, metapaths(graph)),
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
        world=load_world(root) if cohort.generated else None,
        counts=_counts(cohort, splits, graph, links.counts),
    )


def _retriever(config: Config, graph: KnowledgeGraph, credentialed: bool) -> Corpus:
    """In this process, or the service that retriever.service names."""
    own = config.retriever
    if own.service is None:
        return build_retriever(graph, own.kind, cache=Path(config.data.cache) / "indexes", probes=own.probes)
    from ghar.retrieval.client import connect  # needs httpx

    expected = Version(graph.fingerprint, own.kind, own.probes)
    return connect(own.service, expected, credentialed=credentialed, allow=config.privacy.allow)


def sources(config: Config) -> tuple[Path, Path, Path | None]:
    """Folder of the tables, the graph, and its cross-references; generates the demo world where none is named."""
    data, kg, cache = config.data, config.kg, Path(config.data.cache)
    if data.root is None:
        if data.name not in ("demo", "mimic4"):
            raise BadInput(f"data={data.name} needs data.root: the generated patients come in MIMIC-IV's files only.")
        root = world_folder(cache, data.world_seed, data.patients)
        generate_world(root, seed=data.world_seed, patients=data.patients)
    else:
        root = Path(data.root)
        if not root.is_dir():
            raise BadInput(f"data.root={data.root} is not a folder: point it at the folder that holds the tables.")
    inside = root / "kg" / "kg.csv.gz"
    path = Path(kg.path) if kg.path else inside
    if not path.exists():
        raise BadInput(f"kg.path={path} does not exist: set kg.path to a PrimeKG-format csv or csv.gz.")
    references = Path(kg.references) if kg.references else root / "kg" / "mondo_references.csv.gz"
    if not references.exists():
        if kg.references:
            raise BadInput(f"kg.references={references} does not exist: correct it, or leave it out to link by name.")
        references = None
    return root, path, references


def _counts(cohort: Cohort, splits: Splits, graph: KnowledgeGraph, links: Mapping[str, int]) -> dict[str, int]:
    return {
        "patients": cohort.visits["subject_id"].n_unique(),
        "visits": len(cohort.visits),
        "events": cohort.scan().select(pl.len()).collect().item(),
        "train samples": len(splits.train),
        "validation samples": len(splits.valid),
        "test samples": len(splits.test),
        "graph nodes": graph.num_nodes,
        "graph edges": graph.num_edges,
        **{f"codes linked, {rule}" if rule != "unlinked" else "codes unlinked": n for rule, n in links.items()},
        **{rule: n for rule, n in cohort.counts.items() if n and not rule.startswith("rows.")},
    }


def _counter(tokenizer: Tokenizer):
    return lambda text: len(encode_prompt(tokenizer, text))
