"""Scores of prompts that begin alike: what they share is computed once and its keys and values are kept.

A prompt is a sequence of pieces (task, example, example, ..., patient); the last piece is scored given all before it.
Prompts form a tree whose edges are pieces. Each inner node is one forward pass over its own piece, whatever the number
of prompts below it, and stays in memory (least recently used ones leave first), so that the prompts of a later call
find it. A node holds the keys and values of all tokens up to it but the last: that one is put before the next piece,
where it predicts the first token, and no vocabulary-sized vector need be kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from ghar.llm.engine import CachingEngine, Engine
from ghar.llm.hf import HFEngine

Piece = tuple[int, ...]  # token ids
Path = tuple[Piece, ...]
Layers = tuple[tuple[torch.Tensor, torch.Tensor], ...]  # keys and values [heads, tokens, width] of each layer
LOGITS = 1 << 27  # numbers of the vocabulary's size held at once: 0.5 GB
CPU_PADDING = 200_000  # pairs of tokens that attention may look at in vain: about as long as a forward pass is started
CPU_TOKENS = 2048  # a CPU reads at once; larger batches leave its caches (16 rows of 100 are 1.4 times faster than 64)


@dataclass
class ScoringCounts:
    """Prompts scored, tokens the model has read for them, and tokens it would have read for each from scratch."""

    prompts: int = 0
    tokens: int = 0
    scratch: int = 0


class PlainScorer:
    """Scores each prompt from scratch, with any engine that gives log-probabilities."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.tally = ScoringCounts()

    def score(self, prompts: Sequence[Path]) -> list[tuple[float, ...]]:
        """log p of each token of every prompt's last piece given all before it, in nats."""
        pairs = [([token for piece in prompt[:-1] for token in piece], prompt[-1]) for prompt in prompts]
        _count(self.tally, prompts)
        self.tally.tokens += sum(len(context) + len(target) for context, target in pairs)
        return self.engine.score(pairs)


class CachedScorer:
    """Scores prompts with an engine that keeps keys and values itself (engine `vllm`'s prefix cache)."""

    def __init__(self, engine: CachingEngine):
        self.engine = engine
        self.tally = ScoringCounts()

    def score(self, prompts: Sequence[Path]) -> list[tuple[float, ...]]:
        """As `PlainScorer.score`."""
        pairs = [([token for piece in prompt[:-1] for token in piece], prompt[-1]) for prompt in prompts]
        _count(self.tally, prompts)
        results = self.engine.score_cached(pairs)
        read = sum(len(context) + len(target) for context, target in pairs)
        self.tally.tokens += read - sum(cached for _, cached in results)
        return [scores for scores, _ in results]


