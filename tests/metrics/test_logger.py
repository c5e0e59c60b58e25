"""W&B gets numbers when enabled, and patient text only when privacy.allow names it."""

import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.logger import Logger, start_logger
from ghar.metrics.runfolder import RunFolder
from ghar.privacy import check_destination, destinations
from tests.running import run_python

ROW = {"policy": "ghar_rl", "sample_id": "p1", "patient": "SECRET-PATIENT", "label": "a", "prediction": "a",
       "correct": True, "retrieved": True, "reward": 1.0}  # fmt: skip


class Recorder:
    """Stands where a W&B run would."""

    def __init__(self):
        self.sent = []

    def log(self, values):
        self.sent.append(values)


def test_numbers_are_sent_under_their_phase():
    run = Recorder()
    Logger(run).log({"step": 3, "phase": "rl", "train/loss": 0.5, "train/nan": None})
    assert run.sent == [{"rl/step": 3.0, "rl/train/loss": 0.5}]


def test_text_never_leaves_with_the_numbers():
    run = Recorder()
    with pytest.raises(ValueError):
        Logger(run).log({"step": 3, "phase": "rl", "train/note": "SECRET-PATIENT"})
    assert run.sent == []


def test_credentialed_episodes_stop_before_the_first_byte():
    run = Recorder()
    with pytest.raises(BadInput, match=r"privacy\.allow"):
        Logger(run, credentialed=True, allow=("api.example.org",)).log_episodes("ghar_rl", [ROW])
    assert run.sent == []


def test_episodes_are_sent_when_allowed_or_not_credentialed():
    for credentialed, allow in ((True, ("wandb",)), (False, ())):
        run = Recorder()
        Logger(run, credentialed, allow).log_episodes("ghar_rl", [ROW | {"credentialed": credentialed}])
        assert "SECRET-PATIENT" in run.sent[0]["episodes/ghar_rl"].data[0]


def test_rows_are_asked_their_own_mark():
    """A run of open patients sends no row of a credentialed one, nor one that has no mark."""
    for row in (ROW, ROW | {"credentialed": True}, ROW | {"credentialed": None}):
        run = Recorder()
        with pytest.raises(BadInput, match=r"privacy\.allow"):
            Logger(run, credentialed=False).log_episodes("ghar_rl", [ROW | {"credentialed": False}, row])
        assert run.sent == []


def test_destinations_are_compared_exactly():
    check_destination(True, "wandb", ["wandb"])
    check_destination(False, "anywhere", [])
    for allow in ([], ["wandb.example.org"], "wandb-eu"):
        with pytest.raises(BadInput):
            check_destination(True, "wandb", allow)


@pytest.mark.parametrize("how", ["variable", "settings"])
def test_another_server_of_wandb_is_another_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str):
    """`wandb` in privacy.allow is W&B's own; WANDB_BASE_URL or a file of settings leads numbers and texts elsewhere."""
    import wandb

    wandb.teardown()  # settings that another test has loaded
    (tmp_path / "settings").write_text("[default]\nbase_url = http://gate.invalid:9\n" if how == "settings" else "")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    if how == "variable":
        monkeypatch.setenv("WANDB_BASE_URL", "http://gate.invalid:9")
        names = [one.name for one in destinations(load(["logger.wandb=offline"])) if one.patients]
        assert names == ["wandb", "gate.invalid"]
    try:
        with pytest.raises(BadInput, match=r"'gate\.invalid'.*privacy\.allow"):
            start_logger("offline", tmp_path / "run", project="p", config={}, credentialed=True, allow=["wandb"])
        assert not (tmp_path / "run").exists()
        opened = Logger(object(), False, ("wandb",), "http://gate.invalid:9")
        with pytest.raises(BadInput, match=r"'gate\.invalid'"):
            opened.log_episodes("a", [{"credentialed": True}])
    finally:
        wandb.teardown()


CRASH = """
import sys
from pathlib import Path
from ghar.launch.entry import _careful
from ghar.metrics.logger import start_logger
_careful()
logger = start_logger("offline", Path(sys.argv[1]), project="p", config={}, credentialed=False)
logger.log({"step": 1, "phase": "rl", "train/loss": 0.5})
print("Patient 17 has sepsis", flush=True)
raise KeyError("Patient 17 has sepsis")
"""


@pytest.mark.slow
def test_the_text_of_an_exception_reaches_no_file_of_wandb(tmp_path: Path):
    """An exception may quote a record: W&B keeps how a process ended and neither why nor what it printed."""
    place = tmp_path / "tmp"
    place.mkdir()
    done = run_python("-c", CRASH, str(tmp_path / "run"), env={"TMPDIR": str(place)})
    assert done.returncode == 1 and "Patient 17" in done.stderr
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files) and not list(place.iterdir())
    assert not [path for path in files if any(word in path.read_bytes() for word in (b"Patient 17", b"sepsis"))]


