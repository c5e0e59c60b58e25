"""YAML as plain values, read by LibYAML where PyYAML was built with it: eight times as fast."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """The values of a YAML text. Raises yaml.YAMLError."""
    return yaml.load(text, _LOADER)
