"""Evaluation by any number of processes, killed or not: the same rows."""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import socket
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.trainers.sharding import claim, part_file, parted, play_parts, rows_in
from tests.running import ends
from tests.trainers.evaluating import evaluate_as

OWN = [
    "+experiment=mimic4_los", "data.patients=60", "threads=1", "model.hidden=16", "model.layers=1",
    "model.vocab=1600", "task.max_test=20", "eval.variants=[scripted,ghar_base]", "eval.bootstrap=20",
    "env.in_flight=2",  # parts of 4 (tests/trainers/evaluating.py)
]  # fmt: skip


@pytest.fixture(scope="module")
def forks() -> Any:
    """Makes processes that have imported everything."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainers.evaluating"])
    return context


def evaluated(forks: Any, world: int, run: Path, last: int = 0) -> tuple[list[int], str]:
    """Exit codes and screens of an evaluation by several processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = [*OWN, f"run_dir={run}", f"data.cache={run.parent / 'cache'}"]
    screens = [run.with_suffix(f".{rank}") for rank in range(world)]
    started = [
        forks.Process(target=evaluate_as, args=(rank, world, port, last, own, screens[rank])) for rank in range(world)
    ]
    for process in started:
        process.start()
    for process in started:
        ends(process.pid, process.is_alive)  # one that makes no progress is killed below, and has no exit code
    codes = [process.exitcode for process in started]
    for process in started:
        process.kill()
    return codes, "".join(screen.read_text() for screen in screens if screen.exists())


def rows(run: Path) -> dict[str, list[dict[str, Any]]]:
    """By variant, without what depends on the clock."""
    return {
        path.name: [{**json.loads(line), "seconds": 0} for line in path.read_text().splitlines()]
        for path in sorted((run / "episodes").glob("*.jsonl"))
    }


@pytest.mark.slow
def test_two_processes_and_a_kill_leave_the_rows_of_one(tmp_path: Path, forks: Any):
    codes, screen = evaluated(forks, 1, tmp_path / "one")
    assert codes == [0], screen
    (parts,) = counted(screen)
    one = rows(tmp_path / "one")
    assert sorted(one) == ["ghar_base.jsonl", "scripted.jsonl"]
    assert all({row["sample_id"] for row in some} == {row["sample_id"] for row in one["scripted.jsonl"]}
               for some in one.values())  # fmt: skip
    assert all(turn["reply"] for row in one["ghar_base.jsonl"] for turn in row["turns"])
    codes, screen = evaluated(forks, 2, tmp_path / "two", last=4)  # the first dies, the second waits for it in vain
    assert codes[0] == -signal.SIGKILL and codes[1], screen
    assert len(rows(tmp_path / "two")) == 1  # the second variant is under way
    kept = [part.parent.name for part in (tmp_path / "two" / "episodes" / ".parts").glob("*/*.jsonl")]
    codes, screen = evaluated(forks, 2, tmp_path / "two")
    assert codes == [0, 0], screen
    written = counted(screen)
    assert len(written) == 2 and sum(written) == parts - len(kept), screen
    assert 0 < kept.count("ghar_base") < kept.count("scripted")
    assert f"ghar_base: {kept.count('ghar_base')} of" in screen
    assert rows(tmp_path / "two") == one
    assert not (tmp_path / "two" / "episodes" / ".parts").exists()


def counted(screen: str) -> list[int]:
    return [int(number) for number in re.findall(r"parts written: (\d+)", screen)]


@given(
    subjects=st.lists(st.integers(0, 9), max_size=300).map(sorted), in_flight=st.integers(1, 80)
)  # fmt: skip
def test_parts_are_the_cases_in_order_and_no_patient_is_cut(subjects: list[int], in_flight: int):
    cases = [SimpleNamespace(subject_id=subject) for subject in subjects]
    parts = parted(cases, in_flight)
    assert [case for part in parts for case in part] == cases and all(parts)
    for before, after in pairwise(parts):
        assert before[-1].subject_id != after[0].subject_id and len(before) >= min(in_flight, 64)


@pytest.mark.parametrize(("in_flight", "sizes"), [(1, 4), (8, 32), (32, 64), (100, 64)])
def test_few_in_flight_are_filled_up_within_a_part(in_flight: int, sizes: int) -> None:
    """An engine's batches become small at the end of a part, not after every batch."""
    parts = parted([SimpleNamespace(subject_id=i) for i in range(200)], in_flight)
    assert {len(part) for part in parts[:-1]} == {sizes}


def test_parts_that_were_cut_by_another_rule_are_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "parts"
    claim(folder, "a")
    play_parts(folder, [[1]], lambda cases: [{"case": case} for case in cases])
    claim(folder, "a")
    assert part_file(folder, 0).is_file()
    monkeypatch.setattr("ghar.trainers.sharding.FILLED", 1)
    claim(folder, "a")
    assert not part_file(folder, 0).is_file()
    (folder / "of").write_text("a")  # as it was written before the rule was named
    part_file(folder, 0).touch()
    claim(folder, "a")
    assert not part_file(folder, 0).is_file()


def test_what_is_there_is_not_made_again_and_what_is_of_another_run_is(tmp_path: Path):
    folder, made = tmp_path / "parts", []

    def make(cases: Any) -> list[dict[str, Any]]:
        made.append(list(cases))
        return [{"case": case} for case in cases]

    claim(folder, "a")
    play_parts(folder, [[1, 2], [3]], make)
    part_file(folder, 1).unlink()
    play_parts(folder, [[1, 2], [3]], make)
    assert made == [[1, 2], [3], [3]]
    assert list(rows_in(folder, [[1, 2], [3]])) == [{"case": 1}, {"case": 2}, {"case": 3}]
    claim(folder, "a")
    assert part_file(folder, 0).is_file()
    claim(folder, "b")
    assert not part_file(folder, 0).is_file()
