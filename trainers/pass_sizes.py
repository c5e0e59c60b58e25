"""How large a training's passes are on the rows that a probe played, put together by the functions that do so in
training. `memory.estimate` counts with bounds where they are not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import torch

from ghar.config import Config
from ghar.trainers.rl.fast.rows import collate, packed
from ghar.trainers.rl.settings import trained_share
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.sft.packing import groups_of
from ghar.trainers.sft.pairs import TokenExample

DRAWS = 64  # optimiser steps of RL that are drawn at most


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
    """The passes of some optimiser steps. largest: the one of most tokens; row: tokens of all passes for each row that
    was in them, those that rows share once."""

    largest: PassSize
    row: float


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


def sft_packing(rows: Sequence[Row], config: Config, processes: int, shares: bool) -> Packing | None:
    """The passes of an epoch over `rows`; None without rows. shares: whether the model reads trees."""
    warmup, rng = config.trainer.warmup, np.random.default_rng(config.seed)
    own = max(1, warmup.batch // processes)
    micro = gcd(own, warmup.micro_batch)
    share = shares and config.deepspeed.stage is None  # DeepSpeed takes pairs apart (sft/trainer.py)
    pairs = [TokenExample(tuple(row.tokens[: row.prompt]), tuple(row.tokens[row.prompt :])) for row in rows]
    groups = groups_of(pairs, warmup.batch) if share else [[i] for i in range(len(rows))]
    order = [i for group in rng.permutation(len(groups)) for i in groups[group]]
    sizes = []
    for first in range(0, len(order), own):
        step = sorted((rows[i] for i in order[first : first + own]), key=lambda row: len(row.tokens))
        if share:
            sizes += _sizes(step, micro * max(len(row.tokens) for row in step), True)
        else:
            sizes += [_size(step[n : n + micro], ()) for n in range(0, len(step), micro)]
    return _packing(sizes, len(rows))


def rl_packing(rows: Sequence[Row], episodes: int, config: Config, processes: int, shares: bool) -> Packing | None:
    """The passes of some steps over as many rows as a minibatch has, when `rows` are of so many episodes; None without
    rows. shares: whether the model reads trees."""
    if not rows:
        return None
    rl, rng = config.trainer.rl, np.random.default_rng(config.seed)
    wanted = len(rows) / episodes * trained_share(config) * rl.episodes / (rl.minibatches * processes)
    number = max(1, min(len(rows), round(wanted)))
    draws = max(1, min(DRAWS, rl.updates * rl.epochs * rl.minibatches))
    drawn = ([rows[i] for i in rng.permutation(len(rows))[:number]] for _ in range(draws))
    packing = _packing([size for some in drawn for size in _sizes(some, rl.micro_tokens, shares)], draws * number)
    assert packing is not None
    size = packing.largest
    more = min(wanted / number, rl.micro_tokens / size.tokens)  # a minibatch of more rows than were played
    if more <= 1:
        return packing
    lines, tokens, replies = (round(n * more) for n in (size.lines, size.tokens, size.replies))
    return Packing(PassSize(lines, tokens, replies, size.trees), packing.row)


def _packing(sizes: Sequence[PassSize], rows: int) -> Packing | None:
    if not sizes:
        return None
    return Packing(max(sizes, key=lambda size: size.tokens), sum(size.tokens for size in sizes) / rows)


def _sizes(rows: Sequence[Row], budget: int, share: bool) -> list[PassSize]:
    return [_size([rows[i] for i in micro.rows], micro.trees) for micro in packed(rows, budget, share)]


def _size(rows: Sequence[Row], trees: Sequence[int]) -> PassSize:
    batch = collate(rows, torch.device("cpu"), trees)
    return PassSize(len(batch.tokens), batch.tokens.numel(), len(batch.target), batch.seen is not None)
