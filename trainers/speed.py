"""Speeds of a model on this machine, before a run starts: some of its layers at true width are timed, without its
weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch

from ghar.config import Config
from ghar.trainers.activation_memory import architecture
from ghar.trainers.memory import ModelShape, bytes_of_number
from ghar.trainers.probe import EpisodeCounts, timed
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.trajectory import Row

TIMED = 1024  # tokens of a timed pass
UNCACHED = 256 * 2**20  # bytes of weights that no processor keeps from one token to the next


@dataclass(frozen=True)
class Speed:
    """Tokens a second and process: trained on (forward and backward) and read (forward); seconds of a pass of one token
    for a batch, and what every row of it adds."""

    train: float
    read: float
    step: float
    row: float


def measure(config: Config, shape: ModelShape, counted: EpisodeCounts) -> Speed:
    """Speeds of the whole model, from fewer of its layers at true width."""
    length = int(max(16, min(TIMED, counted.call)))
    rows = max(1, TIMED // length)
    reply = int(max(1, min(length // 2, counted.reply / max(counted.calls, 1))))
    batch = min(config.engine.max_batch, 64)
    train, read = of_all_layers(
        lambda layers: _row_seconds(config, shape, layers, rows, length, reply), 2, min(6, shape.layers), shape
    )
    # one token for each row reads all weights: of few layers they would stay in the processor's cache
    weighty = min(shape.layers, max(2, ceil(UNCACHED / bytes_of_number(config) / max(1, shape.linear // shape.layers))))
    more = min(shape.layers, 2 * weighty)
    one, all_rows = of_all_layers(lambda some: _step_seconds(config, shape, some, length, batch), weighty, more, shape)
    row = max(0.0, all_rows - one) / max(1, batch - 1)
    return Speed(rows * length / train, rows * length / read, max(0.0, one - row), row)


def of_all_layers(
    seconds: Callable[[int], tuple[float, float]], few: int, more: int, shape: ModelShape
) -> tuple[float, float]:
    """Both seconds of so many layers, drawn out from few and more layers to all of them."""
    if few >= more:
        return seconds(shape.layers)
    each = zip(seconds(few), seconds(more), strict=True)
    first, second = (a + (shape.layers - few) * max(0.0, b - a) / (more - few) for a, b in each)
    return first, second


def _layers_of(config: Config, shape: ModelShape, layers: int) -> Any:
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return architecture(shape.architecture, layers, config.model.dtype)


def _row_seconds(
    config: Config, shape: ModelShape, layers: int, rows: int, length: int, reply: int
) -> tuple[float, float]:
    """Of a training pass and a reading one over rows of `length` tokens."""
    model = config.model
    how = ActorCriticConfig(
        model.finetune, model.lora_rank or 0, critic=model.critic, detach=True, reference=False,
        checkpointing=config.deepspeed.checkpointing,
    )  # fmt: skip
    several = _rows_apart(rows, length, reply)
    actor = ActorCritic(_layers_of(config, shape, layers), how)

    def train() -> None:
        scores = actor.score(several, entropy_gradient=False)
        (scores.logp.sum() + scores.values.sum()).backward()

    return _best(train), _best(lambda: actor.evaluate(several, rows * length))


def _rows_apart(rows: int, length: int, reply: int) -> list[Row]:
    """So many rows that begin differently: of rows alike, what they share would be read once."""
    logp = np.zeros(length, np.float32)
    texts = [np.array([i, *[3] * (length - 1)], np.int64) for i in range(rows)]
    return [Row(i, 0, length - reply, ids, logp, (), agent=0, role=0, trainable=True) for i, ids in enumerate(texts)]


def _step_seconds(config: Config, shape: ModelShape, layers: int, length: int, batch: int) -> tuple[float, float]:
    """Of one token behind `length` others, for one row and for a batch of rows, as engine hf samples it."""
    from ghar.llm.kv_cache import BatchCache, PrefixStore, grouped_heads, read_prompts  # transformers

    base = _layers_of(config, shape, layers)
    ids = torch.full((batch, 1), 3, device=base.device)
    with torch.inference_mode(), grouped_heads(base):
        few, _ = read_prompts(base, [(3,) * 3], 0, PrefixStore(0))
        one = few.row(0, 1)

        def sampled(rows: int) -> float:
            cache = BatchCache([length] * rows, base.device)
            wide = [(keys.expand(-1, length, -1), values.expand(-1, length, -1)) for keys, values in one]
            cache.write(range(rows), [(keys[:, :0], values[:, :0]) for keys, values in one], wide)

            def step() -> None:
                cache.mask = torch.cat([cache.mask, cache.mask.new_ones(rows, 1)], dim=1)
                where = ids.new_full((rows, 1), cache.columns)
                how = {"attention_mask": cache.mask, "position_ids": where, "past_key_values": cache.cache}
                base(input_ids=ids[:rows], **how, use_cache=True, logits_to_keep=1)

            return _best(step)

        return sampled(1), sampled(batch)


def _best(work: Callable[[], Any]) -> float:
    """Seconds of the quicker of two, after one that is not counted.

    On a CPU at most what one thread alone works: several wait actively for one that is not running, where others hold
    the machine, and neither clock would tell that from work.
    """
    taken = [timed(work) for _ in range(3)][1:]
    threads = torch.get_num_threads()
    if threads > 1 and not torch.cuda.is_available():
        torch.set_num_threads(1)
        try:
            taken.append(timed(work))
        finally:
            torch.set_num_threads(threads)
    return min(taken)
