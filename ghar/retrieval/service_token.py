"""The token that the retrieval service asks for: without one, every user of a machine could ask it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ghar.errors import BadInput

TOKEN = "GHAR_RETRIEVAL_TOKEN"  # environment variable that holds it where service and runs do not share a home


def own_token() -> str:
    """The token of this user's services and runs: from the environment, else from a file that only the user can read,
    made at the first call. BadInput when that file cannot be had, or others can read it."""
    if given := os.environ.get(TOKEN, "").strip():
        return given
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = home / "ghar" / "retrieval-token"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        if not path.exists():
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32))
            try:
                os.link(fresh, path)  # whole, and never over one that another process made meanwhile
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        if path.stat().st_mode & 0o077:
            raise BadInput(f"{path} can be read by others: delete it, and a new one is made.")
        return path.read_text().strip()
    except OSError as error:
        raise BadInput(f"{path} cannot be made or read ({error.strerror}): set {TOKEN} instead.") from None
