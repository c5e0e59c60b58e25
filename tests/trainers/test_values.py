"""What processes exchange is data: it comes back as it was, and no message runs anything."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.weights import RunStages
from ghar.trainers.runs.values import from_bytes, to_bytes


@pytest.mark.parametrize("value", [
    None, True, 7, -0.5, float("inf"), "text \ud83d \n", [1, [2]], (1, (2, [3])), {"a": {1: (2,)}, ("k", 1): None},
    Path("runs/a"), RunFolder(Path("runs/a")), RunStages(Path("a"), None), (RunStages(Path("a"), Path("b")), Path("c")),
    10**30, "", [], {}, (),
])  # fmt: skip
def test_values_come_back(value: Any):
    found = from_bytes(to_bytes(value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("value", [np.float32(0.1), np.int64(-3), np.bool_(True), np.arange(6.0).reshape(2, 3),
                                   np.zeros((0, 4), np.float32), np.array([True, False]),
                                   np.array(3, np.int32)])  # fmt: skip
def test_numbers_keep_their_bits(value: Any):
    found = from_bytes(to_bytes(value))
    assert type(found) is type(value) and found.dtype == value.dtype and found.shape == value.shape
    assert found.tobytes() == value.tobytes()


def test_errors_and_not_a_number_come_back():
    assert np.isnan(from_bytes(to_bytes(float("nan"))))
    found = from_bytes(to_bytes(BadInput("a sentence")))
    assert isinstance(found, BadInput) and str(found) == "a sentence"


@pytest.mark.parametrize("value", [object(), print, RunFolder, {1, 2}, b"bytes", np.array([object()]), ValueError("x")])
def test_what_is_no_data_does_not_cross(value: Any):
    with pytest.raises(TypeError, match="is no data that processes exchange"):
        to_bytes(value)


class Bomb:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize("message", [
    pickle.dumps(Bomb()), b"", b"{", b'{"t": "own"}', b'{"t": "no", "v": 1}', b"{}",
    b'{"t": "array", "v": ["O", [1], ""]}',
    *(json.dumps({"t": "own", "v": [module, name, own]}).encode() for module, name, own in (
        ("os", "system", {"command": "touch exploded"}), ("ghar.disk", "os", {}), ("ghar.disk", "whole", {"path": "x"}),
        ("ghar.metrics.runfolder", "Path", {}), ("subprocess", "Popen", {"args": "true"}),
        ("ghar.metrics.runfolder", "RunFolder", {"no": 1}),
    )),
])  # fmt: skip
def test_no_message_runs_anything(message: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError):
        from_bytes(message)
    assert not list(tmp_path.iterdir())
