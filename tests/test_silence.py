"""No byte leaves the machine, counted by the kernel: a shortened launch/benchmark.py silence."""

from pathlib import Path

import pytest

from ghar.errors import BadInput
from launch.bench import silence as bench


def test_a_system_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "AWAY", {name: bench.AWAY[name] for name in ("W&B", "engine", "Ray", "expert")})
    try:
        found = bench.silence(tmp_path, systems=("kare",), trained=False)
    except BadInput as error:
        pytest.skip(str(error))
    assert found["commands"] == found["of them refused"] == 4 and found["bytes"] == 0, found
    assert found["commands that ended otherwise than they should"] == 0, found["others"]
    assert found["bytes of a connection on purpose"] > 0
