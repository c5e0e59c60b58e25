"""Prompts that begin alike are read once, and no reply changes by it."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ghar.llm import kv_cache
from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine
from ghar.llm.kv_cache import PrefixStore, alike, grouped_heads, read_prompts
from tests.trainers.tiny import tiny_model, tiny_tokenizer

TOKEN = st.integers(2, 63)


def counted(model: Any) -> list[int]:
    """A list to which every pass adds how many tokens it reads, padding included."""
    read: list[int] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True)
    return read


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data(), st.integers(1, 60), st.integers(0, 200), st.sampled_from([1, 3, 8, 64]))
def test_logits_and_caches_are_those_of_each_prompt_alone(
    data: st.DataObject, most: int, kept: int, piece: int
) -> None:
    """Any prompts, in two calls, whatever is shared, read together and kept between them."""
    model, store = tiny_model().eval(), PrefixStore(kept)
    heads = data.draw(st.lists(st.lists(TOKEN, min_size=1, max_size=20).map(tuple), min_size=1, max_size=3))
    prompt = st.lists(st.sampled_from(heads), min_size=1, max_size=3).map(lambda parts: sum(parts, ()))
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(kv_cache, "SHARED", 2)
        patch.setattr(kv_cache, "PIECE", piece)
        patch.setattr(kv_cache, "READ", {"cpu": most, "cuda": most})
        for _ in range(2):
            prompts = data.draw(st.lists(prompt, min_size=1, max_size=6))
            cache, logits = read_prompts(model, prompts, 0, store)
            for row, ids in enumerate(prompts):
                alone = model(input_ids=torch.tensor([ids]), use_cache=True)
                assert torch.allclose(logits[row], alone.logits[0, -1], atol=1e-4)
                for own, layer in zip(cache.row(row, len(ids)), alone.past_key_values.layers, strict=True):
                    assert torch.allclose(own[0], layer.keys[0], atol=1e-4)
                    assert torch.allclose(own[1], layer.values[0], atol=1e-4)
                store.add(ids, cache.row(row, len(ids)))
    assert store.tokens == sum(len(one.ids) for one in store._held) <= kept
    assert all(above in {*store._held, store._root} and one in above.below for one, above in store._held.items())


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from([2, 3]), max_size=12).map(tuple), max_size=12), st.sampled_from([1, 3, 64]))
def test_a_text_that_is_kept_is_found_whole_and_kept_once(texts: list[tuple[int, ...]], piece: int) -> None:
    """Pieces are views of what was read, and no two beside each other begin with all of one another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "SHARED", 1)
        patch.setattr(kv_cache, "PIECE", piece)
        store = PrefixStore(1000)
        for ids in texts:
            line = torch.tensor(ids, dtype=torch.float)[None, :, None]
            store.add(ids, [(line, -line)])
        for ids in texts:
            shared, pieces = store.find(ids)
            found = torch.cat([layers[0][0][0, :, 0] for layers in pieces])[:shared] if pieces else torch.zeros(0)
            assert shared == len(ids) and found.tolist() == list(ids)
        for one in (*store._held, store._root):
            full = [other.ids for other in one.below if len(other.ids) == piece]
            assert len(full) == len(set(full))
            assert not any(a is not b and b.ids[: len(a.ids)] == a.ids for a in one.below for b in one.below)
            assert one.below == sorted(one.below, key=lambda piece: piece.ids)


def test_of_many_texts_that_part_at_one_place_two_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    head, store = tuple(range(kv_cache.PIECE)), PrefixStore(10**6)
    for i in range(500):
        store.add((*head, 1000 + 7 * i % 500, i, 5), [])
    compared: list[kv_cache.Ids] = []

    def counting(one: kv_cache.Ids, other: kv_cache.Ids) -> int:
        compared.append(one)
        return alike(one, other)

    monkeypatch.setattr(kv_cache, "alike", counting)
    assert store.find((*head, 1007, 1, 6, 6))[0] == kv_cache.PIECE + 2
    assert store.find((*head, 2000))[0] == kv_cache.PIECE
    assert len(compared) <= 2 * 3  # the head, and those beside what follows it


