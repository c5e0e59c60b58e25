"""The canary: after every exchange of weights, what was sent must be what arrived, the engine must answer otherwise
than before where the trainer does, and both must agree on a fixed text.

Weights that arrive only in part raise no error anywhere: an output head packed from the old ones, an adapter that is
another one, keys and values cached under the old weights. All of them change log-probabilities. So does rounding: in 16
bits an engine is judged by the trainer's float32 pass over the very same weights, and by how far the trainer's own
16-bit pass is from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ghar.llm.model_facts import facts_of

EXACT = 1e-5  # nats, float32: the largest difference over all tokens
# 16 bits: the mean difference from float32, as a multiple of the trainer's own (benchmarks/sync.py: engines lie at 0.9
# to 1.2 of it; any one tensor of SmolLM2 with its sign turned at more than 8). Single tokens differ by as much as a
# small update moves them, and weights one update behind pass: `Canary.judge` finds those otherwise.
ROUNDINGS = 3.0
LEAST = 0.02  # nats: what is allowed at least in 16 bits, for models of almost no rounding
CHANGED = 0.5  # share of tokens whose log-probability in 16 bits a real update changes; a tiny one changes few
PROMPT_TOKENS = 192  # whole blocks, so that a stale prefix cache is read
TEXT = (
    "The patient is a 71-year-old woman who came to the emergency department with three days of fever, a productive "
    "cough and shortness of breath. Her history includes type 2 diabetes, hypertension and chronic kidney disease, for "
    "which she takes metformin, lisinopril and furosemide. On admission her temperature was 38.9 degrees, her heart "
    "rate 112 and her blood pressure 98/56. Laboratory tests showed a white cell count of 17.2, a creatinine of 2.1 "
    "and a lactate of 3.4. The chest film showed consolidation of the right lower lobe. She was given ceftriaxone and "
    "azithromycin, two litres of fluid and oxygen by nasal cannula, and was moved to the ward the next morning. Will "
    "she be readmitted within thirty days? Answer yes or no, and give the reasons in two short sentences."
)


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


def prompt(tokenizer: Any, vocabulary: int, longest: int) -> list[int]:
    """The fixed text in at most `longest` - 8 tokens; ids from all over the vocabulary for a tokenizer that does not
    know half of its words."""
    most = min(PROMPT_TOKENS, longest - 8)
    ids = [*facts_of(tokenizer).begin, *tokenizer.encode(TEXT, add_special_tokens=False)][:most]
    if 2 * max(map(ids.count, ids)) < len(ids):  # unknown words share one id
        return ids
    return [(7919 * i + 11) % vocabulary for i in range(min(64, most))]


@torch.no_grad()
def trainer_logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """log p of ids[1:] under the trainer's model, float32 on the CPU, in one forward pass."""
    row = torch.tensor([list(ids)], device=next(model.parameters()).device)
    logp = model(input_ids=row, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    return logp.gather(1, row[0, 1:, None]).squeeze(1).cpu()


@contextmanager
def in_float32(model: Any) -> Iterator[None]:
    """Compute `model` in float32, with the weights it has: each module's are widened while it works, so that no second
    copy of the model is needed."""
    narrow: dict[torch.nn.Parameter, torch.Tensor] = {}

    def widen(module: torch.nn.Module, _: Any) -> None:
        for p in module.parameters():
            if p.dtype != torch.float32 and p.is_floating_point():
                narrow[p] = p.data
                p.data = p.data.float()

    def restore(module: torch.nn.Module, *_: Any) -> None:
        for p in module.parameters():
            if p in narrow:
                p.data = narrow.pop(p)

    with ExitStack() as stack:
        for module in _modules_with_weights(model):
            stack.callback(module.register_forward_pre_hook(widen, prepend=True).remove)
            stack.callback(module.register_forward_hook(restore, always_call=True).remove)
        yield


def _modules_with_weights(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules that compute with weights: those that hold some, and layers with an adapter as a whole."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if isinstance(module, BaseTunerLayer) or next(module.parameters(recurse=False), None) is not None:
        yield module
    else:
        for child in module.children():
            yield from _modules_with_weights(child)


@dataclass(frozen=True)
class TrainerScores:
    """What the trainer's model says about a text. logprobs: of ids[1:], computed in `dtype`; exact: in float32."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    exact: tuple[float, ...]
    dtype: torch.dtype

    @property
    def allowed(self) -> float:
        """How far an engine may be from `exact`, in nats."""
        if self.dtype == torch.float32:
            return EXACT
        own = (torch.tensor(self.logprobs) - torch.tensor(self.exact)).abs().mean()
        return max(LEAST, ROUNDINGS * float(own))


def expect(model: Any, ids: Sequence[int]) -> TrainerScores:
    """What `Canary.judge` needs of the trainer's model, which by then may have been trained further."""
    dtype = next(model.parameters()).dtype
    logprobs = tuple(trainer_logprobs(model, ids).tolist())
    if dtype == torch.float32:
        return TrainerScores(tuple(ids), logprobs, logprobs, dtype)
    with in_float32(model):
        return TrainerScores(tuple(ids), logprobs, tuple(trainer_logprobs(model, ids).tolist()), dtype)


class Canary:
    """Judges one engine, exchange after exchange: it remembers what the trainer said when the engine's numbers last
    changed."""

    def __init__(self) -> None:
        self._last: tuple[TrainerScores, EngineProbe] | None = None

    def judge(self, expected: TrainerScores, probe: EngineProbe) -> float:
        """How far engine and trainer are apart, in nats; WrongWeights when the engine holds other weights.

        The trainer's log-probs are compared with the engine's scoring of the same tokens, the engine's reply as it was
        sampled with its own scoring of it, and its scoring with the one before this exchange: an engine whose numbers
        stayed the same to the last bit, while most of the trainer's moved, still has the old weights.
        """
        if probe.ids[: len(expected.ids)] != expected.ids:
            raise ValueError("the probe is of another prompt than what was expected")
        length = len(expected.logprobs)
        stayed = False
        if self._last is not None:
            before, was = self._last
            common = min(length, len(before.logprobs), len(prompt_of(probe)) - 1)
            stayed = probe.scored[:common] == was.scored[:common]
            pairs = zip(expected.logprobs[:common], before.logprobs[:common], strict=True)
            if stayed and sum(a != b for a, b in pairs) >= CHANGED * common:
                raise WrongWeights(
                    "after the exchange of weights the engine answers as before it, to the last bit, although the "
                    "trainer's numbers have changed: the engine holds other weights, so the run stops here."
                )
        scored = torch.tensor(probe.scored)
        other = (scored[:length] - torch.tensor(expected.exact)).abs()
        own = (scored[len(probe.scored) - len(probe.sampled) :] - torch.tensor(probe.sampled)).abs()
        apart = _apart(torch.cat([other, own]), expected)
        if not stayed:  # small moves that the engine's rounding swallows add up until they would show
            self._last = expected, probe
        return apart


def prompt_of(probe: EngineProbe) -> tuple[int, ...]:
    """The ids of a probe without the engine's reply, which may be another one each time."""
    return probe.ids[: len(probe.ids) - len(probe.sampled)]


def _apart(differences: torch.Tensor, expected: TrainerScores) -> float:
    apart = float(differences.max() if expected.dtype == torch.float32 else differences.mean())
    if not apart <= expected.allowed:
        raise WrongWeights(
            f"after the exchange of weights, engine and trainer differ by {apart:.2g} nats on a fixed text (allowed: "
            f"{expected.allowed:.2g} in {str(expected.dtype).removeprefix('torch.')}): the engine holds other weights, "
            "so the run stops here."
        )
    return apart
