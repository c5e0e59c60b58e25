"""W&B gets numbers when enabled, and patient text only when privacy.allow names it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from ghar.errors import BadInput
from ghar.metrics.logger import Logger, start_logger
from ghar.privacy import check_destination

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


def test_offline_run_keeps_numbers_here_and_goes_on_after_a_restart(tmp_path):
    for step in range(2):
        logger = start_logger("offline", tmp_path, project="ghar", config={"seed": 0}, credentialed=False)
        logger.log({"step": step, "phase": "rl", "train/loss": 0.5})
        logger.finish()
    runs = list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert runs and len({path.name for path in runs}) == 1


def test_final_numbers_reach_the_summary_of_the_run():
    run = SimpleNamespace(summary={})
    Logger(run).conclude({"ghar_rl": {"accuracy": [0.8, 0.7, 0.9], "n": 40, "ece": None, "label": "los"}})
    assert run.summary == {"test/ghar_rl/accuracy": 0.8, "test/ghar_rl/n": 40.0}
    Logger().conclude({"ghar_rl": {"accuracy": 1.0}})
