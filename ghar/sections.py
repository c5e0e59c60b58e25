"""Nested sections of a configuration as one level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Full key to value of all that is no section itself: {"data": {"root": "x"}} is {"data.root": "x"}."""
    leaf_values: dict[str, Any] = {}
    for name, value in values.items():
        leaf_values |= leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return leaf_values
