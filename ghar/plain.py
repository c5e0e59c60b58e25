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

SURROGATE = re.compile("[\ud800-\udfff]")
# C0 and C1 without tab, line feed and carriage return, and Unicode's own line and paragraph ends
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
# zero-width blanks, marks of writing direction, tag characters, the byte order mark; not the joiners that scripts need
UNSEEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
SUSPECT = re.compile(f"(?:{'|'.join(pattern.pattern for pattern in (SURROGATE, CONTROL, UNSEEN))})+")  # a run of them
# Turn marks of common chat models, known or not to the tokenizer in use: that of a server is not known at all.
MARKS = (
    r"<[|｜][^<>|｜\s]{1,40}[|｜]>", r"</?s>", r"</?(?:start|end)_of_turn>", r"<(?:bos|eos|pad|unk)>",
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]", r"<</?SYS>>",
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
    return UNSEEN.sub("", CONTROL.sub(" ", SURROGATE.sub("\ufffd", text)))


def count_marks(text: str, tokenizer: Any = None) -> int:
    """How many places of `text` `plain` changes."""
    return sum(map(len, SUSPECT.findall(text))) + len(marks_of(tokenizer).findall(readable(text)))


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
