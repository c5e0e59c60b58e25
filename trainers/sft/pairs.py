"""What supervised training reads: pairs of token ids, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.envs.system import Example
from ghar.episode import Act, Episode
from ghar.llm.tokens import Tokenizer, encode_choices, encode_many

IGNORE = -100  # label of a token without loss, as torch and TRL have it


@dataclass(frozen=True)
class TokenExample:
    """What to say after what: token ids, the completion's end token included when the reply should end there.

    weight: of each of its completion's tokens. Without weights the loss is the mean over the completion tokens of a
    batch; where one pair has a weight all have, and it is the mean over pairs of weight * sum over tokens.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    weight: float | None = None


def tokenised(tokenizer: Tokenizer, episodes: Iterable[Episode]) -> list[tuple[str, TokenExample]]:
    """The replies of episodes with their prompts, as (role, token ids), to be imitated."""
    records = [r for e in episodes for r in e.trace if isinstance(r.effect, Act)]
    acts: list[Any] = [record.effect for record in records]
    replies: list[Any] = [record.result for record in records]
    return [
        (act.role, pair)
        for act, pair in zip(
            acts,
            tokenise_examples(tokenizer, [Example(act.prompt, reply.text.strip(), act.choices, None)
                                          for act, reply in zip(acts, replies, strict=True)]),
            strict=True,
        )
    ]  # fmt: skip


def tokenise_examples(tokenizer: Tokenizer, examples: Sequence[Example]) -> list[TokenExample]:
    """Examples as token ids; of a reply among choices those that an engine would choose.

    Each of a reply's tokens gets its share of the example's weight. A plain tuple of an example's fields serves too.
    """
    examples = [Example(*one) for one in examples]
    choices = {one.choices: encode_choices(tokenizer, one.choices) for one in examples if one.choices}
    prompts, replies = encode_many(tokenizer, [one.prompt for one in examples], [one.reply for one in examples])
    token_examples = []
    for one, prompt, free in zip(examples, prompts, replies, strict=True):
        ids = list(choices[one.choices][one.choices.index(one.reply)]) if one.choices else free
        token_examples.append(TokenExample(prompt, ids, None if one.weight is None else one.weight / len(ids)))
    return token_examples


def dataset(pairs: Sequence[TokenExample]) -> Any:
    """Hugging Face's dataset of the pairs: input_ids, labels, and weight where they have one."""
    from datasets import Dataset

    columns: dict[str, list[Any]] = {
        "input_ids": [[*p.prompt_ids, *p.completion_ids] for p in pairs],
        "labels": [[IGNORE] * len(p.prompt_ids) + list(p.completion_ids) for p in pairs],
    }
    if pairs[0].weight is not None:
        columns["weight"] = [pair.weight for pair in pairs]
    return Dataset.from_dict(columns)


def collate(rows: Sequence[Mapping[str, Any]], pad_id: int) -> dict[str, Any]:
    """Pad on the right, where nothing that counts looks: causal attention then needs no mask, which would keep torch
    from its fast kernels, and positions count from 0 by themselves.

    input_ids, labels: int64 [R, L]; weights, where rows have them: a NumPy float64 [R].
    """
    import torch

    width = max(len(row["input_ids"]) for row in rows)

    def padded(name: str, filler: int) -> torch.Tensor:
        return torch.tensor([list(row[name]) + [filler] * (width - len(row[name])) for row in rows])

    weights = {"weights": np.array([row["weight"] for row in rows])} if "weight" in rows[0] else {}
    return {"input_ids": padded("input_ids", pad_id), "labels": padded("labels", IGNORE), **weights}
