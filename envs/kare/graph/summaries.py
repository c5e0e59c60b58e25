"""Summaries of communities, general and for a theme, written by an engine (Section 3.1.3 and Appendix D.1, KARE).

A community of at most `small` triples (Z_s) is summarised by one prompt. One of up to `large` (Z_c) is shuffled and
split; its parts are summarised, then the summaries combined, TOGETHER at a time, until one is left. Larger ones get
none. Prompts have the inputs and the contract of the paper's Figs. 12 and 13 in our words; one difference: for a theme
the engine may say that the community has nothing to do with it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghar.envs.kare.graph.communities import Communities
from ghar.envs.kare.graph.themes import Theme
from ghar.llm.cached_llm import LONGEST, CachedQuestion, LlmCost, UnreadableAnswer, ask
from ghar.llm.engine import Engine
from ghar.llm.prompts import Template, load_prompts

TOGETHER = 8  # summaries of one combining prompt; the paper does not say. 150 triples in parts of 20 need one.
ROLES = ("general", "theme", "combine", "combine_theme")
NOT_RELEVANT = re.compile(r"\W*not relevant(?:\W*$|[.:;,!\"']|\s[-–—]\s)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Summaries:
    """One summary a community, in their order.

    general, theme: None for a community that is too large or whose questions failed, which `missing` counts by name.
    theme: "" where the engine says that the community has nothing to do with the theme; () when no theme was asked for.
    cost: of all questions, combining ones included.
    """

    general: tuple[str | None, ...]
    theme: tuple[str | None, ...]
    cost: LlmCost
    missing: dict[str, int]


@dataclass(frozen=True)
class _Kind:
    """What distinguishes general summaries from those for a theme."""

    name: str
    first: Template
    combine: Template
    fields: Mapping[str, str]
    read: Callable[[str], str]


def summarise(
    communities: Communities,
    engine: Engine,
    store: Path,
    theme: Theme | None,
    *,
    small: int = 20,
    large: int = 150,
    seed: int,
) -> Summaries:
    """Summarise every community. Answers are kept in `store` as they come: after a kill, the same call goes on there.

    The same seed, the same questions; answers are found by a community's triples, so that one that is found again in
    another order, or among others, is not asked again.
    """
    prompts = load_prompts("ghar.envs.kare", "summaries", ROLES)
    kinds = [_Kind("general", prompts["general"], prompts["combine"], {}, read_summary)]
    if theme is not None:
        fields = {"theme": theme.name, "terms": "; ".join(theme.terms)}
        kinds.append(_Kind(theme.name, prompts["theme"], prompts["combine_theme"], fields, read_theme_summary))
    parts = [_parts(communities, community, small, large, seed) for community in range(len(communities))]
    missing = Counter({"too large": sum(part is None for part in parts)})
    texts: list[tuple[str | None, ...]] = []
    cost = LlmCost()
    for kind in kinds:
        job = _Job(engine, store, kind, seed)
        job.start(parts)
        while job.combine():
            pass
        texts.append(tuple(job.summary(community) for community in range(len(parts))))
        missing.update(job.failed.values())
        cost = cost + job.cost
    general, of_theme = (*texts, ())[:2]
    return Summaries(general, of_theme, cost, {name: n for name, n in sorted(missing.items()) if n})


@dataclass(frozen=True)
class _Parts:
    """The lines of a community's triples, split as they are asked about; key: the same for the same triples."""

    key: str
    lines: list[list[str]]


