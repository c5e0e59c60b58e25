"""Text to token ids, the one way prompts and replies are encoded for sampling, for SFT and for choices.

Text is made plain first (`ghar.sanitize`): only the tokenizer's chat template and its end token give special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ghar.episode import Completion
from ghar.llm.chat_template import render
from ghar.llm.constraint import ListTree
from ghar.llm.engine import Request
from ghar.llm.model_facts import facts_of
from ghar.sanitize import plain

Tokenizer = Any  # a transformers tokenizer; typed loosely so that this module imports no transformers


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Token ids of a prompt: a user message where the tokenizer has a chat template, else raw behind the token that
    begins a text."""
    return [*facts_of(tokenizer).begin, *tokenizer.encode(_asked(tokenizer, prompt), add_special_tokens=False)]


@lru_cache(maxsize=4096)  # an episode fits the same rows into a prompt at each of its turns
def count_tokens(tokenizer: Tokenizer, prompt: str) -> int:
    """Tokens of a prompt."""
    return len(encode_prompt(tokenizer, prompt))


def encode_reply(tokenizer: Tokenizer, reply: str) -> list[int]:
    """Token ids of a free reply as a model should have said it, end token included."""
    return [*tokenizer.encode(_frame_reply(tokenizer, reply), add_special_tokens=False), facts_of(tokenizer).end]


def encode_many(tokenizer: Tokenizer, prompts: Sequence[str], replies: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """`encode_prompt` of each prompt and `encode_reply` of each reply, many at a time, which is much quicker."""
    texts = [*(_asked(tokenizer, prompt) for prompt in prompts), *(_frame_reply(tokenizer, reply) for reply in replies)]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    facts = facts_of(tokenizer)
    return (
        [[*facts.begin, *asked] if facts.begin else asked for asked in ids[: len(prompts)]],
        [[*reply_ids, facts.end] for reply_ids in ids[len(prompts) :]],
    )


def _asked(tokenizer: Tokenizer, prompt: str) -> str:
    """The text that stands for a prompt."""
    prompt = plain(prompt, tokenizer)
    return render(tokenizer, ("user", prompt), prompt=True) if facts_of(tokenizer).chat else prompt


def _frame_reply(tokenizer: Tokenizer, reply: str) -> str:
    """The text that stands for a reply: behind a raw prompt comes a blank."""
    reply = plain(reply, tokenizer)
    return reply if facts_of(tokenizer).chat else " " + reply


@lru_cache(maxsize=1024)  # the same few lists are asked for again and again
def encode_choices(tokenizer: Tokenizer, choices: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Token ids of each choice. The end token is added only where one choice begins another."""
    ids = [tuple(encode_reply(tokenizer, choice))[:-1] for choice in choices]
    return make_prefix_free(ids, facts_of(tokenizer).end)


def make_prefix_free(sequences: Sequence[tuple[int, ...]], end: int) -> tuple[tuple[int, ...], ...]:
    """The token sequences, each with `end` behind it where one of them begins another ("1" begins "10")."""
    clash = any(a != b and b[: len(a)] == a for a in sequences for b in sequences)
    return tuple((*ids, end) if clash else ids for ids in sequences)


def encode_after(tokenizer: Tokenizer, before: Completion, head: str) -> list[int]:
    """Token ids to go on from: a reply in its context, as it was sampled but for its end, and the words behind it."""
    reply_ids = before.token_ids
    if reply_ids and reply_ids[-1] in facts_of(tokenizer).ends:
        reply_ids = reply_ids[:-1]
    return [*before.prompt_ids, *reply_ids, *tokenizer.encode(plain(head, tokenizer), add_special_tokens=False)]


@lru_cache(maxsize=1024)
def encode_behind(tokenizer: Tokenizer, choices: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """`encode_choices` behind a head: a blank comes first."""
    ids = [tuple(tokenizer.encode(" " + plain(c, tokenizer), add_special_tokens=False)) for c in choices]
    return make_prefix_free(ids, facts_of(tokenizer).end)


@lru_cache(maxsize=1024)
def encode_list(tokenizer: Tokenizer, choices: tuple[str, ...], most: int, separator: str, behind: bool) -> ListTree:
    """The tree of lists of `choices`; behind: a head and a blank come first."""
    end = facts_of(tokenizer).end
    first = [" " + choice if behind or not facts_of(tokenizer).chat else choice for choice in choices]

    def ids(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(tokenizer.encode(plain(t, tokenizer), add_special_tokens=False)) for t in texts)

    return ListTree(ids(first), ids([separator + choice for choice in choices]), end, min(most, len(choices)))


def encode_requests(tokenizer: Tokenizer, requests: Sequence[Request]) -> list[list[int]]:
    """Token ids of everything before each request's reply."""
    asked = iter(encode_many(tokenizer, [request.prompt for request in requests if request.before is None], [])[0])
    return [next(asked) if r.before is None else encode_after(tokenizer, r.before, r.head) for r in requests]


def encode_restriction(tokenizer: Tokenizer, request: Request) -> tuple[tuple[tuple[int, ...], ...], ListTree | None]:
    """The token sequences that a reply is restricted to, and their tree where it lists several."""
    if not request.choices:
        return (), None
    behind = request.before is not None
    if request.most > 1:
        tree = encode_list(tokenizer, request.choices, request.most, request.separator, behind)
        return tree.first, tree
    return (encode_behind if behind else encode_choices)(tokenizer, request.choices), None
