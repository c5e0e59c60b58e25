"""The ledger of a run folder: what is read is what was written, the best step is the best, the data are the data."""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.flips import MODEL, ROW, SCORES, read_run, write_run
from ghar import ledger
from ghar.config import Config
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.checkpoint import Checkpoint, KeepPolicy, find, newest, random_state, save
from ghar.trainers.runs.samples import data_of, data_print, differences, hold_data

KEEP = KeepPolicy(5, 5)


def some(step: int, score: float | None = None) -> Checkpoint:
    state = {"best": score, "upcoming": [1, 2, 3]}
    return Checkpoint({"w": torch.full((4,), float(step))}, {"own": {}}, random_state(), state, step, score)


@pytest.fixture(scope="module")
def five_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with five steps, metrics, episodes, groups and a summary."""
    run = tmp_path_factory.mktemp("five") / "run"
    write_run(run)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("chosen", range(6))
def test_no_flipped_bit_is_read_as_another_number(
    five_steps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: int
):
    """Each file of the folder, at random places: what is read is as it was, or a sentence says what is wrong."""
    monkeypatch.setattr(ledger, "PAUSE", 0)  # no writer is at work
    run = tmp_path / "run"
    shutil.copytree(five_steps, run)
    whole, drawn = read_run(run), random.Random(chosen)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    for path in files:
        data = path.read_bytes()
        for _ in range(4):
            place, bit = drawn.randrange(len(data)), 1 << drawn.randrange(8)
            path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
            try:
                assert read_run(run) == whole, f"{path.name}, byte {place}, bit {bit}"
            except BadInput as error:
                assert str(run) in str(error) and "\n" not in str(error)
        path.write_bytes(data)
    assert read_run(run) == whole


@pytest.mark.parametrize("name", ["state.json", "manifest.json", "weights.safetensors"])
@pytest.mark.parametrize("keep", [KEEP, KeepPolicy(1, 1)])
def test_damage_in_a_step_makes_no_other_one_the_best(tmp_path: Path, name: str, keep: KeepPolicy):
    """A score that is flipped in a step's files changes no rank, and no save removes the true best for it."""
    folder = tmp_path / "checkpoints"
    for step, score in SCORES.items():
        save(folder, some(step, score), MODEL, KEEP)
    for path in folder.glob(f"step-*/{name}"):
        data = path.read_bytes().replace(b"0.9", b"0.1").replace(b"0.2", b"0.99")
        path.write_bytes(data if data != path.read_bytes() else data[:-2] + b"xx")
    (folder / "best").write_text("step-5\n")
    assert find(folder, "best") == folder / "step-4"
    save(folder, some(6, 0.5), MODEL, keep)
    assert find(folder, "best") == folder / "step-4" and (folder / "best").read_text() == "step-4\n"
    assert (folder / "step-4").is_dir()
    with pytest.raises(BadInput, match=r"step-4.*(damaged|missing)"):
        checkpoint.load(folder / "step-4", MODEL)


