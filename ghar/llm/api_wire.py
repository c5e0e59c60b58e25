"""OpenAI's protocol as data: the body of a request, and what its answer says. No network here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from ghar.episode import Completion
from ghar.llm.engine import Request
from ghar.llm.parsing import parse_label
from ghar.sanitize import plain, readable

QUOTED = 3  # words of a prompt in a row
LONGEST_REFUSAL = 20_000  # characters that are looked at
WORD = re.compile(r"[^\W_]+")
ROUNDING = 1e-4  # of a log-probability, in nats
MOST_TOKENS = 10**9  # of one exchange
# What a server may refuse, and what is lost by going on without it.
LOSSES = {
    "seed": "sampled replies cannot be repeated",
    "logprobs": "replies have no log-probabilities",
    "response_format": "choices are read from free text",
    "temperature": "replies are sampled at the server's own temperature",
    "max_tokens": "max_completion_tokens is sent instead",
}
# How a refusal names it, where that is not simply the name.
WORDS = {
    "response_format": r"response_format|json_schema|structured|guided",
    "max_tokens": r"max_tokens\W+is not supported|use\W+max_completion_tokens",
}


def request_body(request: Request, model: str, *, chat: bool, attempt: int, without: Collection[str]) -> dict[str, Any]:
    """What is sent. without: parameters (of `LOSSES`) that the server has refused.

    attempt: counted from 0 for a request with choices, whose later tries say in words what is wanted and are sampled,
    because the most probable reply would be the same again.
    """
    prompt = plain(request.prompt)  # its tokenizer is not known: the common marks
    if request.before is not None:
        prompt = f"{prompt}\n\n{plain(request.before.text)}\n{request.head.strip()}"
    if request.choices and (attempt or "response_format" in without):
        prompt = f"{prompt}\n\nReply with {_wanted(request)} and nothing else: {' | '.join(request.choices)}"
    longest = request.most * max(map(len, request.choices), default=0)
    limit = 32 + 4 * longest if request.choices else request.max_tokens
    body: dict[str, Any] = {
        "model": model,
        # 31 bits, because some servers keep the seed in so many
        "seed": (request.seed + attempt) & 0x7FFFFFFF,
        "temperature": max(request.temperature, 1.0) if attempt else request.temperature,
        "max_tokens": limit,
        **({"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}),
    }
    if request.choices:
        body["response_format"] = _schema(request)
    else:
        body["logprobs"] = True if chat else 1
    if "max_tokens" in without:
        body["max_completion_tokens"] = limit
    return {name: value for name, value in body.items() if name not in without}


def _wanted(request: Request) -> str:
    """What a reply among choices is, in words."""
    if request.most == 1:
        return "exactly one of these"
    between = {"": "a blank", ",": "a comma"}.get(request.separator.strip(" "), "a line break")
    return f"at least one and at most {request.most} of these, each once, with {between} between them,"


def _schema(request: Request) -> dict[str, Any]:
    """An object whose one field holds a choice, or a list of choices where the reply may be one: the part of JSON
    Schema that every server knows, which has no bound on a list's length."""
    one = {"type": "string", "enum": list(request.choices)}
    answer = one if request.most == 1 else {"type": "array", "items": one}
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": schema}}


