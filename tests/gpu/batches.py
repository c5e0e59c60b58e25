"""Models and batches whose size fits the device: large enough to keep a GPU busy, tiny where it is only rehearsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.settings import MISMATCH_LIMIT, MappoConfig
from ghar.trainers.rl.trajectory import Trajectories
from tests.trainers.tiny import build, make_row

GB = 1e9
LEAST_ID = 8  # ids below are padding and ends


@dataclass(frozen=True)
class Size:
    """Of the model, and of a batch: replies, tokens of their prompts, tokens of each."""

    hidden: int
    layers: int
    heads: int
    replies: int
    prompt: int
    reply: int


SIZES = {"cuda": Size(1024, 12, 16, 256, 128, 64), "cpu": Size(64, 2, 2, 8, 12, 6)}


def need(device: str) -> None:
    """Skip the test where there is no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here: run make test-gpu on a machine with one")


def make_tokenizer() -> Any:
    """A small vocabulary: what is tested is the model's body."""
    return build_tokenizer(["conditions: gout; asthma | drugs: warfarin | retrieve? decide: yes"] * 4, ["gout"], 400)


def make_model(device: str, dtype: str, seed: int = 0) -> Any:
    """A model of random weights, large enough that every reply has its own distribution."""
    size = SIZES[device]
    model = build_model(make_tokenizer(), hidden=size.hidden, layers=size.layers, heads=size.heads, seed=0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(1.2 / size.hidden**0.5 * torch.randn(parameter.shape, generator=generator))
    where: Any = device
    return model.to(device=where, dtype=getattr(torch, dtype))


def make_batch(actor: ActorCritic, device: str) -> Trajectories:
    """Random replies with this actor's log-probs; every second one is rewarded."""
    size, rng = SIZES[device], np.random.default_rng(0)
    vocabulary = actor.model.get_input_embeddings().num_embeddings
    ids = rng.integers(LEAST_ID, vocabulary, (size.replies, size.prompt + size.reply))
    logp = actor.evaluate([make_row(row, size.prompt) for row in ids], size.replies * len(ids[0])).logp
    said = [
        Completion("", tuple(row[: size.prompt]), tuple(row[size.prompt :]), tuple(own))
        for row, own in zip(ids.tolist(), logp.reshape(size.replies, size.reply).tolist(), strict=True)
    ]
    episodes = [
        Episode(str(i), 0, Prediction(0), (Turn("top", "predict", 0, 0, reply, format_ok=True),))
        for i, reply in enumerate(said)
    ]
    rewards = [EpisodeReward({}, float(i % 2), ({"orm": float(i % 2)},), "shared") for i in range(size.replies)]
    return build(episodes, rewards)


def update_config(device: str, dtype: str) -> MappoConfig:
    """Every term of the loss, micro-batches of a quarter of the batch, and the guard of real runs."""
    size = SIZES[device]
    return MappoConfig(
        epochs=2, minibatches=2, micro_tokens=size.replies * (size.prompt + size.reply) // 4, clip=0.2, value_clip=10.0,
        gamma=1.0, lam=0.95, credit="token", per_agent=False, kl=0.05, ratio="behaviour", critic_target="returns",
        value_coef=0.5, entropy=0.01, max_grad_norm=1.0, importance_cap=2.0, mismatch_limit=MISMATCH_LIMIT[dtype],
    )  # fmt: skip


def forget_peak(device: str) -> None:
    """From here on `peak_gb` looks at new allocations."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def peak_gb(device: str) -> float:
    """Largest memory torch held on the GPU since `forget_peak`; 0 elsewhere."""
    return torch.cuda.max_memory_allocated() / GB if device == "cuda" else 0.0
