"""What fits of the retrieved events into a prompt: one budget of rows and tokens for every method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ghar.retrieval.ether import EventPassage


@dataclass(frozen=True)
class Shown:
    """What a prompt shows. rows: number in the record -> (code, row), ascending. indicators: (name, line)."""

    rows: dict[int, tuple[str, str]]
    indicators: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(row for _, row in self.rows.values())

    @property
    def numbers(self) -> str:
        return "\n".join(line for _, line in self.indicators)


def merge(old: Iterable[EventPassage], new: Iterable[EventPassage]) -> tuple[EventPassage, ...]:
    """Eq. 5 of EHR-RAG: all different passages in the order of time; of one found twice the better score stays."""
    best: dict[int, EventPassage] = {}
    for passage in (*old, *new):
        if passage.ident not in best or passage.score > best[passage.ident].score:
            best[passage.ident] = passage
    return tuple(best[ident] for ident in sorted(best))


def fit(
    passages: Sequence[EventPassage],
    indicators: Sequence[EventPassage],
    *,
    rows: int,
    tokens: int,
    count: Callable[[str], int],
) -> Shown:
    """The best passages that fit into `rows` rows and `tokens` tokens; rows in the order of time, none twice.

    Measurements come first, best first, and take at most half of the tokens. Passages follow, best first; of the first
    that does not fit whole its newest rows are shown, and nothing of those after it. `count` counts a text's tokens.
    """
    lines: list[tuple[str, str]] = []
    left = tokens // 2
    for passage in indicators:
        left -= count(passage.text + "\n")
        if left < 0:
            break
        lines.append((passage.codes[0], passage.text))
    left = tokens - sum(count(line + "\n") for _, line in lines)
    kept: dict[int, tuple[str, str]] = {}
    for passage in sorted(passages, key=lambda p: (-p.score, p.ident)):
        known = zip(passage.numbers, passage.codes, passage.rows, strict=True)
        new = [(n, code, row) for n, code, row in known if n not in kept]
        most = min(len(new), rows - len(kept))
        taken = _newest(new[len(new) - most :], left, count)
        kept |= {n: (code, row) for n, code, row in taken}
        left -= count("".join(f"{row}\n" for _, _, row in taken))
        if len(taken) < len(new):
            break
    return Shown({n: kept[n] for n in sorted(kept)}, tuple(lines))


def _newest(rows: list[tuple[int, str, str]], left: int, count: Callable[[str], int]) -> list[tuple[int, str, str]]:
    """As many of the last rows as fit into `left` tokens."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high + 1) // 2
        text = "".join(f"{row}\n" for _, _, row in rows[len(rows) - middle :])
        low, high = (middle, high) if count(text) <= left else (low, middle - 1)
    return rows[len(rows) - low :]
