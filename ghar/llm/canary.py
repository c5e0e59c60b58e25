"""The canary: after every exchange of weights, engine and trainer must agree on a fixed prompt.

Weights that arrive only in part raise no error anywhere: an output head packed from the old ones, an adapter that is
another one, keys and values cached under the old weights. All of them change log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Nats, largest difference over all tokens. bfloat16 has steps of 1/8 between 16 and 32, where logits of large models
# lie: its tolerance is two of them, by reckoning and not by measurement; stale weights differ by more.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.25}
PROMPT_TOKENS = 64  # two full blocks, so that a stale prefix cache is read


@dataclass(frozen=True)
class Probe:
    """What the engine says about the prompt and its own reply to it.

    ids: of both; scored: log p of ids[1:] by its scoring; sampled: the last ones, as reported while it sampled them.
    """

    ids: tuple[int, ...]
    scored: tuple[float, ...]
    sampled: tuple[float, ...]


class WrongWeights(RuntimeError):
    """The engine answers with other weights than the trainer has."""


def prompt(vocabulary: int, longest: int) -> list[int]:
    """The fixed prompt: ids from all over the vocabulary."""
    return [(7919 * i + 11) % vocabulary for i in range(min(PROMPT_TOKENS, longest - 8))]


@torch.no_grad()
def trainer_logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """log p of ids[1:] under the trainer's model, float32 on the CPU, in one forward pass."""
    row = torch.tensor([list(ids)], device=next(model.parameters()).device)
    logp = model(input_ids=row, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    return logp.gather(1, row[0, 1:, None]).squeeze(1).cpu()


def compare(model: Any, probe: Probe) -> float:
    """Largest difference between `model` (the trainer's) and the engine, in nats; WrongWeights above the tolerance."""
    expected, dtype = trainer_logprobs(model, probe.ids), next(model.parameters()).dtype
    apart = (expected - torch.tensor(probe.scored)).abs().max()
    apart = torch.maximum(apart, (expected[-len(probe.sampled) :] - torch.tensor(probe.sampled)).abs().max())
    return _judge(float(apart), dtype)


@dataclass(frozen=True)
class Expected:
    """What the trainer's model says about the prompt, for an engine in another process. logprobs: of ids[1:]."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    dtype: torch.dtype


def expect(model: Any) -> Expected:
    """What `compare_with` needs of the trainer's model, which by then may have been trained further."""
    ids = prompt(model.config.vocab_size, model.config.max_position_embeddings)
    return Expected(tuple(ids), tuple(trainer_logprobs(model, ids).tolist()), next(model.parameters()).dtype)


def compare_with(expected: Expected, probe: Probe) -> float:
    """`compare` where the model is elsewhere: the prompt against the trainer's log-probs, the engine's reply as it was
    sampled against the engine's own scoring of it."""
    if probe.ids[: len(expected.ids)] != expected.ids:
        raise ValueError("the probe is of another prompt than what was expected")
    scored, sampled = torch.tensor(probe.scored), torch.tensor(probe.sampled)
    told = scored[: len(expected.logprobs)] - torch.tensor(expected.logprobs)
    own = scored[len(probe.scored) - len(probe.sampled) :] - sampled
    return _judge(float(torch.cat([told, own]).abs().max()), expected.dtype)


def _judge(apart: float, dtype: torch.dtype) -> float:
    if not apart <= TOLERANCE[dtype]:
        raise WrongWeights(
            f"after the exchange of weights, engine and trainer differ by {apart:.2g} nats on a fixed prompt (allowed: "
            f"{TOLERANCE[dtype]:g} in {str(dtype).removeprefix('torch.')}): the engine holds other weights, so the run "
            "stops here."
        )
    return apart
