"""Keys and values of prompts: what prompts begin alike with is read once, and rows grow in place.

transformers copies the whole cache at every token, and repeats the heads of keys and values for every mask; on a CPU
these copies are most of a token's time behind a long prompt.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ghar.llm import import_transformers  # noqa: F401

# isort: split
from transformers import AttentionInterface, AttentionMaskInterface, Cache, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SHARED = 32  # tokens that two prompts begin alike with, below which taking them over does not pay
READ = {"cpu": 1024, "cuda": 16384}  # padded tokens of prompts in one pass; a CPU gains nothing from more
BLOCK = 64  # columns by which a cache grows
KEPT = 16384  # tokens whose keys and values stay from call to call
PIECE = 64  # tokens by which they are kept and dropped
GROUPED = "ghar_sdpa"

Model = Any  # a causal language model of transformers, or of peft around one
Ids = tuple[int, ...]
Layers = list[tuple[Tensor, Tensor]]  # keys and values [heads, tokens, width] of each layer
Pieces = Sequence[Layers]  # of a text, one piece behind the other


# ---------------------------------------------------------------- attention


def _grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' "sdpa", without a copy of keys and values for every query head on a CPU."""
    if attention_mask is None or key.is_cuda or kwargs.get("position_bias") is not None or kwargs.get("cache"):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling"), enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, _grouped)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


@contextmanager
def grouped_heads(model: Model) -> Iterator[None]:
    """For the duration, attention reads keys and values where they are. Nothing changes for models of other attention
    than "sdpa"."""
    configs = {id(own): own for m in model.modules() if (own := getattr(m, "config", None)) is not None}
    changed = [own for own in configs.values() if getattr(own, "_attn_implementation", None) == "sdpa"]
    for own in changed:
        own._attn_implementation = GROUPED
    try:
        yield
    finally:
        for own in changed:
            own._attn_implementation = "sdpa"


# ---------------------------------------------------------------- layers


class _GrowingLayer(DynamicLayer):
    """Keys and values of one layer, `columns` of them in use, with room behind them."""

    keys: Any
    values: Any

    def __init__(self, keys: Tensor, values: Tensor, columns: int):
        super().__init__()
        self.keys, self.values, self.columns = keys, values, columns
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        end = self.columns + key_states.shape[2]
        if end > self.keys.shape[2]:
            self.keys, self.values = (_wider(x, max(BLOCK, end - x.shape[2])) for x in (self.keys, self.values))
        self.keys[:, :, self.columns : end] = key_states
        self.values[:, :, self.columns : end] = value_states
        self.columns = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.columns


def _wider(x: Tensor, more: int) -> Tensor:
    buffer = x.new_zeros(*x.shape[:2], x.shape[2] + more, x.shape[3])
    buffer[:, :, : x.shape[2]] = x
    return buffer


# ---------------------------------------------------------------- prompts of a batch


def read_at_once(device: str) -> int:
    """Padded tokens that one pass reads at most; a longer prompt is read alone."""
    return READ.get(device, READ["cuda"])


