"""Run by torchrun: every process has an engine of its own beside the trainer's process group.

Each writes what it saw to RANK.json in the folder that is given: lines of two processes mix in one pipe.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.engine import Request
from ghar.llm.vllm import VLLMEngine
from ghar.llm.vllm_build import VLLMSettings

dist.init_process_group("gloo")
rank = dist.get_rank()
tokenizer = build_tokenizer(["conditions: gout; asthma | drugs: warfarin"], ["gout"], 300)
model = build_model(tokenizer, hidden=64, layers=1, heads=2, seed=rank)  # other weights in every process
engine = VLLMEngine(model, tokenizer, VLLMSettings(0.1, 8))
engine.sync(model, 1)
for _ in range(1 + rank):  # not in step: nobody waits for the other
    replies = engine.generate([Request("gout", 5, seed=s) for s in range(3 * rank + 1)])
apart = engine.check(model)
engine.close()
seen = torch.tensor([float(len(replies)), apart])
dist.all_reduce(seen)  # the trainer's group is still there
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(seen.tolist()))
dist.destroy_process_group()
