"""Facts about a model that its own files state: which tokens end a reply and begin a prompt, how logits are made.

One record for everyone who needs them: tokens, engines, SFT, the trainer's head, memory estimates, exports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ghar.errors import BadInput
from ghar.llm.chat_template import CONTENT, render, template_of
from ghar.llm.logits import IDENTITY, LogitTransform, transform_of

RECORD = "_ghar_facts"  # attribute of a tokenizer: (what it was read from, the facts)
PROBE = 8  # tokens by which a family is tried out
APART = {"torch.float32": 1e-3, "torch.bfloat16": 5e-2}  # of logits, relative to their size


@dataclass(frozen=True)
class ModelFacts:
    """ends: token ids that end a reply, first the one that replies are written with; begin: ids in front of a prompt
    without a template; chat: whether prompts are a user's message; logits: from the head's product; tied: whether the
    head's weights are the embedding's."""

    ends: tuple[int, ...]
    begin: tuple[int, ...] = ()
    chat: bool = False
    logits: LogitTransform = IDENTITY
    tied: bool = False

    @property
    def end(self) -> int:
        """The token that a reply is written with."""
        return self.ends[0]


def facts_of(tokenizer: Any) -> ModelFacts:
    """What `read_facts` found with this tokenizer's model, else what the tokenizer alone tells."""
    source = template_of(tokenizer), getattr(tokenizer, "eos_token_id", None)
    kept = getattr(tokenizer, RECORD, None)
    if kept is None or kept[0] != source:
        kept = source, _of_tokenizer(tokenizer, ())
        setattr(tokenizer, RECORD, kept)
    return kept[1]


def read_facts(model: Any, tokenizer: Any) -> ModelFacts:
    """The facts of a model of transformers with its tokenizer, which keeps them (`facts_of`)."""
    ends: list[int] = []
    for config in (getattr(model, "generation_config", None), model.config):
        eos = getattr(config, "eos_token_id", None)
        ends += eos if isinstance(eos, list | tuple) else [] if eos is None else [eos]
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    facts = replace(_of_tokenizer(tokenizer, ends), logits=transform_of(model.config), tied=tied)
    setattr(tokenizer, RECORD, ((template_of(tokenizer), tokenizer.eos_token_id), facts))
    return facts


def _of_tokenizer(tokenizer: Any, ends: Iterable[int]) -> ModelFacts:
    chat = template_of(tokenizer) is not None
    turn, own = _turn_end(tokenizer) if chat else None, getattr(tokenizer, "eos_token_id", None)
    special = _special_ids(tokenizer)
    ids = [*(() if turn is None else (turn,)), *(() if own is None else (own,)), *(i for i in ends if i in special)]
    return ModelFacts(tuple(dict.fromkeys(ids)), () if chat else _begin(tokenizer), chat)


def _turn_end(tokenizer: Any) -> int | None:
    """The special token that the chat template writes behind a reply; None where it writes none."""
    text = render(tokenizer, ("user", "Hi"), ("assistant", CONTENT), prompt=False)
    after = text.rpartition(CONTENT)[2].lstrip()
    ids = tokenizer.encode(after, add_special_tokens=False) if after else []
    return ids[0] if ids and ids[0] in _special_ids(tokenizer) else None


def _special_ids(tokenizer: Any) -> set[int]:
    return {*getattr(tokenizer, "added_tokens_decoder", {}), *getattr(tokenizer, "all_special_ids", ())}


def _begin(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer itself puts in front of a text: the token that many bases have read before every text."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        return ()
    return (bos,) if list(tokenizer.encode("a", add_special_tokens=True))[:1] == [bos] else ()


def check_facts(model: Any, tokenizer: Any, facts: ModelFacts, path: str) -> None:
    """BadInput for a family that would be served or trained wrongly.

    Tried on a few tokens: logits from states, head and transform; a row padded on the left with a cache of keys and
    values, as engines read it.
    """
    if not facts.ends:
        raise BadInput(f"{path} names no token that ends a reply (eos_token): choose another model.")
    embedded = model.get_input_embeddings().num_embeddings
    if tokenizer.vocab_size > embedded:
        raise BadInput(
            f"{path} has a tokenizer of {tokenizer.vocab_size:,} tokens and a model of {embedded:,}: it holds files of "
            "two models; copy it again."
        )
    try:
        reference, made, padded = _tried(model, tokenizer, facts)
    except (TypeError, AttributeError, ValueError, IndexError, NotImplementedError) as error:
        raise BadInput(f"{path} is a {type(model).__name__}, which GHAR cannot run ({error}).") from None
    limit = APART.get(str(next(model.parameters()).dtype), 5e-2)
    for logits, what in ((made, "whose logits are made"), (padded, "whose padded or cached rows are read")):
        apart = float((reference[: len(logits)] - logits).norm() / reference.norm().clamp(min=1e-12))
        if not apart <= limit:
            raise BadInput(
                f"{path} is a {type(model).__name__}, {what} in a way that GHAR does not know (off by {apart:.1g}): "
                "choose another model, or engine=api for an evaluation."
            )


def _tried(model: Any, tokenizer: Any, facts: ModelFacts) -> tuple[Any, ...]:
    """Logits [T, V] of a few tokens: the model's own, those by `facts`, and those of the first ones padded."""
    import torch

    with torch.no_grad():
        return _logits(model, tokenizer, facts)


def _logits(model: Any, tokenizer: Any, facts: ModelFacts) -> tuple[Any, ...]:
    import torch
    from transformers import DynamicCache

    vocabulary = model.config.get_text_config().vocab_size
    ids = [(7919 * i + 11) % vocabulary for i in range(PROBE)]
    row = torch.tensor([ids], device=model.device)
    reference = model(input_ids=row, use_cache=False).logits[0].float()
    states = model.base_model(input_ids=row, use_cache=False).last_hidden_state
    made = facts.logits.apply(model.get_output_embeddings()(states)[0].float())
    gap, pad = PROBE // 2, tokenizer.pad_token_id or 0
    both = torch.tensor([[pad] * gap + ids[: PROBE - gap], ids], device=model.device)
    mask = torch.ones_like(both)
    mask[0, :gap] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache, parts = DynamicCache(config=model.config), []
    for part in (slice(0, PROBE - 1), slice(PROBE - 1, PROBE)):
        given = {"input_ids": both[:, part], "attention_mask": mask[:, : part.stop], "position_ids": positions[:, part]}
        parts.append(model(**given, past_key_values=cache).logits[0].float())
    if sum(map(len, parts)) != PROBE:
        raise ValueError("it keeps no keys and values of what it has read")
    return reference, made, torch.cat(parts)[gap:]
