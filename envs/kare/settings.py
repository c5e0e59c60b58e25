"""The keys of system=kare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from ghar.config import Config, Count, Fraction, Range
from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.retrieval.sparse import SPARSE

FACTORS_OF_PATIENTS = ("no_recency", "no_theme")  # values of system.variant that leave out what no text has
NOUNS = {MEDQA: "questions", SUMMARY: "texts"}  # of tasks without patients
CONTEXTS = ("no_patients", "base")  # values of system.variant that change the context, not the equations


@dataclass(frozen=True)
class Settings:
    """KARE as the paper has it (Appendices B.1 and D, Table 6); how many tokens of summaries a prompt shows it leaves
    open. conf/system/kare_released.yaml has the released code's numbers."""

    name: str = "kare"  # of the room, or a dotted module of your own
    # who extracts triples, summarises, writes reasoning chains and criticises: scripted (fixed rules, which read the
    # graph and the records, and write chains of generated patients alone), engine (the model of this configuration), or
    # the address of a server, like model@http://host:8000/v1
    expert: str = "scripted"
    abstracts: str | None = None  # folder of abstracts, JSONL or CSV; null generates them for the demo world
    # paper; released: decay over all nodes, one theme relevance a summary; then the rows of Figure 3, and contexts of
    # Table 3: no_patients shows knowledge and no similar patients, base neither
    variant: Literal[
        "paper", "released", "no_hits", "no_decay", "no_coherence", "no_recency", "no_theme", "no_patients", "base"
    ] = "paper"
    # of the concepts' graph: paths of the biomedical graph, triples from abstracts (corpus), what the expert knows
    sources: tuple[Literal["graph", "corpus", "model"], ...] = ("graph", "corpus", "model")
    concepts: Count = 20  # co-occurring concepts of a patient that paths are looked for between, X
    path_length: Count = 7  # edges of a path at most
    path_count: Count = 40  # paths of a pair at most
    path_nodes: Count = 12000  # nodes looked at for a pair at most
    leiden_runs: Count = 25  # of hierarchical Leiden
    cluster_size: Count = 5  # size limit of a cluster
    small: Count | None = None  # triples up to which a community gets one summary, Z_s; null is 20, 5 at scale=demo
    large: Count | None = None  # triples up to which it is summarised at all, Z_c; null is 150, 6 at scale=demo
    alpha: Annotated[float, Range(0, 1)] = 0.1  # of indirect hits, Eq. 3; below 1
    beta: Annotated[float, Range(0, 1)] = 0.7  # decay of repeated nodes, Eq. 3; above 0
    coherence: Fraction = 0.2  # lambda 1 of Eqs. 4-6
    recency: Fraction = 0.2  # lambda 2
    theme: Fraction = 0.3  # lambda 3
    tokens: Count | None = None  # of summaries, or of abstracts, in a prompt; null is 2500, 200 at scale=demo
    chains: Count = 3  # that the expert writes a patient, K
    # what a model is fine-tuned on; weighted: labels by their inverse frequency
    tasks: Literal["multitask", "multitask_weighted", "two_in_one", "label_only"] = "multitask"

    @property
    def reads_graph(self) -> bool:
        """It retrieves from a graph, which generated patients alone come with."""
        return True

    @property
    def similar(self) -> int:
        """Similar patients of each label in the context that a model is fine-tuned on."""
        return 0 if self.variant in CONTEXTS else 1

    @property
    def looks_up(self) -> Literal["communities", "nothing"]:
        """Where the knowledge of that context comes from."""
        return "nothing" if self.variant == "base" else "communities"


@dataclass(frozen=True)
class PromptSizes:
    """The numbers that null leaves to the scale: what the demo's small model can read, or the paper's (Table 6)."""

    small: int
    large: int
    tokens: int


# what the demo's small model reads; what a pretrained one does without a GPU; the paper's (Table 6)
USUAL = {"demo": (5, 6, 200), "laptop": (10, 40, 600), "full": (20, 150, 2500)}


def sizes(config: Config, own: Settings) -> PromptSizes:
    """As configured, else by `scale`."""
    given = (own.small, own.large, own.tokens)
    usual = USUAL[config.scale.name]
    return PromptSizes(*(usual[i] if value is None else value for i, value in enumerate(given)))


def contradictions(config: Config, own: Settings) -> Iterator[str]:
    """Sentences for values that do not go together."""
    if not own.sources or len(set(own.sources)) < len(own.sources):
        yield f"system.sources={list(own.sources)} must name at least one source, each once: correct it."
    limits = sizes(config, own)
    if limits.small >= limits.large:
        yield f"system.small={limits.small} must be below system.large={limits.large}: correct them."
    if own.alpha == 1 or own.beta == 0:
        yield f"Eq. 3 needs system.alpha={own.alpha} below 1 and system.beta={own.beta} above 0: correct them."
    noun = NOUNS.get(config.task.name)
    if noun is not None and own.variant in FACTORS_OF_PATIENTS:
        yield (
            f"system.variant={own.variant} leaves out a factor of Eq. 3 that is 1 for {noun}, which have neither "
            "several visits nor a theme: choose another."
        )
    if config.task.name == SUMMARY and own.tasks in ("multitask_weighted", "two_in_one"):
        yield (
            f"system.tasks={own.tasks} teaches labels beside or after chains, and task=summary has neither: leave it "
            "out, and references are taught."
        )
    if config.retriever.kind in SPARSE:
        kind = config.retriever.kind
        yield f"retriever={kind} makes no vectors of summaries: choose retriever=hashing, e5 or another."
