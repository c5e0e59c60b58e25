"""Restricting a reply to a list of choices, the same way in the engine and in the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def allowed_tokens(choice_ids: Sequence[Sequence[int]], prefix: Sequence[int]) -> tuple[int, ...]:
    """Ids that may follow `prefix` so that some choice can still be completed, sorted and without duplicates.

    Empty when `prefix` is a whole choice (or no beginning of one). Sampling from the softmax over these ids
    alone and recomputing it alone keeps the PPO ratio exact; ignoring the restriction would train off-policy.
    """
    n = len(prefix)
    start = tuple(prefix)
    return tuple(sorted({c[n] for c in choice_ids if len(c) > n and tuple(c[:n]) == start}))


@dataclass(frozen=True)
class ListTree:
    """A reply that lists at least one and at most `most` of some options, each once, and then ends.

    first, later: token ids of each option at the beginning of the list, and behind another with what separates them.
    After every option the end stands beside all that is left, so that a model can stop anywhere.
    """

    first: tuple[tuple[int, ...], ...]
    later: tuple[tuple[int, ...], ...]
    end: int
    most: int

    @property
    def longest(self) -> int:
        """Tokens of a reply at most."""
        return self.most * max(map(len, (*self.first, *self.later))) + 1

    def allowed(self, reply: Sequence[int]) -> tuple[int, ...]:
        """Ids that may follow, as `allowed_tokens`; empty behind the end."""
        states = {(frozenset((i,)), ids) for i, ids in enumerate(self.first)}
        for token in reply:
            states = {new for taken, left in states if left[0] == token for new in self._after(taken, left)}
        return tuple(sorted({left[0] for _, left in states}))

    def _after(self, taken: frozenset[int], left: tuple[int, ...]) -> list[tuple[frozenset[int], tuple[int, ...]]]:
        """Where one token leads: inside an option, or behind it to the end and to each option that is left."""
        if len(left) > 1:
            return [(taken, left[1:])]
        if left == (self.end,):
            return []
        more = range(len(self.later)) if len(taken) < self.most else ()
        return [(taken, (self.end,)), *((taken | {i}, self.later[i]) for i in more if i not in taken)]

    def beside(self, reply: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The reply and, at each of its places, what else was allowed there: `allowed_tokens` finds the same in it."""
        own = tuple(reply)
        others = ((*own[:n], t) for n in range(len(own)) for t in self.allowed(own[:n]) if t != own[n])
        return (own, *others)
