"""Checkpoints come back as they were, and damaged or foreign ones are refused by name."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.disk import report_full_disk
from ghar.errors import BadInput
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.runs.checkpoint import (
    FILES,
    SFT_SUM,
    Checkpoint,
    KeepPolicy,
    find,
    identity,
    load,
    newest,
    parts_of,
    random_state,
    restore_random,
    save,
)
from ghar.trainers.runs.manifest import fault, seal
from tests.trainers.tiny import for_two, perturb, tiny_model

MODEL = {"architecture": "a", "tokenizer": "t", "base": "b"}
KEEP = KeepPolicy(last=1, best=1)


def some(step: int = 1, score: float | None = None, **state: Any) -> Checkpoint:
    weights = {"w": torch.arange(6.0).reshape(2, 3), "transposed": torch.arange(6.0).reshape(2, 3).T}
    optimizer = {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    return Checkpoint(weights, optimizer, random_state(), state, step, score)


class Words:
    """A tokenizer as far as its identity goes."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}


def test_comes_back_as_saved(tmp_path):
    state = {"best": 0.25, "normaliser": {"reason": [1, 2.5]}, "kl": 0.1}
    saved = some(7, **state)
    step = save(tmp_path, saved, MODEL, KEEP)
    assert step.name == "step-7" and find(tmp_path) == step and find(tmp_path, "best") is None
    loaded = load(step, MODEL)
    assert loaded.step == 7 and loaded.state == state
    assert all(torch.equal(loaded.weights[n], saved.weights[n]) for n in saved.weights)
    assert loaded.optimizer["param_groups"] == saved.optimizer["param_groups"]


def test_random_generators_go_on_where_they_were(tmp_path):
    rng = np.random.default_rng(5)
    rng.random(3)
    step = save(tmp_path, replace(some(), random=random_state(minibatches=rng)), MODEL, KEEP)
    expected = rng.random(4), torch.rand(4)
    other = np.random.default_rng(99)
    restore_random(load(step, MODEL).random, minibatches=other)
    assert np.array_equal(other.random(4), expected[0]) and torch.equal(torch.rand(4), expected[1])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_keeps_best_and_last_only(tmp_path):
    for step, score in ((1, 0.5), (2, 0.9), (3, 0.9), (4, None)):
        save(tmp_path, some(step, score), MODEL, KEEP)
    assert names(tmp_path) == ["best", "latest", "step-2", "step-4"]
    assert find(tmp_path, "best") == tmp_path / "step-2"
    assert find(tmp_path) == tmp_path / "step-4"


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.none() | st.integers(0, 3).map(float), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 4)
)
def test_what_is_kept_is_what_a_look_at_all_would_keep(tmp_path_factory, scores, last, best):
    folder = tmp_path_factory.mktemp("kept")
    for step, score in enumerate(scores):
        save(folder, some(step, score), MODEL, KeepPolicy(last, best))
    ranked = sorted((step for step, s in enumerate(scores) if s is not None), key=lambda i: (-(scores[i] or 0), i))
    kept = {*range(len(scores))[-last:], *ranked[:best]}
    assert {path.name for path in folder.glob("step-*")} == {f"step-{step}" for step in kept}
    assert find(folder, "best") == (folder / f"step-{ranked[0]}" if ranked else None)


def test_damaged_newest_is_named_and_the_one_before_used(tmp_path, capsys):
    for step, score in ((8, 0.5), (9, 0.4), (10, 0.9)):  # 10 comes after 9, whatever the letters say
        save(tmp_path, some(step, score), MODEL, KeepPolicy(3, 1))
    (tmp_path / "step-10" / "optimizer.pt").write_bytes(b"half")
    (tmp_path / "step-9" / "random.pt").unlink()
    found = newest(tmp_path, MODEL, KeepPolicy(3, 1))
    assert found is not None and (found.step, found.score) == (8, 0.5)
    said = capsys.readouterr().out
    assert "step-10/optimizer.pt is damaged" in said and "step-9/random.pt is missing" in said
    assert names(tmp_path) == ["best", "latest", "step-8"]
    assert find(tmp_path) == find(tmp_path, "best") == tmp_path / "step-8"
    (tmp_path / "step-8" / "manifest.json").write_text("{")
    with pytest.raises(BadInput, match=r"every checkpoint .* is damaged: start with resume=never"):
        newest(tmp_path, MODEL, KeepPolicy(3, 1))


