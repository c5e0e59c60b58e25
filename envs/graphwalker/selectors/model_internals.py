"""What selectors that look inside a model read there: hidden states, attention weights, gradients (engine hf)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ghar.errors import BadInput
from ghar.llm.engine import Engine


def model_of(engine: Engine) -> Any:
    """The engine's model. BadInput for an engine that keeps it to itself."""
    from ghar.llm.hf import HFEngine

    if not isinstance(engine, HFEngine):
        raise BadInput("This selector reads hidden states or gradients, which only engine=hf gives: choose engine=hf.")
    return engine.model


@torch.inference_mode()
def states(model: Any, prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each prompt's last token: the last hidden state h [n, d], W_k' W_q h [n, d] and |W_v h| [n].

    Weights are those of the last layer's attention. Where several query heads share a key head, the key head's weights
    are repeated for each of them.
    """
    attention = model.model.layers[-1].self_attn
    query, key, value = (getattr(attention, f"{name}_proj").weight.float() for name in ("q", "k", "v"))
    width = attention.head_dim
    shared = query.shape[0] // key.shape[0]
    key = key.view(-1, width, key.shape[1]).repeat_interleave(shared, dim=0).reshape(query.shape)
    rows = []
    for prompt in prompts:  # one by one: a pool is read once
        ids = torch.tensor([list(prompt)], device=model.device)
        out = model(input_ids=ids, output_hidden_states=True, logits_to_keep=1)
        rows.append(out.hidden_states[-1][0, -1].float())
    h = torch.stack(rows)
    asked = (h @ query.T) @ key
    return h.cpu().numpy(), asked.cpu().numpy(), (h @ value.T).norm(dim=-1).cpu().numpy()


def slopes(
    model: Any, pieces: Sequence[Sequence[int]], answer: Sequence[int], shots: Sequence[Sequence[int]]
) -> tuple[float, np.ndarray]:
    """log p of `answer` after `pieces` (head, examples, patient), and its first-order change [examples, shots] when an
    example's input embeddings are exchanged for those of a shot, cut or filled with zeros to its length."""
    embed = model.get_input_embeddings()
    with torch.no_grad():
        ids = torch.tensor([[token for piece in (*pieces, answer) for token in piece]], device=model.device)
        table = [embed(torch.tensor(list(shot), device=model.device)) for shot in shots]
        start = embed(ids)
    x = start.clone().requires_grad_(True)
    was = model.training
    model.eval()
    logits = model(inputs_embeds=x, use_cache=False, logits_to_keep=len(answer) + 1).logits[0, :-1].float()
    picked = logits.log_softmax(-1).gather(1, ids[0, -len(answer) :, None]).sum()
    (gradient,) = torch.autograd.grad(picked, x)
    model.train(was)
    changes, at = [], len(pieces[0])
    for piece in pieces[1:-1]:
        slot = slice(at, at + len(piece))
        slope, here = gradient[0, slot], start[0, slot]
        base = (slope * here).sum()
        changes.append([float((slope[: len(row)] * row[: len(piece)]).sum() - base) for row in table])
        at += len(piece)
    return float(picked.detach()), np.array(changes).reshape(len(pieces) - 2, len(shots))
