"""What the benchmark of learning makes of finished runs, and that each seed starts from a base model of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ablations import go_on_from, table
from benchmarks.learning import command_of, gathered, learning, over_both, train
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.base import base_seed
from ghar.trainers.runs.resume import open_run

CEILINGS = {"parametric": 0.5, "memory": 0.6, "retrieval": 0.8}


def row(number: int, right: bool) -> dict[str, Any]:
    about = {"sample_id": f"s{number}", "subject_id": number // 2, "turns": [{}]}
    return {**about, "correct": right, "reward": 5.0 * right}


def finished(path: Path, ceilings: dict[str, float] | None, *, offset: int) -> Path:
    """A run whose policy after RL is right on all but every fourth sample, before on every second one."""
    folder = RunFolder.open(path)
    metrics = [{"phase": "rl", "step": i, "eval/reward": r + offset} for i, r in enumerate((1.0, 2.0, 1.5))]
    folder.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in metrics))
    rows = {
        "ghar_sft": [row(i, i % 2 == 0) for i in range(24)],
        "ghar_rl": [row(i, (i + offset) % 4 > 0) for i in range(24)],
    }
    (path / "episodes").mkdir(exist_ok=True)
    for name, own in rows.items():
        (path / "episodes" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in own))
    f1 = {"ghar_sft": [0.6, 0.5, 0.7], "ghar_rl": [0.9, 0.8, 1.0]}
    policies = {name: {"when_f1_by_decision": found} for name, found in f1.items()}
    about = {"main": "ghar_rl", "before": "ghar_sft", "time": {"data": 1.0, "rl": 2.0}, "memory_gb": 1.5}
    (path / "summary.json").write_text(json.dumps({**about, "policies": policies, "ceilings": ceilings}))
    return path


def test_intervals_cover_seeds_and_patients(tmp_path: Path) -> None:
    found = gathered([finished(tmp_path / f"seed{i}", CEILINGS, offset=i) for i in range(3)])
    accuracy, gain = found["test accuracy, ghar_rl"], found["test accuracy, ghar_rl - ghar_sft"]
    assert accuracy["mean"] == pytest.approx(0.75) and accuracy["low"] < 0.75 < accuracy["high"]
    assert (accuracy["seeds"], accuracy["patients"], accuracy["samples"]) == (3, 12, 24)
    assert gain["mean"] == pytest.approx(0.25) and gain["low"] <= 0.25 <= gain["high"]
    by_seed = found["test accuracy of a seed, ghar_rl - ghar_sft"]
    assert by_seed["mean"] == pytest.approx(0.25) and by_seed["low"] <= by_seed["high"]
    assert found["accuracy as share of the ceiling"] == pytest.approx(0.75 / 0.8)
    assert found["F1 of when to retrieve by decision, ghar_rl"]["mean"] == 0.9
    assert found["validation reward, RL"]["mean"] == 3
    assert found["seconds in all"]["mean"] == 3


def test_rl_is_above_sft_by_what_was_not_chosen(tmp_path: Path) -> None:
    """A best update of noise is above the first one on the very numbers that chose it, under every seed."""
    runs = [finished(tmp_path / f"seed{i}", None, offset=0) for i in range(3)]
    rows = {"ghar_sft": [row(i, i % 2 == 0) for i in range(24)], "ghar_rl": [row(i, i % 2 > 0) for i in range(24)]}
    for run in runs:
        lines = [json.dumps({"phase": "rl", "step": i, "eval/reward": reward}) for i, reward in enumerate((1.0, 2.0))]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        for name, own in rows.items():
            (run / "episodes" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in own))
    found = gathered(runs)
    assert found["validation reward, RL"]["low"] > found["validation reward, SFT"]["high"]
    assert found["test reward, ghar_rl - ghar_sft"]["mean"] == 0 and found["rl above sft"] is False
    better = "".join(json.dumps(row(i, True)) + "\n" for i in range(24))
    for run in runs:
        (run / "episodes" / "ghar_rl.jsonl").write_text(better)
    assert gathered(runs)["rl above sft"] is True


def test_the_control_of_rl_stands_beside_it(tmp_path: Path) -> None:
    runs = [finished(tmp_path / f"seed{i}", CEILINGS, offset=i) for i in range(2)]
    controls = [finished(tmp_path / f"rft-seed{i}", CEILINGS, offset=i) for i in range(2)]
    for run in controls:
        rows = [row(i, i % 2 == 0) for i in range(24)]
        (run / "episodes" / "ghar_rl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    found = gathered(runs, {"rft": controls})
    assert found["test accuracy, rft"]["mean"] == pytest.approx(0.5)
    assert found["test accuracy, ghar_rl - rft"]["mean"] == pytest.approx(0.25)
    assert "test accuracy, rft" not in gathered(runs)


def test_accuracy_by_the_look_ups_that_a_sample_needs(tmp_path: Path) -> None:
    runs = [finished(tmp_path / f"seed{i}", CEILINGS, offset=0) for i in range(2)]
    for run in runs:
        rows = [row(i, i % 3 > 0) | {"look_ups": i % 3, "iterations": 1 + i % 3} for i in range(24)]
        (run / "episodes" / "ghar_rl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    found = gathered(runs)
    assert [found[f"test accuracy at {n} look-ups, ghar_rl"]["mean"] for n in (0, 1, 2)] == [0, 1, 1]
    assert found["test rounds, ghar_rl"]["mean"] == 2 and "test rounds, ghar_sft" not in found


def test_a_task_without_ceilings_has_all_other_numbers(tmp_path: Path) -> None:
    known = gathered([finished(tmp_path / "a", CEILINGS, offset=0)])
    found = gathered([finished(tmp_path / "b", None, offset=0)])
    missing = {"ceiling without retrieval", "ceiling with retrieval", "accuracy as share of the ceiling"}
    missing.add("ceiling with memory of the training patients")
    assert known.keys() - found.keys() == missing and not found.keys() - known.keys()


def test_a_baseline_has_no_reward(tmp_path: Path) -> None:
    run = finished(tmp_path / "a", None, offset=0)
    (run / "episodes" / "usual.jsonl").write_text(
        "".join(json.dumps({**row(i, i % 2 == 0), "turns": [], "reward": 0.0}) + "\n" for i in range(24))
    )
    summary = json.loads((run / "summary.json").read_text())
    summary["policies"]["usual"] = {}
    (run / "summary.json").write_text(json.dumps(summary))
    found = gathered([run])
    assert "test accuracy, usual" in found and "test reward, usual" not in found and "test reward, ghar_rl" in found
    assert found["test accuracy, ghar_rl - usual"]["mean"] == pytest.approx(0.25)


def test_more_patients_narrow_the_interval_less_than_their_stays_would() -> None:
    apart = [[row(2 * i, i % 3 > 0) for i in range(60)] for _ in range(2)]
    stays = [[one for one in own for _ in range(4)] for own in apart]
    widths = [found["high"] - found["low"] for found in (over_both(apart, "correct"), over_both(stays, "correct"))]
    assert widths[0] == pytest.approx(widths[1])


@pytest.mark.slow
def test_each_seed_has_a_base_model_of_its_own_over_the_same_patients(tmp_path: Path) -> None:
    configs = [load(command_of(seed, tmp_path, ["scale=demo"])[2:]) for seed in (0, 1, 2)]
    assert [config.seed for config in configs] == [base_seed(config) for config in configs] == [0, 1, 2]
    assert {config.data.world_seed for config in configs} == {0}
    other = command_of(1, tmp_path, ["+experiment=exprag_demo", "threads=1"])[2:]
    assert load(other).system.name == "exprag" and base_seed(load(other)) == 1  # another experiment, if it is named
    shared = load(["seed=3"])
    assert base_seed(shared) == shared.data.world_seed
    assert base_seed(replace(shared, data=replace(shared.data, world_seed=7))) == 7


def test_each_seed_has_a_world_of_its_own_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are made by a stub; patients are numbered alike in both worlds and are not the same."""
    started: list[Any] = []

    def start(command: list[str], **_: Any) -> None:
        config = load(command[2:])
        started.append(config)
        finished(Path(config.run_dir), CEILINGS, offset=config.seed)

    monkeypatch.setattr("benchmarks.learning.subprocess.run", start)
    monkeypatch.setattr("ghar.trainers.runs.fork_run.begin_from", lambda whole, config: None)
    found = learning(2, tmp_path, ["scale=demo"], 1.0, worlds=True)
    assert [Path(config.run_dir).name for config in started] == ["world0", "rft-world0", "world1", "rft-world1"]
    assert [config.data.world_seed for config in started] == [base_seed(config) for config in started] == [0, 0, 1, 1]
    of_one = gathered([tmp_path / "world0", tmp_path / "world1"])
    for name, patients in ((found, 24), (of_one, 12)):
        assert name["test accuracy, ghar_rl"]["patients"] == patients
    with pytest.raises(BadInput, match=f"data.root={tmp_path} has its own"):
        learning(2, tmp_path, [f"data.root={tmp_path}"], 1.0, worlds=True)
    with pytest.raises(BadInput, match=r"leave data\.world_seed=7 out"):
        learning(2, tmp_path, ["data.world_seed=7"], 1.0, worlds=True)