class BatchCache:
    """Keys and values of rows of tokens, padded on the left to `width`; what is sampled stands behind them.

    mask: int64 [rows, columns], 1 where a token is; lengths: tokens of each row's prompt; starts: its first column.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device):
        self.width = max(lengths)
        past = torch.tensor(lengths, device=device)[:, None]
        self.mask = (torch.arange(self.width, device=device) >= self.width - past).long()
        self.lengths = list(lengths)
        self.starts = [self.width - length for length in lengths]
        self.cache: Any = None

    def write(self, rows: Sequence[int], before: Layers, new: Layers) -> None:
        """Lay out one prompt in `rows`: `before`, then `new`."""
        if self.cache is None:
            self.cache = Cache(layers=[self._empty(keys, values) for keys, values in new])
        where = rows[0] if len(rows) == 1 else torch.tensor(rows, device=self.mask.device)
        start = self.starts[rows[0]]
        for layer, past, fresh in zip(self.cache.layers, before, new, strict=True):
            for whole, old, own in zip((layer.keys, layer.values), past, fresh, strict=True):
                middle = start + old.shape[1]
                whole[where, :, start:middle] = old
                whole[where, :, middle : self.width] = own

    def _empty(self, keys: Tensor, values: Tensor) -> _GrowingLayer:
        def side(like: Tensor) -> Tensor:
            return like.new_zeros(len(self.lengths), like.shape[0], self.width + BLOCK, like.shape[2])

        return _GrowingLayer(side(keys), side(values), self.width)

    @property
    def columns(self) -> int:
        """Columns in use, those of the prompts included."""
        return self.cache.layers[0].columns

    def row(self, row: int, tokens: int) -> Layers:
        """The first `tokens` of a row, as views."""
        own = slice(self.starts[row], self.starts[row] + tokens)
        return [(layer.keys[row, :, own], layer.values[row, :, own]) for layer in self.cache.layers]

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        index = torch.tensor(rows, device=self.mask.device)
        self.mask, self.lengths = self.mask[index], [self.lengths[row] for row in rows]
        self.starts = [self.starts[row] for row in rows]
        for layer in self.cache.layers:
            layer.keys, layer.values = layer.keys[index], layer.values[index]

    def join(self, rows: Sequence[int], other: BatchCache) -> None:
        """Keep `rows` and take over all rows of `other`: all end at the same column, and no column is left empty."""
        parts = [(self, list(rows)), (other, list(range(len(other.lengths))))]
        used = [cache.columns - min(cache.starts[row] for row in own) for cache, own in parts]
        width, mask = max(used), self.mask.new_zeros(sum(len(own) for _, own in parts), max(used))
        places = (slice(0, len(parts[0][1])), slice(len(parts[0][1]), None))
        for (cache, own), place, columns in zip(parts, places, used, strict=True):
            mask[place, width - columns :] = cache.mask[own, cache.columns - columns : cache.columns]
        for mine, their in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.keys = self._joined(parts, places, used, (mine.keys, their.keys))
            mine.values = self._joined(parts, places, used, (mine.values, their.values))
        self.starts = [width - cache.columns + cache.starts[row] for cache, own in parts for row in own]
        self.lengths = [cache.lengths[row] for cache, own in parts for row in own]
        for layer in self.cache.layers:
            layer.columns = width
        self.mask = mask

    @staticmethod
    def _joined(
        parts: Sequence[tuple[BatchCache, list[int]]],
        places: Sequence[slice],
        used: Sequence[int],
        sides: tuple[Tensor, Tensor],
    ) -> Tensor:
        rows, width = sum(len(own) for _, own in parts), max(used)
        whole = sides[0].new_zeros(rows, sides[0].shape[1], width + BLOCK, sides[0].shape[3])
        for (cache, own), place, columns, side in zip(parts, places, used, sides, strict=True):
            whole[place, :, width - columns : width] = side[own, :, cache.columns - columns : cache.columns]
        return whole


def _first(pieces: Pieces, tokens: int) -> Pieces:
    """The first `tokens` of a text, of which no piece but the last goes further."""
    left = tokens - sum(piece[0][0].shape[1] for piece in pieces[:-1])
    return [*pieces[:-1], *([(keys[:, :left], values[:, :left]) for keys, values in piece] for piece in pieces[-1:])]


@dataclass(eq=False)
class _Piece:
    """Up to `PIECE` tokens of kept texts. below: the pieces that follow it in some text, in the order of their ids."""

    ids: Ids
    layers: Layers
    below: list[_Piece] = field(default_factory=list)


class PrefixStore:
    """Keys and values of texts that were read before, up to `most` tokens, as a tree of pieces.

    What texts begin alike with is kept once. The pieces that were used least recently leave, the end of a text before
    its beginning.
    """

    def __init__(self, most: int = KEPT):
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Forget all: the weights are others."""
        self._root = _Piece((), [])
        # each piece with the one above it, which stands further behind; without a circle memory is given back at once
        self._held: OrderedDict[_Piece, _Piece] = OrderedDict()
        self.tokens = 0

    def add(self, ids: Ids, layers: Layers) -> None:
        """Keep a copy of `layers`, where it is not kept yet."""
        if min(len(ids), self.most) < SHARED:
            return
        path, at = self._path(ids)
        if at % PIECE and at < len(ids):  # `ids` part from the last piece within, or go on where it ends early
            last, at = path.pop(), at - at % PIECE
            if ids[at : at + len(last.ids)] == last.ids:
                self._drop(last)
        for start in range(at, len(ids), PIECE):
            part = slice(start, min(start + PIECE, len(ids)))
            above = path[-1] if path else self._root
            own = [(keys[:, part].clone(), values[:, part].clone()) for keys, values in layers]
            path.append(_Piece(ids[part], own))
            insort(above.below, path[-1], key=_ids)
            self.tokens += len(path[-1].ids)
        self._use(path)
        while self.tokens > self.most:
            self._drop(next(iter(self._held)))

    def find(self, ids: Ids) -> tuple[int, Pieces]:
        """How many tokens of `ids` some kept text begins with, and its pieces."""
        path, shared = self._path(ids)
        if shared < SHARED:
            return 0, ()
        self._use(path)
        return shared, [piece.layers for piece in path]

    def _path(self, ids: Ids) -> tuple[list[_Piece], int]:
        """The pieces that `ids` begin with, the last one perhaps in part, and how many tokens these are."""
        path: list[_Piece] = []
        at, last = 0, self._root
        while at % PIECE == 0 and last.below:
            rest = ids[at : at + PIECE]
            place = bisect_left(last.below, rest, key=_ids)  # none begins with more of `rest` than those beside it
            beside = last.below[max(0, place - 1) : place + 1]
            shared, near = max(((alike(piece.ids, rest), piece) for piece in beside), key=lambda pair: pair[0])
            if not shared:
                break
            path.append(near)
            at, last = at + shared, near
        return path, at

    def _use(self, path: Sequence[_Piece]) -> None:
        for above, piece in reversed([*pairwise((self._root, *path))]):
            self._held[piece] = above
            self._held.move_to_end(piece)

    def _drop(self, piece: _Piece) -> None:
        """Forget a piece with nothing below it."""
        below = self._held.pop(piece).below
        del below[bisect_left(below, piece.ids, key=_ids)]
        self.tokens -= len(piece.ids)