def read_answer(answer: Any, *, chat: bool) -> Completion:
    """The reply with its log-probabilities (those of a real language model, () where the server sends none) and usage.

    Raises ValueError for what is no answer of this protocol, and for numbers that none can have: log-probabilities that
    are not finite or above 0, counts of tokens below 0.
    """
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        text = choice["message"]["content"] if chat else choice["text"]
        logprobs = choice.get("logprobs") or {}
        numbers = [t["logprob"] for t in logprobs.get("content") or ()] if chat else logprobs.get("token_logprobs")
        if text is not None and not isinstance(text, str):
            raise ValueError(f"its text is a {type(text).__name__}")
        return Completion(
            readable(text or ""),
            logprobs=tuple(_logprob(number) for number in numbers or ()),
            finish_reason="length" if choice.get("finish_reason") == "length" else "stop",
            usage=(_tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens"))),
        )
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no reply in it ({error!r})") from error


def _logprob(number: Any) -> float:
    """Natural logarithm of a probability; rounding may lift it a little above 0."""
    logprob = float(number)
    if isinstance(number, bool | str) or not math.isfinite(logprob) or logprob > ROUNDING:
        raise ValueError(f"a log-probability of {number!r}")
    return min(logprob, 0.0)


def _tokens(number: Any) -> int:
    count = int(number or 0)
    if isinstance(number, str) or not 0 <= count <= MOST_TOKENS:
        raise ValueError(f"a usage of {number!r:.30} tokens")
    return count


def read_choice(reply: str, request: Request) -> str | None:
    """The reply among a request's choices that a server's words name: one choice, or a list of at most `most` of them
    as `separator` joins it. None where they name none, or something else beside."""
    if request.most == 1:
        return named_choice(reply, request.choices)
    answer = _answer_field(reply)
    if not isinstance(answer, list):
        split = request.separator.strip(" ") or r"[\s,;]"
        answer = [part for part in re.split(split, str(answer)) if part.strip()]
    exact = {choice.lower(): choice for choice in request.choices}
    named = [exact.get(str(part).strip().lower()) or named_choice(str(part), request.choices) for part in answer]
    if not named or None in named:
        return None
    return request.separator.join(list(dict.fromkeys(map(str, named)))[: request.most])


def _answer_field(reply: str) -> Any:
    """The field `answer` of a reply in JSON, else the reply as it stands."""
    try:
        return json.loads(reply)["answer"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return reply


def named_choice(reply: str, choices: Sequence[str]) -> str | None:
    """The choice that a reply names, as JSON or in words; None when it names none, or several."""
    answer = _answer_field(reply)
    if isinstance(answer, bool) or not isinstance(answer, str | int):
        return None  # {"answer": {"yes": false}} names none
    parsed = parse_label(str(answer), choices)
    place: int | None = parsed.value
    return None if place is None else choices[place]


def refused_parameter(sent: Collection[str], refusal: Any) -> str | None:
    """The parameter of `LOSSES` among those sent that a refusal (the parsed body of a status 400 or 422) speaks of."""
    names = [n for n in LOSSES if n in sent and re.search(WORDS.get(n, rf"\b{n}\b"), quote_refusal(refusal).lower())]
    return names[0] if names else None


def quote_refusal(refusal: Any, prompt: str = "") -> str:
    """The sentence of a refusal, cut to what fits a line, without what it quotes of the prompt: `QUOTED` words in a row
    or more are left out."""
    error = refusal.get("error", refusal.get("detail", refusal)) if isinstance(refusal, dict) else refusal
    message = error.get("message", error) if isinstance(error, dict) else error
    return _unquoted(" ".join(str(message)[:LONGEST_REFUSAL].split()), prompt)[:200]


def _unquoted(message: str, prompt: str) -> str:
    """A sentence without the words that stand in the prompt in the same order, `QUOTED` in a row."""
    words = [match.group().lower() for match in WORD.finditer(prompt)]
    prompt_runs = {tuple(words[i : i + QUOTED]) for i in range(len(words) - QUOTED + 1)}
    matches = list(WORD.finditer(message))
    own = [match.group().lower() for match in matches]
    runs = [i for i in range(len(own) - QUOTED + 1) if tuple(own[i : i + QUOTED]) in prompt_runs]
    hidden = {place for i in runs for place in range(i, i + QUOTED)}
    made, end = "", 0
    for place, match in enumerate(matches):
        if place not in hidden:
            made += message[end : match.end()]
        elif place - 1 not in hidden:
            made += f"{message[end : match.start()]}..."
        end = match.end()
    return made + message[end:]
