"""The gate: everything that leaves is on one list, asked before any work; a listener hears nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ghar.config import Config
from ghar.data.cohort import Sample
from ghar.envs.records import Records, of_credentialed
from ghar.envs.system import System
from ghar.episode import Act, Retrieve
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.privacy import LOG, SentLog, ask_gate, destinations, secret_in
from ghar.provenance import UNKNOWN
from tests.data.conftest import write_mimic4
from tests.running import run_command, run_python

ROOT = Path(__file__).resolve().parents[1]
REAL = "data=mimic4"


class Listener:
    """Counts what anyone sends to a port of this machine."""

    def __init__(self) -> None:
        self.heard = 0
        self.server = socket.create_server(("127.0.0.2", 0))  # loopback to us; named by a host that is not
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            self.heard += 1
            peer.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.server.close()


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return write_mimic4(tmp_path / "tables")


def destination(name: str, port: int) -> list[str]:
    """Overrides that lead something away from this machine, to a host that resolves to the listener or to nobody."""
    host = f"http://gate.invalid:{port}"
    return {
        "wandb": ["logger.wandb=online"],
        "wandb offline": ["logger.wandb=offline"],
        "service": [f"retriever.service={host}"],
        "engine": ["engine=api", "model=pretrained", f"model.path=m@{host}/v1", "trainer.base.steps=0"],
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["ghar", "kare", "graphwalker", "ehr_rag", "exprag"])
@pytest.mark.parametrize("way", ["wandb", "wandb offline", "service", "engine"])
def test_all_systems_stop_before_any_work(
    system: str, way: str, tables: Path, tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
):
    from ghar.trainers.evaluation.evaluate import evaluate
    from ghar.trainers.recipe import train

    monkeypatch.setattr(socket, "getaddrinfo", resolving(listener.port))
    run = tmp_path / "run"
    own = ["retriever=hashing"] if system == "kare" else []
    config = load([f"system={system}", "task=read", REAL, f"data.root={tables}", f"data.cache={tmp_path / 'cache'}",
                   f"run_dir={run}", *own, *destination(way, listener.port)])  # fmt: skip
    for job in (train, evaluate):
        with pytest.raises(BadInput, match=r"which privacy\.allow does not name"):
            job(config)
    assert listener.heard == 0 and not run.exists() and not (tmp_path / "cache").exists()


def test_experts_and_addresses_of_any_key_are_on_the_list(tmp_path: Path):
    config = load(["system=kare", "task=read", "retriever=hashing", "system.expert=m@http://there.example:9/v1",
                   "logger.wandb=offline", "retriever.service=http://127.0.0.1:8077"])  # fmt: skip
    found = {(one.name, one.key) for one in destinations(config) if one.patients}
    assert found == {("there.example", "system.expert"), ("wandb", "logger.wandb")}
    config = load(["retriever.service=HTTP://there.example:9"])
    assert [one.name for one in destinations(config) if one.patients] == ["there.example"]


@pytest.mark.parametrize("group", ["ray=cluster", "rllib=ppo"])
def test_a_ray_cluster_is_on_the_list(group: str, monkeypatch: pytest.MonkeyPatch):
    config = load([group])
    for address, name in (("ray://10.1.2.3:10001", "10.1.2.3"), ("head.example:6379", "head.example")):
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert [one.name for one in destinations(config) if one.patients] == [name]
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert not [one for one in destinations(config) if one.patients]


def test_what_is_allowed_or_open_passes(tables: Path, tmp_path: Path):
    words = [REAL, f"data.root={tables}", f"run_dir={tmp_path}", "logger.wandb=online"]
    with pytest.raises(BadInput, match="wandb"):
        ask_gate(load(words), lambda: True)
    ask_gate(load(words), lambda: False)
    ask_gate(load([*words, "privacy.allow=[wandb]"]), lambda: True)
    asked: list[int] = []
    ask_gate(load([REAL, f"data.root={tables}", f"run_dir={tmp_path}"]), lambda: bool(asked.append(1)))
    assert not asked  # nothing leaves, so no one need know


def test_a_comparison_asks_for_each_of_its_systems(tables: Path, tmp_path: Path, listener: Listener):
    from ghar.trainers.evaluation.compare import ComparedSystem, compare

    cache, run = tmp_path / "cache", tmp_path / "run"
    words = ["task=read", REAL, f"data.root={tables}", f"data.cache={cache}", f"run_dir={run}"]
    away = destination("service", listener.port)
    configs = load([*words, "system=ghar"]), load([*words, "system=exprag", *away])
    with pytest.raises(BadInput, match=r"'gate\.invalid' \(retriever\.service\).*privacy\.allow"):
        compare([ComparedSystem(one.system.name, one, "") for one in configs], [], [], tmp_path / "table")
    assert listener.heard == 0 and not cache.exists() and not (tmp_path / "table").exists()


@pytest.mark.slow
def test_the_command_itself_refuses_first(tables: Path, tmp_path: Path):
    words = [REAL, f"data.root={tables}", f"data.cache={tmp_path / 'cache'}", f"run_dir={tmp_path / 'run'}"]
    done = command("launch/train.py", *words, "logger.wandb=offline")
    assert done.returncode == 2 and "privacy.allow does not name" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists() and not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_hubs_and_usage_statistics_are_off_unless_asked_for(tmp_path: Path):
    code = (
        "import sys, os; sys.path.insert(0, '.')\n"
        "from ghar.launch.entry import load; from ghar.privacy import ask_gate\n"
        "ask_gate(load(sys.argv[1:]), lambda: True)\n"
        "print(*(os.environ[n] for n in ('HF_HUB_OFFLINE', 'RAY_USAGE_STATS_ENABLED', 'VLLM_NO_USAGE_STATS', "
        "'HF_HUB_DISABLE_TELEMETRY')))"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "RAY_", "VLLM_"))}
    for words, said in ((["seed=1"], "1 0 1 1"), (["privacy.allow=[huggingface.co]"], "0 0 1 1")):
        done = run_command([sys.executable, "-c", code, *words, f"run_dir={tmp_path}"], env=clean)
        assert done.stdout.strip() == said, done.stderr


@pytest.mark.parametrize("value", ["m@https://me:pw@host.example/v1", "m@http://host/v1?api_key=abc", "https://tok@host/x",
                                   "http://h/#k", "m@http://h/sk-abcdefghijklmnop1234"])  # fmt: skip
def test_secrets_in_addresses_are_refused_and_not_repeated(value: str):
    with pytest.raises(BadInput, match=r"system\.expert holds a password") as found:
        load(["system=kare", "retriever=hashing", f"system.expert='{value}'"])
    assert value not in str(found.value) and "pw" not in str(found.value)
    assert secret_in(value) and not secret_in("m@http://127.0.0.1:8000/v1") and not secret_in("Qwen/Qwen2.5-3B")


def test_the_log_counts_and_quotes_nothing(tmp_path: Path):
    log = SentLog()
    log.open(tmp_path / "sent.json", [], ["there.example"])
    log.add("there.example", "prompts", 120)
    log.add("there.example", "prompts", 80)
    log.close()
    log = SentLog()  # a resumed run goes on counting
    log.open(tmp_path / "sent.json", [], ["there.example"])
    log.add("there.example", "prompts", 1)
    log.close()
    found = json.loads((tmp_path / "sent.json").read_text())
    assert found["sent"] == {"there.example": {"prompts": {"messages": 3, "bytes": 201}}}
    assert LOG is not log


def test_a_run_that_asks_a_server_says_how_often_and_quotes_nothing(tmp_path: Path):
    from ghar.trainers.evaluation.evaluate import evaluate
    from tests.llm.api_server import listening

    reply = {"choices": [{"message": {"content": "answer: no"}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 3, "completion_tokens": 3}}  # fmt: skip
    with listening(lambda body, headers: (200, reply)) as (url, server):
        words = ["system=exprag", "task=read", "threads=1", "data.patients=60", "task.max_test=3", "eval.bootstrap=20",
                 "engine=api", "model=pretrained", f"model.path=m@{url}", "trainer.base.steps=0",
                 "eval.variants=[exprag]", f"data.cache={tmp_path / 'c'}", f"run_dir={tmp_path / 'run'}"]  # fmt: skip
        evaluate(load(words))
    LOG.close()
    text = (tmp_path / "run" / "sent.json").read_text()
    row = json.loads(text)["sent"]["127.0.0.1"]["prompts"]
    sizes = [int({k.lower(): v for k, v in headers.items()}["content-length"]) for _, _, headers in server.came]
    assert row == {"messages": len(sizes), "bytes": sum(sizes)} and sizes
    quoted = [word for _, body, _ in server.came for word in str(body["messages"]).split() if len(word) > 12]
    assert quoted and not [word for word in quoted if word in text]


def test_run_folders_are_their_user_s_own(tmp_path: Path):
    from ghar.metrics.runfolder import RunFolder

    RunFolder.open(tmp_path / "run")
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0
    code = "from ghar.launch.entry import _careful; _careful(); open('mine', 'w').close()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0


def resolving(port: int):
    """Every name leads to the listener."""
    return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", port))]


def command(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run_python(ROOT / script, *words)


@pytest.mark.parametrize("several, address, name", [
    ("2", "node17.example", "node17.example"), ("2", "10.99.0.7", "10.99.0.7"), ("1", "n17.example", "n17.example"),
    ("2", socket.gethostname(), socket.gethostname()), ("1", socket.gethostname(), None), ("2", "127.0.0.1", None),
    ("1", "", None),
])  # fmt: skip
def test_torchrun_over_machines_is_on_the_list(
    several: str, address: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its processes exchange rows of episodes: MASTER_ADDR is asked as RAY_ADDRESS is."""
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("WORLD_SIZE", several)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    config = load([f"run_dir={tmp_path}"])
    assert [one.name for one in destinations(config) if one.patients] == ([] if name is None else [name])
    if name is not None:
        with pytest.raises(BadInput, match=rf"'{name}' \(MASTER_ADDR\).*privacy\.allow"):
            ask_gate(config, lambda: True)
        ask_gate(load([f"run_dir={tmp_path}", f"privacy.allow=['{name}']"]), lambda: True)


