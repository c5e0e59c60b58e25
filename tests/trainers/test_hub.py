"""A hub of models: nothing goes there or comes back without leave, and what comes back is what was sent."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ghar.errors import BadInput
from ghar.launch.hub import main
from ghar.privacy import HUB
from ghar.provenance import write_mark
from ghar.trainers.export import export
from ghar.trainers.hub import pull, push
from ghar.trainers.runs import manifest
from tests.trainers.test_export import finished_run, logits
from tests.trainers.tiny import tiny_model

NAME = "me/ghar-los"


class FolderHub:
    """Stands where `HfApi` would: a folder of repositories."""

    def __init__(self, place: Path, private: bool = True) -> None:
        self.place, self.private, self.created = place, private, []

    def create_repo(self, name: str, private: bool, exist_ok: bool) -> None:
        self.created.append((name, private))

    def repo_info(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(private=self.private)

    def upload_folder(self, repo_id: str, folder_path: Path, allow_patterns: list[str], commit_message: str) -> None:
        for name in allow_patterns:
            target = self.place / repo_id / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder_path / name, target)

    def snapshot_download(self, name: str, local_dir: Path, revision: str | None, allow_patterns: list[str]) -> None:
        for path in (p for p in (self.place / name).rglob("*") if p.is_file()):
            relative = path.relative_to(self.place / name)
            if any(fnmatch(str(relative), pattern) for pattern in allow_patterns):
                (local_dir / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, local_dir / relative)


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a user's machine: no variable says anything."""
    for name in ("HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def exported(folder: Path, credentialed: bool = False) -> Path:
    """A run folder with an export, as far as a hub is concerned, and with what must not go there."""
    merged = folder / "export" / "merged"
    merged.mkdir(parents=True)
    (merged / "model.safetensors").write_bytes(b"weights")
    (merged / "config.json").write_text("{}")
    write_mark(merged, credentialed)
    manifest.seal(merged)
    (merged / "optimizer.pt").write_bytes(b"a pickle")
    (folder / "export" / "README.md").write_text("# A card")
    (folder / "export" / "notes").write_text("the user's own")
    write_mark(folder / "export", credentialed)
    (folder / "episodes").mkdir()
    (folder / "episodes" / "ghar_rl.jsonl").write_text("SECRET-PATIENT")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


LAYOUT = ["README.md", "merged/config.json", "merged/manifest.json", "merged/model.safetensors",
          "merged/provenance.json", "provenance.json"]  # fmt: skip


def test_what_goes_there_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub, run = FolderHub(tmp_path / "hub"), exported(tmp_path / "run")
    push(run, NAME, [HUB], hub)
    assert names(tmp_path / "hub" / NAME) == LAYOUT and hub.created == [(NAME, True)]
    assert f'"{HUB}"' in (run / "sent.json").read_text() and "SECRET" not in (run / "sent.json").read_text()
    pull(NAME, tmp_path / "copy", [HUB], api=hub)
    assert names(tmp_path / "copy") == LAYOUT and "open or generated patients" in capsys.readouterr().out
    with pytest.raises(BadInput, match="is there already"):
        pull(NAME, tmp_path / "copy", [HUB], api=hub)


def test_offline_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, run = FolderHub(tmp_path / "hub"), exported(tmp_path / "run")
    for allow in ([], ["hub.example.org"]):
        with pytest.raises(BadInput, match=r"offline by default: add 'privacy\.allow=\[huggingface\.co\]'"):
            push(run, NAME, allow, hub)
        with pytest.raises(BadInput, match="offline by default"):
            pull(NAME, tmp_path / "copy", allow, api=hub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BadInput, match="HF_HUB_OFFLINE keeps hubs out"):
        push(run, NAME, [HUB], hub)
    assert not hub.created and not (tmp_path / "hub").exists() and not (tmp_path / "copy").exists()


def test_another_hub_is_another_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, run = FolderHub(tmp_path / "hub"), exported(tmp_path / "run")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example.org")
    with pytest.raises(BadInput, match=r"hub\.example\.org"):
        push(run, NAME, [HUB], hub)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:8080")  # this machine's own
    push(run, NAME, [], hub)
    assert names(tmp_path / "hub" / NAME) == LAYOUT


def test_weights_of_credentialed_patients_need_leave_and_a_private_place(tmp_path: Path) -> None:
    run = exported(tmp_path / "run", credentialed=True)
    with pytest.raises(BadInput, match=r"credentialed patients.*if your data use agreement permits it"):
        push(run, NAME, [], hub := FolderHub(tmp_path / "hub", private=False))
    with pytest.raises(BadInput, match="is public"):
        push(run, NAME, [HUB], hub)
    assert not (tmp_path / "hub").exists()
    push(run, NAME, [HUB], FolderHub(tmp_path / "hub"))
    assert names(tmp_path / "hub" / NAME) == LAYOUT


def test_a_mark_that_was_taken_away_is_no_way_round(tmp_path: Path) -> None:
    run = exported(tmp_path / "run", credentialed=True)
    write_mark(run / "export", False)  # merged/ still says it
    with pytest.raises(BadInput, match="is public"):
        push(run, NAME, [HUB], FolderHub(tmp_path / "hub", private=False))
    (run / "export" / "merged" / "provenance.json").unlink()
    with pytest.raises(BadInput, match=r"provenance\.json is missing"):
        push(run, NAME, [HUB], FolderHub(tmp_path / "hub"))


def test_what_is_damaged_or_no_export_is_refused(tmp_path: Path) -> None:
    hub, run = FolderHub(tmp_path / "hub"), exported(tmp_path / "run")
    with pytest.raises(BadInput, match="holds no export"):
        push(run / "episodes", NAME, [HUB], hub)
    (hub.place / "other" / "model").mkdir(parents=True)
    with pytest.raises(BadInput, match="holds no export of GHAR"):
        pull("other/model", tmp_path / "copy", [HUB], api=hub)
    push(run, NAME, [HUB], hub)
    (hub.place / NAME / "merged" / "model.safetensors").write_bytes(b"others")
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged"):
        pull(NAME, tmp_path / "copy", [HUB], api=hub)
    assert not (tmp_path / "copy").exists() and not (tmp_path / ".copy.partial").exists()


@pytest.mark.parametrize("words, sentence", [
    (["push", "runs/a"], "Write ghar hub push"), (["send", "a", "b"], "Write ghar hub push"),
    (["push", "a", "b", "privacy.allow=huggingface.co"], "is a list"),
    (["push", "a", "b", "public=true"], "not public"),
])  # fmt: skip
def test_a_command_line_that_is_wrong_is_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        main(words)


@pytest.mark.slow
def test_a_real_export_comes_back_as_the_same_model(tmp_path: Path) -> None:
    config, actor = finished_run(tmp_path / "run")
    expected: Any = logits(actor.model)
    export(config)
    hub = FolderHub(tmp_path / "hub")
    push(tmp_path / "run", NAME, [HUB], hub)
    pull(NAME, tmp_path / "copy", [HUB], api=hub)
    assert {name.split("/")[0] for name in names(tmp_path / "copy")} == {
        "README.md", "adapter", "base", "merged", "provenance.json",
    }  # fmt: skip
    assert names(tmp_path / "copy") == names(tmp_path / "run" / "export")
    found = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "copy" / "merged"))
    assert torch.allclose(found, expected, atol=1e-5) and not torch.allclose(found, logits(tiny_model()), atol=1e-3)
