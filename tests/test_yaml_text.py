"""LibYAML reads what PyYAML's own parser reads, and refuses what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ghar.yaml_text import parse_yaml

ROOT = Path(__file__).resolve().parents[1]


def test_every_file_of_ours_has_the_same_values() -> None:
    files = [*sorted((ROOT / "conf").rglob("*.yaml")), *sorted((ROOT / "benchmarks").glob("*.yaml"))]
    assert len(files) > 50
    for path in files:
        text = path.read_text()
        assert repr(parse_yaml(text)) == repr(yaml.safe_load(text)), path


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\ta: 1", "!!python/object:os.system {}", "a: \x00"])
def test_a_damaged_text_is_an_error_of_yaml(text: str) -> None:
    for read in (parse_yaml, yaml.safe_load):
        with pytest.raises(yaml.YAMLError):
            read(text)
