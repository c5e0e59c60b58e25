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
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.sft.packing import repacked
from ghar.trainers.sft.pairs import TokenExample, collate

Pairs = list[tuple[tuple[int, ...], tuple[int, ...]]]


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
def test_the_passes_of_sft_are_those_of_its_micro_batches(sizes: list[tuple[int, int, int]]) -> None:
    """One step of eight pairs over three records, by the functions of the trainer."""
    asked = [((*range(1000 * of, 1000 * of + 100), *range(5000 + 70 * i, 5000 + 70 * i + n)), (7,) * reply)
             for i, (of, n, reply) in enumerate(sizes)]  # fmt: skip
    compared(asked, 2)


@given(st.lists(st.integers(2, 900), min_size=8, max_size=8), st.sampled_from((1, 2, 4, 8)))
def test_of_pairs_that_do_not_begin_alike_each_micro_batch_is_padded(lengths: list[int], micro: int) -> None:
    compared([(tuple(range(1000 * i, 1000 * i + n)), (7,)) for i, n in enumerate(lengths)], micro)


def compared(asked: Pairs, micro: int) -> None:
    pairs = [TokenExample(*pair) for pair in asked]
    order = [int(i) for i in np.argsort([len(prompt) + len(reply) for prompt, reply in asked], kind="stable")]
    parts = [[pairs[i] for i in order[n : n + micro]] for n in range(0, 8, micro)]
    passes = []
    for batch in repacked([collate([_example(pair) for pair in part], 0) for part in parts]):
        for part in batch.get("packed", ()):
            trees = [sum(part.trees[:n]) for n in range(len(part.trees) + 1)]
            widths = [_width([row.tokens for row in part.rows[a:b]]) for a, b in pairwise(trees)]
            passes.append(max(widths) * len(widths))
        if "packed" not in batch:
            passes.append(batch["labels"].numel())
    config = settings(f"trainer.warmup.micro_batch={micro}")
    found = sft_packing([[row_of(*pair)] for pair in asked], config, 1, True)
    assert found is not None and found.largest.tokens == max(passes)
    assert found.episode == pytest.approx(sum(passes) / 8)


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
    texts = [[row_of(range(n - 2), (1, 2)) for n in some] for some in ((40, 10), (30, 20))]
    for shares, more in ((True, "deepspeed=zero2"), (False, "deepspeed=none")):
        config = settings("trainer.warmup.batch=4", more)
        assert sft_packing(texts, config, 1, shares) == Packing(PassSize(2, 80, 4, False), (2 * 20 + 2 * 40) / 2)
    assert sft_packing((), settings(), 1, True) is None and sft_packing([()], settings(), 1, True) is None


def apart(episodes: int, turns: int = 4) -> list[list[Row]]:
    """Turns of 20 tokens that share nothing."""
    starts = [[1000 * i + 100 * k for k in range(turns)] for i in range(episodes)]
    return [[row_of(range(start, start + 18), (1, 2)) for start in some] for some in starts]


def test_a_pass_of_rl_has_as_many_rows_as_a_minibatch() -> None:
    """Four rows an episode: of 8 episodes in two minibatches 16; no more than micro_tokens, and of more episodes than
    were played as many more."""

    def found(episodes: int, tokens: int, played: int = 12, processes: int = 1) -> Packing | None:
        config = load(["trainer.rl.minibatches=2", f"trainer.rl.episodes={episodes}", "trainer.rl.attempts=1",
                       "trainer.rl.estimator=gae", f"trainer.rl.micro_tokens={tokens}"])  # fmt: skip
        return rl_packing(apart(played), config, processes, True)

    assert found(8, 1000) == Packing(PassSize(16, 320, 32, False), 80, 80)
    assert found(8, 1000, processes=2) == Packing(PassSize(8, 160, 16, False), 80, 80)
    assert found(8, 200) == Packing(PassSize(10, 200, 20, False), 80, 80)
    assert found(32, 4000, 8) == Packing(PassSize(64, 1280, 128, False), 80, 80)
    assert rl_packing((), load([]), 1, True) is None and rl_packing([()], load([]), 1, True) is None


def test_attempts_at_a_patient_share_the_first_prompt() -> None:
    """A record of 1,000 tokens and one turn: four attempts are a tree of 1,000 and four times 20 tokens. Where a
    minibatch has one of them it is alone, but for the log-probabilities before. A second turn goes on from the first.
    """
    one = [[row_of(range(10_000 * i, 10_000 * i + 1000), range(20))] for i in range(3)]

    def found(texts: list[list[Row]], minibatches: int, shares: bool = True) -> Packing | None:
        config = load([f"trainer.rl.minibatches={minibatches}", "trainer.rl.episodes=8", "trainer.rl.attempts=4",
                       "trainer.rl.micro_tokens=8000"])  # fmt: skip
        return rl_packing(texts, config, 1, shares)

    assert found(one, 1) == Packing(PassSize(2, 2 * 1080, 160, True), 1080 / 4, 1080 / 4)
    assert found(one, 8) == Packing(PassSize(1, 1020, 20, False), 1020, 1080 / 4)
    assert found(one, 1, shares=False) == Packing(PassSize(7, 7 * 1020, 140, False), 1020, 1020)
    two = [[*rows, row_of((*rows[0].tokens, *range(30)), range(20))] for rows in one]
    assert found(two, 1) == Packing(PassSize(2, 2 * (1000 + 4 * 70), 320, True), 320, 320)


def test_of_rejection_sampling_the_kept_episodes_are_trained_on() -> None:
    """One of four attempts at a patient: of 16 episodes in two minibatches the rows of two, and no more than all."""
    more = ["trainer.rl.minibatches=2", "trainer.rl.episodes=16", "trainer.rl.attempts=4", "trainer.method=rft"]
    for keep, lines in ((1, 8), (2, 16), (9, 32)):
        packing = rl_packing(apart(12), load([*more, f"trainer.rft.keep={keep}"]), 1, True)
        assert packing is not None and packing.largest == PassSize(lines, 20 * lines, 2 * lines, False)
