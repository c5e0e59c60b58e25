"""Where text of credentialed patients may go."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import ghar.privacy as privacy
from ghar.errors import BadInput
from ghar.privacy import SentLog, check_url, masked
from tests.running import ROOT, ends, started


@pytest.mark.parametrize("url", ["http://localhost:8077", "http://127.0.0.1:1", "https://127.8.9.1", "http://[::1]:8077"])
def test_this_machine_needs_no_permission(url: str) -> None:
    check_url(True, url, [])


@pytest.mark.parametrize("url, host", [
    ("http://10.0.0.1:8077", "10.0.0.1"),
    ("https://index.example.org/v1", "index.example.org"),
    ("http://localhost.example.org", "localhost.example.org"),
    ("http://127.0.0.1@example.org:80", "example.org"),
    ("http://0.0.0.0:8077", "0.0.0.0"),
    ("http://127.0.0.1.nip.io:8077", "127.0.0.1.nip.io"),
    ("http://2130706433:8077", "2130706433"),
    ("http://[::ffff:10.0.0.1]:8077", "::ffff:10.0.0.1"),
    ("http://there.example#@127.0.0.1/", "there.example"),
    ("http://127.0.0.1\t.there.example/", "127.0.0.1.there.example"),
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
    with ExitStack() as stack:
        sending = [stack.enter_context(started(command, cwd=ROOT)) for _ in range(3)]
        assert all(ends(process.pid, lambda one=process: one.poll() is None) for process in sending)
        assert [process.returncode for process in sending] == [0, 0, 0]
    told = json.loads((tmp_path / "sent.json").read_text())["sent"]["there.example"]["prompts"]
    assert told == {"messages": 300, "bytes": 900}
    assert {path.name for path in tmp_path.iterdir()} == {"sent.json", ".sent.lock"}


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


@pytest.mark.parametrize("address, shown", [
    ("m@https://h.example/v1/Ab3dEf6hIj9kLm2nOp5q/chat", "m@https://h.example/v1/***/chat"),
    ("https://h.example/0123456789abcdef0123456789abcdef", "https://h.example/***"),
    ("https://h.example/k=Ab3dEf6hIj9kLm2nOp5q;x", "https://h.example/k=***;x"),
    *((same, same) for same in (
        "m@http://127.0.0.1:8000/v1", "https://h.example/openai/deployments/gpt-4o-mini-2024-07-18/chat",
        "https://h.example/v1/123e4567-e89b-12d3-a456-426614174000", "runs/Ab3dEf6hIj9kLm2nOp5q", "Qwen/Qwen2.5-3B",
        "https://longhostname0123456789abc.example/v1",
    )),
])  # fmt: skip
def test_keys_in_the_paths_of_addresses_are_masked(address: str, shown: str) -> None:
    assert masked(address) == shown


def test_no_file_nor_message_of_a_run_has_a_key_from_a_path(tmp_path: Path) -> None:
    """The configuration that is kept, the name of a store of answers, the sentence about a server that is not there;
    and the run goes on with the whole address, which must be given again."""
    from ghar.launch.entry import load
    from ghar.llm.api import ApiEngine, api_settings
    from ghar.llm.engine import Request
    from ghar.llm.engines import engine_key
    from ghar.trainers.runs.resume import as_yaml, open_run

    key = "Ab3dEf6hIj9kLm2nOp5q"
    address = f"m@http://127.0.0.1:9/v1/{key}"
    config = load(["system=kare", "retriever=hashing", f"system.expert={address}", f"run_dir={tmp_path}"])
    assert key not in as_yaml(config) and key not in engine_key(config, address)
    assert open_run(config) is not None and open_run(config) is not None
    assert key not in (tmp_path / "config.yaml").read_text()
    engine = ApiEngine(api_settings(address, 1), credentialed=True, allow=())
    engine._closed.set()
    with pytest.raises(BadInput) as found:
        engine.generate([Request("q", 1)])
    assert key not in str(found.value) and "/v1/***" in str(found.value)
    with pytest.raises(BadInput, match="give the whole address again"):
        api_settings("m@http://127.0.0.1:9/v1/***", 1)
