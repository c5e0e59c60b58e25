"""A sealed test is opened once, from a clean checkout, on worlds that follow from its registration."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sealed import LEAST, PLACE, ROOT, Contrast, check_played, parsed, reading, registered, sealed
from ghar.errors import BadInput
from tests.launch.test_bench_learning import finished

TEXT = """
overrides: ["eval.variants=[ghar_sft,ghar_rl]"]
seeds: 3
contrasts: [{of: ghar_rl, less: ghar_sft, goal: 0.5}, {of: ghar_rl, less: rft, goal: 0}]
"""
GIT = {f"GIT_{role}_{what}": "tests@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, env=os.environ | GIT)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a commit")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one registration, first.yaml."""
    root = tmp_path / "repository"
    (root / PLACE).mkdir(parents=True)
    git(root, "init", "-q")
    (root / PLACE / "first.yaml").write_text(TEXT)
    commit(root)
    return root


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Worlds whose training was started; each run is finished at once, RL right more often than its control."""
    worlds: list[int] = []

    def start(world: int, place: Path, overrides: list[str], timeout: float, controls: list[str]) -> dict[str, Path]:
        assert f"data.world_seed={world}" in overrides and controls == ["rft"]
        worlds.append(world)
        finished(place, None, offset=len(worlds))
        control = finished(place.with_name(f"rft-{place.name}"), None, offset=len(worlds))
        if len(worlds) == 1:  # in the others RL is as its control
            (control / "episodes" / "ghar_rl.jsonl").write_text((place / "episodes" / "ghar_sft.jsonl").read_text())
        return {"rft": control}

    monkeypatch.setattr("benchmarks.sealed.train", start)
    return worlds


def test_a_test_is_opened_once(root: Path, tmp_path: Path, started: list[int]) -> None:
    result = sealed(["first"], tmp_path / "runs", 1.0, root)
    record = json.loads((root / PLACE / "first.json").read_text())
    assert record["worlds"] == started == list(registered("first", root).worlds) and record["result"] == result
    assert str(tmp_path) not in json.dumps(record)  # it is committed
    with pytest.raises(BadInput, match="has the result"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    commit(root)
    with pytest.raises(BadInput, match="is committed"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    (root / PLACE / "first.json").unlink()
    commit(root)
    with pytest.raises(BadInput, match="a test is opened once"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    assert len(started) == 3


def test_a_killed_test_goes_on_at_its_commit_in_its_folder(
    root: Path, tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> dict[str, Path]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("benchmarks.sealed.train", killed)
        sealed(["first"], tmp_path / "runs", 1.0, root)
    with pytest.raises(BadInput, match=r"was opened at \w{8} in .*runs"):
        sealed(["first"], tmp_path / "others", 1.0, root)
    git(root, "commit", "--allow-empty", "-qm", "another commit")
    with pytest.raises(BadInput, match="check that commit out"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    git(root, "reset", "-q", "--hard", "HEAD~1")
    assert "ghar_rl - rft" in sealed(["first"], tmp_path / "runs", 1.0, root)


def test_runs_whose_record_is_gone_are_refused(root: Path, tmp_path: Path, started: list[int]) -> None:
    sealed(["first"], tmp_path / "runs", 1.0, root)
    (root / PLACE / "first.json").unlink()
    with pytest.raises(BadInput, match="restore the record"):
        sealed(["first"], tmp_path / "runs", 1.0, root)


def test_a_changed_tree_and_a_changed_registration_are_refused(root: Path, tmp_path: Path, started: list[int]) -> None:
    (root / "note.txt").write_text("not committed")
    with pytest.raises(BadInput, match=r"has changes \(note.txt\)"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    (root / "note.txt").unlink()
    (root / PLACE / "first.yaml").write_text(TEXT + "# a comment")
    with pytest.raises(BadInput, match="differs from the committed one"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    commit(root)
    with pytest.raises(BadInput, match="after it was registered"):
        sealed(["first"], tmp_path / "runs", 1.0, root)
    (root / PLACE / "second.yaml").write_text(TEXT)
    with pytest.raises(BadInput, match=r"second\.yaml is not committed"):
        sealed(["second"], tmp_path / "runs", 1.0, root)
    with pytest.raises(BadInput, match=r"third\.yaml is not there"):
        sealed(["third"], tmp_path / "runs", 1.0, root)
    assert not started and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("seeds: 3", "", "needs overrides"),
        ("goal: 0}", "}", "needs overrides"),
        ("overrides: [", 'overrides: ["data.world_seed=7",', r"may not set data\.world_seed=7"),
        ("overrides: [", 'overrides: ["data.root=/x",', r"wrong\.yaml sets data\.root"),
        ("overrides: [", 'overrides: ["trainer.rl.updates=0",', r"contrast of rft, and no update"),
        ("less: ghar_sft", "less: usual", r"contrast of usual: register another test that lists it"),
    ],
)
def test_a_registration_that_is_wrong_is_refused(
    old: str, new: str, sentence: str, root: Path, tmp_path: Path, started: list[int]
) -> None:
    (root / PLACE / "wrong.yaml").write_text(TEXT.replace(old, new))
    commit(root)
    with pytest.raises(BadInput, match=sentence):
        sealed(["wrong"], tmp_path / "runs", 1.0, root)
    assert not started and not (root / PLACE / "wrong.json").exists()


def test_worlds_follow_from_name_and_text_and_were_never_named(root: Path, tmp_path: Path, started: list[int]) -> None:
    (root / PLACE / "second.yaml").write_text(TEXT)
    (root / PLACE / "third.yaml").write_text(TEXT + "# a comment\n")
    commit(root)
    worlds = [world for name in ("first", "second", "third") for world in registered(name, root).worlds]
    assert len(set(worlds)) == 9 and min(worlds) >= LEAST
    assert registered("first", root).worlds == registered("first", root).worlds
    (root / "used.py").write_text(f"seed = {worlds[1]}\n")
    commit(root)
    with pytest.raises(BadInput, match=r"used\.py names a derived world seed"):
        sealed(["first"], tmp_path / "runs", 1.0, root)


def test_no_sentence_is_stronger_than_its_interval(root: Path, tmp_path: Path, started: list[int]) -> None:
    contrast = Contrast("rl", "sft", 0.1)
    for low, high, sentence in (
        (-0.1, 0.2, r"no difference shows; goal above 0\.1: \*\*missed"), (0.0, 0.2, "no difference shows"),
        (0.05, 0.2, "rl is ahead.*missed"), (-0.2, -0.1, "rl is behind.*missed"), (0.11, 0.2, "rl is ahead.*reached"),
        (float("nan"), float("nan"), "no difference shows.*missed"),
    ):  # fmt: skip
        assert re.search(sentence, reading({"low": low, "high": high}, contrast)), (low, high)
    sealed(["first"], tmp_path / "runs", 1.0, root)
    page = (tmp_path / "runs" / "sealed" / "first" / "fragment.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ghar_rl")]
    assert "+0.250 [+0.250, +0.250]" in rows[0] and "ahead" in rows[0] and "goal above 0.5: **missed**" in rows[0]
    assert "no difference shows" in rows[1] and len(rows) == 2  # +0.250 in one world, 0 in two


@pytest.mark.slow
def test_the_registrations_of_this_repository_can_be_opened(tmp_path: Path) -> None:
    """They compose, and their contrasts are of what is played."""
    files = sorted((ROOT / PLACE).glob("*.yaml"))
    assert files
    for file in files:
        test = parsed(file.stem, file.read_text(), "")
        check_played(test, tmp_path)
        assert len(set(test.worlds)) == len(test.worlds) >= 2


def test_every_missed_contrast_stands_on_the_page_of_null_results():
    page = (ROOT / "docs" / "null-results.md").read_text().splitlines()
    for path in sorted((ROOT / PLACE).glob("*.json")):
        record = json.loads(path.read_text())
        test = parsed(path.stem, path.with_suffix(".yaml").read_text(), record["registered"])
        for c in test.contrasts:
            number = record.get("result", {}).get(f"{c.of} - {c.less}")
            if number and number["low"] <= c.goal:
                cells = (f"{number['mean']:+.3f} [{number['low']:+.3f}, {number['high']:+.3f}]", record["commit"][:7])
                assert any(all(cell in row for cell in cells) for row in page), (path.stem, c, cells)
