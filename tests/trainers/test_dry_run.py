"""A run without a model counts what engine hf does with the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import LlamaConfig, MistralConfig

from ghar.config import Config
from ghar.episode import Act
from ghar.launch.entry import load
from ghar.llm.engine import Request
from ghar.llm.hf import passes
from ghar.llm.policy import FunctionPolicy
from ghar.trainers.dry_run import DryRun, Encoding
from ghar.trainers.memory import ModelShape, shaped
from ghar.trainers.probe import probe

SMALL: dict[str, Any] = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
                         "num_attention_heads": 2, "num_key_value_heads": 2}  # fmt: skip
TINY = shaped(LlamaConfig(**SMALL))
Prompts = Sequence[Sequence[tuple[int, ...]]]  # of each episode, turn by turn


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def dry(config: Config, shape: ModelShape = TINY, weight: float = 1.0, share: float = 1.0) -> DryRun:
    return DryRun(config, shape, Encoding(numbers, numbers, weight), share=share)


def fresh_share(episodes: Prompts, config: Config, shape: ModelShape = TINY, weight: float = 1.0) -> float:
    """The share of the prompts' tokens that are read, as many episodes at once as are in flight."""
    flight = config.env.in_flight
    run = dry(config, shape, weight, min(1.0, len(episodes) / flight))
    for first in range(0, len(episodes), flight):
        for turn in zip_longest(*episodes[first : first + flight]):
            asked = [Request(" ".join(map(str, ids)), 1) for ids in turn if ids]
            run.count(asked, ["0"] * len(asked))
    return run.fresh / run.prompt


def test_what_an_engine_keeps_of_prompts_is_not_read_again() -> None:
    """Two episodes of one record: both in flight, in turn, and with an engine that is not asked what it keeps."""
    record = tuple(range(100))
    prompts = [[(*record, 200), (*record, 200, 201)], [(*record, 300)]]
    every = 101 + 102 + 101
    for flight, batch in ((2, 2), (2, 1), (1, 1)):
        config = load([f"env.in_flight={flight}", f"engine.max_batch={batch}"])
        assert fresh_share(prompts, config) == pytest.approx((101 + 1 + 1) / every)
    apart = [[tuple(range(1000 * i, 1000 * i + 900)) for _ in range(2)] for i in range(30)]
    many, few = (load([f"env.in_flight={flight}", "engine.max_batch=8"]) for flight in (30, 8))
    assert fresh_share(apart, many) > 0.9  # more than is kept
    assert fresh_share(apart, few) == pytest.approx(901 / 1800)
    assert fresh_share(prompts, load(["engine=vllm"])) == 1.0


def test_of_fewer_episodes_than_are_in_flight_less_is_kept() -> None:
    """8 are probed, each of 1,000 tokens: 16 fit into 16,384, and of 32 in flight each finds an eighth of 4,096."""
    apart = [[tuple(range(2000 * i, 2000 * i + 1000)) for _ in range(2)] for i in range(8)]
    for flight, share in ((8, 1001 / 2000), (16, 1001 / 2000), (32, 1 - 4096 / 16_000)):
        config = load([f"env.in_flight={flight}", "engine.max_batch=8"])
        assert fresh_share(apart, config) == pytest.approx(share, abs=0.005)


def test_words_stand_for_more_tokens_than_one() -> None:
    """12 prompts of 1,000 words fit into 16,384 tokens where each is one, and not where it is 1.5."""
    apart = [[tuple(range(2000 * i, 2000 * i + 1000)) for _ in range(2)] for i in range(12)]
    config = load(["env.in_flight=12", "engine.max_batch=12"])
    assert fresh_share(apart, config) == pytest.approx(1001 / 2000)
    assert fresh_share(apart, config, weight=1.5) == pytest.approx(1 - 16_384 / 1.5 / 24_000, abs=0.005)


def test_of_a_model_with_a_window_nothing_is_kept_but_like_prompts_are_read_once() -> None:
    window, plain = (shaped(MistralConfig(**SMALL, sliding_window=most)) for most in (128, None))
    record = tuple(range(100))
    prompts = [[(*record, 200), (*record, 201)], [(*record, 200), (*record, 202)]]
    config = load(["env.in_flight=2", "engine.max_batch=2"])
    assert fresh_share(prompts, config, plain) == pytest.approx((101 + 1 + 1) / 404)
    assert fresh_share(prompts, config, window) == pytest.approx((101 + 101 + 101) / 404)


def test_of_a_choice_what_tells_it_from_the_others_is_sampled() -> None:
    """Of free text all of it, at most as much as may be; a choice with one way on costs no further pass."""
    choices = ("1 2 3 4", "1 2 5 6", "7 8")
    for request, reply, sampled in (
        (Request("0", 9, choices), "1 2 3 4", 3), (Request("0", 9, choices), "7 8", 1),
        (Request("0", 9, ("7 8",)), "7 8", 1), (Request("0", 9), "1 2 3", 3), (Request("0", 2), "1 2 3", 2),
    ):  # fmt: skip
        run = dry(load(["engine.max_batch=2"]))
        run.count([request] * 2, [reply] * 2)
        assert (run.calls, run.prompt, run.reply) == (2, 2, 2 * sampled)
        assert run.passes(2) == (sampled - 1, 2 * (sampled - 1))


