"""Examples before another system's prompts: what a demonstration selector chose, put upstream of any episode."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ghar.episode import Act, EpisodeGenerator


def with_examples(episode: EpisodeGenerator, examples: str, roles: Collection[str] = ("predict",)) -> EpisodeGenerator:
    """The same episode, with `examples` before the prompt of every act whose role is one of `roles`.

    examples: text, "" for none. Everything else of the episode, its results included, passes through as it is.
    """

    def shown(effect: Any) -> Any:
        if isinstance(effect, tuple):
            return tuple(shown(part) for part in effect)
        if isinstance(effect, Act) and effect.role in roles and examples:
            return replace(effect, prompt=f"{examples}\n\n{effect.prompt}")
        return effect

    try:
        effect = next(episode)
        while True:
            effect = episode.send((yield shown(effect)))
    except StopIteration as end:
        return end.value
