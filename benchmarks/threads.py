"""The demo's training steps beside processes that keep the cores busy, by number of threads and way of waiting.

One process trains a model of the demo's size for some seconds; `BUSY` processes beside it do nothing but compute. Its
fair share of the machine is cores / (busy + 1), at most one core a thread counted once: a step counts as slow where it
takes more than three times what that share allows. Loads of other programs are printed, since they are in the numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BUSY = (0, 2, 8)
WAYS: dict[str, tuple[int, dict[str, str]]] = {  # threads, environment
    "2 threads, spinning": (2, {"OMP_WAIT_POLICY": "ACTIVE"}),
    "2 threads, passive": (2, {"OMP_WAIT_POLICY": "PASSIVE"}),
    "1 thread": (1, {"OMP_WAIT_POLICY": "PASSIVE"}),
}
SECONDS = 8.0
ROOT = Path(__file__).resolve().parents[1]


def threads(share: float) -> dict[str, Any]:
    """ways: steps in SECONDS (times `share`) of each way of waiting, beside each number of busy processes."""
    seconds, alone = SECONDS * share, 0
    ways: list[dict[str, Any]] = []
    for name, (count, environment) in reversed(WAYS.items()):
        for busy in BUSY:
            load = os.getloadavg()[0]
            steps = _steps(count, seconds, environment, busy)
            alone = alone or steps  # the first: one thread, none busy
            fair = alone * min(1.0, (os.cpu_count() or 1) / (busy + 1))
            ways.append({"busy": busy, "way": name, "steps": steps, "fair share": round(fair, 1),
                          "times slower": round(fair / max(steps, 0.5), 2), "load before": round(load, 2)})  # fmt: skip
            print(json.dumps(ways[-1]), flush=True)
    return {"ways": ways}


def _steps(count: int, seconds: float, environment: dict[str, str], busy: int) -> int:
    """Steps of a process of its own; the others begin once it has imported torch and taken its first steps."""
    words = [sys.executable, "-m", "benchmarks.threads", str(count), str(seconds)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")} | environment
    others: list[subprocess.Popen[bytes]] = []
    with subprocess.Popen(
        words, cwd=ROOT, env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        others += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            time.sleep(0.5)
            process.stdin.write("begin\n")
            process.stdin.flush()
            return int(process.stdout.readline())
        finally:
            for other in others:
                other.kill()
                other.wait()


def count_steps(count: int, seconds: float) -> int:
    """Optimisation steps of a model of the demo's shape on batches of the demo's size, once a line comes in."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(count)
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=1703, hidden_size=64, intermediate_size=256, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2,
    )  # fmt: skip
    model = Qwen2ForCausalLM(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 1703, (16, 64))  # the demo's micro-batch

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    print("ready", flush=True)
    input()
    end, steps = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        step()
        steps += 1
    return steps


if __name__ == "__main__":
    print(count_steps(int(sys.argv[1]), float(sys.argv[2])), flush=True)
