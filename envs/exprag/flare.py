"""FLARE (Jiang et al. 2023): write an answer sentence by sentence, and look up where the next one is in doubt."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ghar.data.sections import sentences
from ghar.envs.exprag.report_corpus import FindExcerpts
from ghar.episode import Act, Completion, Evidence, Reply
from ghar.errors import BadInput

THETA, BETA = 0.8, 0.4  # a token below the first puts a sentence in doubt; one below the second is no query word
LONGEST = 4  # sentences
FINISHED = "finished"
Pieces = Callable[[Completion], Sequence[tuple[str, float]]]  # text of each sampled token and its probability


def flare(
    write: Callable[[str, Evidence, int], Act],
    look_up: Callable[[str], FindExcerpts],
    pieces: Pieces,
    evidence: Evidence,
) -> Generator[Any, Any, tuple[str, Evidence]]:
    """Returns the text that was worked out and the evidence its last sentence rests on.

    write: asks for the next sentence, given what stands so far, the evidence and a step number. A sentence with a token
    less probable than THETA is taken as a query, without the tokens less probable than BETA, and written anew on what
    that finds.
    """
    draft: list[str] = []
    for step in range(LONGEST):
        reply: Reply = yield write(" ".join(draft), evidence, 2 * step)
        sentence, query, doubtful = tentative(pieces(reply.completion))
        if doubtful and query:
            evidence = yield look_up(query)
            reply = yield write(" ".join(draft), evidence, 2 * step + 1)
            sentence, _, _ = tentative(pieces(reply.completion))
        if not sentence or sentence.lower().strip(" .") == FINISHED:
            break
        draft.append(sentence)
    return " ".join(draft), evidence


def tentative(pieces: Sequence[tuple[str, float]]) -> tuple[str, str, bool]:
    """The first sentence of a reply, the query it makes, and whether it is in doubt."""
    text = "".join(piece for piece, _ in pieces)
    reply_sentences = sentences(text)
    if not reply_sentences:
        return "", "", False
    end = text.index(reply_sentences[0]) + len(reply_sentences[0])
    own, at = [], 0
    for piece, probability in pieces:
        if at < end:
            own.append((piece, probability))
        at += len(piece)
    query = "".join(piece for piece, probability in own if probability >= BETA)
    return reply_sentences[0], " ".join(query.split()), min(probability for _, probability in own) < THETA


def token_pieces(tokenizer: Any, completion: Completion) -> list[tuple[str, float]]:
    """Text and probability of each sampled token. BadInput for a reply without log-probabilities, and where no
    tokenizer is known (None)."""
    ids = completion.token_ids
    if tokenizer is None or len(completion.logprobs) != len(ids) or not ids:
        raise BadInput("system.retriever=flare needs replies with log-probabilities: use an engine of this project.")
    texts = [tokenizer.decode(ids[: n + 1], skip_special_tokens=True) for n in range(len(ids))]
    starts = ["", *texts]
    return [
        (text[len(before) :], math.exp(p)) for text, before, p in zip(texts, starts, completion.logprobs, strict=False)
    ]
