"""How large a training's passes are on the rows that a probe played, put together by the functions that do so in
training. `memory.estimate` counts with bounds where they are not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd

import numpy as np

from ghar.config import Config
from ghar.trainers.rl.fast.rows import common_prefix, micro_batches, prefix_groups
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.sft.packing import groups_of
from ghar.trainers.sft.pairs import TokenExample

STEPS = 64  # optimiser steps of RL that are drawn at most
APART, OTHER = 2**24, 2**16  # more than ids of a tokenizer, and than patients of an update


@dataclass(frozen=True)
class PassSize:
    """A forward and backward pass. tokens: of all lines, padding included; replies: those with a loss; trees: whether
    lines are trees of rows, with a mask of what their tokens see."""

    lines: int
    tokens: int
    replies: int
    trees: bool


@dataclass(frozen=True)
class Packing:
    """The passes of some optimiser steps. largest: the one of most tokens; episode: tokens of all passes for each
    episode that was in them, those that rows share once; before: the same of passes that read log-probabilities."""

    largest: PassSize
    episode: float
    before: float = 0.0


@dataclass(frozen=True)
class Sizes:
    """What is known of a run's passes beyond bounds, None where nothing is. length: tokens of the longest prompt with
    the longest reply that it allows; at_once: prompts that an engine works on; sft, rl: their largest passes."""

    length: int | None = None
    at_once: int | None = None
    sft: PassSize | None = None
    rl: PassSize | None = None


def row_of(prompt: Sequence[int], reply: Sequence[int], weight: float = 1.0) -> Row:
    """A row to be trained on, of at least one token before a reply and in it; weight: tokens that an id stands for."""
    ids = np.array([*(prompt or (0,)), *(reply or (0,))], np.int64)
    start, end = (max(least, round(weight * n)) for least, n in ((1, len(ids) - max(1, len(reply))), (2, len(ids))))
    ids = ids[np.minimum(np.arange(end) / weight, len(ids) - 1).astype(int)]
    logp = np.zeros(end, np.float32)
    return Row(0, 0, min(start, end - 1), ids, logp, (), agent=0, role=0, trainable=True)


def sft_packing(texts: Sequence[Sequence[Row]], config: Config, processes: int, shares: bool) -> Packing | None:
    """The passes of an epoch over the rows of episodes; None without rows. shares: whether the model reads trees."""
    warmup, rng = config.trainer.warmup, np.random.default_rng(config.seed)
    rows = [row for episode in texts for row in episode]
    own = max(1, warmup.batch // processes)
    micro = gcd(own, warmup.micro_batch)
    pairs = [TokenExample(tuple(row.tokens[: row.prompt]), tuple(row.tokens[row.prompt :])) for row in rows]
    groups = groups_of(pairs, warmup.batch) if shares else [[i] for i in range(len(rows))]
    order = [i for group in rng.permutation(len(groups)) for i in groups[group]]
    sizes: list[PassSize] = []
    for first in range(0, len(order), own):
        step = sorted((rows[i] for i in order[first : first + own]), key=lambda row: len(row.tokens))
        trees = _sizes(step, micro * len(step[-1].tokens), True)
        if shares and config.deepspeed.stage is None and any(size.trees for size in trees):
            sizes += trees
        else:  # as they come: DeepSpeed takes pairs apart, and where none begin alike nobody does (sft/packing.py)
            sizes += [_padded(step[n : n + micro]) for n in range(0, len(step), micro)]
    if not sizes:
        return None
    return Packing(max(sizes, key=lambda size: size.tokens), sum(size.tokens for size in sizes) / len(texts))


def rl_packing(texts: Sequence[Sequence[Row]], config: Config, processes: int, shares: bool) -> Packing | None:
    """The passes of some updates of one process over episodes as long as those of `texts`; None without rows. shares:
    whether the model reads trees."""
    if not any(texts):
        return None
    rl, rng = config.trainer.rl, np.random.default_rng(config.seed)
    attempts = min(rl.attempts, config.trainer.rft.keep) if config.trainer.method == "rft" else rl.attempts
    patients = max(1, round(rl.episodes / rl.attempts / processes))
    rows = [
        row
        for place in range(patients)
        for attempt in range(attempts)
        for row in _attempt(texts[place % len(texts)], place // len(texts), place * attempts + attempt)
    ]
    if not rows:
        return None
    drawn = max(1, min(rl.updates * rl.epochs, ceil(STEPS / rl.minibatches)))
    parts = [part for _ in range(drawn) for part in np.array_split(rng.permutation(len(rows)), rl.minibatches)]
    sizes = [size for part in parts for size in _sizes([rows[i] for i in part], rl.micro_tokens, shares)]
    return Packing(
        max(sizes, key=lambda size: size.tokens),
        sum(size.tokens for size in sizes) / (drawn * patients * attempts),
        sum(size.tokens for size in _sizes(rows, rl.micro_tokens, shares)) / (patients * attempts),
    )


def _attempt(texts: Sequence[Row], patient: int, attempt: int) -> Iterator[Row]:
    """An episode's rows as another attempt's, which begin alike as far as the first prompt goes, and as another
    patient's, which do not: ids of their own say what differs."""
    for row in texts:
        first = texts[0].tokens[: texts[0].prompt]
        alike = common_prefix(first, row.tokens[: row.prompt])
        own = np.where(np.arange(len(row.tokens)) < alike, patient, patient + OTHER * (attempt + 1))
        yield replace(row, tokens=row.tokens + own * APART)


def _sizes(rows: Sequence[Row], budget: int, share: bool) -> list[PassSize]:
    """Passes as `rl.fast.rows.packed` groups rows."""
    texts = [row.tokens for row in rows]
    trees = prefix_groups(texts, budget) if share else [([i], len(text)) for i, text in enumerate(texts)]
    lengths = [length for _, length in trees]
    return [
        PassSize(
            len(group),
            len(group) * max(lengths[tree] for tree in group),
            sum(len(rows[i].tokens) - rows[i].prompt for tree in group for i in trees[tree][0]),
            any(len(trees[tree][0]) > 1 for tree in group),
        )
        for group in micro_batches(lengths, budget)
    ]


def _padded(rows: Sequence[Row]) -> PassSize:
    longest = max(len(row.tokens) for row in rows)
    return PassSize(len(rows), len(rows) * longest, sum(len(row.tokens) - row.prompt for row in rows), False)
