"""A corpus whose process dies the first time it is asked, for tests/trainers/test_ray.py (Ray's workers import it)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ghar.episode import Evidence, Passage, Retrieve


class Mortal:
    """Answers every request with itself. Where `mark` is given and is no file yet, makes it and ends the process."""

    def __init__(self, mark: Path | None = None) -> None:
        self.mark = mark

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        if self.mark is not None and not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return [Evidence((Passage(request.query, "node", 0, 1.0, 0),)) for request in requests]