def test_steps_without_a_ledger_are_compared_where_they_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of an earlier version, or without a run around them: a damaged one keeps its folder and is named."""
    for folder in (tmp_path / "bare", tmp_path / "run" / "checkpoints"):
        for step, score in SCORES.items():
            save(folder, some(step, score), MODEL, KEEP)
        (folder.parent / ledger.LEDGER).unlink(missing_ok=True)
        assert find(folder, "best") == folder / "step-4"
        state = folder / "step-4" / "state.json"
        state.write_text(state.read_text().replace("0.91", "0.11"))
        save(folder, some(6, 0.5), MODEL, KeepPolicy(1, 1))
        assert "step-4/state.json is damaged" in capsys.readouterr().out and (folder / "step-4").is_dir()


def test_the_ledger_goes_back_with_the_run(tmp_path: Path):
    """Steps that a resumed run does not go on from are the best no more; nor is one that a kill kept unpublished."""
    folder = tmp_path / "checkpoints"
    for step, score in SCORES.items():
        save(folder, some(step, score), MODEL, KEEP)
    for step in (4, 5):
        (folder / f"step-{step}" / "random.pt").write_bytes(b"half")
    found = newest(folder, MODEL, KEEP)
    assert found is not None and found.step == 3 and find(folder, "best") == folder / "step-2"
    ledger.append(tmp_path, {"what": "step", "step": 4, "score": 0.99, "sha256": ""})
    assert find(folder, "best") == folder / "step-2"
    RunFolder.open(tmp_path).log({"step": 4, "phase": "rl"})
    assert find(folder, "best") == folder / "step-2"
    save(folder, some(4, 0.95), MODEL, KEEP)
    assert find(folder, "best") == folder / "step-4"
    RunFolder.open(tmp_path).log({"step": 5, "phase": "rl"})
    shutil.rmtree(folder / "step-4")
    with pytest.raises(BadInput, match=r"step-4, the best by ledger\.jsonl, does not exist"):
        find(folder, "best")


def killed(*args: Any, **kwargs: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("deadly", ["os.replace", "os.fsync"])
@pytest.mark.parametrize("write", [
    lambda folder: folder.write_summary({"policies": {"new": 1}}),
    lambda folder: folder.log({"step": 9, "phase": "rl"}),
    lambda folder: folder.write_episodes("a", [ROW]), lambda folder: folder.write_episodes("new", [ROW]),
    lambda folder: folder.rewind("rl", 2), lambda folder: folder.remove("episodes/b.jsonl"),
])  # fmt: skip
def test_a_kill_between_ledger_and_file_is_no_damage(
    five_steps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadly: str, write: Callable[[RunFolder], None]
):
    run = tmp_path / "run"
    shutil.copytree(five_steps, run)
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(deadly, killed)
        try:
            write(RunFolder(run))
        except KeyboardInterrupt:
            pass
    for half in run.rglob(".*.tmp"):
        half.unlink()
    read_run(run)  # a reader that comes before anyone has put it right
    folder = RunFolder.open(run)
    folder.write_groups({})
    folder.log({"step": 10, "phase": "rl"})
    write(folder)
    read_run(run)


def test_files_that_no_run_wrote_and_folders_without_a_ledger(
    five_steps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    shutil.copytree(five_steps, run)
    whole = read_run(run)
    (run / "episodes" / "c.jsonl").write_text(json.dumps(ROW) + "\n")
    with pytest.raises(BadInput, match=r"c\.jsonl was written by no run"):
        list(RunFolder(run).episodes("c"))
    (run / "episodes" / "c.jsonl").unlink()
    (run / ledger.LEDGER).unlink()
    capsys.readouterr()
    assert read_run(run) == whole
    told = capsys.readouterr().err
    assert told.count("nothing vouches for its numbers") == 1
    (run / "episodes" / "a.jsonl").write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(BadInput, match=r"a\.jsonl, line 1 is not a JSON object"):
        list(RunFolder(run).episodes("a"))


@pytest.fixture
def made(small_config: Callable[..., Config], tmp_path: Path) -> Iterator[tuple[System[Any], Records, RunFolder]]:
    from ghar.envs.system import build

    records = Records(small_config(f"run_dir={tmp_path / 'run'}"))
    yield build(records), records, RunFolder.open(tmp_path / "run")


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_data(made: tuple[System[Any], Records, RunFolder]):
    """Every change between two starts is named; the same data, read again, are the same."""
    system, records, folder = made
    found = data_print(system, records)
    hold_data(folder, found)
    hold_data(folder, data_print(system, Records(records.config)) | {"tables": found["tables"]})
    kept = data_of(folder)
    assert kept is not None and not differences(kept, found)
    cases = system.cases
    first, *rest = cases.train
    relabelled = replace(first, label=1 - min(first.label, 1))
    changes: dict[str, Any] = {
        f"{len(cases.train)} training samples there and {len(cases.train) // 2} here": replace(
            cases, train=cases.train[: len(cases.train) // 2]
        ),
        "other training samples or labels": replace(cases, train=(relabelled, *rest)),
        "other records of the training samples": replace(cases, train=(replace(first, text="gout"), *rest)),
        "other test samples or labels": replace(cases, test=tuple(reversed(cases.test))),
        f"{len(cases.valid)} validation samples there and 0 here": replace(cases, valid=()),
    }
    for said, changed in changes.items():
        with pytest.raises(BadInput, match=said):
            hold_data(folder, data_print(replace(system, cases=changed), records))


@pytest.mark.parametrize("what", ["events", "codes", "visits"])
def test_tables_that_no_prompt_shows_are_compared_too(
    made: tuple[System[Any], Records, RunFolder], what: str, monkeypatch: pytest.MonkeyPatch
):
    """One value in one event: EHR-RAG's corpus would answer with another text."""
    import polars as pl

    system, records, folder = made
    hold_data(folder, data_print(system, records))
    source = records.source
    parts = {"events": source.events, "codes": source.codes, "visits": source.visits}
    column = {"events": "time", "codes": "description", "visits": "end"}[what]
    last = pl.int_range(pl.len()) == pl.len() - 1
    other = parts[what].with_columns(pl.when(last).then(None).otherwise(pl.col(column)).alias(column))
    name = {"events": "table"}.get(what, what)
    monkeypatch.setitem(vars(records), "source", replace(source, **{name: other}))
    with pytest.raises(BadInput, match=rf"another content of {what}"):
        hold_data(folder, data_print(system, records))


