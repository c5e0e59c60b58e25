"""A variant that a task cannot be asked with: refused before anything is built, and by the built system."""

from __future__ import annotations

from typing import Any

import pytest

from ghar.config import Config
from ghar.envs.records import Records
from ghar.envs.system import System, build, check_variants, variant_names
from ghar.errors import BadInput


def assert_refused(config: Config, name: str, sentence: str) -> System[Any]:
    """The same sentence early and late; return the system. config: its eval.variants has the name."""
    with pytest.raises(BadInput, match=sentence):
        check_variants(config)
    system = build(Records(config))
    with pytest.raises(BadInput, match=sentence):
        system.variant(name)
    assert set(system.variants) | set(system.refused) <= set(variant_names(config) or ())
    return system
