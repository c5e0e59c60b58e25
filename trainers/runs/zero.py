"""What DeepSpeed is given: its own configuration, from ours."""

from __future__ import annotations

from typing import Any

import torch

from ghar.config import DeepspeedConfig

ALONE = DeepspeedConfig("none", checkpointing=False)
# never looked at, but where DeepSpeed expects an accumulation it also adds up what is offloaded
ACCUMULATE = 2


def zero_config(deepspeed: DeepspeedConfig, dtype: str, max_grad_norm: float) -> dict[str, Any]:
    """DeepSpeed's own configuration. Weights are of `dtype`; gradients add up, over micro-batches and processes, and
    the optimiser works in float32 (where ZeRO shares nothing out, stage 0, all in `dtype`)."""
    short = dtype == "bfloat16"
    # For ZeRO-1 in 16 bits DeepSpeed has another optimiser, which does no more than ZeRO-2's. On a GPU, ZeRO-3 reduced
    # gradients on a stream of its own (overlap_comm): four float32 updates on an H200 were 1.1e-3 from those without
    # ZeRO, 4e-7 with ZeRO-2, 2e-7 without a GPU. That the stream is why is likely and not shown.
    zero: dict[str, Any] = {
        "stage": 2 if short and deepspeed.stage == 1 else deepspeed.stage,
        "overlap_comm": False,
    }
    if deepspeed.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    exact = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    return {
        **(exact if short and deepspeed.stage else {}),
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": ACCUMULATE,
        "zero_optimization": zero,
        "bf16": {"enabled": short},
        "gradient_clipping": max_grad_norm,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # torch's AdamW, as everywhere: the same numbers and nothing to compile
        "steps_per_print": None,
    }