class PrefixScorer:
    """Scores prompts with engine `hf`, shared beginnings once; equal to `HFEngine.score` up to float rounding.

    keep: tokens whose keys and values stay from call to call; while it works there may be twice as many.
    """

    def __init__(self, engine: HFEngine, keep: int):
        self.engine = engine
        self.keep = keep
        self.tally = ScoringCounts()
        self._kept: OrderedDict[Path, Layers] = OrderedDict()
        self._of = (engine.model, engine.version)

    @torch.inference_mode()
    def score(self, prompts: Sequence[Path]) -> list[tuple[float, ...]]:
        """As `PlainScorer.score`. ValueError for a prompt of one piece, an empty piece, or a first one of one token."""
        if any(len(prompt) < 2 or len(prompt[0]) < 2 or not all(prompt) for prompt in prompts):
            raise ValueError("a prompt needs a first piece of two tokens or more, and another one that is scored")
        if self._of != (self.engine.model, self.engine.version):  # keys of other weights
            self._kept.clear()
            self._of = (self.engine.model, self.engine.version)
        _count(self.tally, prompts)
        training = self.engine.model.training
        self.engine.model.eval()
        scores: dict[int, tuple[float, ...]] = {}
        for part in self._parts(prompts):
            scores |= zip(part, self._score_part([prompts[i] for i in part]), strict=True)
        self.engine.model.train(training)
        return [scores[i] for i in range(len(prompts))]

    def _parts(self, prompts: Sequence[Path]) -> Iterator[list[int]]:
        """Indices of `prompts`, those that share most together, cut so that the inner nodes of a part have at most
        `keep` tokens (a single prompt may have more)."""
        part: list[int] = []
        nodes: set[Path] = set()
        tokens = 0
        for i in sorted(range(len(prompts)), key=lambda i: prompts[i]):
            path = prompts[i]
            fresh = {path[:depth] for depth in range(1, len(path))} - nodes
            more = sum(len(node[-1]) for node in fresh)
            if part and tokens + more > self.keep:
                yield part
                part, nodes, tokens = [], set(), 0
                fresh = {path[:depth] for depth in range(1, len(path))}
                more = sum(len(node[-1]) for node in fresh)
            part.append(i)
            nodes |= fresh
            tokens += more
        if part:
            yield part

    def _score_part(self, prompts: Sequence[Path]) -> list[tuple[float, ...]]:
        for depth in range(1, max(map(len, prompts))):
            wanted = dict.fromkeys(prompt[:depth] for prompt in prompts if len(prompt) > depth)
            self._grow([path for path in wanted if path not in self._kept])
            for path in wanted:
                self._kept.move_to_end(path)
        scores: dict[int, tuple[float, ...]] = {}
        for batch in self._batches(prompts):
            scores |= zip(batch, self._leaves([prompts[i] for i in batch]), strict=True)
        self._forget()
        return [scores[i] for i in range(len(prompts))]

    def _grow(self, paths: Sequence[Path]) -> None:
        """Compute the nodes `paths`, whose parents are there."""
        for part in self._batches(paths):
            rows = [paths[i] for i in part]
            reads = [_reads(path) for path in rows]
            cache, width, _ = self._forward(rows, reads, scored=False)
            for row, (path, ids) in enumerate(zip(rows, reads, strict=True)):
                own = slice(width, width + len(ids))
                self._kept[path] = tuple(
                    (layer.keys[row, :, own].clone(), layer.values[row, :, own].clone()) for layer in cache.layers
                )

    def _leaves(self, prompts: Sequence[Path]) -> list[tuple[float, ...]]:
        reads = [_reads(path) for path in prompts]
        _, _, logits = self._forward(prompts, reads, scored=True)
        longest = max(len(prompt[-1]) for prompt in prompts)
        targets = torch.zeros(len(prompts), longest, dtype=torch.long, device=logits.device)
        for row, prompt in enumerate(prompts):
            targets[row, : len(prompt[-1])] = torch.tensor(prompt[-1])
        picked = logits.gather(2, targets[:, :, None]).squeeze(2).float() - logits.float().logsumexp(-1)
        return [tuple(row[: len(p[-1])].tolist()) for row, p in zip(picked.cpu(), prompts, strict=True)]

    def _forward(self, paths: Sequence[Path], reads: Sequence[Piece], scored: bool) -> tuple[Any, int, Any]:
        """Read `reads[i]` behind what is kept of `paths[i]`'s parent: the cache, the past's width, the logits.

        Unless `scored`, the pass ends as soon as all keys and values are there, and there are no logits.

        Pasts are padded on the left, what is read on the right, so that real tokens see only real ones.
        """
        model = self.engine.model
        pasts = [[self._kept[path[:n]] for n in range(1, len(path))] for path in paths]
        lengths = [sum(node[0][0].shape[1] for node in past) for past in pasts]
        width, longest = max(lengths), max(map(len, reads))
        cache = _placed(pasts, lengths, longest, whole=scored) if width else DynamicCache()
        pad, device = self.engine.tokenizer.pad_token_id, model.device
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in reads], device=device)
        column, past = torch.arange(width + longest, device=device), torch.tensor(lengths, device=device)[:, None]
        new = torch.tensor([[len(row)] for row in reads], device=device)
        mask = ((column >= width - past) & (column < width + new)).long()
        positions = past + torch.arange(longest, device=device)
        self.tally.tokens += sum(map(len, reads))
        try:
            inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
            out = model(**inputs, past_key_values=cache, logits_to_keep=0 if scored else 1)
        except _Enough:
            return cache, width, None
        return cache, width, out.logits

    def _batches(self, paths: Sequence[Path]) -> Iterator[list[int]]:
        """Indices of `paths`, those of like lengths together, in batches the memory can hold. On a CPU a batch also
        ends where padding would cost more than another forward pass."""
        model = self.engine.model
        on_cpu = model.device.type == "cpu"
        most = LOGITS // model.config.vocab_size
        if on_cpu:
            most = min(most, CPU_TOKENS)
        sizes = [(len(path[-1]), sum(map(len, path[:-1]))) for path in paths]  # tokens read, and before them
        batch: list[int] = []
        width = pairs = 0  # of the batch: the longest past, and pairs of tokens that attention needs
        for i in sorted(range(len(paths)), key=sizes.__getitem__):
            longest, past = sizes[i]  # the last one is the longest
            rows, own = len(batch) + 1, longest * (past + longest)
            padding = rows * longest * (max(width, past) + longest) - pairs - own
            if batch and (rows > self.engine.max_batch or rows * longest > most or (on_cpu and padding > CPU_PADDING)):
                yield batch
                batch, width, pairs = [], 0, 0
            batch.append(i)
            width, pairs = max(width, past), pairs + own
        if batch:
            yield batch

    def _forget(self) -> None:
        kept = sum(node[0][0].shape[1] for node in self._kept.values())
        while kept > self.keep:
            _, node = self._kept.popitem(last=False)
            kept -= node[0][0].shape[1]


