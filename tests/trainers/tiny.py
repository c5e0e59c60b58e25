"""A tiny model and rows around it, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl import trajectory
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.trajectory import Row, Trajectories

VOCAB = 64
AGENTS = ("top", "low")
ROLES = ("rewrite", "retrieve", "metapaths", "summarise", "answer", "continue", "followup", "predict")

for_two = partial(ActorCriticConfig, agents=AGENTS)


def build(
    episodes: Sequence[Episode],
    rewards: Sequence[EpisodeReward],
    agents: tuple[str, ...] = AGENTS,
    roles: tuple[str, ...] = ROLES,
) -> Trajectories:
    """Trajectories of two agents, whose names tests need not repeat."""
    return trajectory.build(episodes, rewards, agents, roles)


def tiny_model(seed: int = 0, hidden: int = 32) -> Any:
    """Two layers, 64 words, random weights."""
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.2,  # with the usual 0.02 the frozen head of a LoRA model cannot tell words apart
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config).eval()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Words w2 ... w63 between spaces."""
    words = {"<pad>": 0, "<eos>": 1, **{f"w{i}": i for i in range(2, VOCAB)}}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")


def make_row(tokens: Any, prompt: int, agent: int = 0, choice_ids: tuple = ()) -> Row:
    """A row outside any trajectory."""
    tokens = np.asarray(tokens)
    logprobs = np.zeros(len(tokens), np.float32)
    return Row(0, 0, prompt, tokens, logprobs, choice_ids, agent, role=0, trainable=True)


def perturb(actor: ActorCritic, seed: int = 1) -> ActorCritic:
    """Move the trainable weights, so that actor and reference differ and values are not all zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in actor.trainable_parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return actor
