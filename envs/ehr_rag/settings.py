"""The keys of system=ehr_rag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ghar.config import Config, Count, Fraction, Natural, NotNegative, Positive
from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.retrieval.sparse import SPARSE


@dataclass(frozen=True)
class Settings:
    """EHR-RAG as the paper has it (Appendix A): 100 rows a chunk, 5 of 100 candidates, 30 indicators down to 10, three
    retrievals a path. Of its 128,000 tokens a prompt shows as many as model and budget allow."""

    name: str = "ehr_rag"  # of the room, or a dotted module of your own
    iterations: Count = 3  # retrievals a path
    chunk_rows: Count = 100  # rows of a chunk
    chunk_overlap: Natural = 5  # and how many of them the next one repeats
    sentences: Count = 2  # of a piece, where a text stands for the record (task=medqa, task=summary)
    candidates: Count = 100  # chunks by similarity
    chunks: Count = 5  # kept a query
    alpha: Fraction = 0.75  # of Eq. 3: similarity against time
    recent_days: Positive = 180.0  # windows of Eq. 2: days that count as recent
    early_days: Positive = 3650.0  # the longer of the two
    indicators: Count = 30  # candidates by name
    indicators_kept: Count = 10  # by the model
    recent_values: Count = 5  # of each
    rows: Count = 1000  # budget of evidence in a prompt
    tokens: Count = 16000  # the same in tokens; at most half of what the model can read
    recall: NotNegative = 5.0  # reward of all evidence, where a generated world knows which rows tell
    cost: NotNegative = 0.1  # of a search
    label_epochs: Count = 8  # over the training samples at most, of label-only SFT (variant label_sft)
    embeddings: str | None = None  # parquet or npz with subject_id, prediction_time and vector, for variant embeddings

    @property
    def reads_events(self) -> bool:
        """Events are read, so that patients without a stay are accepted."""
        return True


def contradictions(config: Config, own: Settings) -> Iterator[str]:
    """Sentences for values that do not go together."""
    if own.chunk_overlap >= own.chunk_rows:
        yield f"system.chunk_overlap={own.chunk_overlap} repeats whole chunks: choose one below system.chunk_rows."
    if config.task.name in (MEDQA, SUMMARY):
        if own.embeddings is not None:
            yield "system.embeddings has vectors of patients, and texts have none: leave it out."
    elif config.eval.variants is not None and ("embeddings" in config.eval.variants) != (own.embeddings is not None):
        yield "system.embeddings is the file of variant embeddings: set both, or leave both out."
    if config.retriever.kind in SPARSE:
        kind = config.retriever.kind
        yield f"retriever={kind} makes no vectors of chunks: choose retriever=codes, e5 or another."
