"""Log-probabilities of many continuations of one text (labels, ids, names) in one pass: the text is read once, and the
continuations behind it as a tree, in which what they begin alike with stands once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ghar.llm.kv_cache import BatchCache, Ids, Model, PrefixStore, read_prompts, windowed

LOGITS = 1 << 27  # numbers of the vocabulary's size held at once: 0.5 GB


@dataclass(frozen=True)
class Tree:
    """Continuations of one context.

    tokens: what is read behind all of the context but its last token: that token, and the inner tokens of the
    continuations; parents: of each the place of the one before it, -1 for the first; paths: of each continuation, the
    places that predict its tokens.
    """

    tokens: Ids
    parents: Ids
    paths: tuple[Ids, ...]


def tree_of(context: Ids, targets: Sequence[Ids]) -> Tree:
    """The tree of `targets` behind `context`."""
    places: dict[Ids, int] = {(): 0}
    tokens, parents, paths = [context[-1]], [-1], []
    for target in targets:
        for n in range(1, len(target)):
            if target[:n] not in places:
                places[target[:n]] = len(tokens)
                tokens.append(target[n - 1])
                parents.append(places[target[: n - 1]])
        paths.append(tuple(places[target[:n]] for n in range(len(target))))
    return Tree(tuple(tokens), tuple(parents), tuple(paths))


def can_share(model: Model) -> bool:
    """Whether the model takes a mask of a tree."""
    config = model.config.get_text_config()
    return "sdpa" in str(config._attn_implementation) and not windowed(model)


@torch.inference_mode()
def score_trees(
    model: Model, contexts: Sequence[Ids], targets: Sequence[Sequence[Ids]], most: int, pad: int, store: PrefixStore
) -> list[list[tuple[float, ...]]]:
    """log p of each token of targets[i][j] given contexts[i] and those before it, in nats. Contexts have two tokens or
    more; most: contexts of one pass."""
    trees = [tree_of(context, some) for context, some in zip(contexts, targets, strict=True)]
    scores: dict[int, list[tuple[float, ...]]] = {}
    vocabulary = model.config.get_text_config().vocab_size
    for batch in _batches(contexts, trees, most, LOGITS // vocabulary):
        cache, _ = read_prompts(model, [contexts[i][:-1] for i in batch], pad, store)
        logits = _behind(model, cache, [trees[i] for i in batch], pad)
        for row, i in zip(logits, batch, strict=True):
            scores[i] = _picked(row, trees[i], targets[i])
    return [scores[i] for i in range(len(contexts))]


def _batches(contexts: Sequence[Ids], trees: Sequence[Tree], most: int, tokens: int) -> Iterator[list[int]]:
    """Contexts of like lengths together, within `tokens` places of trees, padding included."""
    batch: list[int] = []
    widest = 0
    for i in sorted(range(len(contexts)), key=lambda i: len(contexts[i])):
        width = max(widest, len(trees[i].tokens))
        if batch and (len(batch) >= most or (len(batch) + 1) * width > tokens):
            yield batch
            batch, width = [], len(trees[i].tokens)
        batch.append(i)
        widest = width
    if batch:
        yield batch


def _behind(model: Model, cache: BatchCache, trees: Sequence[Tree], pad: int) -> torch.Tensor:
    """Logits [rows, places, vocabulary] of trees behind what is in `cache`. A place sees the context, the places above
    it and itself; padding sees itself."""
    device, longest = model.device, max(len(tree.tokens) for tree in trees)
    ids = torch.full((len(trees), longest), pad)
    depth = torch.zeros(len(trees), longest, dtype=torch.long)
    above = torch.eye(longest, dtype=torch.bool).repeat(len(trees), 1, 1)
    for row, tree in enumerate(trees):
        ids[row, : len(tree.tokens)] = torch.tensor(tree.tokens)
        for place, parent in enumerate(tree.parents):
            if parent >= 0:
                above[row, place] |= above[row, parent]
                depth[row, place] = depth[row, parent] + 1
    past = cache.mask.bool()[:, None, :].expand(-1, longest, -1)
    mask = torch.cat([past, above.to(device)], dim=2)[:, None]
    positions = torch.tensor(cache.lengths, device=device)[:, None] + depth.to(device)
    how = {"attention_mask": mask, "position_ids": positions, "past_key_values": cache.cache}
    return model(input_ids=ids.to(device), **how, use_cache=True).logits


def _picked(logits: torch.Tensor, tree: Tree, targets: Sequence[Ids]) -> list[tuple[float, ...]]:
    """Of each target the log-probabilities of its tokens at the places that predict them."""
    if not any(targets):
        return [() for _ in targets]
    places = torch.tensor([place for path in tree.paths for place in path], device=logits.device)
    tokens = torch.tensor([token for target in targets for token in target], device=logits.device)
    lines = logits[: len(tree.tokens)].float().log_softmax(-1)
    values = iter(lines[places, tokens].tolist())
    return [tuple(next(values) for _ in target) for target in targets]
