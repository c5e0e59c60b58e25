"""Where text of credentialed patients may go."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ghar.privacy as privacy
from ghar.errors import BadInput
from ghar.privacy import Log, check_url


@pytest.mark.parametrize("url", ["http://localhost:8077", "http://127.0.0.1:1", "https://127.8.9.1", "http://[::1]:8077"])
def test_this_machine_needs_no_permission(url: str) -> None:
    check_url(True, url, [])


@pytest.mark.parametrize("url, host", [
    ("http://10.0.0.1:8077", "10.0.0.1"),
    ("https://index.example.org/v1", "index.example.org"),
    ("http://localhost.example.org", "localhost.example.org"),
    ("http://127.0.0.1@example.org:80", "example.org"),
    ("http://0.0.0.0:8077", "0.0.0.0"),
])  # fmt: skip
def test_another_machine_must_be_named(url: str, host: str) -> None:
    for allow in ([], ["wandb"], [f"x{host}"]):
        with pytest.raises(BadInput, match=rf"'{host}'.*privacy\.allow"):
            check_url(True, url, allow)
    check_url(True, url, [host])
    check_url(False, url, [])


def test_many_threads_may_send_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of a server does: every message is counted, and none fails because another one writes the log."""
    monkeypatch.setattr(privacy, "EVERY", 0.0)
    log = Log()
    log.open(tmp_path / "sent.json", [], [])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: log.add("127.0.0.1", "prompts", 3), range(400)))
    log.close()
    told = json.loads((tmp_path / "sent.json").read_text())["sent"]["127.0.0.1"]["prompts"]
    assert told == {"messages": 400, "bytes": 1200}
