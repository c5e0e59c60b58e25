"""What supervised training reads: pairs of token ids, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.episode import Act, Episode
from ghar.llm.tokens import Tokenizer, encode_choices, encode_many

IGNORE = -100  # label of a token without loss, as torch and TRL have it


@dataclass(frozen=True)
class Example:
    """What to say after what: token ids, the completion's end token included when the reply should end there.

    weight: of each of its completion's tokens. Without weights the loss is the mean over the completion tokens of a
    batch; where one pair has a weight all have, and it is the mean over pairs of weight * sum over tokens.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    weight: float | None = None


def tokenised(tokenizer: Tokenizer, episodes: Iterable[Episode]) -> list[tuple[str, Example]]:
    """The replies of episodes with their prompts, as (role, token ids), to be imitated."""
    records = [r for e in episodes for r in e.trace if isinstance(r.effect, Act)]
    acts: list[Any] = [record.effect for record in records]
    replies: list[Any] = [record.result for record in records]
    return [
        (act.role, pair)
        for act, pair in zip(
            acts,
            pairs_of(tokenizer, [(act.prompt, reply.text.strip(), act.choices, None) for act, reply in
                                 zip(acts, replies, strict=True)]),
            strict=True,
        )
    ]  # fmt: skip


def pairs_of(tokenizer: Tokenizer, texts: Sequence[tuple[str, str, tuple[str, ...], float | None]]) -> list[Example]:
    """(prompt, reply, choices, weight) as token ids; of a reply among choices those that an engine would choose.

    weight: of the pair against others: each of its completion's tokens gets its share.
    """
    choices = {some: encode_choices(tokenizer, some) for _, _, some, _ in texts if some}
    prompts, replies = encode_many(tokenizer, [text[0] for text in texts], [text[1] for text in texts])
    found = []
    for (_, reply, some, weight), prompt, free in zip(texts, prompts, replies, strict=True):
        ids = list(choices[some][some.index(reply)]) if some else free
        found.append(Example(prompt, ids, None if weight is None else weight / len(ids)))
    return found


def dataset(pairs: Sequence[Example]) -> Any:
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
