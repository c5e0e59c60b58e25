"""The language model behind EXPRAG's policies: a pretrained one, or for the demo a small one made on the spot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from envs.exprag.episode import ExpragEpisodes
from envs.exprag.flare import Pieces
from envs.exprag.rule import MajorityOfExperiences
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.llm.engines import AnyEngine, served
from ghar.llm.models import load_backbone
from trainers.exprag import ExpragStudy, play_questions
from trainers.runs.models import use_cores

EXAMPLES = 200  # prompts the demo's tokenizer is made from


@contextmanager
def language_model(study: ExpragStudy) -> Iterator[tuple[AnyEngine, Pieces]]:
    """An engine that serves the model, and how sure a reply of it is of each token."""
    config = study.config
    use_cores(config.threads)
    model, tokenizer = load_model(study)
    with served(config, model, tokenizer) as engine:
        yield engine, sure_of(tokenizer)


def load_model(study: ExpragStudy) -> tuple[Any, Any]:
    """Model and tokenizer (`load_backbone`); the demo's knows the words of some training questions' prompts."""

    def texts() -> list[str]:
        # a rule's replies have no probabilities, which FLARE asks for, and the prompts' words are the same without
        episodes = ExpragEpisodes(replace(study.spec(True), flare=False))
        asked, title = study.splits.train[:EXAMPLES], "Words of the demo model"
        played = play_questions(study, asked, MajorityOfExperiences(), episodes, seed=study.config.seed, title=title)
        return [record.effect.prompt for e in played for record in e.trace if isinstance(record.effect, Act)]

    return load_backbone(study.config, texts)


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
