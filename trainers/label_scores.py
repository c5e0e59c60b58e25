"""How probable a model found each label at the place where it named one: what AUROC and AUPRC rank patients by."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scipy.special import softmax

from ghar.episode import Completion, Episode
from ghar.llm.engine import Engine
from ghar.llm.tokens import Tokenizer, told_apart


def label_probabilities(
    engine: Engine, tokenizer: Tokenizer, episodes: Sequence[Episode], labels: Sequence[str]
) -> list[tuple[float, ...] | None]:
    """P(label | prompt, reply up to its label), one tuple an episode, normalised over `labels`, at temperature 1.

    The reply stays as it was sampled, down to the token ids; only the label it names is exchanged for each of the
    others. None where no label could be read or no language model answered.
    """
    slots = {i: _slot(tokenizer, episode, labels) for i, episode in enumerate(episodes)}
    pairs = {i: [(slot[0], candidate) for candidate in slot[1]] for i, slot in slots.items() if slot is not None}
    flat = iter(engine.score([pair for some in pairs.values() for pair in some]))
    found = {i: tuple(softmax([sum(next(flat)) for _ in some]).tolist()) for i, some in pairs.items()}
    return [found.get(i) for i in range(len(episodes))]


def _slot(
    tokenizer: Tokenizer, episode: Episode, labels: Sequence[str]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """Ids of everything before the label, and each label's ids in its place."""
    said = [turn.completion for turn in episode.turns if turn.role == "predict" and turn.completion.token_ids]
    if episode.prediction.label is None or not said:
        return None
    kept, separator = _before(tokenizer, said[-1], labels[episode.prediction.label])
    ids = [tuple(tokenizer.encode(separator + label, add_special_tokens=False)) for label in labels]
    return (*said[-1].prompt_ids, *kept), told_apart(ids, tokenizer.eos_token_id)


def _before(tokenizer: Tokenizer, said: Completion, label: str) -> tuple[tuple[int, ...], str]:
    """The reply's tokens that end before its last mention of `label`, and the characters between the two."""
    text = tokenizer.decode(said.token_ids, skip_special_tokens=True)
    mention = rf"(?<![a-z0-9]){re.escape(label.lower())}(?![a-z0-9])"
    start = [found.start() for found in re.finditer(mention, text.lower())][-1]
    for n in range(len(said.token_ids) - 1, -1, -1):
        before = tokenizer.decode(said.token_ids[:n], skip_special_tokens=True)
        if len(before) <= start:
            return said.token_ids[:n], text[len(before) : start]
    raise AssertionError("the empty reply ends before any label")
