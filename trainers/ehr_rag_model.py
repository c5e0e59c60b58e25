"""The language model behind EHR-RAG's methods: a pretrained one, or for the demo a small one without any training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.tokens import encode_prompt
from ghar.retrieval.event_store import Record
from trainers.ehr_rag_study import EventStudy
from trainers.engines import AnyEngine, make_engine, serving
from trainers.models import load_pretrained, use_cores

EXAMPLES = 50  # patients whose prompts the demo's tokenizer is made from


@contextmanager
def language_model(study: EventStudy) -> Iterator[tuple[AnyEngine, Callable[[str], int], int]]:
    """An engine that serves the model, how it counts tokens, and the budget of evidence in its prompts: ehr_rag.budget,
    but at most half of what the model can read."""
    config = study.config
    use_cores(config.threads)
    model, tokenizer = load_model(study)
    engine = make_engine(config, model, tokenizer)
    reach = getattr(model.config, "max_position_embeddings", None)
    tokens = study.ehr_rag.budget[1] if reach is None else min(study.ehr_rag.budget[1], reach // 2)
    try:
        with serving(engine, model, 0):
            yield engine, lambda text: len(encode_prompt(tokenizer, text)), tokens
    finally:
        engine.close()


def load_model(study: EventStudy) -> tuple[Any, Any]:
    """Model and tokenizer: what eval.checkpoint or model.path names, else a demo model that has learned nothing."""
    config = study.config
    if config.eval.checkpoint is not None:
        if not (Path(config.eval.checkpoint) / "config.json").is_file():
            raise BadInput(f"eval.checkpoint={config.eval.checkpoint} is no model: name the folder of a saved model.")
        return load_pretrained(config.eval.checkpoint, config.model.dtype)
    if config.model.kind == "pretrained":
        assert config.model.path is not None  # ghar.configure asks for it
        return load_pretrained(config.model.path, config.model.dtype)
    return _demo_model(study)


def _demo_model(study: EventStudy) -> tuple[Any, Any]:
    """Untrained: its tokenizer knows the words of the prompts, its weights nothing."""
    config, model = study.config, study.config.model
    apart = study.corpus.apart is not None
    texts = [line for record in study.records(study.splits.train[:EXAMPLES], apart=apart) for line in _words(record)]
    tokenizer = build_tokenizer(texts, [], model.vocab or 0)
    shape = {"hidden": model.hidden or 0, "layers": model.layers or 0, "heads": model.heads or 0}
    return build_model(tokenizer, seed=config.data.world_seed, **shape), tokenizer


def _words(record: Record) -> list[str]:
    return [*record.text(range(record.rows)), *(line for line, *_ in record.trajectory_lines(record.indicators, 5))]