def test_newest_is_the_last_saved_whatever_a_kill_left_of_the_pointers(tmp_path):
    assert newest(tmp_path / "nothing", MODEL, KEEP) is None
    for step in (1, 2):
        save(tmp_path, some(step), MODEL, KeepPolicy(2, 1))
    (tmp_path / "latest").write_text("step-1\n")
    (tmp_path / ".step-3.partial").mkdir()
    found = newest(tmp_path, MODEL, KeepPolicy(3, 1))
    assert found is not None and found.step == 2
    assert names(tmp_path) == ["latest", "step-1", "step-2"] and find(tmp_path) == tmp_path / "step-2"


def test_a_checkpoint_of_another_number_of_processes_brings_the_states_of_all(tmp_path):
    step = save(tmp_path, replace(some(), processes=2), MODEL, KEEP)
    found = newest(tmp_path, MODEL, KeepPolicy(3, 1))
    assert found is not None and found.processes == 2
    assert len(parts_of(tmp_path, found)) == 1  # process 0 has all of what is not shared out
    torch.save({"own": 7}, step / "optimizer-1.pt")
    assert parts_of(tmp_path, found)[1:] == [{"own": 7}]
    torch.save({"own": 9}, step / "optimizer-3.pt")
    with pytest.raises(BadInput, match=r"optimizer-2\.pt is missing, a part of the optimiser's state"):
        parts_of(tmp_path, replace(found, processes=4))  # else the pieces after it would move up
    assert parts_of(tmp_path, replace(found, processes=1)) == []


def test_a_full_disk_leaves_the_former_checkpoint_and_no_litter(tmp_path, monkeypatch):
    save(tmp_path, some(1), MODEL, KEEP)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(BadInput, match=r"disk of .* is full .*newest checkpoint"), report_full_disk(tmp_path):
            save(tmp_path, some(2), MODEL, KEEP)
    assert names(tmp_path) == ["latest", "step-1"]
    found = newest(tmp_path, MODEL, KeepPolicy(3, 1))
    assert found is not None and found.step == 1