def test_the_second_control_has_as_many_trained_tokens_as_rl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are made by a stub: RL trains on 100 reply tokens an update, a round of the control on 40."""
    rounds: dict[str, int] = {}

    def start(command: list[str], **_: Any) -> None:
        config = load(command[2:])
        run = finished(Path(config.run_dir), CEILINGS, offset=config.seed)
        tokens = config.trainer.rl.updates * (40 if config.trainer.method == "rft" else 100)
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "trained_on": {"episode reply tokens": tokens}}))
        rounds[run.name] = config.trainer.rl.updates

    monkeypatch.setattr("benchmarks.learning.subprocess.run", start)
    monkeypatch.setattr("ghar.trainers.runs.fork_run.begin_from", lambda whole, config: None)
    found = learning(1, tmp_path, ["scale=demo", "trainer.rl.updates=9"], 1.0)
    assert rounds == {"seed0": 9, "rft-seed0": 9, "rft_tokens-seed0": 23}
    assert found["trained reply tokens, rft as share of RL's"] == pytest.approx(0.4)
    assert 1 <= found["trained reply tokens, rft_tokens as share of RL's"] < 1 + 40 / 900
    assert {"test accuracy, ghar_rl - rft", "test accuracy, ghar_rl - rft_tokens"} <= found.keys()
    assert not train(0, tmp_path / "seed0", ["scale=demo", "trainer.rl.updates=0"], 1.0)
    assert [*train(0, tmp_path / "seed0", ["scale=demo", "trainer.rl.updates=9"], 1.0, ["rft"])] == ["rft"]


def test_each_ablation_stands_beside_its_ceiling_and_what_it_lacks(tmp_path: Path) -> None:
    """GHAR is right on three of four samples, NI on two of four of the same ones."""
    runs = {}
    for name, right in (("ghar", lambda i: i % 4 > 0), ("ni", lambda i: i % 4 > 1)):
        runs[name] = [finished(tmp_path / f"{name}{seed}", CEILINGS | {"ni": 0.6}, offset=0) for seed in range(2)]
        for run in runs[name]:
            rows = [row(i, right(i)) | {"iterations": 2 if name == "ghar" else 1} for i in range(24)]
            (run / "episodes" / "ghar_rl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    found = table(runs)
    assert found["ghar"]["ceiling"] == 0.8 and found["ni"]["ceiling"] == 0.6
    assert found["ghar"]["rounds"]["mean"] == 2 and found["ni"]["rounds"]["mean"] == 1
    assert found["ni"]["ghar - it"]["mean"] == pytest.approx(0.25) and "ghar - it" not in found["ghar"]


def test_what_differs_in_rl_alone_goes_on_from_the_whole_system_s_warm_up(tmp_path: Path) -> None:
    whole, run = tmp_path / "seed0", tmp_path / "ns-seed0"
    (whole / "checkpoints" / "sft").mkdir(parents=True)
    (whole / "checkpoints" / "base").mkdir()
    (whole / "checkpoints" / "lessons.npz").write_bytes(b"lessons")
    (whole / "metrics.jsonl").write_text('{"step": 1, "phase": "sft"}\n{"step": 0, "phase": "rl"}\n')
    own = ["system.composition=separate", f"run_dir={run}"]
    go_on_from(whole, own)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["base", "lessons.npz", "sft"]
    assert (run / "metrics.jsonl").read_text() == '{"step": 1, "phase": "sft"}\n'
    assert open_run(load(own)) is not None  # a run of this configuration, to be gone on with