def test_disabled_does_nothing_and_imports_no_wandb(tmp_path):
    code = (
        "import sys; from pathlib import Path; from ghar.metrics.logger import start_logger\n"
        f"log = start_logger('disabled', Path({str(tmp_path)!r}), project='p', config={{}}, credentialed=True)\n"
        "log.log({'phase': 'rl', 'step': 1}); log.log_episodes('x', []); log.finish(); print('wandb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n" and list(tmp_path.iterdir()) == []


def test_unknown_mode(tmp_path):
    with pytest.raises(BadInput, match="disabled, offline, online"):
        start_logger("on", tmp_path, project="p", config={}, credentialed=False)


BLOCK, HEADER, WHOLE = 32768, struct.Struct("<IHB"), (1, 4)  # of a LevelDB log: checksum, length, kind (full, last)


def records(data):
    """The records of an offline run's file, which is a LevelDB log behind seven bytes."""
    at, record = 7, b""
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEADER.unpack_from(data, at)
        record += data[at + HEADER.size : at + HEADER.size + length]
        at += HEADER.size + length
        if kind in WHOLE:
            yield record
            record = b""


def points(path):
    """(phase, step) of every point in an offline run's file."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            found += [(key.split("/")[0], row[key]) for key in row if key.endswith("/step")]
    return found


@pytest.mark.slow
def test_a_killed_run_that_goes_on_has_its_whole_curve_and_each_point_once(tmp_path):
    """Killed after update 3, resumed from the checkpoint of update 1: of its file every point is sent, once."""
    folder = RunFolder.open(tmp_path)

    def start(rows):
        logger = start_logger("offline", tmp_path, project="ghar", config={"seed": 0}, credentialed=False)
        for phase, step in rows:
            row = {"step": step, "phase": phase, "train/loss": 0.5}
            folder.log(row)
            logger.log(row)
        logger.finish()

    start([("sft", 10), ("rl", 1), ("rl", 2), ("rl", 3)])
    folder.rewind("rl", 1)
    start([("rl", 2), ("rl", 3), ("rl", 4)])
    (current,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    for _ in range(100):  # W&B's own process writes the file, and may do so after `finish`
        if current.stat().st_size > 7:
            break
        time.sleep(0.1)
    assert points(current) == [("sft", 10.0), *(("rl", float(step)) for step in (1, 2, 3, 4))]
    (before,) = (tmp_path / "wandb" / "superseded").glob("offline-run-*/run-*.wandb")
    assert before.name != current.name and len(points(before)) == 4


def test_a_run_with_nothing_left_to_train_still_sends_its_curve():
    run = SimpleNamespace(summary={}, log=(sent := []).append)
    Logger(run, written=lambda: [{"phase": "rl", "step": 1, "train/loss": 0.1}]).conclude({})
    assert sent == [{"rl/step": 1.0, "rl/train/loss": 0.1}]


def test_the_table_of_episodes_has_prompts_replies_evidence_and_terms():
    run = Recorder()
    turn = {"agent": "top", "role": "predict", "prompt": "How long?", "reply": "4"}
    row = {**ROW, "credentialed": False}
    row |= {"turns": [turn], "lookups": [{"query": "q", "found": [{"text": "a fact"}]}], "rewards": {"orm": 3.0}}
    Logger(run, credentialed=False).log_episodes("ghar_rl", [row])
    table = run.sent[0]["episodes/ghar_rl"]
    assert dict(zip(table.columns, table.data[0], strict=True)) | {
        "dialogue": "[top: predict]\nHow long?\n> 4", "evidence": "a fact", "terms": "orm +3.000",
    } == dict(zip(table.columns, table.data[0], strict=True))  # fmt: skip


def test_training_episodes_have_their_update_and_the_same_gate():
    run, row = Recorder(), {**ROW, "credentialed": False, "update": 10, "attempt": 1}
    Logger(run, credentialed=False).log_episodes("training", [row], ("update", "attempt"))
    table = run.sent[0]["episodes/training"]
    assert table.columns[:3] == ["update", "attempt", "policy"] and table.data[0][:3] == [10, 1, "ghar_rl"]
    with pytest.raises(BadInput, match=r"privacy\.allow"):
        Logger(run, credentialed=False).log_episodes("training", [row | {"credentialed": True}], ("update",))
    assert len(run.sent) == 1


def test_final_numbers_reach_the_summary_of_the_run():
    run = SimpleNamespace(summary={})
    Logger(run).conclude({"ghar_rl": {"accuracy": [0.8, 0.7, 0.9], "n": 40, "ece": None, "label": "los"}})
    assert run.summary == {"test/ghar_rl/accuracy": 0.8, "test/ghar_rl/n": 40.0}
    Logger().conclude({"ghar_rl": {"accuracy": 1.0}})