def _ids(piece: _Piece) -> Ids:
    return piece.ids


def alike(one: Ids, other: Ids) -> int:
    """How many tokens both begin with."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least
    low, high = 0, least  # both begin with one[:low], not with one[:high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low


def windowed(model: Model) -> bool:
    """Whether some layer of the model sees only the last tokens."""
    return getattr(model.config.get_text_config(), "sliding_window", None) is not None


@dataclass(frozen=True)
class _Prompt:
    """A distinct prompt. rows: where it is wanted; source: an earlier prompt of the same call that it begins alike with
    for `shared` tokens, or None; kept: the same from the store, or nothing; level: how many prompts must be read before
    it."""

    ids: Ids
    rows: list[int]
    shared: int = 0
    source: int | None = None
    kept: Pieces = ()
    level: int = 0


@torch.inference_mode()
def read_prompts(model: Model, prompts: Sequence[Ids], pad: int, store: PrefixStore) -> tuple[BatchCache, Tensor]:
    """Keys and values of `prompts`, and the logits [rows, vocabulary] behind each."""
    # in a window the place of a column counts, and what is shared stands apart from what is read
    share = not windowed(model)
    plan = _planned(prompts, store if share else PrefixStore(0), share)
    cache = BatchCache([len(ids) for ids in prompts], model.device)
    logits: dict[int, Tensor] = {}
    for group in _groups(plan, read_at_once(model.device.type)):
        results = _read(model, [plan[i] for i in group], [_before(cache, plan, plan[i]) for i in group], pad)
        for i, (before, new, line) in zip(group, results, strict=True):
            cache.write(plan[i].rows, before, new)
            logits |= dict.fromkeys(plan[i].rows, line)
    return cache, torch.stack([logits[row] for row in range(len(prompts))])


def _before(cache: BatchCache, plan: Sequence[_Prompt], prompt: _Prompt) -> Pieces:
    """The keys and values that a prompt's first `shared` tokens are taken from."""
    return prompt.kept if prompt.source is None else [cache.row(plan[prompt.source].rows[0], prompt.shared)]


def tokens_read(prompts: Sequence[Ids], store: PrefixStore, share: bool) -> int:
    """How many tokens of `prompts` a call of `read_prompts` reads. share: whether the model is not `windowed`."""
    plan = _planned(prompts, store if share else PrefixStore(0), share)
    return sum(len(prompt.ids) - prompt.shared for prompt in plan)


