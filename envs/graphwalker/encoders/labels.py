"""Whether there is anything to learn from labels."""

from __future__ import annotations

from collections.abc import Sequence

from ghar.errors import BadInput


def check_labels(labels: Sequence[int]) -> None:
    """Raises BadInput when there is nothing to tell apart."""
    if len(set(labels)) < 2:
        raise BadInput(
            f"All {len(labels)} training samples have label {labels[0] if labels else None}: use more patients or "
            "another split, an encoder cannot learn from one class."
        )
