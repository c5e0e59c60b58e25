"""The campaign of kills on a training of a few lines: it kills, goes on, compares, and sees what differs."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import kills as bench

# Writes six files one after the other, each from the one before it, as a resumable training does. A careless one takes
# its number from the clock of its start.
TRAINING = """
import json, os, sys, time
run = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)["run_dir"]
careless = "careless" in sys.argv
os.makedirs(run + "/checkpoints/step-0", exist_ok=True)
os.makedirs(run + "/episodes", exist_ok=True)

def write(name, text):
    with open(run + "/half", "w") as file:
        file.write(text)
    os.replace(run + "/half", run + "/" + name)

number = 0
for step in range(6):
    name = f"checkpoints/step-0/{step}.safetensors"
    if not os.path.exists(run + "/" + name):
        write(name, str(number + 1) if not careless else str(time.time()))
    number = float(open(run + "/" + name).read())
write("checkpoints/latest", "step-0")
write("checkpoints/best", "step-0")
write("metrics.jsonl", json.dumps({"step": 1, "phase": "rl", "loss": number, "time/update": time.time()}) + "\\n")
write("episodes/a.jsonl", json.dumps({"label": number, "seconds": time.time()}) + "\\n")
write("summary.json", json.dumps({"accuracy": number, "time": {"rl": time.time()}}))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "training.py"
    path.write_text(TRAINING)
    monkeypatch.setattr(bench, "LATER", 0.01)
    return path


@pytest.mark.slow
def test_a_training_that_can_be_killed_has_no_differences_and_the_campaign_goes_on(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bench, "WAYS", {"one": [str(script)], "other": [str(script)]})
    found = bench.kills(tmp_path, count=3, seed=1, ways=("one", "other"))
    assert found["kills"] >= 3 and found["differences"] == found["starts that failed without a kill"] == 0
    assert found["runs that ended and were compared"] >= 1 and found["by phase"]
    again = bench.kills(tmp_path, count=5, seed=1, ways=("one", "other"))
    assert again["kills"] >= 5 and again["chains"][: len(found["chains"])] == found["chains"]
    assert not list(tmp_path.glob("kills/*/broken*"))


def test_what_differs_is_told_and_kept(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "WAYS", {"one": [str(script), "careless"]})
    found = bench.kills(tmp_path, count=1, seed=1, ways=("one",))
    assert found["differences"] > 0 and "metrics.jsonl differs" in found["chains"][0]["differences"]
    assert list(tmp_path.glob("kills/one/broken-*"))


def test_a_start_that_fails_of_itself_is_no_kill(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "WAYS", {"one": ["-c", "raise SystemExit(3)"]})
    with pytest.raises(RuntimeError, match="no one disturbs ends with 3"):
        bench.kills(tmp_path, count=1, seed=1, ways=("one",))


def test_a_training_that_cannot_go_on_is_told(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "WAYS", {"one": [str(script)]})
    monkeypatch.setattr(bench, "ENOUGH", 2)
    campaign = bench.Campaign(tmp_path, 0)
    campaign.left_alone("one")
    script.write_text("raise SystemExit(4)")
    campaign.struck("one")
    assert campaign.summarise()["starts that failed without a kill"] == 1
    with pytest.raises(RuntimeError, match="2 starts have failed without a kill, the last with 4"):
        campaign.struck("one")


def test_nothing_of_it_is_loaded_without_its_variable():
    assert "sitecustomize" not in sys.modules or "dying" not in str(sys.modules["sitecustomize"].__file__)
    assert json.dumps(bench.WAYS).count("train") == 3
