"""No byte leaves the machine, counted by the kernel: a shortened benchmarks/run.py silence."""

from pathlib import Path

import pytest

from benchmarks import silence as bench
from ghar.errors import BadInput

pytestmark = pytest.mark.heavy


def test_a_system_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "AWAY", {name: bench.AWAY[name] for name in ("W&B", "engine", "Ray", "expert")})
    try:
        found = bench.silence(tmp_path, systems=("kare",), trained=False)
    except BadInput as error:
        pytest.skip(str(error))
    assert found["commands"] == found["of them refused"] == 4 and found["bytes"] == 0, found
    assert found["commands that ended otherwise than they should"] == 0, found["others"]
    assert found["bytes of a connection on purpose"] > 0


def _sends_nothing(script: str) -> None:
    try:
        bench._check()
    except BadInput as error:
        pytest.skip(str(error))
    found = bench.counted(["-c", script])
    assert found["code"] == 0 and found["bytes"] == 0, found


RAY = """
import os, time, ray
from ghar.trainers.ray.start import start_ray
start_ray(1)
proxy = ray.get(ray.remote(lambda: os.environ.get("http_proxy")).remote(), timeout=1200)
assert proxy == "http://the.users.own:8080" == os.environ["http_proxy"], proxy
time.sleep(5)  # by then its dashboard's process has asked what it asks
"""


def test_ray_does_not_ask_in_which_cloud_it_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("http_proxy", "http://the.users.own:8080")
    _sends_nothing(RAY)


GROUP = """
import os, ray
from ghar.trainers.ray.start import start_ray
start_ray(1, names=False)
@ray.remote
def group():
    import torch.distributed as group
    here = ray.util.get_node_ip_address()
    os.environ |= {"MASTER_ADDR": here, "MASTER_PORT": "29577", "RANK": "0", "WORLD_SIZE": "1"}
    group.init_process_group("gloo")
    return group.get_world_size()
assert ray.get(group.remote(), timeout=1200) == 1
"""


def test_workers_of_a_run_that_sends_nothing_ask_no_name_server(monkeypatch: pytest.MonkeyPatch):
    """torch.distributed asks one what its own machine is called: two questions of 81 bytes where no one answers."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    _sends_nothing(GROUP)