def _planned(prompts: Sequence[Ids], store: PrefixStore, share: bool) -> list[_Prompt]:
    """Distinct prompts in the order of their ids, each with what it begins alike with. The last token of a prompt is
    always read: its logits are wanted."""
    rows: dict[Ids, list[int]] = {}
    for row, ids in enumerate(prompts):
        rows.setdefault(ids, []).append(row)
    plan: list[_Prompt] = []
    for n, ids in enumerate(sorted(rows)):
        held, kept = store.find(ids)
        near = alike(ids, plan[-1].ids) if plan and share else 0
        source = n - 1
        while near >= SHARED and (up := plan[source].source) is not None and plan[source].shared >= near:
            source = up  # what it begins alike with stands there already, and can be read sooner
        if near >= SHARED and near > held:
            plan.append(_Prompt(ids, rows[ids], min(near, len(ids) - 1), source, (), plan[source].level + 1))
        else:
            plan.append(_Prompt(ids, rows[ids], min(held, len(ids) - 1), None, kept))
    return plan


def _groups(plan: Sequence[_Prompt], most: int) -> Iterator[list[int]]:
    """Prompts to read together: of one level, of like lengths, within `most` padded tokens."""
    group: list[int] = []

    def key(i: int) -> tuple[int, int]:
        return plan[i].level, len(plan[i].ids) - plan[i].shared

    for i in sorted(range(len(plan)), key=key):
        if group and (plan[group[0]].level != plan[i].level or (len(group) + 1) * key(i)[1] > most):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _read(
    model: Model, prompts: Sequence[_Prompt], before: Sequence[Pieces], pad: int
) -> list[tuple[Layers, Layers, Tensor]]:
    """Of each prompt the keys and values of the shared tokens and of those behind, and the logits of its last token.

    What stands before is padded on the left, and so is what is read: columns between them are masked.
    """
    device = model.device
    reads = [prompt.ids[prompt.shared :] for prompt in prompts]
    width, longest = max(prompt.shared for prompt in prompts), max(map(len, reads))
    cache: Any = _placed(before, [prompt.shared for prompt in prompts], longest) if width else DynamicCache()
    ids = torch.tensor([[*[pad] * (longest - len(read)), *read] for read in reads], device=device)
    shared = torch.tensor([[prompt.shared] for prompt in prompts], device=device)
    new = torch.tensor([[len(read)] for read in reads], device=device)
    column, end = torch.arange(width + longest, device=device), width + longest
    seen = ((column < width) & (column >= width - shared)) | (column >= end - new)
    positions = (shared + torch.arange(longest, device=device) - (longest - new)).clamp(min=0)
    mask = None if bool(seen.all()) else seen.long()
    how = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "past_key_values": cache}
    logits = model(**how, use_cache=True, logits_to_keep=1).logits[:, -1]

    def part(row: int, own: slice) -> Layers:
        return [(layer.keys[row, :, own], layer.values[row, :, own]) for layer in cache.layers]

    return [
        (part(row, slice(width - prompt.shared, width)), part(row, slice(end - len(read), end)), line)
        for row, (prompt, read, line) in enumerate(zip(prompts, reads, logits, strict=True))
    ]


def _placed(before: Sequence[Pieces], shared: Sequence[int], room: int) -> Cache:
    """A cache of what stands before each row, zeros on the left, room for `room` tokens on the right."""
    like = next(pieces[0] for pieces in before if pieces)
    width = max(shared)
    cut = [_first(pieces, tokens) for pieces, tokens in zip(before, shared, strict=True)]

    def side(number: int, which: int) -> Tensor:
        own = like[number][which]
        buffer = own.new_zeros(len(before), own.shape[0], width + room, own.shape[2])
        for row, (pieces, tokens) in enumerate(zip(cut, shared, strict=True)):
            if tokens:
                torch.cat([piece[number][which] for piece in pieces], 1, out=buffer[row, :, width - tokens : width])
        return buffer

    return Cache(layers=[_GrowingLayer(side(n, 0), side(n, 1), width) for n in range(len(like))])
