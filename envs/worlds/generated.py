"""A generated folder of patients: written once, whole or not at all, and kept while its parameters are the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.provenance import GENERATED, signed_mark
from ghar.seal import sound
from ghar.storage import new_folder


def generate_folder(root: Path, about: Mapping[str, Any], write: Callable[[Path], None]) -> None:
    """Have `write` fill `root`, manifest.json with `about` among its files; a finished one of the same is kept.

    Raises BadInput when `root` holds anything else.
    """
    manifest = root / "manifest.json"
    if manifest.is_file() and json.loads(manifest.read_text()) == about:
        if sound(root) and signed_mark(root).generated:
            return
    elif root.exists() and any(root.iterdir()):
        raise BadInput(f"{root} holds something else than this generated world: delete it or name another data.cache.")
    with new_folder(root, GENERATED) as half:
        write(half)