def test_a_long_text_is_laid_out_in_no_more_operations_than_a_short_one() -> None:
    """Of each layer, whatever the number of pieces and of rows that want the text."""
    model = tiny_model().eval()

    def operations(tokens: int, rows: int) -> int:
        store, ids = PrefixStore(), tuple(2 + i % 60 for i in range(tokens))
        with torch.inference_mode():
            cache, _ = read_prompts(model, [ids], 0, store)
            store.add(ids, cache.row(0, tokens))
            assert len(store._held) == -(-tokens // kv_cache.PIECE)
            with _Operations() as seen:
                read_prompts(model, [(*ids, 5)] * rows, 0, store)
        return seen.copies

    few = operations(kv_cache.PIECE, 1)
    assert operations(9 * kv_cache.PIECE, 1) == few > 0
    assert operations(9 * kv_cache.PIECE, 20) < 2 * few


class _Operations(TorchDispatchMode):
    """Counts what copies tensors into others."""

    copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.copies += func.overloadpacket in (torch.ops.aten.copy_, torch.ops.aten.cat, torch.ops.aten.index_put_)
        return func(*args, **(kwargs or {}))


def test_memory_is_given_back_at_once() -> None:
    store, lines = PrefixStore(), torch.zeros(1, 999, 1)
    store.add(tuple(range(500)), [(lines, lines)])
    held = next(iter(store._held))
    gone = weakref.ref(held.layers[0][0])
    del held
    gc.disable()
    try:
        store.clear()
        assert gone() is None
    finally:
        gc.enable()


def test_the_end_of_the_oldest_text_leaves_first() -> None:
    store, layers = PrefixStore(5 * kv_cache.PIECE), [(torch.zeros(1, 999, 1), torch.zeros(1, 999, 1))]
    head = tuple(range(kv_cache.PIECE))
    texts = [head + (100 + i,) * kv_cache.PIECE * 2 for i in range(3)]
    for ids in texts[:2]:
        store.add(ids, layers)
    assert [store.find(ids)[0] for ids in texts[:2]] == [192, 192]
    store.add(texts[2], layers)
    assert [store.find(ids)[0] for ids in texts] == [64, 192, 192]
    assert store.find((1, 2, 3)) == (0, ())


def test_what_prompts_share_is_read_once_also_by_a_later_call() -> None:
    model = tiny_model()
    engine, read = HFEngine(model, tiny_tokenizer()), counted(model)
    head = tuple(range(2, 52))

    def ask(*tails: tuple[int, ...]) -> int:
        read.clear()
        cache, _ = read_prompts(model, [(*head, *tail) for tail in tails], 0, engine._store)
        for row, tail in enumerate(tails):
            engine._store.add((*head, *tail), cache.row(row, 50 + len(tail)))
        return sum(read)

    assert ask((60,), (60,), (61, 62), (61, 63)) == 51 + 2 + 1  # the first one whole, what differs of the others
    assert ask((61, 62, 5, 6)) == 2
    engine.sync(model, 1)
    assert ask((61, 62, 5, 6)) == 54


def test_replies_go_on_from_what_was_read() -> None:
    """A request behind a reply reads what is new, and says what an engine without memory says."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    engine, fresh = HFEngine(model, tokenizer), HFEngine(tiny_model(), tokenizer)
    prompt = " ".join(f"w{i % 9}" for i in range(60))
    (said,) = engine.generate([Request(prompt, 5, seed=1)])
    again = Request("", 4, seed=2, before=said, head=" w3")
    read = counted(model)
    assert engine.generate([again])[0].token_ids == fresh.generate([again])[0].token_ids
    assert read[0] <= 3


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc_trim")
def test_what_was_read_is_given_back_before_training() -> None:
    """4,096 tokens of SmolLM2's shape: 188 MiB in pieces that glibc would keep for others of their size."""
    engine, process = HFEngine(tiny_model(), tiny_tokenizer()), psutil.Process()
    layers = [(torch.zeros(3, 4096, 64), torch.zeros(3, 4096, 64))] * 30
    engine._store.add(tuple(range(4096)), layers)
    last, full = torch.zeros(3, 64, 64), process.memory_info().rss
    engine.forget()
    assert full - process.memory_info().rss > 150 << 20 and last.numel()


@pytest.mark.parametrize("change", ["step", "data"])
def test_nothing_is_kept_of_weights_that_have_changed(change: str) -> None:
    model = tiny_model()
    engine = HFEngine(model, tiny_tokenizer())
    requests = [Request(" ".join(f"w{i % 9}" for i in range(60)), 4, seed=1)]
    engine.generate(requests)
    assert engine._store._held
    with torch.no_grad():
        for p in model.parameters():
            if change == "step":
                p.add_(0.1 * torch.randn(p.shape))
            else:
                p.data = p + 0.1 * torch.randn(p.shape)
    other = HFEngine(model, tiny_tokenizer())
    assert engine.generate(requests)[0].logprobs == pytest.approx(other.generate(requests)[0].logprobs, abs=1e-5)


def test_attention_is_put_back() -> None:
    model = tiny_model()
    with pytest.raises(KeyError), grouped_heads(model):
        assert model.config._attn_implementation == kv_cache.GROUPED
        raise KeyError
    assert model.config._attn_implementation == "sdpa"


@given(st.lists(TOKEN, max_size=9).map(tuple), st.lists(TOKEN, max_size=9).map(tuple))
def test_alike_counts_the_tokens_that_both_begin_with(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    shared = alike(one, other)
    assert one[:shared] == other[:shared] and (one == other or one[: shared + 1] != other[: shared + 1])
