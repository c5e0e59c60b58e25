"""Exports on a hub of models: push a run's export/, pull one into a folder. Nothing leaves or comes without leave.

What is on the hub is what `ghar.trainers.export` wrote: README.md, provenance.json, merged/, and of LoRA adapter/ and
base/. Pickles and code are neither sent nor taken. A new repository is private, and weights that have learned from
credentialed patients go into private ones alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghar.errors import BadInput
from ghar.privacy import HUB, LOG, SENT, Destination, host_of, hub_is_off, keep_quiet
from ghar.provenance import MARK, learned_from_credentialed
from ghar.trainers.runs import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = ("merged", "adapter", "base")
KINDS = ("*.safetensors", "*.json", "*.md", "*.txt", "*.jinja", "*.model", "*/base.sha256")


def push(folder: Path, repository: str, allow: Sequence[str], api: Any = None) -> None:
    """Upload the export in `folder` (an export/, or the run that has one) to OWNER/NAME.

    allow: privacy.allow, which must name the hub's host. api: a `huggingface_hub.HfApi`, by default the one of
    HF_ENDPOINT and the user's own login. BadInput before the first byte for a folder that is no export or is damaged,
    a hub that is not allowed, and credentialed weights that would go into a public repository.
    """
    export = folder / "export" if (folder / "export").is_dir() else folder
    if not (export / MARK).is_file() or not (export / "merged").is_dir():
        raise BadInput(f"{folder} holds no export: write one with ghar export and the run's own words.")
    _check_seals(export)
    credentialed = any(learned_from_credentialed(part) for part in (export, *_parts(export)))
    host = _ask(allow, "weights that have learned from credentialed patients" if credentialed else "weights")
    files = [path for path in sorted(export.rglob("*")) if path.is_file() and _is_sent(path.relative_to(export))]
    LOG.open(export.parent / SENT, [Destination(host or "this machine", "HF_ENDPOINT", "weights", credentialed)], allow)
    with _in_a_sentence(repository):
        hub = api or _api()
        hub.create_repo(repository, private=True, exist_ok=True)
        if credentialed and hub.repo_info(repository).private is not True:
            raise BadInput(
                f"{repository} is public, and these weights have learned from credentialed patients: make it private, "
                "or name another one."
            )
        LOG.add(host or "this machine", "weights", sum(path.stat().st_size for path in files), len(files))
        names = [str(path.relative_to(export)) for path in files]
        hub.upload_folder(repo_id=repository, folder_path=export, allow_patterns=names, commit_message="GHAR export")
    LOG.close()
    print(f"Pushed {len(files)} files of {export} to {repository}.")


def pull(repository: str, folder: Path, allow: Sequence[str], revision: str | None = None, api: Any = None) -> None:
    """Download the export at OWNER/NAME into a new `folder`, whole or not at all. Its parts are checked by their sums.

    BadInput for a folder that is there, a hub that is not allowed, and a repository that holds no export of GHAR's.
    """
    if folder.exists():
        raise BadInput(f"{folder} is there already: name a new folder.")
    _ask(allow, "the name of a model")
    half = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(half, ignore_errors=True)
    try:
        with _in_a_sentence(repository):
            taken = [*KINDS, *(f"{part}/{kind}" for part in PARTS for kind in KINDS)]
            (api or _api()).snapshot_download(repository, local_dir=half, revision=revision, allow_patterns=taken)
        shutil.rmtree(half / ".cache", ignore_errors=True)  # the hub's own notes
        if not (half / "merged" / manifest.MANIFEST).is_file():
            raise BadInput(f"{repository} holds no export of GHAR: there is no merged/{manifest.MANIFEST} in it.")
        _check_seals(half)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    whose = "credentialed patients" if learned_from_credentialed(folder / "merged") else "open or generated patients"
    print(f"Pulled {repository} into {folder}: weights that have learned from {whose}.")
    print(f"Use them with model=pretrained model.path={folder / 'merged'}")


def _ask(allow: Sequence[str], what: str) -> str | None:
    """The hub's host, None for one on this machine. BadInput where it is not allowed; nothing is imported before."""
    host = host_of(os.environ.get("HF_ENDPOINT") or f"https://{HUB}")
    if host is not None and host not in allow:
        agreement = " if your data use agreement permits it" if "credentialed" in what else ""
        raise BadInput(
            f"This command would send {what} to {host}, and GHAR is offline by default: add 'privacy.allow=[{host}]'"
            f"{agreement}."
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "0")
    keep_quiet(allow)
    if hub_is_off():
        raise BadInput("HF_HUB_OFFLINE keeps hubs out: unset it for this command.")
    return host


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi()


def _parts(export: Path) -> list[Path]:
    return [export / name for name in PARTS if (export / name).is_dir()]


def _check_seals(export: Path) -> None:
    """BadInput for a part whose files are not what its manifest says."""
    for part in _parts(export):
        if (part / manifest.MANIFEST).is_file() and (wrong := manifest.fault(part)):
            raise BadInput(f"{wrong}: export the run again.")


def _is_sent(name: Path) -> bool:
    top = name.parts[0]
    return (top in PARTS or len(name.parts) == 1) and any(name.match(kind) for kind in KINDS)


@contextmanager
def _in_a_sentence(repository: str) -> Iterator[None]:
    """Report what the hub refuses as BadInput."""
    import httpx
    from huggingface_hub import errors

    try:
        yield
    except (errors.HfHubHTTPError, errors.HFValidationError, errors.LocalTokenNotFoundError, httpx.HTTPError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadInput(f"The hub refuses {repository}: {reason} Log in with `hf auth login`.") from None
