"""The last layer of a transformer, only at the tokens whose states are read.

A loss over completions reads no state of a prompt token behind the last layer; of these tokens only its keys and
values count. So what comes after attention there (output projection, feed-forward, norm) is left out for them, with
the same numbers elsewhere. With few layers and long prompts that is a good part of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

# whose layer is: x += self_attn(input_layernorm(x)); x += mlp(post_attention_layernorm(x))
PLAIN = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")


@contextmanager
def only_at(model: Any, row: Tensor, position: Tensor) -> Iterator[None]:
    """Within, the forward pass of a transformers `model` (or one of peft's around it) returns states [1, T, H], and so
    logits [1, T, V], of the tokens at row [T] and position [T]; on layers of another build by leaving the others out
    at the end.

    Checkpointing spares the last layer: it would be computed again at once, with all its activations in memory.
    """
    layer = trunk_of(model).layers[-1]
    own: dict[str, Any] = {"gradient_checkpointing": False}
    if type(layer).__name__ in PLAIN:
        own["forward"] = _tail(layer, row, position)
        take = layer.self_attn.o_proj.register_forward_pre_hook(lambda _, given: (given[0][row, position][None],))
    else:
        take = layer.register_forward_hook(lambda _, given, out: out[row, position][None])
    before = {name: layer.__dict__[name] for name in own if name in layer.__dict__}
    try:
        layer.__dict__.update(own)
        yield
    finally:
        take.remove()
        for name in own:
            del layer.__dict__[name]
        layer.__dict__.update(before)


def plain(model: Any) -> Any:
    """The transformers model inside a peft one (its adapters stay in force), or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def trunk_of(model: Any) -> Any:
    """The layers of a causal language model without its head; adapters stay in force."""
    return plain(model).base_model


def _tail(layer: Any, row: Tensor, position: Tensor) -> Callable[..., Tensor]:
    def forward(hidden_states: Tensor, **given: Any) -> Tensor:
        attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **given)
        states = hidden_states[row, position][None] + attended
        return states + layer.mlp(layer.post_attention_layernorm(states))

    return forward
