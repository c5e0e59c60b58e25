"""Playing cases: how many calls of the retriever are under way at once (tests/envs/test_lookups.py plays)."""

from __future__ import annotations

from dataclasses import replace

from ghar.envs.play import lookups
from ghar.launch.entry import load


def test_a_service_gets_a_call_for_each_of_its_workers():
    here = load().retriever
    assert lookups(here) == 1
    assert lookups(replace(here, service="http://127.0.0.1:8077", workers=3)) == 3
