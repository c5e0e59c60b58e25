"""From a configuration to the records of one task, linked to a graph: what every system that predicts from visits of
codes needs before it builds what it retrieves from. No model yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from ghar.config import Config
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.demo.world import World, generate_world, load_world, world_folder
from ghar.data.readers.source import read_source
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.data.tasks.visits import visit_samples
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.linking import Links, link_codes
from ghar.kg.primekg import open_primekg
from ghar.kg.umls import Umls, read_umls
from ghar.llm.tokens import Tokenizer, encode_prompt


@dataclass(frozen=True)
class Records:
    """One task on one cohort, split by patient, its codes linked to a graph.

    graph: PrimeKG's format, or UMLS, which KARE alone reads. names: text of every code: its node's name, else the
    code's description. world: the truth of a generated cohort, None for real patients. counts: what was read, linked
    and repaired, for the report.
    """

    config: Config
    cohort: Cohort
    task: Task
    splits: Splits[Sample]
    names: Mapping[str, str]
    graph: KnowledgeGraph | Umls
    links: Links
    world: World | None
    counts: Mapping[str, int]

    @property
    def primekg(self) -> KnowledgeGraph:
        """The graph in PrimeKG's format. BadInput where it is UMLS."""
        if isinstance(self.graph, Umls):
            raise BadInput(
                f"kg.path={self.config.kg.path} holds UMLS, which only KARE's path search reads, with an engine or a "
                "server as kare.expert: name a PrimeKG-format csv or csv.gz."
            )
        return self.graph

    def name_of(self, code: str) -> str:
        """The text of a code; the code itself where nobody describes it."""
        return self.names.get(code, code)


def read_records(config: Config) -> Records:
    """Read, link and split. BadInput names what is missing or does not fit."""
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
    world = load_world(root) if cohort.generated else None
    if graph_path.is_dir():
        umls = read_umls(graph_path)
        links = umls_links(umls, cohort)
        names, size = links.names_of(cohort.names(), umls.graph), (len(umls.cuis), len(umls.graph.head))
        return Records(config, cohort, task, splits, names, umls, links, world, _counts(cohort, splits, size, links))
    graph = open_primekg(graph_path, Path(config.data.cache) / "graphs")
    links = link_codes(cohort.codes, graph, references)
    names, size = links.names_of(cohort.names(), graph), (graph.num_nodes, graph.num_edges)
    return Records(config, cohort, task, splits, names, graph, links, world, _counts(cohort, splits, size, links))


def umls_links(umls: Umls, cohort: Cohort) -> Links:
    """The codes that UMLS knows."""
    nodes, codes = umls.link(cohort.codes), cohort.codes["code"].n_unique()
    return Links(nodes, {}, {"UMLS": len(nodes), "unlinked": codes - len(nodes)})


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


def _counts(cohort: Cohort, splits: Splits, size: tuple[int, int], links: Links) -> dict[str, int]:
    return {
        "patients": cohort.visits["subject_id"].n_unique(),
        "visits": len(cohort.visits),
        "events": cohort.scan().select(pl.len()).collect().item(),
        "train samples": len(splits.train),
        "validation samples": len(splits.valid),
        "test samples": len(splits.test),
        "graph nodes": size[0],
        "graph edges": size[1],
        **{f"codes linked, {rule}" if rule != "unlinked" else "codes unlinked": n for rule, n in links.counts.items()},
        **{rule: n for rule, n in cohort.counts.items() if n and not rule.startswith("rows.")},
    }


def counter(tokenizer: Tokenizer | None) -> Callable[[str], int]:
    """Tokens of a text as `tokenizer` counts them (None: words, to train a tokenizer on)."""
    return (lambda text: len(text.split())) if tokenizer is None else lambda text: len(encode_prompt(tokenizer, text))
