"""Run generators: an episode or a search yields effects, is sent their answers, and returns a value."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ghar.episode import Act

T = TypeVar("T")


@dataclass(frozen=True)
class Returned(Generic[T]):
    """The value with which a generator has ended."""

    value: T


def resume(generator: Generator[Any, Any, T], answer: Any) -> Any | Returned[T]:
    """Send an answer (None at the start) into a generator; its next effect, or `Returned` at its end."""
    try:
        return generator.send(answer)
    except StopIteration as end:
        return Returned(end.value)


def through(inner: Generator[Any, Any, T], asked: Callable[[Any], Generator[Any, Any, Any]]) -> Generator[Any, Any, T]:
    """Run `inner` and return what it returns; `asked` yields effects in place of each of its own, and returns what is
    sent into it."""
    effect = resume(inner, None)
    while not isinstance(effect, Returned):
        effect = resume(inner, (yield from asked(effect)))
    return effect.value


def change_acts(inner: Generator[Any, Any, T], change: Callable[[Act], Act]) -> Generator[Any, Any, T]:
    """Run `inner` with each of its acts changed, those asked for in a tuple too; all else passes as it is."""

    def changed(effect: Any) -> Any:
        if isinstance(effect, tuple):
            return tuple(changed(part) for part in effect)
        return change(effect) if isinstance(effect, Act) else effect

    def asked(effect: Any) -> Generator[Any, Any, Any]:
        return (yield changed(effect))

    return through(inner, asked)


def together(*parts: Generator[Any, Any, Any]) -> Generator[Any, Any, tuple[Any, ...]]:
    """Run generators that yield single effects side by side, step by step; returns what each of them returns.

    Everyone's next effect is asked for in one tuple, in the order of `parts`; who has ended is left out.
    """
    effects = [resume(part, None) for part in parts]
    while waiting := [i for i, effect in enumerate(effects) if not isinstance(effect, Returned)]:
        answers = yield tuple(effects[i] for i in waiting)
        for i, answer in zip(waiting, answers, strict=True):
            effects[i] = resume(parts[i], answer)
    return tuple(effect.value for effect in effects)