def test_what_goes_on_from_a_reply_counts_its_own_words_alone() -> None:
    """The part that chooses behind unreadable words reads its head; the episode's turn is counted once."""
    run = dry(load(["engine.max_batch=4"]))
    record = " ".join(map(str, range(40)))
    (before,) = run.count([Request(record, 20)], ["1 " * 10])
    run.count([Request(record, 20, ("1", "2"), before=before, head="50 51")], ["2"])
    assert (run.calls, run.prompt, run.reply, run.longest) == (2, 42, 11, 72)
    assert (run.context, run.fresh) == (40 + 52, 40 + 3)  # of the reply all but its last token has been read


ACT = Act("top", "answer", "three short words", max_tokens=40)
CHOICE = replace(ACT, prompt="ten " * 10, choices=("stop", "go on"), max_tokens=20)


def probed(
    monkeypatch: pytest.MonkeyPatch,
    play: Any,
    teacher: str | None,
    rule: Any = None,
    flight: int = 24,
    engine: str = "hf",
) -> Any:
    monkeypatch.setattr("ghar.trainers.probe.play", play)
    monkeypatch.setattr("ghar.trainers.probe.stage_of", lambda *_: None)
    system: Any = SimpleNamespace(
        cases=SimpleNamespace(train=list(range(30))), teacher_variant=lambda: None, fixed={"rule": lambda: rule},
        training=SimpleNamespace(teacher=teacher),
    )  # fmt: skip
    own = [f"env.in_flight={flight}", f"engine.max_batch={flight}", f"engine={engine}"]
    return probe(system, load(own), TINY)


def test_a_probe_sketches_a_model_that_chooses_and_writes_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even seeds end the episode; a word stands for 1.5 tokens; of 40 tokens 20 to 40 are written, of 20 10 to 20."""

    def play(stage: Any, cases: Any, policy: Any, **_: Any) -> list[Any]:
        seeds = range(len(cases))
        policy.answer([ACT] * len(cases), seeds)
        chosen = policy.answer([CHOICE] * len(cases), seeds)
        more = [seed for seed, reply in zip(seeds, chosen, strict=True) if reply.text == "go on"]
        policy.answer([replace(ACT, prompt="word")] * len(more), more)
        return []

    counted = probed(monkeypatch, play, None)
    assert (counted.calls, counted.prompt, counted.longest) == (2.5, 1.5 * 13.5, 44)
    written = [min(40, 1.5 * (20 + seed % 21)) for seed in range(24)]
    sampled = [*written, *(written[seed] for seed in range(1, 24, 2))]
    assert counted.reply == pytest.approx((sum(sampled) + 24 * 1.5) / 24)
    assert counted.rows > counted.steps
    # the second replies of some begin beside the longest first ones of others
    written, choices = (passes([round(tokens) for tokens in some], 24)[0] for some in (sampled, [1.5] * 24))
    assert 24 * counted.steps == pytest.approx(written + choices) and 39 < written < 2 * 39


def test_of_fewer_episodes_than_a_batch_holds_passes_are_shared_by_as_many_as_it_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """24 replies of 40 tokens take 39 passes, and so do 96 in one batch."""
    said = FunctionPolicy(lambda act: "so " * 40)

    def play(stage: Any, cases: Any, policy: Any, **_: Any) -> list[Any]:
        policy.answer([ACT] * len(cases), range(len(cases)))
        return []

    few, many = (probed(monkeypatch, play, "rule", said, flight) for flight in (24, 96))
    assert (few.steps, many.steps) == (pytest.approx(39 / 24), pytest.approx(39 / 96)) and few.rows == many.rows


def test_batches_of_episodes_with_many_turns_are_full_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five replies of 40 tokens an episode, 96 at once: 39 passes for each 96 replies, whatever the probe's number."""
    said = FunctionPolicy(lambda act: "so " * 40)

    def play(stage: Any, cases: Any, policy: Any, **_: Any) -> list[Any]:
        for _turn in range(5):
            policy.answer([ACT] * len(cases), range(len(cases)))
        return []

    for flight, engine in ((24, "hf"), (96, "hf"), (960, "hf"), (96, "vllm")):
        counted = probed(monkeypatch, play, "rule", said, flight, engine)
        steps = 5 * (39 if engine == "hf" else 40) / flight
        assert counted.steps == pytest.approx(steps) and counted.rows == pytest.approx(steps * flight)


def test_a_probe_counts_what_the_rule_replies_where_it_teaches(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(stage: Any, cases: Any, policy: Any, **_: Any) -> list[Any]:
        policy.answer([ACT, CHOICE] * len(cases), range(2 * len(cases)))
        return []

    said = FunctionPolicy(lambda act: act.choices[0] if act.choices else "so it is")
    counted = probed(monkeypatch, play, "rule", said)
    assert (counted.calls, counted.prompt, counted.reply) == (2, 1.5 * 13, 4.5 + 1.5)
