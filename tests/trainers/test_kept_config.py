"""Configurations of earlier versions in the keys of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ghar.configure import build
from ghar.envs.system import settings_of
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.memory import fitted
from ghar.trainers.runs.kept_config import LENGTH, kept_config, upgraded
from ghar.trainers.runs.resume import as_kept, as_yaml, open_run, plain

SHARES = {"past": 0.25, "reports": 0.2, "chained": 0.33, "slopes": 0.33, "two_steps": 0.25}


def kept(*overrides: str) -> dict[str, Any]:
    return yaml.safe_load(as_yaml(load(list(overrides))))


def as_of_28c2b18(values: dict[str, Any]) -> dict[str, Any]:
    """The same run as that commit kept it: adapters' counterpart, a readmission from admission to admission, ZeRO-2."""
    rl = values["trainer"]["rl"]
    del values["data"]["mix"], rl["as_printed"], values["deepspeed"]["zero"], values["engine"]["gpus"]
    del values["env"]["reply_tokens"]
    values["data"] |= SHARES
    values["task"] |= {"since": "admission", "anchor": "discharge", "answers": None}
    values["model"] |= {"finetune": "full", "lora_rank": 8, "heads": 2, "kind": "demo"}
    rl |= {"kl_in": "reward", "kl_estimator": "k3", "ratio": "reference", "critic_target": "returns",
           "lr_warmup": 0, "curriculum": 0.0}  # fmt: skip
    values["trainer"]["base"]["lr"] = 4e-3
    values["deepspeed"] |= {"stage": 2, "offload": True, "auto": False}
    values["engine"]["device"], values["retriever"]["batch"] = None, 64
    return values


def test_a_run_of_before_is_the_same_run_today() -> None:
    today = ["data=demo_four", "task=read", "task.anchor=admission", "model.lora_rank=null", "deepspeed=zero2_offload",
             "trainer.rl.kl_estimator=reward", "trainer.rl.as_printed=[eq16]", "trainer.rl.kl=0.1"]  # fmt: skip
    values = kept(*today)
    assert upgraded(values) == values
    made = upgraded(as_of_28c2b18(kept(*today)))
    assert made == values
    assert plain(build(made, settings_of("ghar"))) == plain(load(today))


def test_a_run_does_not_go_on_under_another_schedule() -> None:
    """A key that is gone counts while the run is trained, where it had another value than everyone has today."""
    values = as_of_28c2b18(kept())
    values["trainer"]["rl"]["lr_warmup"] = 5
    assert "lr_warmup" not in upgraded(values)["trainer"]["rl"]
    rl = upgraded(values, going_on=True)["trainer"]["rl"]
    assert rl["lr_warmup"] == 5 and "curriculum" not in rl


@pytest.mark.parametrize(("normalise", "goes_on"), [("range", True), ("running", True), ("none", False)])
def test_a_half_trained_run_goes_on_without_a_length_that_is_cancelled(
    normalise: str, goes_on: bool, tmp_path: Path
) -> None:
    words = [f"system.normalise={normalise}", f"run_dir={tmp_path}"]
    values = kept(*words)
    assert values["system"]["length"] == LENGTH
    values["system"]["length"] = 5
    RunFolder.open(tmp_path).write_config(yaml.safe_dump(values))
    if goes_on:
        assert open_run(load(words)) == (RunFolder(tmp_path), True)
    else:
        with pytest.raises(BadInput, match=r"system\.length is 5 there and 3 here"):
            open_run(load(words))


def test_an_exprag_run_from_before_label_only_sft_goes_on(tmp_path: Path) -> None:
    words = ["system=exprag", "task=los", f"run_dir={tmp_path}"]
    values = kept(*words)
    del values["system"]["label_epochs"]
    assert upgraded(values) == kept(*words)
    RunFolder.open(tmp_path).write_config(yaml.safe_dump(values))
    assert open_run(load(words)) == (RunFolder(tmp_path), True)


@pytest.mark.parametrize("asked", ["auto", "zero3"])
def test_a_run_keeps_its_way_of_sharing_out_where_it_is_left_open(asked: str, tmp_path: Path) -> None:
    words = [f"run_dir={tmp_path}", "deepspeed=auto", f"deepspeed.zero={asked}"]
    assert as_kept(load(words)) == load(words)  # a new run
    RunFolder.open(tmp_path).write_config(as_yaml(load([*words, "deepspeed.zero=zero2"])))
    found = as_kept(load(words))
    assert found.deepspeed.zero == ("zero2" if asked == "auto" else asked)
    assert fitted(found, 8) == found  # in any number of processes
    if asked == "auto":
        assert open_run(found) == (RunFolder(tmp_path), True)


@pytest.mark.parametrize("text", ["trainer: x\n", "task: 3\n", "data: {two_steps: 0.1}\n"])
def test_a_damaged_one_is_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(BadInput, match=r"config\.yaml is damaged"):
        kept_config(tmp_path)


def test_answers_in_the_configuration_are_named() -> None:
    values = as_of_28c2b18(kept())
    values["task"]["answers"] = ["no", "yes"]
    with pytest.raises(BadInput, match=r"task\.answers, which is gone"):
        upgraded(values)


def test_shares_without_a_name_are_refused() -> None:
    values = as_of_28c2b18(kept())
    values["data"]["past"] = 0.9
    with pytest.raises(BadInput, match=r"shares that data\.mix has no name for"):
        upgraded(values)
