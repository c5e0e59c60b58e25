"""The language model behind EHR-RAG's methods: a pretrained one, or for the demo a small one without any training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ghar.llm.engines import AnyEngine, served
from ghar.llm.models import load_backbone
from ghar.llm.tokens import encode_prompt
from ghar.retrieval.event_store import Record
from trainers.ehr_rag_study import EventStudy
from trainers.runs.models import use_cores

EXAMPLES = 50  # patients whose prompts the demo's tokenizer is made from


@contextmanager
def language_model(study: EventStudy) -> Iterator[tuple[AnyEngine, Callable[[str], int], int]]:
    """An engine that serves the model, how it counts tokens, and the budget of evidence in its prompts: ehr_rag.budget,
    but at most half of what the model can read."""
    config = study.config
    use_cores(config.threads)
    model, tokenizer = load_model(study)
    reach = getattr(model.config, "max_position_embeddings", None)
    tokens = study.ehr_rag.budget[1] if reach is None else min(study.ehr_rag.budget[1], reach // 2)
    with served(config, model, tokenizer) as engine:
        yield engine, lambda text: len(encode_prompt(tokenizer, text)), tokens


def load_model(study: EventStudy) -> tuple[Any, Any]:
    """Model and tokenizer (`load_backbone`); the demo's knows the words of some training records."""

    def texts() -> list[str]:
        records = study.records(study.splits.train[:EXAMPLES], apart=study.corpus.apart is not None)
        return [line for record in records for line in _words(record)]

    return load_backbone(study.config, texts)


def _words(record: Record) -> list[str]:
    return [*record.text(range(record.rows)), *(line for line, *_ in record.trajectory_lines(record.indicators, 5))]
