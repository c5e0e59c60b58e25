"""Keys of earlier versions, and what stands in their place."""

from __future__ import annotations

# Names of earlier versions, and what stands in their place: a key that ends in a dot stands for all below it.
RENAMED = {
    "policy": "system", "env.rewrites": "system.rewrites", "env.max_iterations": "system.max_iterations",
    "env.max_paths": "system.max_paths", "env.ablation": "system.ablation", "reward.alpha": "system.alpha",
    "reward.length": "system.length", "reward.normalise": "system.normalise", "reward.rank": "system.rank",
    "reward.composition": "system.composition", "eval.policies": "eval.variants", "eval.navigation": "rllib.checkpoint",
    "kare.methods": "eval.variants", "ehr_rag.methods": "eval.variants", "ehr_rag.answers": "eval.variants",
    "exprag.policies": "eval.variants",
    "selector.name": "eval.variants", "kare.": "system.", "ehr_rag.": "system.", "exprag.": "system.",
    "selector.": "system.", "trainer.rllib.": "rllib.",
    "ray.gpu": "engine.gpus",
    "data.two_steps": "data.mix", "data.past": "data.mix", "data.reports": "data.mix", "data.chained": "data.mix",
    "data.slopes": "data.mix", "task.since": "task.anchor", "trainer.rl.kl_in": "trainer.rl.kl_estimator",
    "trainer.rl.ratio": "trainer.rl.as_printed", "trainer.rl.critic_target": "trainer.rl.as_printed",
    "deepspeed.stage": "deepspeed.zero", "deepspeed.offload": "deepspeed.zero", "deepspeed.auto": "deepspeed.zero",
}  # fmt: skip

GONE = {  # keys of earlier versions that had one value everywhere
    "keep_best": "the best checkpoint is always kept", "model.lora_alpha": "it is twice model.lora_rank",
    "trainer.rl.value_clip": "it is 5, in units of reward", "retriever.wait_ms": "it is 2 ms",
    "rllib.timeout": "it is 300 s", "rllib.runners": "the process that learns samples too",
    "model.finetune": "model.lora_rank=null trains all weights, a number adapters of that rank",
    "model.kind": "model.path names a pretrained model, and null builds the demo's (model=pretrained, model=demo)",
    "model.heads": "the demo model has 2", "trainer.base.lr": "it is 4e-3", "rllib.hidden": "it is 64",
    "retriever.batch": "it is 64", "engine.device": "vLLM runs on what it was built for",
    "trainer.rl.lr_warmup": "the learning rate is whole from the first update",
    "trainer.rl.curriculum": "patients are drawn alike; trainer.rl.dynamic leaves out those who teach nothing",
    "task.answers": 'write them as "labels" into NAME.json beside the label file',
    "logger.project": "set WANDB_PROJECT", "logger.entity": "set WANDB_ENTITY", "logger.group": "set WANDB_RUN_GROUP",
}  # fmt: skip


def replaced(key: str) -> str | None:
    """What stands in place of a key of an earlier version."""
    if key in RENAMED:
        return RENAMED[key]
    section = next((old for old in RENAMED if old.endswith(".") and key.startswith(old)), None)
    return None if section is None else RENAMED[section] + key.removeprefix(section)
