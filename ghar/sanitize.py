"""Text from outside, made plain before it stands in a prompt: whatever a record says, it stays text.

Three things can make more of it. A lone surrogate cannot be encoded at all; control and invisible characters hide what
a reader does not see; the literal of a tokenizer's special token (`<|im_end|>`) becomes that token, so that a record
could end the user's turn and open a system's. The first become U+FFFD, the second blanks or nothing, and the third get
a blank behind their first character: still readable, and no token any more. Prompts are cleaned where they become token
ids or leave for a server (`ghar.llm.tokens`, `ghar.llm.api_wire`), replies where they come from one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

Ranges = tuple[tuple[int, int], ...]
SURROGATES: Ranges = ((0xD800, 0xDFFF),)
# C0 and C1 without tab, line feed and carriage return, and Unicode's own line and paragraph ends
CONTROLS: Ranges = ((0x00, 0x08), (0x0B, 0x0C), (0x0E, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029))
# zero-width blanks, marks of writing direction, tag characters, the byte order mark; not the joiners that scripts need
UNSEEN: Ranges = (
    (0x200B, 0x200B), (0x200E, 0x200F), (0x202A, 0x202E), (0x2060, 0x2069), (0xFEFF, 0xFEFF), (0xE0000, 0xE007F),
)  # fmt: skip
SUSPECT = re.compile(f"[{''.join(f'{chr(a)}-{chr(b)}' for a, b in (*SURROGATES, *CONTROLS, *UNSEEN))}]")
# Turn marks of common chat models, known or not to the tokenizer in use: that of a server is not known at all.
MARKS = (
    r"<[|｜][^<>|｜\s]{1,40}[|｜]>", r"</?s>", r"</?(?:start|end)_of_turn>", r"<(?:bos|eos|pad|unk)>",
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|THINK)\]", r"<</?SYS>>",
    # of reasoning and tools, which servers read as structure
    r"</?(?:think|thinking|thought|reasoning|tools?|tool_(?:calls?|response|results?|outputs?)|function_calls?)>",
    r"<(?:function|parameter)=[^<>\s]{1,60}>|</(?:function|parameter)>",
)  # fmt: skip
MARKUP = re.compile(r"</?\w[^<>\s]*>|\[/?[A-Z_]+\]")  # what a special token looks like that does not call itself one
ROUNDS = 8  # of a mark inside a mark


def plain(text: str, tokenizer: Any = None) -> str:
    """`text` without surrogates, control and invisible characters and special tokens.

    tokenizer: of transformers, whose own special tokens are neutralised with the common ones; None where it is unknown.
    Text without any of these comes back as it is.
    """
    text = readable(text)
    marks = marks_of(tokenizer)
    for _ in range(ROUNDS):
        parts = marks.split(text)  # what is between marks, and at every second place a mark
        if len(parts) == 1:
            break
        parts[1::2] = [f"{mark[0]} {mark[1:]}" if len(mark) > 1 else "\ufffd" for mark in parts[1::2]]
        text = "".join(parts)
    return text


def readable(text: str) -> str:
    """`text` without surrogates, control and invisible characters."""
    if SUSPECT.search(text) is None:
        return text
    codes = _codes(text)
    kinds = _kinds()[codes]
    codes[kinds == 1], codes[kinds == 2] = 0xFFFD, 0x20
    return codes[kinds != 3].astype("<u4").tobytes().decode("utf-32-le")


def count_marks(text: str, tokenizer: Any = None) -> int:
    """How many places of `text` `plain` changes."""
    unreadable = 0 if SUSPECT.search(text) is None else int(np.count_nonzero(_kinds()[_codes(text)]))
    return unreadable + len(marks_of(tokenizer).findall(readable(text)))


def _codes(text: str) -> np.ndarray:
    """The characters as numbers: a text of a megabyte is looked through in milliseconds, whatever it is full of."""
    return np.array([text]).view(np.uint32)  # no encoder, which would ask a handler about every surrogate


@lru_cache(maxsize=1)
def _kinds() -> np.ndarray:
    """For every character 1 for a surrogate, 2 for a control character, 3 for one that is not seen, else 0."""
    kinds = np.zeros(0x110000, dtype=np.uint8)
    for kind, ranges in enumerate((SURROGATES, CONTROLS, UNSEEN), start=1):
        for first, last in ranges:
            kinds[first : last + 1] = kind
    return kinds


def marks_of(tokenizer: Any) -> re.Pattern[str]:
    """What is neutralised for a tokenizer: its special tokens, longest first, and the common ones, as one group."""
    size = len(tokenizer) if hasattr(tokenizer, "__len__") else 0
    return _marks_of(tokenizer, size)  # tokens may be added to one


@lru_cache(maxsize=16)
def _marks_of(tokenizer: Any, _size: int) -> re.Pattern[str]:
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    own = {str(token) for token in added if token.special or MARKUP.fullmatch(str(token).strip())}
    own |= set(getattr(tokenizer, "all_special_tokens", ()))
    literal = [re.escape(token) for token in sorted(own, key=lambda token: (-len(token), token)) if token.strip()]
    return re.compile(f"({'|'.join([*literal, *MARKS])})")
