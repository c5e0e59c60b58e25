"""Supervised training on examples: what a teacher's right episodes say, or what a system has written down itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.trainers.sft.examples import TrainingExamples
from ghar.trainers.sft.run import Log, SFTResult, run_sft
from ghar.trainers.sft.warmup import imitation

WARMUP = 0.1  # warmup_ratio of KARE's Table 6; its schedule is a cosine


def learn(
    config: Config,
    model: Any,
    tokenizer: Any,
    examples: TrainingExamples,
    keep: Path | None,
    epochs: int | None = None,
    log: Log = lambda row: None,
    title: str = "SFT",
) -> SFTResult:
    """Fine-tune, full or by LoRA, `epochs` times over, by default trainer.warmup.epochs; checkpoints go to `keep`, rows
    of the curve to `log` as they are made; title: what the progress is shown under.

    With validation pairs the weights with the lowest loss on them are kept, which is computed every quarter of an epoch
    (Figure 2 of KARE's paper), and the settings are those of its Table 6.
    """
    settings = imitation(config, len(examples.train), epochs)
    if examples.valid:
        quarter = max(1, round(len(examples.train) / settings.batch_size / 4))
        settings = replace(settings, warmup=WARMUP, schedule="cosine", log_every=quarter)
    return run_sft(model, tokenizer, examples.train, settings, keep, examples.valid, log, title)
