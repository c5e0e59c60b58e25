"""A small Qwen2-architecture model and its tokenizer, built on the spot so that nothing is downloaded.

The tokenizer is a byte-level BPE over the demo's own prompts in which frequent names of conditions, drugs and
graph nodes are single tokens (with their leading space): a 1M-parameter model then spends its capacity on
deciding instead of spelling. Real models keep their own tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

PAD, EOS = "<pad>", "<eos>"


def build_tokenizer(texts: Iterable[str], names: Sequence[str], vocab: int) -> PreTrainedTokenizerFast:
    """BPE of at most `vocab` entries over `texts`, with `names` as whole tokens (as many as fit)."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    kept = list(dict.fromkeys(names))[: max(0, vocab - 1024)]
    trainer = trainers.BpeTrainer(
        vocab_size=min(1024, vocab),
        special_tokens=[PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.add_tokens([AddedToken(" " + name, normalized=False) for name in kept])
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=EOS, clean_up_tokenization_spaces=False)


def build_model(tokenizer: PreTrainedTokenizerFast, *, hidden: int, layers: int, heads: int, seed: int) -> Any:
    """A randomly initialised Qwen2 for causal language modelling, tied embeddings, float32."""
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
        return Qwen2ForCausalLM(config).eval()
