"""Several processes as one run: the same numbers as one process, under every ZeRO stage, and no wait without an end."""

from __future__ import annotations

import importlib.util
import json
import os
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
         "critic:none:full", "dynamic:none:full", "unwritten:none:full")  # fmt: skip
JOBS = {  # what two processes run
    "plain": PLAIN,
    **{what: tuple(f"{what}:{stage}" for stage in EVERY_STAGE) for what in ("mappo", "rft")},
    "sft": (*(f"sft:{stage}" for stage in EVERY_STAGE), "killed:2:full", "killed:3:lora", "best:2:lora", "best:3:full"),
    "critic": tuple(f"critic:{stage}" for stage in ("0:full", "1:full", "2:lora", "2offload:full", "3:full")),
    "fine": tuple(f"fine:{stage}:full" for stage in (1, 2, 3)),
    "changed": tuple(f"changed:{stage}:full" for stage in range(4)),
    "summed": tuple(f"summed:{stage}:full" for stage in (1, 2, "2offload", 3)),
}  # fmt: skip
ALONE = (  # what one process runs, without DeepSpeed
    *(f"{what}:none:full" for what in ("sft", "best", "six", "mappo", "rft", "critic", "dynamic")),
    *(f"{what}:none:lora" for what in ("sft", "best", "six", "mappo", "rft", "critic")),
)
# What two processes begin and three go on with. Policies that "mappo" trains are begun by it, critics by "critic".
POLICIES = ("none:full", "0:lora", "1:full", "2:lora", "2offload:full", "3:full", "3offload:lora")
CRITICS = ("none:full", "0:full", "1:full", "2:lora", "2offload:full", "3:full")
NARROW = ("1:full", "2:lora", "3:full")
WARM = ("none:lora", "0:full", "1:full", "2:lora", "2offload:full", "3:full", "3:lora")  # of SFT
BEGUN = (
    *(f"begun:{one}" for one in POLICIES if f"mappo:{one}" not in (*PLAIN, *JOBS["mappo"])),
    *(f"{what}_begun:{one}" for what in ("masters", "narrow") for one in NARROW),
    *(f"sft_begun:{one}" for one in WARM),
)
GONE_ON = (
    *(f"gone_on:{one}" for one in POLICIES), *(f"critic_gone_on:{one}" for one in CRITICS),
    *(f"{what}_gone_on:{one}" for what in ("masters", "narrow") for one in NARROW),
    *(f"sft_gone_on:{one}" for one in WARM),
)  # fmt: skip
Numbers = dict[str, dict[str, float]]


def plan() -> dict[str, tuple[int, list[str]]]:
    """What `SCRIPT` runs: processes and jobs of each start, those without DeepSpeed first: after it accelerate trains
    with DeepSpeed whatever follows."""
    if not HAS_DEEPSPEED:
        return {"alone": (1, [*ALONE]), "two": (2, [*PLAIN])}
    starts = {
        "alone": (1, ALONE),
        "two": (2, (*(job for jobs in JOBS.values() for job in jobs), *BEGUN)),
        "three": (3, (*GONE_ON, *(f"back_begun:{one}" for one in WARM))),
        "back": (2, tuple(f"back_gone_on:{one}" for one in WARM)),
    }
    return {name: (count, sorted(jobs, key=lambda job: ":none:" not in job)) for name, (count, jobs) in starts.items()}


def leaves(value: Any, name: str = "") -> Any:
    """Nested lists and objects as (path, number)."""
    if isinstance(value, int | float):
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(inner, f"{name}/{key}")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Numbers]:
    """Numbers of each job of each start, as {path in its result: number}."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "plan.json").write_text(json.dumps(plan()))
    done = run_python(SCRIPT, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    written = {name: json.loads((folder / f"{name}.json").read_text()) for name in plan()}
    return {name: {job: dict(leaves(result)) for job, result in jobs.items()} for name, jobs in written.items()}


@pytest.fixture(scope="module")
def alone(results: dict[str, Numbers]) -> Numbers:
    """Numbers of one process without DeepSpeed."""
    return results["alone"]


@pytest.fixture(scope="module")
def both(results: dict[str, Numbers]) -> Callable[[str], Numbers]:
    """Numbers of two processes for a name of `JOBS`."""
    return lambda name: {job: results["two"][job] for job in JOBS[name]}


def same(numbers: Numbers, alone: Numbers) -> None:
    """Whether every job says what one process without DeepSpeed does."""
    for job, values in numbers.items():
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
def test_three_processes_go_on_from_a_checkpoint_of_two(results: dict[str, Numbers], alone: Numbers):
    """Every stage, LoRA and full, of SFT, RL and a critic of its own; in 16 bits the float32 masters of SFT and RL, to
    the last bit; for other numbers see test_resharding.py."""
    for job in GONE_ON:
        what, _, finetune = job.split(":")
        values = results["three"][job]
        assert values
        if what in ("masters_gone_on", "narrow_gone_on"):
            begun = results["two"][job.replace("gone_on", "begun")]
            assert values == begun and values["/lost"] > 0, job
            continue
        whole = {"critic_gone_on": "critic", "sft_gone_on": "six"}.get(what, "mappo")
        expected = alone[f"{whole}:none:{finetune}"]
        for name, value in values.items():
            wanted = expected[name.replace("/report/", "/reports/2/").replace("/losses/0", "/losses/2")]
            assert value == pytest.approx(wanted, rel=2e-3, abs=2e-4), (job, name)


@needs_deepspeed
def test_two_processes_go_on_with_an_sft_of_three(results: dict[str, Numbers], alone: Numbers):
    same(results["back"], alone)


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


def test_a_killed_process_ends_the_others():
    done = run_python(SCRIPT, "die", processes=2)
    assert done.returncode != 0
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