def _parts(communities: Communities, community: int, small: int, large: int, seed: int) -> _Parts | None:
    """None for a community of more than `large` triples. Parts are as even as can be, none above `small`."""
    ids = communities.triples_of(community)
    if len(ids) > large:
        return None
    lines = [" | ".join(communities.triple_names(triple)) for triple in ids.tolist()]
    key = hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()
    if len(lines) <= small:
        return _Parts(key, [lines])
    order = np.random.default_rng([seed, int(key, 16)]).permutation(len(lines))
    split = np.array_split(order, -(-len(lines) // small))
    return _Parts(key, [[lines[i] for i in part] for part in split])


class _Job:
    """One kind of summary of all communities: texts[c] shrinks from one per part to one."""

    def __init__(self, engine: Engine, store: Path, kind: _Kind, seed: int):
        self.engine, self.store, self.kind, self.seed = engine, store, kind, seed
        self.keys: dict[int, str] = {}
        self.texts: dict[int, list[str]] = {}
        self.failed: dict[int, str] = {}
        self.cost = LlmCost()
        self.round = 0

    def start(self, parts: list[_Parts | None]) -> None:
        """Ask about every part of every community."""
        prompts: dict[int, list[str]] = {}
        for community, part in enumerate(parts):
            if part is not None:
                self.keys[community] = part.key
                prompts[community] = [self._render(self.kind.first, triples="\n".join(lines)) for lines in part.lines]
        self.texts = self._answers(prompts, self.kind.first.max_tokens)

    def combine(self) -> bool:
        """Combine the summaries of parts, `TOGETHER` at a time; False when every community has one."""
        self.round += 1
        groups = {
            community: [texts[i : i + TOGETHER] for i in range(0, len(texts), TOGETHER)]
            for community, texts in self.texts.items()
            if len(texts) > 1
        }
        if not groups:
            return False
        last = {community: many.pop() for community, many in groups.items() if len(many[-1]) == 1}
        prompts = {
            community: [self._render(self.kind.combine, summaries=_numbered(texts)) for texts in many]
            for community, many in groups.items()
        }
        for community in groups:
            del self.texts[community]
        for community, texts in self._answers(prompts, self.kind.combine.max_tokens).items():
            self.texts[community] = _relevant(texts + last.get(community, []))
        return True

    def summary(self, community: int) -> str | None:
        texts = self.texts.get(community)
        return texts[0] if texts else None

    def _render(self, template: Template, **fields: str) -> str:
        return template.render(**self.kind.fields, **fields)

    def _answers(self, prompts: Mapping[int, list[str]], max_tokens: int) -> dict[int, list[str]]:
        """The answers of each community; one of whose questions failed is not among them."""
        names = {
            community: [f"{self.kind.name} {self.keys[community]} {self.round}.{i}" for i in range(len(texts))]
            for community, texts in prompts.items()
        }
        questions = [
            CachedQuestion(name, prompt, max_tokens)
            for community, texts in prompts.items()
            for name, prompt in zip(names[community], texts, strict=True)
        ]
        title = f"Summarise communities ({self.kind.name}{', combine' if self.round else ''})"
        answers = ask(self.engine, questions, self.store, self.kind.read, seed=self.seed, title=title)
        self.cost = self.cost + answers.cost
        complete = {}
        for community, own in names.items():
            reasons = [answers.failed[name] for name in own if name in answers.failed]
            if reasons:
                self.failed[community] = f"{self.kind.name}: {reasons[0]}"
            else:
                complete[community] = _relevant([answers.values[name] for name in own])
        return complete


def _relevant(texts: list[str]) -> list[str]:
    """Without parts that have nothing to do with the theme; [""] when no part has."""
    return [text for text in texts if text] or [""]


def _numbered(texts: list[str]) -> str:
    return "\n\n".join(f"Paragraph {number}: {text}" for number, text in enumerate(texts, 1))


def read_summary(answer: str) -> str:
    """The answer as one paragraph, without a heading some models write."""
    if len(answer) > LONGEST:
        raise UnreadableAnswer("too_long")
    text = re.sub(r"^\W*(summary|paragraph)\W*:\W*", "", " ".join(answer.split()), flags=re.IGNORECASE)
    if not text:
        raise UnreadableAnswer("empty")
    return text


def read_theme_summary(answer: str) -> str:
    """As `read_summary`, and "" for "not relevant"."""
    text = read_summary(answer)
    return "" if NOT_RELEVANT.match(text) else text
