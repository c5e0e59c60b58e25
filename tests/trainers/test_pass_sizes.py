"""Passes of a plan are put together as those of the training are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.config import Config
from ghar.launch.entry import load
from ghar.trainers.pass_sizes import Packing, PassSize, rl_packing, row_of, sft_packing
from ghar.trainers.rl.fast.rows import packed
from ghar.trainers.sft.packing import repacked
from ghar.trainers.sft.pairs import TokenExample, collate


def test_a_row_has_as_many_tokens_as_its_ids_stand_for() -> None:
    row = row_of((1, 2, 3, 4), (5, 6), 1.5)
    assert (row.prompt, list(row.tokens)) == (6, [1, 1, 2, 3, 3, 4, 5, 5, 6])
    longer = row_of((1, 2, 3, 4, 9), (5,), 1.5)
    assert list(longer.tokens[:6]) == list(row.tokens[:6])  # what begins alike still does
    for prompt, reply in (((), ()), ((), (5,)), ((1,), ())):
        assert (row_of(prompt, reply).prompt, len(row_of(prompt, reply).tokens)) == (1, 2)


def settings(*more: str) -> Config:
    return load(["trainer.warmup.batch=8", "trainer.warmup.micro_batch=2", *more])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(1, 9)), min_size=8, max_size=8))
def test_the_largest_pass_of_sft_is_the_one_of_its_micro_batches(sizes: list[tuple[int, int, int]]) -> None:
    """One step of eight pairs over three records, by the functions of the trainer."""
    asked = [((*range(1000 * of, 1000 * of + 100), *range(5000 + 70 * i, 5000 + 70 * i + n)), (7,) * reply)
             for i, (of, n, reply) in enumerate(sizes)]  # fmt: skip
    pairs = [TokenExample(*pair) for pair in asked]
    config = settings()
    lengths = [len(prompt) + len(reply) for prompt, reply in asked]
    order = [int(i) for i in np.argsort(lengths, kind="stable")]
    batches = [collate([_example(pairs[i]) for i in order[n : n + 2]], 0) for n in range(0, 8, 2)]
    passes = []
    for batch in repacked(batches):
        for part in batch.get("packed", ()):
            trees = [sum(part.trees[:n]) for n in range(len(part.trees) + 1)]
            widths = [_width([row.tokens for row in part.rows[a:b]]) for a, b in pairwise(trees)]
            passes.append(max(widths) * len(widths))
        if "packed" not in batch:
            passes.append(batch["labels"].numel())
    found = sft_packing([row_of(*pair) for pair in asked], config, 1, True)
    assert found is not None and found.largest.tokens == max(passes)
    assert found.row == pytest.approx(sum(passes) / 8)


def _example(pair: TokenExample) -> dict[str, list[int]]:
    ids = [*pair.prompt_ids, *pair.completion_ids]
    return {"input_ids": ids, "labels": [-100] * len(pair.prompt_ids) + list(pair.completion_ids)}


def _width(texts: Sequence[np.ndarray]) -> int:
    """Tokens of a tree of texts: each adds what it does not share with the one before it."""
    total = len(texts[0])
    for before, text in pairwise(texts):
        shared = 0
        while shared < min(len(before), len(text)) and before[shared] == text[shared]:
            shared += 1
        total += len(text) - shared
    return total


def test_without_trees_each_micro_batch_is_padded_to_its_longest_row() -> None:
    """Sorted by length inside a step: (10, 20), (30, 40); with DeepSpeed, and with a model that reads no trees."""
    rows = [row_of(range(n - 2), (1, 2)) for n in (40, 10, 30, 20)]
    for shares, more in ((True, "deepspeed=zero2"), (False, "deepspeed=none")):
        config = settings("trainer.warmup.batch=4", more)
        assert sft_packing(rows, config, 1, shares) == Packing(PassSize(2, 80, 4, False), (2 * 20 + 2 * 40) / 4)
    assert sft_packing((), settings(), 1, True) is None


def test_a_pass_of_rl_has_as_many_rows_as_a_minibatch() -> None:
    """Four rows an episode, apart from each other: of 8 episodes in two minibatches 16, of 20 tokens each; no more than
    micro_tokens, and in fewer episodes than a minibatch has, as many times more."""
    rows = [row_of(range(100 * i, 100 * i + 18), (1, 2)) for i in range(48)]

    def size(episodes: int, tokens: int, played: int = 12, processes: int = 1) -> PassSize | None:
        config = load(["trainer.rl.minibatches=2", f"trainer.rl.episodes={episodes}",
                       f"trainer.rl.micro_tokens={tokens}"])  # fmt: skip
        packing = rl_packing(rows[: 4 * played], played, config, processes, True)
        assert packing is None or packing.row == 20
        return packing and packing.largest

    assert size(8, 1000) == PassSize(16, 320, 32, False)
    assert size(8, 1000, processes=2) == PassSize(8, 160, 16, False)
    assert size(8, 200) == PassSize(10, 200, 20, False)
    assert size(32, 4000, 8) == PassSize(64, 1280, 128, False)
    assert size(32, 1000, 8) == PassSize(50, 1000, 100, False)
    assert rl_packing((), 0, load([]), 1, True) is None


def test_a_largest_pass_of_rl_is_packed_as_in_training() -> None:
    """Turns over one record are a tree."""
    rows = [row_of((*range(1000 * (i // 4), 1000 * (i // 4) + 80), i), (1, 2, 3)) for i in range(8)]
    config = load(["trainer.rl.minibatches=1", "trainer.rl.episodes=4", "trainer.rl.micro_tokens=500"])
    found, apart = (rl_packing(rows, 4, config, 1, shares) for shares in (True, False))
    assert found == Packing(PassSize(2, 2 * (84 + 3 * 4), 24, True), 2 * (84 + 3 * 4) / 8)
    assert len(packed(rows, 500)) == 1 and apart == Packing(PassSize(5, 5 * 84, 15, False), 84)


def test_of_rejection_sampling_the_kept_episodes_are_trained_on() -> None:
    """One of four attempts at a patient: of 16 episodes in two minibatches the rows of two, and no more than all."""
    rows = [row_of(range(100 * i, 100 * i + 18), (1, 2)) for i in range(48)]
    more = ["trainer.rl.minibatches=2", "trainer.rl.episodes=16", "trainer.rl.attempts=4", "trainer.method=rft"]
    for keep, lines in ((1, 8), (2, 16), (9, 32)):
        packing = rl_packing(rows, 12, load([*more, f"trainer.rft.keep={keep}"]), 1, True)
        assert packing is not None and packing.largest == PassSize(lines, 20 * lines, 2 * lines, False)
