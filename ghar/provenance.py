"""Whose patients these are, told by content: a folder that this machine's GHAR has signed says it, nothing else does.

The signature is an HMAC over a folder's seal (ghar/seal.py), with a key that is drawn once for each user of a machine.
So what was generated here is known to be, a changed, added or missing file undoes it, and a folder from elsewhere, or
one that only says so in words, counts as credentialed. The open demos are known by their content
(ghar/data/readers/open_demos.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ghar import seal

MARK = "provenance.json"  # in the folder of a model, a checkpoint or an export


@dataclass(frozen=True)
class Provenance:
    """generated: the patients do not exist. credentialed: they are not open to everyone, or no one knows."""

    generated: bool = False
    credentialed: bool = True

    @classmethod
    def of(cls, about: Any) -> Provenance:
        """Read from JSON: anything but a plain true or false is the careful answer."""
        if not isinstance(about, Mapping):
            return cls()
        return cls(about.get("generated") is True, about.get("credentialed") is not False)


GENERATED = Provenance(generated=True, credentialed=False)


def sign(folder: Path, mark: Provenance) -> None:
    """Seal a finished folder and sign that its files are `mark`."""
    seal.seal(folder, asdict(mark), _signature)


def signed_mark(folder: Path) -> Provenance:
    """What this machine's GHAR has signed of a folder, every file of which is there as it was, and no other one;
    credentialed for anything else."""
    found = seal.read_seal(folder)
    if found is None:
        return Provenance()
    about = found["about"]
    given = about.get("signature")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), _signature(found).encode()):
        return Provenance()
    if set(seal.files_below(folder)) != set(found["files"]) or seal.fault(folder) is not None:
        return Provenance()
    return Provenance.of(about)


def write_mark(folder: Path, credentialed: bool) -> None:
    """Say in the folder of a model whose patients it has learned from."""
    (folder / MARK).write_text(json.dumps(asdict(Provenance(False, credentialed))) + "\n")


def learned_from_credentialed(path: Path, sealed: str = "manifest.json") -> bool:
    """Whether a model has learned from credentialed patients: its own mark or that of the model below it says so, or it
    is one of GHAR's (it has the file `sealed`) without any mark. Models from elsewhere, which have neither, were
    trained on no one's patients here."""
    places = (path, path.parent / "sft")  # the weights of a step belong on the model that lies beside it
    marks = [found for found in map(_mark_in, places) if found is not None]
    return any(marks) if marks else (path / sealed).is_file()


def weights_of_credentialed(checkpoints: Path) -> bool:
    """Whether any weights in a run's folder of checkpoints have learned from credentialed patients; the strictest mark
    counts. False where the folder holds no weights yet."""
    folders = [path for path in sorted(checkpoints.glob("*")) if path.is_dir() and not path.name.startswith(".")]
    return any(learned_from_credentialed(folder) for folder in folders)


def _mark_in(folder: Path) -> bool | None:
    """The mark that a folder has, None where it has none. One that cannot be read is the careful answer."""
    try:
        return Provenance.of(json.loads((folder / MARK).read_text())).credentialed
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return True


def _signature(found: Mapping[str, Any]) -> str:
    about = {name: value for name, value in found["about"].items() if name != "signature"}
    signed = json.dumps({"files": found["files"], "about": about}, sort_keys=True)
    return hmac.new(_key(), signed.encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    """This user's key on this machine: 32 bytes, readable by no one else, drawn when first asked for."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    for place in (home / "ghar", Path(tempfile.gettempdir()) / f"ghar-{os.getuid()}"):
        with suppress(OSError):
            return _kept_key(place / "signing.key")
    return _LAST_RESORT


_LAST_RESORT = secrets.token_bytes(32)  # where nothing can be written: good for this process alone


def _kept_key(path: Path) -> bytes:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(32))
        try:
            os.link(scratch, path)  # the first one stays
        except FileExistsError:
            pass
        finally:
            scratch.unlink(missing_ok=True)
    about = path.stat()
    if about.st_uid != os.getuid() or about.st_size != 32:
        raise OSError(f"{path} is not this user's key")
    return path.read_bytes()
