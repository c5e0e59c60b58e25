"""The canary: after every exchange of weights, what was sent must be what arrived, the engine must answer otherwise
than before where the trainer does, and both must agree on a fixed prompt.

Weights that arrive only in part raise no error anywhere: an output head packed from the old ones, an adapter that is
another one, keys and values cached under the old weights. All of them change log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Nats. float32: the largest difference over all tokens. bfloat16: the mean, since single tokens differ by as much as a
# small update moves them (0.27 between vLLM and transformers at 8 layers); the mean of rounding stays below 0.05 at
# logits of spread 3 (tests/llm/test_canary.py). Weights one update behind pass it: `Canary.judge` finds them otherwise.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.1}
PROMPT_TOKENS = 64  # two full blocks, so that a stale prefix cache is read


@dataclass(frozen=True)
class EngineProbe:
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


@dataclass(frozen=True)
class TrainerScores:
    """What the trainer's model says about the prompt. logprobs: of ids[1:]."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    dtype: torch.dtype


def expect(model: Any, ids: Sequence[int] = ()) -> TrainerScores:
    """What `Canary.judge` needs of the trainer's model, which by then may have been trained further. ids: of a prompt,
    by default the fixed one."""
    ids = ids or prompt(model.config.vocab_size, model.config.max_position_embeddings)
    return TrainerScores(tuple(ids), tuple(trainer_logprobs(model, ids).tolist()), next(model.parameters()).dtype)


class Canary:
    """Judges one engine, exchange after exchange: it remembers what trainer and engine said last time."""

    def __init__(self) -> None:
        self._last: tuple[TrainerScores, EngineProbe] | None = None

    def judge(self, expected: TrainerScores, probe: EngineProbe) -> float:
        """How far engine and trainer are apart, in nats; WrongWeights when the engine holds other weights.

        The trainer's log-probs are compared with the engine's scoring of the same tokens, the engine's reply as it was
        sampled with its own scoring of it, and its scoring with the one before this exchange: an engine whose numbers
        stayed the same to the last bit, while the trainer's moved, still has the old weights.
        """
        if probe.ids[: len(expected.ids)] != expected.ids:
            raise ValueError("the probe is of another prompt than what was expected")
        known = len(expected.logprobs)
        if self._last is not None:
            before, was = self._last
            common = min(known, len(before.logprobs), len(prompt_of(probe)) - 1)
            moved = expected.logprobs[:common] != before.logprobs[:common]
            if moved and probe.scored[:common] == was.scored[:common]:
                raise WrongWeights(
                    "after the exchange of weights the engine answers as before it, to the last bit, although the "
                    "trainer's numbers have changed: the engine holds other weights, so the run stops here."
                )
        scored = torch.tensor(probe.scored)
        told = (scored[:known] - torch.tensor(expected.logprobs)).abs()
        own = (scored[len(probe.scored) - len(probe.sampled) :] - torch.tensor(probe.sampled)).abs()
        apart = _apart(torch.cat([told, own]), expected.dtype)
        self._last = expected, probe
        return apart


def prompt_of(probe: EngineProbe) -> tuple[int, ...]:
    """The ids of a probe without the engine's reply, which may be another one each time."""
    return probe.ids[: len(probe.ids) - len(probe.sampled)]


def _apart(differences: torch.Tensor, dtype: torch.dtype) -> float:
    apart = float(differences.max() if dtype == torch.float32 else differences.mean())
    if not apart <= TOLERANCE[dtype]:
        raise WrongWeights(
            f"after the exchange of weights, engine and trainer differ by {apart:.2g} nats on a fixed prompt (allowed: "
            f"{TOLERANCE[dtype]:g} in {str(dtype).removeprefix('torch.')}): the engine holds other weights, so the run "
            "stops here."
        )
    return apart
