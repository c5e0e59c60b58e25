"""Whom each selector chooses, against what commit a156ecb chose, where answers are hashes and tokens are words.

An "episode" is [shots, gains (6 digits), anchors, the examples' text], shots and anchors as sample ids. Nothing
differs. golden_graphwalker.json: the group of the old file, its overrides under their new names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from envs.graphwalker.corpus import Examples, ExamplesCorpus, SelectExamples, earlier
from envs.graphwalker.pool import cut_to
from envs.graphwalker.series import series_material
from envs.graphwalker.settings import Settings
from envs.records import Records
from envs.system import WORDS
from launch.entry import load
from tests.selectors.walks import HashScorer

GOLDEN: Mapping[str, Any] = json.loads(Path(__file__).with_name("golden_graphwalker.json").read_text())
EFFORT = ("system.sets=8", "system.measured=4")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("name", GOLDEN["variants"])
def test_the_same_examples_are_chosen_as_before_the_move(name: str, cache: Path) -> None:
    golden = GOLDEN["variants"][name]
    config = load([*GOLDEN["overrides"], f"data.cache={cache}", *EFFORT, *golden["overrides"]])
    assert isinstance(config.system, Settings)
    walkers = cut_to(series_material(Records(config), config.system), WORDS)
    assert [patient.sample_id for patient in walkers.by_split["test"]] == GOLDEN["samples"]
    corpus = ExamplesCorpus(walkers, None, config.env.in_flight, HashScorer())
    selector = golden["selector"]
    found = corpus.retrieve([SelectExamples("", sample_id=one, selector=selector) for one in GOLDEN["samples"]])
    ids, labels = walkers.material.train_ids, walkers.material.task.labels
    shots, digests = [], []
    for examples in found:
        assert isinstance(examples, Examples)
        chosen = examples.selection
        shots.append([ids[row] for row in chosen.shots])
        gains, anchors = [round(gain, 6) + 0.0 for gain in chosen.gains], [ids[row] for row in chosen.anchors]
        digests.append(digest([shots[-1], gains, anchors, earlier(examples.shown, labels)]))
    assert shots == golden["shots"]
    assert [one[:8] for one in digests] == golden["episodes"]
    assert hashlib.sha256("\n".join(digests).encode()).hexdigest() == golden["sha256"]


def digest(value: Any) -> str:
    """sha256 of JSON without spaces, keys sorted, UTF-8."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