class _Enough(Exception):
    """All keys and values of a pass are there; what the last layer would make of them is not wanted."""


class _Place(DynamicLayer):
    """Keys and values of one layer whose past is in place already, with room behind it for what is read now.

    transformers' own layer copies the past whenever something is added to it. last: the pass ends here.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, width: int, last: bool):
        super().__init__()
        self.keys, self.values = keys, values
        self.both, self.width, self.last = (keys, values), width, last
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for place, new in zip(self.both, (key_states, value_states), strict=True):
            place[:, :, self.width :] = new
        if self.last:
            raise _Enough
        return self.both

    def get_seq_length(self) -> int:
        return self.width


def _placed(pasts: Sequence[Sequence[Layers]], lengths: Sequence[int], room: int, whole: bool) -> Cache:
    """A cache of `pasts`, one a row, zeros on their left, room for `room` tokens on their right.

    whole: the pass goes on to the logits.
    """
    width = max(lengths)
    nodes: list[tuple[int, Layers, int, int]] = []  # row, node, where its tokens begin and end
    for row, (past, length) in enumerate(zip(pasts, lengths, strict=True)):
        ends = list(accumulate((node[0][0].shape[1] for node in past), initial=width - length))
        nodes += [(row, *place) for place in zip(past, ends, ends[1:], strict=False)]

    def side(layer: int, which: int) -> torch.Tensor:
        like = nodes[0][1][layer][which]
        tensor = like.new_empty(len(pasts), like.shape[0], width + room, like.shape[2])
        for row, length in enumerate(lengths):
            if length < width:
                tensor[row, :, : width - length] = 0
        for row, node, start, end in nodes:
            tensor[row, :, start:end] = node[layer][which]
        return tensor

    layers = range(len(nodes[0][1]))
    return Cache(layers=[_Place(side(i, 0), side(i, 1), width, not whole and i == layers[-1]) for i in layers])


def _reads(path: Path) -> Piece:
    """What a forward pass for the last piece of `path` reads: the token before the piece, and the piece but its last
    token, which is left to whoever comes after it."""
    *before, last = path
    return (*(before[-1][-1:] if before else ()), *last[:-1])


def _count(tally: ScoringCounts, prompts: Sequence[Path]) -> None:
    tally.prompts += len(prompts)
    tally.scratch += sum(len(piece) for prompt in prompts for piece in prompt)
