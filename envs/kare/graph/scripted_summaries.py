"""The demo world's summariser: what a model would be told to do, done by rule on the prompt alone, losing no fact.

Facts are grouped by head and relation, a sentence each: "x phenotype present grade 7 course and fever." A course
"of x" is not said to be its own again. Where summaries are combined, every sentence is kept once. Only a prompt's limit
of words cuts, at the end of a sentence.
"""

from __future__ import annotations

import re

from ghar.kg.names import plain

FACT = re.compile(r"^(.+?) \| (.+?) \| (.+)$", re.MULTILINE)
PART = re.compile(r"^Paragraph \d+: (.+)$", re.MULTILINE)
TERMS = re.compile(r"^Words that belong to the theme: (.+)$", re.MULTILINE)
LIMIT = re.compile(r"at most (\d+) words")
GRADE = re.compile(r"\bgrade \d+ course\b")  # the demo world's word for severity, on which all its outcomes depend


def reply(prompt: str) -> str:
    """A summary for a prompt of envs/kare/graph/summaries.py; ValueError for another prompt.

    Sentences with a grade come first, then those with a term of the theme; without any of the two, the reply to a
    prompt with a theme is "NOT RELEVANT".
    """
    limit = LIMIT.search(prompt)
    if limit is None:
        raise ValueError("the scripted summariser was asked something else than a summary")
    parts = PART.findall(prompt)
    sentences = _merged(parts) if parts else _write_sentences(prompt.partition("Facts:\n")[2])
    theme = TERMS.search(prompt)
    terms = [plain(term) for term in theme[1].split("; ")] if theme else []
    first = [sentence for sentence in sentences if GRADE.search(sentence)]
    first += [sentence for sentence in sentences if any(term in sentence for term in terms)]
    if theme and not first:
        return "NOT RELEVANT"
    return _within(list(dict.fromkeys(first + sentences)), int(limit[1]))


def _write_sentences(facts: str) -> list[str]:
    """One sentence for each head and relation, heads together, in the order of their first facts."""
    tails: dict[str, dict[str, list[str]]] = {}
    for head, relation, tail in FACT.findall(facts):
        tails.setdefault(head, {}).setdefault(relation, []).append(tail.removesuffix(f" of {head}"))
    return [f"{head} {relation} {_listed(own)}." for head, one in tails.items() for relation, own in one.items()]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _merged(parts: list[str]) -> list[str]:
    return list(dict.fromkeys(sentence for part in parts for sentence in re.split(r"(?<=\.) ", part)))


def _within(sentences: list[str], words: int) -> str:
    """As many sentences from the first as `words` allow, at least one."""
    kept = sentences[:1]
    left = words - len(kept[0].split())
    for sentence in sentences[1:]:
        left -= len(sentence.split())
        if left < 0:
            break
        kept.append(sentence)
    return " ".join(kept)