def test_any_folder_can_be_sealed(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("text")
    assert "manifest.json is missing" in str(fault(tmp_path))
    seal(tmp_path)
    assert fault(tmp_path) is None
    (tmp_path / "inner" / "file").write_text("test")
    assert "inner/file is damaged" in str(fault(tmp_path))


def test_nothing_saved_is_no_error(tmp_path):
    assert find(tmp_path / "checkpoints") is None


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_named(tmp_path, name):
    step = save(tmp_path, some(), MODEL, KEEP)
    data = bytearray((step / name).read_bytes())
    data[len(data) // 2] ^= 1
    (step / name).write_bytes(data)
    with pytest.raises(BadInput, match=f"{name} is damaged"):
        load(step, MODEL)


def test_missing_file_and_manifest_are_named(tmp_path):
    step = save(tmp_path, some(), MODEL, KEEP)
    (step / "optimizer.pt").unlink()
    with pytest.raises(BadInput, match=r"optimizer\.pt is missing"):
        load(step, MODEL)
    (step / "manifest.json").unlink()
    with pytest.raises(BadInput, match=r"manifest\.json is missing or unreadable"):
        load(step, MODEL)


def test_pointer_to_nowhere_is_named(tmp_path):
    (tmp_path / "latest").write_text("step-9\n")
    with pytest.raises(BadInput, match="latest names step-9"):
        find(tmp_path)


@pytest.mark.parametrize("key", MODEL)
def test_checkpoint_of_another_model_says_what_differs(tmp_path, key):
    step = save(tmp_path, some(), MODEL, KEEP)
    with pytest.raises(BadInput, match=f"of another model: its {key} is"):
        load(step, {**MODEL, key: "other"})


def test_a_step_of_an_earlier_version_has_no_sum_of_its_base_and_can_be_read(tmp_path):
    step = save(tmp_path, some(), MODEL, KEEP)
    assert load(step, {**MODEL, SFT_SUM: "a1"}).step == some().step
    step = save(tmp_path, some(2), {**MODEL, SFT_SUM: "a1"}, KEEP)
    with pytest.raises(BadInput, match="of another model: its sft is a1, this run's is b2"):
        load(step, {**MODEL, SFT_SUM: "b2"})
    assert load(step, {**MODEL, "base": "moved", SFT_SUM: "a1"}).step == 2  # its sum is in that of sft


def test_identity_follows_architecture_tokenizer_base_and_training():
    words = Words("a", "b")
    same = identity(tiny_model(0), words, "base", {"rank": 4}, "a1")
    assert identity(tiny_model(1), words, "base", {"rank": 4}, "a1") == same  # weights are not part of it
    changed = {
        "architecture": identity(tiny_model(hidden=16), words, "base", {"rank": 4}, "a1"),
        "tokenizer": identity(tiny_model(), Words("b", "a"), "base", {"rank": 4}, "a1"),
        "base": identity(tiny_model(), words, "other", {"rank": 4}, "a1"),
        "trained": identity(tiny_model(), words, "base", {"rank": 8}, "a1"),
        "sft": identity(tiny_model(), words, "base", {"rank": 4}, "b2"),
    }
    for key, other in changed.items():
        assert {k for k in same if same[k] != other[k]} == {key}


@pytest.mark.parametrize("deadly", ["os.rename", "os.replace", "torch.save", "os.fsync"])
def test_kill_during_a_save_leaves_the_former_latest_whole(tmp_path, monkeypatch, deadly):
    save(tmp_path, some(1), MODEL, KEEP)

    def killed(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deadly, killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, some(2), MODEL, KEEP)
    step = find(tmp_path)
    assert step is not None and load(step, MODEL).step == 1
    save(tmp_path, some(2), MODEL, KEEP)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-2"]


def test_kill_between_the_renames_of_the_same_step_is_repaired(tmp_path, monkeypatch):
    save(tmp_path, some(1, best=1), MODEL, KEEP)
    rename = os.rename
    calls: list[Path] = []

    def second_fails(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", second_fails)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, some(1, best=2), MODEL, KEEP)
    step = find(tmp_path)
    assert step is not None and load(step, MODEL).state == {"best": 1}


def test_actor_and_optimizer_continue_exactly(tmp_path):
    def build() -> tuple[ActorCritic, torch.optim.Optimizer]:
        actor = ActorCritic(tiny_model(), for_two(rank=4))
        return actor, torch.optim.AdamW(actor.trainable_parameters(), lr=0.01)

    def train(actor: ActorCritic, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            sum(p.square().sum() for p in actor.trainable_parameters()).backward()  # type: ignore[union-attr]
            optimizer.step()

    actor, optimizer = build()
    perturb(actor)
    train(actor, optimizer, 2)
    found = Checkpoint(actor.trainable_state(), optimizer.state_dict(), random_state(), {}, 2)
    step = save(tmp_path, found, MODEL, KEEP)
    train(actor, optimizer, 2)
    again, resumed = build()
    loaded = load(step, MODEL)
    again.load_trainable_state(loaded.weights)
    resumed.load_state_dict(loaded.optimizer)
    train(again, resumed, 2)
    theirs = again.trainable_state()
    assert all(torch.equal(value, theirs[name]) for name, value in actor.trainable_state().items())


def test_manifest_lists_every_file(tmp_path):
    step = save(tmp_path, some(), MODEL, KEEP)
    assert sorted(json.loads((step / "manifest.json").read_text())) == sorted(FILES)
    assert sorted(p.name for p in step.iterdir()) == sorted((*FILES, "manifest.json"))
