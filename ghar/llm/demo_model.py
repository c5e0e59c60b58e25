"""A small Qwen2 model and its tokenizer, built on the spot so that nothing is downloaded.

The tokenizer is Qwen2's pipeline (byte-level BPE) trained on the demo's own prompts, in which names of conditions,
drugs and graph nodes are single tokens (with their leading space): a 1M-parameter model then spends its capacity on
deciding instead of spelling. Real models keep their own tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

PAD = "<|pad|>"
SPELLING = 1024  # entries for spelling; the rest of the vocabulary is names
HEADS = 2  # attention heads of a layer


def build_tokenizer(texts: Iterable[str], names: Sequence[str], vocab: int) -> Any:
    """BPE of at most `SPELLING` entries over `texts`, and as many of `names` as fit into `vocab` as whole tokens."""
    from tokenizers import AddedToken

    from ghar.llm import import_transformers  # noqa: F401

    # isort: split
    from transformers import Qwen2Tokenizer

    untrained = Qwen2Tokenizer(pad_token=PAD)
    tokenizer = untrained.train_new_from_iterator(texts, min(SPELLING, vocab), show_progress=False)
    kept = list(dict.fromkeys(names))[: max(0, vocab - len(tokenizer))]
    tokenizer.add_tokens([AddedToken(" " + name, normalized=False) for name in kept])
    return tokenizer


def build_model(
    tokenizer: Any, *, hidden: int, layers: int, heads: int = HEADS, seed: int, copying: bool = False
) -> Any:
    """A randomly initialised Qwen2 for causal language modelling, tied embeddings, float32. copying: see `_copying`."""
    from ghar.llm import import_transformers  # noqa: F401

    # isort: split
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        attention_dropout=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        return (_copying(model, hidden) if copying else model).eval()


def _copying(model: Any, hidden: int) -> Any:
    """Weights of the size that suits the width, where Qwen2's 0.02 suits thousands; and heads that look for tokens like
    their own (keys are queries) and hand on what they find (outputs turn values back). From 0.02 a model of width 64
    needs thousands of steps before any match is found."""
    scale = hidden**-0.5
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(std=2 * scale if "embed" in name else scale)
        for layer in model.model.layers:
            layer.self_attn.k_proj.weight.copy_(layer.self_attn.q_proj.weight)
            layer.self_attn.o_proj.weight.copy_(layer.self_attn.v_proj.weight.T)
    return model
