"""Rare items. Needs: nothing of the model. The k that share the rarest items of the record with the patient.

Not of the paper: the plainest rule that could win where something rare counts. An item is what stands between line ends
and semicolons, a code in a list of visits; a shared one weighs the logarithm of one over the share of the pool that has
it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import Ask, ExamplePool, Selection, SelectionQuery, Walk

RARE = 0.02  # share of the records that has an item which can count, at most
BETWEEN = re.compile(r"[;\n]")
HEADING = re.compile(r"^(?:now|before|conditions|procedures|medications): ", re.IGNORECASE)


@dataclass(frozen=True)
class Rarity:
    """items: of each row of the pool. weights: of an item."""

    items: tuple[frozenset[str], ...]
    weights: Mapping[str, float]


def items_of(text: str) -> frozenset[str]:
    """Different items of a record, without the heading of a list."""
    return frozenset(items_in(text))


def items_in(text: str) -> list[str]:
    """The same in the record's order."""
    return list(dict.fromkeys(HEADING.sub("", part.strip()) for part in BETWEEN.split(text) if part.strip()))


def rarity(texts: Sequence[str]) -> Rarity:
    """How rare each item is among some records."""
    items = tuple(items_of(text) for text in texts)
    held = Counter(item for own in items for item in own)
    return Rarity(items, {item: math.log(len(items) / count) for item, count in held.items()})


def prepare(pool: ExamplePool) -> Generator[Ask, Any, Rarity]:
    return rarity([patient.text for patient in pool.patients])
    yield  # makes it a generator


def select(pool: ExamplePool, shared: Rarity, query: SelectionQuery) -> Walk:
    own = items_of(query.patient.text)
    values = np.array([sum(shared.weights[item] for item in sorted(own & other)) for other in shared.items])
    return Selection(pool.best(np.round(values, 9), query.allowed, pool.selector.k))
    yield  # makes it a generator
