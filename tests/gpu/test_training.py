"""Training on the GPU: a step in bfloat16, and ZeRO-2 and ZeRO-3 against the same step without DeepSpeed."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.mappo import update
from tests.gpu.batches import forget_peak, make_batch, make_model, need, peak_gb, update_config
from tests.trainers.tiny import for_two

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("where", [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def test_a_step_in_bfloat16(where: str, finetune: Any, measured: Any) -> None:
    need(where)
    actor = ActorCritic(make_model(where, "bfloat16"), for_two(finetune, rank=8))
    batch, before = make_batch(actor, where), {n: w.clone() for n, w in actor.trainable_state().items()}
    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-2, 1e-2), weight_decay=0.0)
    forget_peak(where)
    report = update(actor, optimizer, batch, update_config(where, "bfloat16"), np.random.default_rng(0))
    assert all(math.isfinite(value) for value in report.values())
    assert abs(math.log(report["ratio/first"])) <= 0.1
    changed = [name for name, weight in actor.trainable_state().items() if not torch.equal(weight, before[name])]
    assert any(name.startswith("policy.") for name in changed) and any(name.startswith("heads.") for name in changed)
    numbers = {"tokens_per_second": report["tokens_per_second"], "peak_gb": peak_gb(where)}
    measured(f"update bfloat16 {finetune} on {where}", **numbers)


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
@pytest.mark.parametrize("dtype, finetune", [("float32", "full"), ("bfloat16", "lora")])
@pytest.mark.parametrize("stage", [2, 3])
def test_zero_makes_the_step_that_is_made_without_it(
    stage: int, dtype: str, finetune: str, device: str, measured: Any, tmp_path: Path
) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    out, script = tmp_path / "out.json", str(Path(__file__).with_name("zero_step.py"))
    command = [*torchrun, script, str(stage), dtype, finetune, device, str(out)]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(out.read_text())
    plain, zero = found["plain"], found["zero"]
    share, least = (2e-3, 2e-4) if dtype == "float32" else (0.1, 0.02)
    for name in ("loss/total", "loss/policy", "loss/value", "loss/kl", "entropy", "grad_norm"):
        assert zero[name] == pytest.approx(plain[name], rel=share, abs=least), name
    assert found["largest change apart"] <= (1e-4 if dtype == "float32" else 0.05)
    for name in ("plain", "zero"):
        numbers = {key: found[name][key] for key in ("tokens_per_second", "peak_gb")}
        measured(f"update {dtype} {finetune}, {f'ZeRO-{stage}' if name == 'zero' else 'plain'}", **numbers)
