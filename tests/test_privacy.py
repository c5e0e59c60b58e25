"""Where text of credentialed patients may go."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ghar.privacy as privacy
from ghar.errors import BadInput
from ghar.privacy import SentLog, check_url


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


SENDING = """
import sys
from pathlib import Path
from ghar import privacy
privacy.EVERY = 0.0
privacy.LOG.open(Path(sys.argv[1]), [], [])
for _ in range(100):
    privacy.LOG.add("there.example", "prompts", 3)
"""


def test_processes_of_a_run_count_together(tmp_path: Path) -> None:
    """Under torchrun and Ray each of them sends its share."""
    command = [sys.executable, "-c", SENDING, str(tmp_path / "sent.json")]
    started = [subprocess.Popen(command, cwd=Path(__file__).parents[1]) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    told = json.loads((tmp_path / "sent.json").read_text())["sent"]["there.example"]["prompts"]
    assert told == {"messages": 300, "bytes": 900} and len(list(tmp_path.iterdir())) == 1


def test_many_threads_may_send_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of a server does: every message is counted, and none fails because another one writes the log."""
    monkeypatch.setattr(privacy, "EVERY", 0.0)
    log = SentLog()
    log.open(tmp_path / "sent.json", [], [])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: log.add("127.0.0.1", "prompts", 3), range(400)))
    log.close()
    told = json.loads((tmp_path / "sent.json").read_text())["sent"]["127.0.0.1"]["prompts"]
    assert told == {"messages": 400, "bytes": 1200}
