"""Exchanges of weights that earlier starts of the benchmark made are counted again, and no exchange is made twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import sync


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The exchanges that were made, by number and kind: each finds what is wrong, number 3 has a false alarm."""
    made: list[tuple[int, str]] = []

    def exchanges(first: int, end: int, kind: str) -> Iterator[dict[str, float]]:
        for number in range(first, end):
            made.append((number, kind))
            yield {"stale": True, "flipped": True, "alarms": number == 3, "own": 1.0, "engine": 2.0, "apart": 2.0}

    monkeypatch.setattr(sync, "exchanges", exchanges)
    return made


def test_a_later_start_adds_to_an_earlier_one(made: list[tuple[int, str]], tmp_path: Path) -> None:
    assert sync.sync(tmp_path, 2)["weights"]["alarms"] == 0
    with (tmp_path / "sync-weights.jsonl").open("a") as file:
        file.write('{"stale": tr')  # a start that was killed
    numbers = sync.sync(tmp_path, 5)
    assert [kind["exchanges"] for kind in numbers.values()] == [5, 5] and numbers["weights"]["alarms"] == 1
    assert sorted(made) == sorted((number, kind) for number in range(5) for kind in sync.RATES)


def test_what_is_there_is_not_made_again(made: list[tuple[int, str]], tmp_path: Path) -> None:
    first = sync.sync(tmp_path, 5)
    made.clear()
    assert sync.sync(tmp_path, 5) == first and not made
    assert sync.sync(tmp_path, 3)["adapter"]["exchanges"] == 3
