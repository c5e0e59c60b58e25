"""A readable decision from any model: free text within its budget, then a choice among the act's options.

A reply that can be read stays as it is. Behind one that cannot, the engine writes the head of the answer ("answer:")
and the same model chooses among the options; a list of ids or names is chosen from its beginning, with the end beside
every further option. Where text follows an option ("Search:") and cannot be read, one of the other options is chosen.
One act is one turn and one reply, however many parts it was sampled in; each part keeps the context and the restriction
it was sampled under, and is trained as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from ghar.episode import Act, Completion
from ghar.llm.engine import Request

Decisions: TypeAlias = Literal["free", "chosen"]
SEED = 0x9E3779B97F4A7C15  # odd: seeds of an act's parts differ
OPEN_TOKENS = 48  # of the text behind an open option


def next_request(
    act: Act, seed: int, temperature: float, parts: Sequence[Completion], decisions: Decisions
) -> Request | None:
    """What to ask for after these parts of a reply; None where the reply is whole."""
    options = None if act.choices or decisions == "free" else act.options
    first = Request(
        act.prompt, act.max_tokens, act.choices, seed, temperature, credentialed=act.credentialed
    )
    if options is None:
        return None if parts else first
    choose = replace(first, choices=options.texts, most=options.most, separator=options.separator)
    if not parts:
        return choose if options.alone else first
    *_, last = parts
    choose = replace(choose, seed=(seed + len(parts) * SEED) % (1 << 63), before=last)
    if len(parts) == 1 and not options.alone and act.parse(last.text).error is not None:
        return replace(choose, head=f"\n{options.head}" if last.text else options.head)
    if len(parts) == 2 and last.text in options.open:
        return replace(choose, choices=(), most=1, max_tokens=OPEN_TOKENS)
    closed = tuple(text for text in options.texts if text not in options.open)
    if len(parts) == 3 and closed and act.parse(joined(act, parts).chosen).error is not None:
        return replace(choose, choices=closed, most=1, head="\n")  # such as a search that was made before
    return None


def joined(act: Act, parts: Sequence[Completion]) -> Completion:
    """The parts of a reply as one."""
    *earlier, last = parts
    if not earlier:
        return last
    options = act.options
    assert options is not None
    lines = [part.text.partition("\n")[0] for part in parts[1:]]  # a model goes on behind its search, too
    if len(lines) > 2:  # what was written behind an open option could not be read
        lines = lines[-1:]
    elif len(lines) == 2 and options.words is not None:
        lines[1] = " ".join(lines[1].split()[: options.words])
    chosen = " ".join(piece for piece in (options.head, *lines) if piece)
    text = "\n".join(piece for piece in (parts[0].text, chosen) if piece)
    before = earlier[0]
    for part in earlier[1:]:
        before = replace(part, before=before)
    return replace(last, before=before, text=text, chosen=chosen)
