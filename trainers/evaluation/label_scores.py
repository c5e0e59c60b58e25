"""How probable a model found each label at the place where it named one: what AUROC and AUPRC rank patients by."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from scipy.special import logsumexp, softmax

from ghar.episode import Completion, Episode, Reply
from ghar.llm.answer_line import last_answer, small
from ghar.llm.engine import Engine, score_shared
from ghar.llm.model_facts import facts_of
from ghar.llm.parsing import label_start, parse_label
from ghar.llm.tokens import Tokenizer, make_prefix_free


def label_probabilities(
    engine: Engine, tokenizer: Tokenizer, episodes: Sequence[Episode], labels: Sequence[str]
) -> list[tuple[float, ...] | None]:
    """P(label | prompt, reply up to its label), one tuple an episode, normalised over `labels`, at temperature 1.

    The reply stays as it was sampled, down to the token ids; only the label it names is exchanged for each of the
    others. None where no label could be read or no language model answered.
    """
    spelled: dict[str, tuple[tuple[int, ...], ...]] = {}
    slots = {i: _slot(tokenizer, episode, labels, spelled) for i, episode in enumerate(episodes)}
    pairs = {i: [(slot[0], candidate) for candidate in slot[1]] for i, slot in slots.items() if slot is not None}
    flat = iter(score_shared(engine, [pair for some in pairs.values() for pair in some]))
    scores = {i: [next(flat) for _ in some] for i, some in pairs.items()}
    probabilities = {
        i: _along_tree([ids for _, ids in pairs[i]], own) if _was_chosen(episodes[i])
        else tuple(softmax([sum(logprobs) for logprobs in own]).tolist())
        for i, own in scores.items()
    }  # fmt: skip
    return [probabilities.get(i) for i in range(len(episodes))]


def _was_chosen(episode: Episode) -> bool:
    """Whether the label is a choice behind free text (`ghar.llm.decisions`)."""
    reply = _deciding(episode)
    return reply is not None and bool(reply.chosen)


def _along_tree(labels: Sequence[Sequence[int]], scores: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """P(label) where it was chosen token by token, at each place among the tokens that other labels allow there.

    labels: token ids; scores: log-probability of each of them, unrestricted.
    """
    probabilities = []
    for ids, own in zip(labels, scores, strict=True):
        total = 0.0
        for n, logprob in enumerate(own):
            allowed = {other[n]: theirs[n] for other, theirs in zip(labels, scores, strict=True)
                       if len(other) > n and tuple(other[:n]) == tuple(ids[:n])}  # fmt: skip
            total += logprob - float(logsumexp(list(allowed.values())))  # type: ignore[arg-type]
        probabilities.append(math.exp(total))
    return tuple(probabilities)


def _slot(
    tokenizer: Tokenizer, episode: Episode, labels: Sequence[str], spelled: dict[str, tuple[tuple[int, ...], ...]]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """Ids of everything before the label, and each label's ids in its place, or those of its number where the reply
    answers with a number. spelled: those of labels behind the same characters, kept from episode to episode."""
    reply = _deciding(episode)
    if reply is None or episode.prediction.label is None:
        return None
    text = tokenizer.decode(reply.token_ids, skip_special_tokens=True)
    place = _place(text, labels, episode.prediction.label)
    if place is None:
        return None
    names, start = place
    kept, separator = _before(tokenizer, reply, text, start)
    key = separator if names is labels else f"{separator}\0"
    if key not in spelled:
        ids = [tuple(tokenizer.encode(separator + name, add_special_tokens=False)) for name in names]
        spelled[key] = make_prefix_free(ids, facts_of(tokenizer).end)
    return (*reply.prompt_ids, *kept), spelled[key]


def _place(text: str, labels: Sequence[str], label: int) -> tuple[Sequence[str], int] | None:
    """Find where the text names the label, and whether by a name of `labels` or by a number (the names come back).

    It is the place that `parse_label` reads. In a text that another parser read, it is the first mention by name or
    number behind the answer, or else the last mention by name.
    """
    numbers = [str(i) for i in range(len(labels))]
    for names in (labels, numbers):
        start = label_start(text, names)
        if start is not None and parse_label(text, names).value == label:
            return names, start
    stated = last_answer(small(text))
    if stated is not None:
        first = stated.end - len(stated.text)
        # of a name and a number at one place the longer counts: "1 day", not "1"
        mentions = [(start, -len(names[label]), names) for names in (labels, numbers)
                    for start in _mentions(text, names[label]) if start >= first]  # fmt: skip
        if mentions:
            start, _, names = min(mentions, key=lambda mention: mention[:2])
            return names, start
    starts = _mentions(text, labels[label])
    return (labels, starts[-1]) if starts else None


def _mentions(text: str, name: str) -> list[int]:
    """Find where a text names a label, as a word of its own."""
    pattern = rf"(?<![a-z0-9]){re.escape(name.lower())}(?![a-z0-9])"
    return [match.start() for match in re.finditer(pattern, small(text))]


def _deciding(episode: Episode) -> Completion | None:
    """The last reply of a language model that was read as the predicted label."""
    label = episode.prediction.label
    replies = [r.result for r in episode.trace if isinstance(r.result, Reply) and r.result.completion.token_ids]
    read = [reply.completion for reply in replies if _is_label(reply, label)]
    return read[-1] if read else None


def _is_label(reply: Reply, label: int | None) -> bool:
    return isinstance(reply.value, int) and not isinstance(reply.value, bool) and reply.value == label


def _before(tokenizer: Tokenizer, reply: Completion, text: str, start: int) -> tuple[tuple[int, ...], str]:
    """Return the reply's tokens that end before its character `start`, and the characters between the two.

    text: the reply, decoded.
    """
    for n in range(len(reply.token_ids) - 1, 0, -1):
        before = tokenizer.decode(reply.token_ids[:n], skip_special_tokens=True)
        if len(before) <= start:
            return reply.token_ids[:n], text[len(before) : start]
    return (), text[:start]