def foreign(sample: Sample, **changes: Any) -> Sample:
    """The same patient as someone else would write them down: without a mark."""
    own = {field.name: getattr(sample, field.name) for field in fields(sample) if field.name != "credentialed"}
    return Sample(**own | changes)


def test_a_sample_from_elsewhere_is_asked_its_own_mark(
    small_config: Callable[..., Config], small_records: Records, small_system: System[Any], tmp_path: Path,
    listener: Listener, monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """A run of generated patients whose model is elsewhere: its own patients pass, an unmarked one is refused, and the
    refusal comes before any exchange."""
    import ghar
    from ghar.trainers.runs.resume import as_yaml

    monkeypatch.setattr(socket, "getaddrinfo", resolving(listener.port))
    own = small_records.splits.test[0]
    assert not own.credentialed
    address = f"m@http://gate.invalid:{listener.port}/v1"
    words = ["engine=api", "model=pretrained", f"model.path={address}", "trainer.base.steps=0", f"run_dir={tmp_path}"]
    for allow in ("", "other.invalid"):
        (tmp_path / "config.yaml").write_text(as_yaml(small_config(*words, f"privacy.allow=[{allow}]")))
        base = next(name for name, variant in small_system.variants.items() if variant.who == "base")
        with ghar.load(tmp_path, variant=base) as agent:
            for given in (foreign(own), [own, foreign(own, sample_id="x")]):
                with pytest.raises(BadInput, match=r"'gate\.invalid'.*privacy\.allow does not name"):
                    agent.predict(given)
                assert listener.heard == 0


def test_messages_carry_the_mark_of_their_case(small_system: System[Any]):
    """Whatever an episode asks for is marked by its case and its system; without a mark it is credentialed."""
    from ghar.envs.play import play, stage_of
    from ghar.llm.engine import Request

    case, variant = small_system.cases.test[0], small_system.variants["scripted"]
    marks = []
    for system, one in ((small_system, case), (small_system, replace(case, credentialed=True)),
                        (replace(small_system, origin=UNKNOWN), case)):  # fmt: skip
        stage, policy = stage_of(system, variant, load([])), small_system.fixed[variant.who]()
        (episode,) = play(stage, [one], policy, seed=0, title="")
        effects = {record.effect.credentialed for record in episode.trace}
        assert len(effects) == 1
        marks.append(effects.pop())
    assert marks == [False, True, True]
    assert Request("p", 1).credentialed and Act("a", "r", "p").credentialed and Retrieve("q").credentialed


def test_senders_ask_every_message(tmp_path: Path):
    """An engine and a retrieval client that were opened for open patients refuse what is not marked as open."""
    from ghar.llm.api import ApiEngine, ApiSettings
    from ghar.llm.engine import Request
    from ghar.retrieval.client import RemoteRetriever

    engine = ApiEngine(ApiSettings("http://192.0.2.2:9/v1", "m", None, True, 1), credentialed=False, allow=())
    with pytest.raises(BadInput, match=r"'192\.0\.2\.2'.*privacy\.allow"):
        engine.generate([Request("a patient", 4)])
    engine.close()
    client = RemoteRetriever("http://192.0.2.2:9", "graph", tries=1)
    with pytest.raises(BadInput, match=r"'192\.0\.2\.2'.*privacy\.allow"):
        client.retrieve([Retrieve("gout", credentialed=False), Retrieve("gout")])
    client.close()


def test_labels_outside_the_data_have_their_own_mark(
    small_config: Callable[..., Config], small_records: Records, tmp_path: Path
):
    """A label file tells of patients: unsigned it is credentialed, unless the mark of the data covers it."""
    root = small_records.root
    labels = tmp_path / "labels.parquet"
    labels.write_bytes(b"")
    words = [REAL, f"data.root={root}"]
    assert not of_credentialed(small_config(*words))
    assert of_credentialed(small_config(*words, "task=labels", f"task.labels={labels}"))
    inside = next(path for path in root.rglob("*") if path.is_file())
    assert not of_credentialed(small_config(*words, "task=labels", f"task.labels={inside}"))
    assert not of_credentialed(small_config("task=labels", f"task.labels={inside}"))


def test_a_folder_of_texts_among_the_sources_is_credentialed(small_config: Callable[..., Config], tmp_path: Path):
    """What an agent retrieves goes into prompts, and whose texts they are is not known."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "wards.txt").write_text("The ward is on the third floor.\n")
    assert of_credentialed(small_config(f"system.sources=[graph,{tmp_path}/notes]"))
    assert not of_credentialed(small_config("system.sources=[graph]"))


def test_a_folder_with_credentialed_weights_is_credentialed_whatever_the_data(
    small_config: Callable[..., Config], small_records: Records, tmp_path: Path
):
    """Evaluating such a run on generated patients must not make its numbers, rows or weights open."""
    from ghar.provenance import write_mark

    for name, mark in (("sft", False), ("step-3", True)):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        write_mark(tmp_path / "checkpoints" / name, mark)
    config = small_config(f"run_dir={tmp_path}")
    assert of_credentialed(config) and Records(config).credentialed(small_records.cohort)
    assert not of_credentialed(small_config(f"run_dir={tmp_path / 'other'}"))


def test_no_redirect_and_no_proxy_leads_a_prompt_elsewhere(listener: Listener, monkeypatch: pytest.MonkeyPatch):
    """A server of this machine that sends its callers on, and a proxy of the user's environment."""
    from ghar.llm.api import ApiEngine, ApiSettings
    from ghar.llm.engine import Request
    from tests.llm.test_exchange import head, sending, speaking

    elsewhere = f"http://127.0.0.2:{listener.port}"
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, elsewhere)
    for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
        with speaking(sending(head(f"location: {elsewhere}/v1", "content-length: 0", status=status))) as url:
            engine = ApiEngine(ApiSettings(f"{url}/v1", "m", None, True, 1), credentialed=True, allow=())
            with pytest.raises(BadInput, match=rf"refused \({status[:3]}"):
                engine.generate([Request("a patient", 4)])
            engine.close()
    assert listener.heard == 0
