"""Choosing among the settings of a benchmark by name (`--only`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ghar.errors import BadInput

T = TypeVar("T")


def choose(settings: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    """Keep the settings called `names`, in their own order. BadInput for an unknown name."""
    if unknown := [name for name in names if name not in settings]:
        raise BadInput(f"--only has {unknown[0]}, which is no setting here: choose among {', '.join(settings)}.")
    return {name: setting for name, setting in settings.items() if name in names}
