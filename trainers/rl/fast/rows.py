"""From rows (replies in their contexts) to the padded micro-batches a forward pass takes.

Turns of an episode, and attempts at a patient, begin with the same record. Such rows are written as one tree, in which
what they share stands once: a token keeps its place in its row and sees the tokens before it there, no others, so that
every state, and every gradient but for rounding, is what it is in rows apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ghar.llm.constraint import allowed_tokens
from ghar.trainers.rl.fast.tree_mask import TreeMask, blocks_of
from ghar.trainers.rl.trajectory import Array, Row

LEAST_SHARED = 64  # tokens; for less a mask of its own does not pay
TREE = 2  # times the row it begins with, at which a tree ends: further on its mask would cost what it saves
WORTH = 1024  # tokens of a pass through the model, below which it is mostly overhead


@dataclass(frozen=True)
class Batch:
    """Rows, or trees of them, padded on the right, and where their T completion tokens are predicted from.

    tokens: int64 [R, L]; row, position: int64 [T], the state that predicts each token (of the one before it);
    place: int64 [R, L], of tokens in their own rows, and seen: bool [R, 1, L, L], what each token may look at; None
    where no tree has more than one row: places are positions then, and all before is seen;
    target: int64 [T]; agent: int64 [T], index of the acting agent; allowed: int64 [T, K] ids the token was chosen
    from (repeated to fill a line), or None when no reply was restricted; restricted: bool [T], which lines of it count.
    """

    tokens: Tensor
    row: Tensor
    position: Tensor
    target: Tensor
    agent: Tensor
    allowed: Tensor | None
    restricted: Tensor
    place: Tensor | None = None
    seen: Tensor | None = None


@dataclass(frozen=True)
class Micro:
    """Rows of one forward pass by index, tree after tree, and how many rows each tree has."""

    rows: list[int]
    trees: tuple[int, ...]


def packed(rows: Sequence[Row], token_budget: int, share: bool = True) -> list[Micro]:
    """Micro-batches of trees of rows, within `token_budget` as `micro_batches` counts it. share=False: rows apart."""
    trees = (
        prefix_groups([row.tokens for row in rows], token_budget)
        if share
        else [([i], len(r.tokens)) for i, r in enumerate(rows)]
    )
    groups = micro_batches([length for _, length in trees], token_budget)
    return [Micro([i for t in g for i in trees[t][0]], tuple(len(trees[t][0]) for t in g)) for g in groups]


def prefix_groups(texts: Sequence[Array], token_budget: int) -> list[tuple[list[int], int]]:
    """Texts that share at least half of what they are, by index, and the tokens of each such group; in the order of
    their first ones."""
    order = sorted(range(len(texts)), key=lambda i: np.ascontiguousarray(texts[i]).tobytes())  # alike is adjacent
    groups: list[tuple[list[int], int]] = []
    most = 0
    for before, i in zip([-1, *order], order, strict=False):
        length = len(texts[i])
        shared = common_prefix(texts[before], texts[i]) if groups else 0
        if shared >= max(LEAST_SHARED, length / 2) and groups[-1][1] + length - shared <= most:
            groups[-1] = ([*groups[-1][0], i], groups[-1][1] + length - shared)
        else:
            groups.append(([i], length))
            most = min(token_budget, TREE * length)
    return sorted(groups, key=lambda tree: min(tree[0]))


def common_prefix(one: Array, other: Array) -> int:
    """How many tokens both begin with."""
    least = min(len(one), len(other))
    differ = one[:least] != other[:least]
    return int(differ.argmax()) if differ.any() else least


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Group rows of similar length so that rows x longest row (padding counts) stays within `token_budget`; one of less
    than three quarters of the longest begins anew, once there is enough for a pass to be worth it.

    Returns lists of row indices, longest rows first, ties in the given order. A row longer than the budget is alone.
    """
    batches: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        held = len(batches[-1]) * longest if batches else 0
        alike = lengths[i] >= 0.75 * longest or held < min(WORTH, token_budget // 2)
        if batches and held + longest <= token_budget and alike:
            batches[-1].append(i)
        else:
            batches.append([i])
            longest = lengths[i]
    return batches


def collate(rows: Sequence[Row], device: torch.device, trees: Sequence[int] = ()) -> Batch:
    """Pad `rows` to one batch. trees: so many of them one after the other are written as one (`packed`); () for each
    apart. ValueError when a row has no prompt or left its choices."""
    sizes = np.array(trees or [1] * len(rows))
    firsts = np.cumsum(sizes) - sizes
    written = [_write([row.tokens for row in rows[f : f + n]]) for f, n in zip(firsts, sizes, strict=True)]
    length = max(len(tree.tokens) for tree in written)
    tokens, place = np.zeros((2, len(written), length), np.int64)
    seen = np.zeros((len(written), 1, length, length), bool) if len(written) < len(rows) else None
    where: list[tuple[Array, ...]] = []
    allowed: list[tuple[int, ...]] = []
    paths = (path for tree in written for path in tree.paths)
    for i, row, path in zip(np.repeat(np.arange(len(sizes)), sizes), rows, paths, strict=True):
        if row.prompt < 1:
            raise ValueError(f"row {row.index} has no prompt: nothing predicts its first token")
        at = np.arange(row.prompt, len(row.tokens))
        where.append((np.full_like(at, i), path[at - 1], row.tokens[at], np.full_like(at, row.agent)))
        allowed += allowed_ids(row)
    for i, tree in enumerate(written):
        tokens[i, : len(tree.tokens)], place[i, : len(tree.tokens)] = tree.tokens, tree.place
        if seen is not None:
            _look(seen[i, 0], tree.paths)
    row_index, position, target, agent = (
        torch.as_tensor(np.concatenate(c), device=device) for c in zip(*where, strict=True)
    )
    width = max(map(len, allowed), default=0)
    padded = [ids + ids[:1] * (width - len(ids)) if ids else (0,) * width for ids in allowed]
    return Batch(
        tokens=torch.as_tensor(tokens, device=device),
        row=row_index,
        position=position,
        target=target,
        agent=agent,
        allowed=torch.tensor(padded, device=device) if width else None,
        restricted=torch.tensor([bool(ids) for ids in allowed], dtype=torch.bool, device=device),
        place=None if seen is None else torch.as_tensor(place, device=device),
        seen=None if seen is None else _mask(torch.as_tensor(seen, device=device), [tree.paths for tree in written]),
    )


@dataclass(frozen=True)
class _Tree:
    """tokens, place: int64 [L], each token and its place in its rows; paths: of each row, where its tokens stand."""

    tokens: Array
    place: Array
    paths: list[Array]


def _write(texts: Sequence[Array]) -> _Tree:
    """Each text after the one before it, without what both begin with."""
    parts, places = [texts[0]], [np.arange(len(texts[0]))]
    paths, end = [places[0]], len(texts[0])
    for before, text in pairwise(texts):
        shared = common_prefix(before, text)
        parts.append(text[shared:])
        places.append(np.arange(shared, len(text)))
        paths.append(np.concatenate([paths[-1][:shared], np.arange(end, end + len(text) - shared)]))
        end += len(text) - shared
    return _Tree(np.concatenate(parts), np.concatenate(places), paths)


def _look(seen: Array, paths: Sequence[Array]) -> None:
    """Let each token see itself and those before it in its row; seen [L, L], False so far. What is padding sees
    itself, or its softmax would have nothing to share out."""
    np.fill_diagonal(seen, True)
    written = 0
    for path in paths:
        new = path >= written
        seen[np.ix_(path[new], path[~new])] = True
        seen[np.ix_(path[new], path[new])] = np.tri(int(new.sum()), dtype=bool)
        written = max(written, int(path[-1]) + 1) if new.any() else written


def _mask(seen: Tensor, trees: Sequence[Sequence[Array]]) -> Tensor:
    """What each token sees; on a processor attention goes by its blocks."""
    if seen.device.type != "cpu":
        return seen
    return TreeMask.of(seen, [block for i, paths in enumerate(trees) for block in blocks_of(paths, i)])


def allowed_ids(row: Row) -> list[tuple[int, ...]]:
    """For each completion token the ids it was chosen from, () when free: exactly the engine's restriction."""
    if not row.choice_ids:
        return [()] * (len(row.tokens) - row.prompt)
    reply = tuple(int(t) for t in row.tokens[row.prompt :])
    steps = [_allowed(row.choice_ids, reply[:n]) for n in range(len(reply))]
    for n, ids in enumerate(steps):
        if reply[n] not in ids:
            raise ValueError(f"token {n} of a restricted reply is {reply[n]}, allowed were {ids}; reply {reply}")
    return steps


_allowed = lru_cache(maxsize=8192)(allowed_tokens)
