"""What fits of the retrieved events into a prompt: one budget of rows and tokens for every method.

Prompts for small models are brief: a row is its name and value alone, equal ones stand once, where the last one is; of
a trajectory whether each value is higher, lower or the same as the one before, and the last value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from ghar.envs.ehr_rag.ether import RowPassage

ROW = re.compile(r"^\[[^\]\n]*\] \w+ - ")  # time and type
AMOUNT = re.compile(r" \(value: ([^()]*)\)$")
VALUES = re.compile(r"\[[^\]]*\] (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?= |;|$)")  # of a trajectory
APART = "; "
P = TypeVar("P", bound=RowPassage)
STEPS = {1: "up", -1: "down", 0: "same"}


@dataclass(frozen=True)
class PromptContext:
    """What a prompt shows. rows: number in the record -> (code, row), ascending. indicators: (name, line). brief: in as
    few words as can be."""

    rows: dict[int, tuple[str, str]]
    indicators: tuple[tuple[str, str], ...] = ()
    brief: bool = False

    @property
    def text(self) -> str:
        return rows_text([row for _, row in self.rows.values()], self.brief)

    @property
    def numbers(self) -> str:
        if self.brief:
            return APART.join(brief_trajectory(name, line) for name, line in self.indicators)
        return "\n".join(line for _, line in self.indicators)


@lru_cache(maxsize=65_536)  # of a patient, at each turn
def brief_row(row: str) -> str:
    """Name and value of a row."""
    return AMOUNT.sub(r" \1", ROW.sub("", row))


def brief_trajectory(name: str, line: str) -> str:
    """Up, down or same for each step of a trajectory from a value to the next, and the last value."""
    values = [float(value) for value in VALUES.findall(line)]
    steps = [STEPS[(after > before) - (after < before)] for before, after in pairwise(values)]
    return " ".join([name, *steps, *(f"{value:.3g}" for value in values[-1:])])


def rows_text(rows: Sequence[str], brief: bool) -> str:
    """Rows as a prompt shows them: in full by their times, since one that was recorded late has a late number."""
    if not brief:
        return "\n".join(sorted(rows, key=_stamp))
    return APART.join(reversed(dict.fromkeys(brief_row(row) for row in reversed(rows))))


def _stamp(row: str) -> tuple[int, str]:
    """The time that a row begins with, or of a sentence of a text its number."""
    stamp = row.partition("]")[0]
    return len(stamp), stamp


def merge(old: Iterable[P], new: Iterable[P]) -> tuple[P, ...]:
    """Eq. 5 of EHR-RAG: all different passages in the order of time; of one found twice the better score stays."""
    best: dict[int, P] = {}
    for passage in (*old, *new):
        if passage.ident not in best or passage.score > best[passage.ident].score:
            best[passage.ident] = passage
    return tuple(best[ident] for ident in sorted(best))


def fit(
    passages: Sequence[RowPassage],
    indicators: Sequence[RowPassage],
    *,
    rows: int,
    tokens: int,
    count: Callable[[str], int],
    brief: bool = False,
) -> PromptContext:
    """The best passages that fit into `rows` rows and `tokens` tokens, no row twice: several orders of a drug for one
    time are equal rows, and in full the first of them stands for all.

    Measurements come first, best first, and take at most half of the tokens. Passages follow, best first; of the first
    that does not fit whole its newest rows are shown, and nothing of those after it. `count` counts a text's tokens.
    """
    lines: list[tuple[str, str]] = []
    left = tokens
    for passage in indicators:
        line = (passage.codes[0], passage.text)
        cost = count(PromptContext({}, (line,), brief).numbers + _between(brief))
        if left - cost < tokens - tokens // 2:
            break
        left -= cost
        lines.append(line)
    kept: dict[int, tuple[str, str]] = {}
    for passage in sorted(passages, key=lambda p: (-p.score, p.ident)):
        entries = zip(passage.numbers, passage.codes, passage.rows, strict=True)
        new = [(n, code, row) for n, code, row in entries if n not in kept]
        new = new if brief else _different(new, kept)
        most = min(len(new), rows - len(kept))
        taken = _newest(new[len(new) - most :], left, count, brief)
        kept |= {n: (code, row) for n, code, row in taken}
        left -= _cost(taken, count, brief)
        if len(taken) < len(new):
            break
    return PromptContext({n: kept[n] for n in sorted(kept)}, tuple(lines), brief)


def _different(rows: Iterable[tuple[int, str, str]], kept: Mapping[int, tuple[str, str]]) -> list[tuple[int, str, str]]:
    """The rows whose words are not among those of `kept`, the first of equal ones."""
    words = {row for _, row in kept.values()}
    first: dict[str, tuple[int, str, str]] = {}
    for number, code, row in rows:
        if row not in words:
            first.setdefault(row, (number, code, row))
    return list(first.values())


def _between(brief: bool) -> str:
    return APART if brief else "\n"


def _cost(rows: list[tuple[int, str, str]], count: Callable[[str], int], brief: bool) -> int:
    text = rows_text([row for _, _, row in rows], brief)
    return count(text + _between(brief)) if rows else 0


def _newest(
    rows: list[tuple[int, str, str]], left: int, count: Callable[[str], int], brief: bool
) -> list[tuple[int, str, str]]:
    """As many of the last rows as fit into `left` tokens."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _cost(rows[len(rows) - middle :], count, brief) <= left
        low, high = (middle, high) if fits else (low, middle - 1)
    return rows[len(rows) - low :]
