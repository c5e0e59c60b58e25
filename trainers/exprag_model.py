"""The language model behind EXPRAG's policies: a pretrained one, or for the demo a small one made on the spot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from envs.exprag import ExpragEpisodes
from envs.exprag_rules import MajorityOfExperiences
from envs.flare import Pieces
from ghar.config import Config
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.llm.demo_model import build_model, build_tokenizer
from trainers.engines import AnyEngine, make_engine, serving
from trainers.exprag import ExpragStudy, play_questions
from trainers.models import load_pretrained, use_cores

EXAMPLES = 200  # prompts the demo's tokenizer is made from


@contextmanager
def language_model(study: ExpragStudy) -> Iterator[tuple[AnyEngine, Pieces]]:
    """An engine that serves the model, and how sure a reply of it is of each token."""
    config = study.config
    use_cores(config.threads)
    model, tokenizer = load_model(study)
    engine = make_engine(config, model, tokenizer)
    try:
        with serving(engine, model, 0):
            yield engine, sure_of(tokenizer)
    finally:
        engine.close()


def load_model(study: ExpragStudy) -> tuple[Any, Any]:
    """Model and tokenizer: what eval.checkpoint or model.path names, else a demo model that has learned nothing."""
    config = study.config
    if config.eval.checkpoint is not None:
        if not (Path(config.eval.checkpoint) / "config.json").is_file():
            raise BadInput(f"eval.checkpoint={config.eval.checkpoint} is no model: name the folder of a saved model.")
        return load_pretrained(config.eval.checkpoint, config.model.dtype)
    if config.model.kind == "pretrained":
        assert config.model.path is not None  # ghar.configure asks for it
        return load_pretrained(config.model.path, config.model.dtype)
    return _demo_model(study, config)


def _demo_model(study: ExpragStudy, config: Config) -> tuple[Any, Any]:
    """Untrained: its tokenizer knows the words of the prompts, its weights nothing."""
    # a rule's replies have no probabilities, which FLARE asks for, and the prompts' words are the same without
    episodes = ExpragEpisodes(replace(study.spec(True), flare=False))
    asked = study.splits.train[:EXAMPLES]
    played = play_questions(
        study, asked, MajorityOfExperiences(), episodes, seed=config.seed, title="Words of the demo model"
    )
    prompts = [record.effect.prompt for e in played for record in e.trace if isinstance(record.effect, Act)]
    model = config.model
    tokenizer = build_tokenizer(prompts, [], model.vocab or 0)
    shape = {"hidden": model.hidden or 0, "layers": model.layers or 0, "heads": model.heads or 0}
    return build_model(tokenizer, seed=config.data.world_seed, **shape), tokenizer


def sure_of(tokenizer: Any) -> Pieces:
    """How sure a reply is of each of its tokens."""
    return partial(token_pieces, tokenizer)


def token_pieces(tokenizer: Any, completion: Completion) -> list[tuple[str, float]]:
    """Text and probability of each sampled token. BadInput for a reply without log-probabilities."""
    ids = completion.token_ids
    if len(completion.logprobs) != len(ids) or not ids:
        raise BadInput("exprag.retriever=flare needs replies with log-probabilities: use an engine of this project.")
    texts = [tokenizer.decode(ids[: n + 1], skip_special_tokens=True) for n in range(len(ids))]
    starts = ["", *texts]
    return [
        (text[len(before) :], math.exp(p)) for text, before, p in zip(texts, starts, completion.logprobs, strict=False)
    ]