def rows_of(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as file:
        return list(csv.reader(file))


def write_rows(path: Path, rows: list[list[str]]) -> None:
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def halved(rows: list[list[str]]) -> list[list[str]]:
    return rows[: len(rows) // 2]


def without_last(rows: list[list[str]]) -> list[list[str]]:
    return rows[:-1]


def set_cell(column: str, value: str) -> Callable[[list[list[str]]], list[list[str]]]:
    def change(rows: list[list[str]]) -> list[list[str]]:
        place, row = rows[0].index(column), len(rows) // 2
        changed = [*rows[row][:place], value, *rows[row][place + 1 :]]
        return [*rows[:row], changed, *rows[row + 1 :]]

    return change


CHANGES: list[tuple[str, Callable[[list[list[str]]], list[list[str]]]]] = [
    ("hosp/admissions", halved), ("hosp/admissions", without_last),
    ("hosp/admissions", set_cell("dischtime", "2200-01-01 00:00:00")),
    ("hosp/admissions", set_cell("hospital_expire_flag", "1")), ("hosp/patients", set_cell("gender", "X")),
    ("hosp/patients", halved), ("hosp/diagnoses_icd", without_last),
    ("hosp/diagnoses_icd", set_cell("icd_code", "I509")),
    ("hosp/d_icd_diagnoses", set_cell("long_title", "Another disease")), ("hosp/prescriptions", halved),
    ("hosp/prescriptions", set_cell("drug", "another drug")), ("hosp/labevents", set_cell("valuenum", "77.7")),
    ("hosp/labevents", without_last), ("hosp/d_labitems", set_cell("label", "Another test")),
    ("hosp/procedures_icd", without_last), ("icu/icustays", without_last), ("kg/kg", without_last),
    ("kg/kg", halved), ("kg/mondo_references", without_last),
    ("hosp/d_icd_procedures", set_cell("long_title", "Another procedure")),
]  # fmt: skip


def print_of(small_config: Callable[..., Config], root: Path, cache: Path) -> dict[str, Any]:
    """What `data_print` tells of the tables in `root`, read anew."""
    from ghar.envs.system import build

    graph, names = root / "kg" / "kg.csv.gz", root / "kg" / "mondo_references.csv.gz"
    words = ["data=mimic4", f"data.root={root}", f"data.cache={cache}", f"kg.path={graph}", f"kg.references={names}"]
    records = Records(small_config(*words))
    return data_print(build(records), records)


@pytest.fixture(scope="module")
def unchanged(
    small_config: Callable[..., Config], small_records: Records, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What is told of tables as a user has them; the same of a copy in another place."""
    place = tmp_path_factory.mktemp("unchanged")
    shutil.copytree(small_records.root, place / "tables")
    found = print_of(small_config, place / "tables", place / "one")
    (place / "tables").rename(place / "moved")
    hold_data(folder := RunFolder.open(place / "run"), found)
    hold_data(folder, print_of(small_config, place / "moved", place / "again"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_change_of_the_tables_between_two_starts_is_named(
    small_config: Callable[..., Config], small_records: Records, unchanged: dict[str, Any], tmp_path: Path, number: int
):
    """Real tables as a user has them, one of which is another one at the second start."""
    table, change = CHANGES[number]
    root, folder = tmp_path / "tables", RunFolder.open(tmp_path / "run")
    shutil.copytree(small_records.root, root)
    hold_data(folder, unchanged)
    path = root / f"{table}.csv.gz"
    write_rows(path, change(rows_of(path)))
    with pytest.raises(BadInput, match="holds a run of other data"):
        hold_data(folder, print_of(small_config, root, tmp_path / "cache"))


def test_an_evaluation_on_other_data_has_a_folder_of_its_own(
    made: tuple[System[Any], Records, RunFolder], capsys: pytest.CaptureFixture[str]
):
    """It replaced the summary and the episodes of a finished run by another data set's numbers."""
    from ghar.trainers.evaluation.evaluate import _opened

    system, records, folder = made
    config, found = records.config, data_print(system, records)
    assert _opened(config, found).path == folder.path  # a run that was never trained is of the first data
    folder.write_summary({"policies": {"a": 1}})
    assert _opened(config, found).path == folder.path
    cases = system.cases
    shown = replace(cases, test=tuple(replace(case, text="cut") for case in cases.test))
    assert _opened(config, data_print(replace(system, cases=shown), records)).path == folder.path
    other = data_print(replace(system, cases=replace(cases, test=cases.test[1:])), records)
    own = _opened(config, other)
    assert own.path.parent == folder.path / "evaluations" and own.path == _opened(config, other).path
    assert f"{len(cases.test)} test samples there and {len(cases.test) - 1} here" in capsys.readouterr().out
    own.write_summary({"policies": {"b": 2}})
    assert folder.summary() == {"policies": {"a": 1}} and folder.config_text() == own.config_text()
