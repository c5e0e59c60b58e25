"""Several processes as one run: the same numbers as one process, under every ZeRO stage, and no wait without an end."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from ghar.errors import BadInput
from ghar.trainers.runs import distributed
from ghar.trainers.runs.distributed import gather_rows, main_first, on_main, share, together
from tests.running import run_python

SCRIPT = Path(__file__).with_name("sharing.py")
pytestmark = pytest.mark.heavy
HAS_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
needs_deepspeed = pytest.mark.skipif(not HAS_DEEPSPEED, reason="deepspeed is not installed")
EVERY_STAGE = ("0:full", "1:lora", "2:full", "2offload:lora", "3:full", "3offload:lora")
PLAIN = ("sft:none:full", "best:none:lora", "killed:none:lora", "mappo:none:full", "rft:none:full", "critic:none:lora",
         "dynamic:none:full", "unwritten:none:full")  # fmt: skip
JOBS = {  # what two processes run
    "plain": PLAIN,
    **{what: tuple(f"{what}:{stage}" for stage in EVERY_STAGE) for what in ("mappo", "rft")},
    "sft": (*(f"sft:{stage}" for stage in EVERY_STAGE), "killed:2:full", "killed:3:lora", "best:2:lora", "best:3:full"),
    "critic": tuple(f"critic:{stage}" for stage in ("0:full", "1:full", "2:lora", "2offload:full", "3:full")),
    "fine": tuple(f"fine:{stage}:full" for stage in (1, 2, 3)),
    "changed": tuple(f"changed:{stage}:full" for stage in range(4)),
    "summed": tuple(f"summed:{stage}:full" for stage in (1, 2, "2offload", 3)),
    "back": tuple(f"back_gone_on:{stage}" for stage in ("none:lora", "0:full", "1:full", "2:lora", "2offload:full",
                                                        "3:full", "3:lora")),
}  # fmt: skip
Numbers = dict[str, dict[str, float]]


def launch(processes: int, out: Path, *jobs: str) -> subprocess.CompletedProcess[str]:
    return run_python(SCRIPT, out, *jobs, processes=processes)


def numbers(processes: int, out: Path, *jobs: str) -> Numbers:
    """What each job says, as {path in its result: number}."""
    done = launch(processes, out, *jobs)
    assert done.returncode == 0, done.stderr[-4000:]
    return {job: dict(leaves(found)) for job, found in json.loads(out.read_text()).items()}


def leaves(value: Any, name: str = "") -> Any:
    """Nested lists and objects as (path, number)."""
    if isinstance(value, int | float):
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(inner, f"{name}/{key}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    """Numbers of one process without DeepSpeed."""
    what = ("sft", "best", "six", "mappo", "rft", "critic", "dynamic")
    jobs = [f"{name}:none:{finetune}" for name in what for finetune in ("full", "lora")]
    return numbers(1, tmp_path_factory.mktemp("alone") / "out.json", *jobs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes of one start find the checkpoints of another."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def three(folder: Path) -> tuple[Numbers, Numbers]:
    """Numbers of jobs that two processes began, and as three went on with them; three also begin those of "back"."""
    jobs = [
        f":{job}" for job in ("none:full", "0:lora", "1:full", "2:lora", "2offload:full", "3:full", "3offload:lora")
    ]
    critics = [f"critic_:{job}" for job in ("none:full", "0:full", "1:full", "2:lora", "2offload:full", "3:full")]
    masters = [f"{what}_:{job}" for what in ("masters", "narrow") for job in ("1:full", "2:lora", "3:full")]
    warm = [f"sft_:{job}" for job in ("none:lora", "0:full", "1:full", "2:lora", "2offload:full", "3:full", "3:lora")]
    all_jobs = [*jobs, *critics, *masters, *warm]
    begun = numbers(2, folder / "begun.json", *(job.replace(":", "begun:", 1) for job in all_jobs))
    gone_on = [job.replace(":", "gone_on:", 1) for job in all_jobs]
    back = [job.replace("gone_on", "begun") for job in JOBS["back"]]
    found = numbers(3, folder / "three.json", *gone_on, *back)
    return begun, {job: found[job] for job in gone_on}


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, folder: Path) -> Callable[[str], Numbers]:
    """Numbers of two processes for a name of `JOBS`. All run in one start: libraries take longer to load than most."""
    if HAS_DEEPSPEED:
        request.getfixturevalue("three")
    jobs = [job for name, own in JOBS.items() if name == "plain" or HAS_DEEPSPEED for job in own]
    found = numbers(2, folder / "both.json", *jobs)
    return lambda name: {job: found[job] for job in JOBS[name]}


def same(found: Numbers, alone: Numbers) -> None:
    """Whether every job says what one process without DeepSpeed does."""
    for job, values in found.items():
        what, _, finetune = job.split(":")
        whole = {"killed": "sft", "back_gone_on": "six"}.get(what, what)
        expected = alone[f"{whole}:none:{finetune}"] if what != "unwritten" else {}
        assert values.keys() == expected.keys()
        for name, value in expected.items():
            assert values[name] == pytest.approx(value, rel=2e-3, abs=2e-4), (job, name)


def test_two_processes_without_deepspeed_train_like_one(both: Callable[[str], Numbers], alone: Numbers):
    same(both("plain"), alone)


@needs_deepspeed
@pytest.mark.parametrize("what", ["sft", "mappo", "rft"])
def test_two_processes_under_zero_train_like_one(both: Callable[[str], Numbers], alone: Numbers, what: str):
    """Every stage, LoRA and full, with recomputed activations; SFT also with validation, and killed and resumed."""
    same(both(what), alone)


@needs_deepspeed
def test_three_processes_go_on_from_a_checkpoint_of_two(three: tuple[Numbers, Numbers], alone: Numbers):
    """Every stage, LoRA and full, of SFT, RL and a critic of its own; in 16 bits the float32 masters of SFT and RL, to
    the last bit; for other numbers see test_resharding.py."""
    begun, found = three
    for job, values in found.items():
        what, _, finetune = job.split(":")
        assert values
        if what in ("masters_gone_on", "narrow_gone_on"):
            assert values == begun[job.replace("gone_on", "begun")] and values["/lost"] > 0, job
            continue
        whole = {"critic_gone_on": "critic", "sft_gone_on": "six"}.get(what, "mappo")
        expected = alone[f"{whole}:none:{finetune}"]
        for name, value in values.items():
            wanted = expected[name.replace("/report/", "/reports/2/").replace("/losses/0", "/losses/2")]
            assert value == pytest.approx(wanted, rel=2e-3, abs=2e-4), (job, name)


@needs_deepspeed
def test_two_processes_go_on_with_an_sft_of_three(both: Callable[[str], Numbers], alone: Numbers):
    same(both("back"), alone)


@needs_deepspeed
def test_a_critic_of_its_own_is_sharded_as_the_policy_is(both: Callable[[str], Numbers], alone: Numbers):
    """Unclipped losses and values of one process without DeepSpeed, also after a checkpoint."""
    same(both("critic"), alone)


@needs_deepspeed
def test_a_critic_in_16_bits_takes_the_steps_of_a_plain_float32_one(both: Callable[[str], Numbers]):
    for stage, told in both("fine").items():
        assert told["/off"] < 0.2 and told["/stuck"] > 0.7, (stage, told)


@needs_deepspeed
def test_what_is_changed_in_16_bits_outlives_the_next_step(both: Callable[[str], Numbers]):
    for stage, biases in both("changed").items():
        assert biases and all(2.9 < bias < 3.1 for bias in biases.values()), stage


@needs_deepspeed
def test_gradients_in_16_bits_add_up_in_float32(both: Callable[[str], Numbers]):
    """The direct sum, of parts a sixth of which would vanish in a sum of 16 bits."""
    for stage, off in both("summed").items():
        assert off["/off"] < 0.01, (stage, off)


def test_a_killed_process_ends_the_others(tmp_path: Path):
    done = launch(2, tmp_path / "out.json", "die")
    assert done.returncode != 0 and not (tmp_path / "out.json").exists()
    assert "Signal 9 (SIGKILL)" in done.stderr


def test_alone_everything_is_what_it_was(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with together(None):
        assert "MASTER_PORT" not in os.environ and distributed.world() == 1
        assert share([1, 2, 3]) == [1, 2, 3] and gather_rows([4]) == [4]
        assert on_main(lambda: 5) == 5 and main_first(lambda: 6) == 6


def test_a_single_worker_of_ray_train_has_no_group(monkeypatch):
    """Ray makes one for it, and vLLM would take its presence for torchrun's. vLLM's own is left alone."""
    ended: list[str] = []
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: ended.append("group"))
    monkeypatch.setenv("WORLD_SIZE", "1")
    with together(None):
        assert not ended
    monkeypatch.setenv("RANK", "0")
    with together(None):
        assert ended == ["group"] and "RANK" not in os.environ


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_shares_in_order_of_rank_are_the_whole(monkeypatch, count):
    monkeypatch.setattr(distributed, "world", lambda: 3)
    parts = []
    for number in range(3):
        monkeypatch.setattr(distributed, "rank", lambda number=number: number)
        parts.append(share(list(range(count))))
    assert [item for part in parts for item in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_deepspeed_without_torchrun_is_refused(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(BadInput, match="needs torchrun"), together(2):
        pass
